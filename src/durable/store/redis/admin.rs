//! Requests the status of tasks, cancels and counts tasks, and manages dead letters.

use futures_util::future::join_all;

use super::batches::in_batches;
use super::error::unexpected_answer;
use super::inner::Inner;
use super::scripts::Arguments;
use super::{last_numbers, reply};
use crate::durable::failure::Failure;
use crate::durable::store::{
    ChangeAnswer, DeadPayload, MAX_BATCH_BYTES, MAX_BATCH_TASKS, TaskState,
};
use crate::durable::{AttemptError, Counts, DeadFilter, DeadLetter, TaskId};

/// The number of dead letters that one request reads: their errors may be long.
const DEAD_LETTERS_PER_READ: usize = 100;

/// Returns the states of tasks, in the order of their ids. Fails only if no partition answers. Otherwise, a task in a partition that does
/// not answer counts as running, so that its handle waits on. No partition waits for another.
pub(super) async fn status(inner: &Inner, ids: &[TaskId]) -> Result<Vec<TaskState>, Failure> {
    let mut states = vec![TaskState::Running; ids.len()];
    let indexes: Vec<_> = (0..ids.len()).collect();
    let parts = inner.partitions.split(indexes, |&index| ids[index]);
    let parts = parts.into_iter();
    let parts = join_all(parts.map(|(partition, indexes)| part_of(inner, ids, partition, indexes)));
    let (mut answers, mut unreachable, mut suspects) = (0, None, Vec::new());
    for part in parts.await {
        let found = match part.states {
            Ok(found) => found,
            Err(failure) if inner.skips(&failure) => {
                unreachable = Some(failure);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        answers += 1;
        // The tasks may be gone because the server was emptied, which no connection notices.
        if found.contains(&TaskState::Absent) && !inner.tail.sessions(part.partition).is_empty() {
            suspects.push(part.partition);
        }
        for (index, state) in part.indexes.into_iter().zip(found) {
            states[index] = state;
        }
    }
    last_numbers::check_births(inner, suspects).await?;
    match unreachable {
        Some(failure) if answers == 0 => Err(failure),
        _ => Ok(states),
    }
}

/// The answer of a partition to a request for the states of tasks.
struct StatesOfPartition {
    partition: usize,
    /// The positions of the tasks in the request.
    indexes: Vec<usize>,
    states: Result<Vec<TaskState>, Failure>,
}

async fn part_of(
    inner: &Inner,
    ids: &[TaskId],
    partition: usize,
    indexes: Vec<usize>,
) -> StatesOfPartition {
    let requested: Vec<_> = indexes.iter().map(|&index| ids[index]).collect();
    StatesOfPartition {
        states: status_in(inner, partition, &requested).await,
        partition,
        indexes,
    }
}

/// Returns the states of tasks of a partition. Large outputs may need several requests.
async fn status_in(
    inner: &Inner,
    partition: usize,
    ids: &[TaskId],
) -> Result<Vec<TaskState>, Failure> {
    let mut states = Vec::with_capacity(ids.len());
    while states.len() < ids.len() {
        let rest = &ids[states.len()..];
        let mut arguments = Arguments::default();
        arguments.push(&*inner.client_id);
        arguments.push_number(u8::from(inner.nodes.is_subscribed(partition)));
        arguments.push_number(MAX_BATCH_BYTES);
        arguments.push_ids(&rest[..rest.len().min(MAX_BATCH_TASKS)]);
        let answer = inner.run_part(&inner.scripts.status, partition, arguments);
        let more = reply::states(answer.await?)?;
        if more.is_empty() {
            return Err(unexpected_answer(&redis::Value::Nil));
        }
        states.extend(more);
    }
    Ok(states)
}

/// Returns the errors of a task.
pub(super) async fn errors(inner: &Inner, id: TaskId) -> Result<Vec<AttemptError>, Failure> {
    let mut errors = Vec::new();
    for (partition, ids) in inner.partitions.split(vec![id], |&id| id) {
        for id in ids {
            let mut arguments = Arguments::default();
            arguments.push(id.to_bytes());
            let answer = inner.run(&inner.scripts.errors, partition, arguments);
            errors.extend(reply::errors(answer.await?)?);
        }
    }
    Ok(errors)
}

/// Cancels tasks. Returns the number of those that were alive.
pub(super) async fn cancel(inner: &Inner, ids: &[TaskId]) -> Result<u64, Failure> {
    let answers = in_batches(inner, &inner.scripts.cancel, None, ids).await?;
    Ok(changed_in(&answers))
}

/// Returns the dead letters that match, the newest first.
pub(super) async fn dead_letters(
    inner: &Inner,
    filter: &DeadFilter,
    limit: usize,
) -> Result<Vec<DeadLetter>, Failure> {
    let mut found = match &filter.ids {
        Some(ids) => read_by_id(inner, ids).await?,
        None => read_all(inner, filter, limit).await?,
    };
    found.retain(|it| matches(filter, it));
    found.sort_by_key(|it| (it.age, std::cmp::Reverse(it.id)));
    found.dedup_by_key(|it| it.id);
    found.truncate(limit);
    Ok(found)
}

async fn read_by_id(inner: &Inner, ids: &[TaskId]) -> Result<Vec<DeadLetter>, Failure> {
    let mut found = Vec::new();
    for (partition, ids) in inner.partitions.split(ids.to_vec(), |&id| id) {
        for ids in ids.chunks(DEAD_LETTERS_PER_READ) {
            let mut arguments = Arguments::default();
            arguments.push_number(-1);
            arguments.push_ids(ids);
            found.extend(read(inner, partition, arguments).await?);
        }
    }
    Ok(found)
}

async fn read_all(
    inner: &Inner,
    filter: &DeadFilter,
    limit: usize,
) -> Result<Vec<DeadLetter>, Failure> {
    let mut all = Vec::new();
    for partition in inner.partitions.all() {
        let (mut found, mut offset) = (Vec::new(), 0);
        while found.len() < limit {
            let mut arguments = Arguments::default();
            arguments.push_number(offset);
            arguments.push_number(DEAD_LETTERS_PER_READ);
            let page = read(inner, partition, arguments).await?;
            offset += DEAD_LETTERS_PER_READ;
            let is_last = page.len() < DEAD_LETTERS_PER_READ;
            found.extend(page.into_iter().filter(|it| matches(filter, it)));
            if is_last {
                break;
            }
        }
        all.append(&mut found);
    }
    Ok(all)
}

async fn read(
    inner: &Inner,
    partition: usize,
    arguments: Arguments,
) -> Result<Vec<DeadLetter>, Failure> {
    let answer = inner.run(&inner.scripts.dead_letters, partition, arguments);
    reply::dead_letters(answer.await?)
}

fn matches(filter: &DeadFilter, dead_letter: &DeadLetter) -> bool {
    let name = filter.name.as_ref();
    name.is_none_or(|name| *name == dead_letter.name)
}

/// Returns the payload of a dead letter.
pub(super) async fn dead_letter_payload(
    inner: &Inner,
    id: TaskId,
) -> Result<Option<DeadPayload>, Failure> {
    let mut found = None;
    for (partition, ids) in inner.partitions.split(vec![id], |&id| id) {
        for id in ids {
            let mut arguments = Arguments::default();
            arguments.push(id.to_bytes());
            let answer = inner.run(&inner.scripts.dead_letter_payload, partition, arguments);
            found = reply::dead_letter_payload(answer.await?)?;
        }
    }
    Ok(found)
}

/// Replays the dead letters that match. Returns their number.
pub(super) async fn replay(inner: &Inner, filter: &DeadFilter) -> Result<u64, Failure> {
    replay_or_delete(inner, "replay", filter).await
}

/// Deletes the dead letters that match. Returns their number.
pub(super) async fn delete(inner: &Inner, filter: &DeadFilter) -> Result<u64, Failure> {
    replay_or_delete(inner, "delete", filter).await
}

async fn replay_or_delete(
    inner: &Inner,
    action: &str,
    filter: &DeadFilter,
) -> Result<u64, Failure> {
    let found = dead_letters(inner, filter, usize::MAX).await?;
    let mut ids: Vec<_> = found.iter().map(|it| it.id).collect();
    ids.sort_unstable();
    let answers = in_batches(inner, &inner.scripts.replay, Some(action), &ids).await?;
    Ok(changed_in(&answers))
}

fn changed_in(answers: &[ChangeAnswer]) -> u64 {
    let changed = answers.iter().filter(|&&it| it == ChangeAnswer::Changed);
    changed.count() as u64
}

/// Returns the counts of all partitions.
pub(super) async fn counts(inner: &Inner) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    for partition in inner.partitions.all() {
        let script = &inner.scripts.counts;
        let answer = inner.run(script, partition, Arguments::default()).await?;
        reply::add_counts(&mut counts, answer)?;
    }
    Ok(counts)
}
