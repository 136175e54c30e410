//! Reads what shows that a server has lost writes: the birth of the store, and the numbers of the last requests of sessions.

use redis::Value;

use super::inner::Inner;
use super::reply;
use super::scripts::Arguments;
use super::tail::LastRequest;
use crate::durable::failure::Failure;
use crate::durable::store::Rewind;

/// Returns the arguments of the script `last_numbers`.
pub(super) fn arguments(sessions: &[LastRequest]) -> Arguments {
    let mut arguments = Arguments::default();
    arguments.push_number(sessions.len());
    sessions
        .iter()
        .for_each(|it| arguments.push_number(it.session));
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

/// Reports it if the store of a partition is another one than before.
pub(super) async fn check_birth(inner: &Inner, partition: usize) -> Result<(), Failure> {
    let script = &inner.scripts.last_numbers;
    let answer = inner.run(script, partition, arguments(&[])).await?;
    if read(inner, partition, answer)?.is_none() {
        inner.report(Rewind {
            lost: inner.tail.clear(partition) as u64,
            is_replaced: true,
            ..Rewind::default()
        });
    }
    Ok(())
}
