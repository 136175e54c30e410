//! Maintains a store.

use std::sync::Arc;
use std::time::Duration;

use super::inner::Inner;
use super::reply::Reader;
use super::scripts::Arguments;
use super::{notes, routing, schedules};
use crate::durable::clock::millis;
use crate::durable::failure::Failure;
use crate::sync::lock;

/// The outcome of a pass over a partition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// The pass was skipped because a recent pass left nothing to do.
    Skipped,
    Done,
    /// There is more to do.
    More,
}

/// Removes about `budget` expired rows, and repairs damage. Skips each partition whose last complete pass was less than `interval` ago.
/// Returns `true` if there is more to do.
pub(super) async fn maintain(
    inner: &Arc<Inner>,
    interval: Duration,
    budget: usize,
) -> Result<bool, Failure> {
    let (mut passes, mut skipped) = (Vec::new(), None);
    let budget = budget.div_ceil(inner.partitions.count());
    for partition in inner.partitions.all() {
        match maintain_in(inner, partition, interval, budget).await {
            Ok(pass) => passes.push(pass),
            Err(failure) if inner.skips(&failure) => skipped = Some(failure),
            Err(failure) => return Err(failure),
        }
    }
    if let Some(failure) = skipped {
        return Err(failure);
    }
    let more = passes.contains(&Pass::More);
    if !more && passes.len() > 1 && passes.contains(&Pass::Done) {
        // If this fails, a later pass repeats it.
        schedules::remove_duplicates(inner).await.ok();
    }
    Ok(more)
}

async fn maintain_in(
    inner: &Arc<Inner>,
    partition: usize,
    interval: Duration,
    budget: usize,
) -> Result<Pass, Failure> {
    let mut arguments = Arguments::default();
    arguments.push_number(budget);
    arguments.push_number(u8::from(inner.allow_eviction));
    arguments.push_number(inner.partitions.count());
    arguments.push_number(millis(interval));
    inner.types.forget(partition);
    let answer = inner.run_part(&inner.scripts.maintain, partition, arguments);
    let mut parts = Reader::new(answer.await?)?;
    let pass = match parts.number()? {
        ..0 => Pass::Skipped,
        0 => Pass::Done,
        _ => Pass::More,
    };
    let sets = parts.list()?.rest(|set| routing::set(&set.bytes()?))?;
    let damaged_rows = u64::try_from(parts.number()?).unwrap_or_default();
    lock(&inner.damage)[partition] = (damaged_rows, parts.text()?);
    // If one of these requests fails, a later pass repeats it.
    if parts.number()? != 0 {
        routing::repair(inner, partition).await.ok();
    }
    if parts.number()? != 0 {
        notes::relay(inner, partition);
    }
    for set in sets {
        routing::remove(inner, partition, set).await.ok();
    }
    Ok(pass)
}

/// Returns the number of rows that were recently found to be damaged, and a description of the last of them.
pub(super) fn damage(inner: &Inner) -> Option<(u64, String)> {
    let damage = lock(&inner.damage);
    let (_, last) = damage.iter().rfind(|(rows, _)| *rows > 0)?;
    Some((damage.iter().map(|(rows, _)| rows).sum(), last.clone()))
}
