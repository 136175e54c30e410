//! Reads and changes how long, and how many, ended tasks are kept.

use std::time::Duration;

use redis::Value;

use super::inner::{Inner, after_others};
use super::reply::Reader;
use super::scripts::Arguments;
use crate::durable::Retention;
use crate::durable::clock::millis;
use crate::durable::failure::Failure;

/// The partition that is written last. So if it has a retention, all have it.
const LAST: usize = 0;

pub(super) async fn read(inner: &Inner) -> Result<Retention, Failure> {
    let mut answer = Reader::new(run(inner, LAST, "read", []).await?)?;
    let mut number = || Ok::<_, Failure>(answer.number()?.unsigned_abs());
    let (dead_for, dead_most, kept_most) = (number()?, number()?, number()?);
    Ok(Retention {
        dead_for: Duration::from_millis(dead_for),
        dead_most,
        kept_most: kept_most.checked_sub(1),
    })
}

/// Changes the retention in all partitions. Each of them has the maxima for itself.
pub(super) async fn change(inner: &Inner, retention: Retention) -> Result<(), Failure> {
    let numbers = [
        millis(retention.dead_for),
        retention.dead_most,
        retention.kept_most.map_or(0, |most| most + 1),
    ];
    for (sent, partition) in inner.partitions.all().rev().enumerate() {
        let answer = run(inner, partition, "set", numbers).await;
        answer.map_err(|failure| after_others(failure, sent))?;
    }
    Ok(())
}

async fn run(
    inner: &Inner,
    partition: usize,
    what: &str,
    numbers: impl IntoIterator<Item = u64>,
) -> Result<Value, Failure> {
    let mut arguments = Arguments::default();
    arguments.push(what);
    for number in numbers {
        arguments.push_number(number);
    }
    let script = &inner.scripts.change_retention;
    inner.run(script, partition, arguments).await
}
