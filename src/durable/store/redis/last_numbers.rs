//! Reads what shows that a server has lost writes: the birth of the store, and the numbers of the last requests of sessions.

use redis::Value;

use super::inner::Inner;
use super::reply;
use super::scripts::Arguments;
use crate::durable::failure::Failure;
use crate::durable::store::{Rewind, SessionId};

/// Returns the arguments of the script `last_numbers`.
pub(super) fn arguments(sessions: &[SessionId]) -> Arguments {
    let mut arguments = Arguments::default();
    arguments.push_number(sessions.len());
    sessions
        .iter()
        .for_each(|&session| arguments.push_number(session));
    arguments
}

/// Returns the last numbers of sessions, or `None` if the store of the partition is another one than before.
pub(super) fn read(
    inner: &Inner,
    partition: usize,
    answer: Value,
) -> Result<Option<Vec<i64>>, Failure> {
    let mut parts = reply::Reader::new(answer)?;
    let birth = parts.bytes()?;
    let numbers = parts.rest(reply::Reader::number)?;
    Ok((!inner.births.replace(partition, birth)).then_some(numbers))
}

/// Learns which store there is in partitions, and reports it if some of them were replaced.
pub(super) async fn check_births(
    inner: &Inner,
    partitions: impl IntoIterator<Item = usize>,
) -> Result<(), Failure> {
    let (mut found, mut checked) = (Rewind::default(), Ok(()));
    for partition in partitions {
        checked = check_birth(inner, partition, &mut found).await;
        if checked.is_err() {
            break;
        }
    }
    inner.report(found);
    checked
}

async fn check_birth(inner: &Inner, partition: usize, found: &mut Rewind) -> Result<(), Failure> {
    let script = &inner.scripts.last_numbers;
    let answer = inner.run(script, partition, arguments(&[])).await?;
    if read(inner, partition, answer)?.is_none() {
        found.is_replaced = true;
        found.lost += inner.tail.clear(partition) as u64;
    }
    Ok(())
}
