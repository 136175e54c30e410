//! Stores and reads the progress of tasks.

use redis::Value;

use super::error::unexpected_answer;
use super::inner::{Inner, after_others};
use super::reply::{self, Reader};
use super::scripts::Arguments;
use super::{entry, partitions};
use crate::durable::TaskId;
use crate::durable::failure::Failure;
use crate::durable::store::{Progress, ProgressReport, ProgressState};

/// Stores the progress of running tasks. Returns the tasks that are not held under the epochs of their reports.
pub(super) async fn report(
    inner: &Inner,
    reports: Vec<ProgressReport>,
) -> Result<Vec<TaskId>, Failure> {
    let (mut refused, mut sent) = (Vec::new(), 0);
    for (partition, reports) in inner.partitions.split(reports, |report| report.id) {
        let ids: Vec<_> = reports.iter().map(|report| report.id).collect();
        let mut arguments = Arguments::default();
        arguments.push_ids(&ids);
        reports
            .iter()
            .for_each(|it| arguments.push(row(&it.progress)));
        let script = &inner.scripts.report_progress;
        let answer = inner.run(script, partition, arguments).await;
        let positions = answer.and_then(positions);
        let positions = positions.map_err(|failure| after_others(failure, sent))?;
        refused.extend(
            positions
                .iter()
                .filter_map(|&position| position.checked_sub(1).and_then(|at| ids.get(at))),
        );
        sent += 1;
    }
    Ok(refused)
}

/// Returns a row of `progress`: see `lua/layout.lua`.
fn row(progress: &Progress) -> Vec<u8> {
    let mut row = reply::epoch_text(progress.epoch).into_bytes();
    row.extend(&progress.number.to_be_bytes()[2..]);
    row.extend(&progress.bytes);
    row
}

/// Reads the positions of the refused reports, from 1.
fn positions(answer: Value) -> Result<Vec<usize>, Failure> {
    Reader::new(answer)?.rest(|part| Ok(part.number()?.try_into().unwrap_or_default()))
}

/// Returns the progress of tasks, in the order of the ids.
pub(super) async fn read(inner: &Inner, ids: &[TaskId]) -> Result<Vec<ProgressState>, Failure> {
    let mut states = vec![ProgressState::Ended; ids.len()];
    let indexes: Vec<_> = (0..ids.len()).collect();
    for (partition, indexes) in inner.partitions.split(indexes, |&index| ids[index]) {
        let requested: Vec<_> = indexes.iter().map(|&index| ids[index]).collect();
        let mut arguments = Arguments::default();
        arguments.push_ids(&requested);
        let script = &inner.scripts.read_progress;
        let found = states_in(inner.run(script, partition, arguments).await?, partition)?;
        if found.len() != indexes.len() {
            return Err(unexpected_answer(&Value::Nil));
        }
        for (index, state) in indexes.into_iter().zip(found) {
            states[index] = state;
        }
    }
    Ok(states)
}

fn states_in(answer: Value, partition: usize) -> Result<Vec<ProgressState>, Failure> {
    Reader::new(answer)?.rest(|part| {
        let row = part.optional_bytes()?;
        Ok(row.map_or(ProgressState::Ended, |row| {
            ProgressState::Alive(progress_in(&row, partition))
        }))
    })
}

/// Reads a row of `progress`. A row that cannot be read counts as missing: the next report replaces it.
pub(super) fn progress_in(row: &[u8], partition: usize) -> Option<Progress> {
    let (epoch, rest) = row.split_at_checked(16)?;
    let (number, bytes) = rest.split_at_checked(6)?;
    Some(Progress {
        epoch: partitions::whole(reply::epoch_in_partition(epoch)?, partition),
        number: entry::number(number),
        bytes: bytes.to_vec(),
    })
}
