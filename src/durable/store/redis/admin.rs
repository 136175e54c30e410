//! Requests the status of tasks, cancels tasks, and manages dead letters.

use super::error::nonsense;
use super::inner::{Inner, after_others};
use super::link::Arguments;
use super::mail::Mail;
use super::reply;
use super::request::push_ids;
use super::scripts::Script;
use crate::durable::failure::Failure;
use crate::durable::store::{MAX_BATCH_BYTES, MAX_BATCH_TASKS, TaskState};
use crate::durable::{AttemptError, DeadFilter, DeadLetter, TaskId};

/// How many letters are read at once: their errors may be long.
const PAGE: usize = 100;

/// How many tasks are cancelled at once, or letters replayed: more would keep the server busy for long.
pub(super) const AT_ONCE: usize = 128;

/// What has become of tasks.
pub(super) async fn status(inner: &Inner, ids: &[TaskId]) -> Result<Vec<TaskState>, Failure> {
    let mut seen = vec![TaskState::Absent; ids.len()];
    let places: Vec<_> = (0..ids.len()).collect();
    for (partition, places) in inner.partitions.split(places, |&place| ids[place]) {
        let asked: Vec<_> = places.iter().map(|&place| ids[place]).collect();
        let answers = look_in(inner, partition, &asked).await?;
        for (place, answer) in places.into_iter().zip(answers) {
            seen[place] = answer;
        }
    }
    Ok(seen)
}

/// The same, of one partition. What does not fit into one answer comes with the next.
async fn look_in(
    inner: &Inner,
    partition: usize,
    ids: &[TaskId],
) -> Result<Vec<TaskState>, Failure> {
    let mut seen = Vec::with_capacity(ids.len());
    while seen.len() < ids.len() {
        let rest = &ids[seen.len()..];
        let mut arguments = Arguments::default();
        arguments.push(&*inner.client_id);
        arguments.number(u8::from(inner.mail() == Mail::Comes));
        arguments.number(MAX_BATCH_BYTES);
        push_ids(&mut arguments, &rest[..rest.len().min(MAX_BATCH_TASKS)]);
        let more = inner
            .run(&inner.scripts.status, partition, arguments)
            .await?;
        let more = reply::seen(more)?;
        if more.is_empty() {
            return Err(nonsense(&redis::Value::Nil));
        }
        seen.extend(more);
    }
    Ok(seen)
}

/// The errors of a task.
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

pub(super) async fn cancel(inner: &Inner, ids: &[TaskId]) -> Result<u64, Failure> {
    in_batches(inner, &inner.scripts.cancel, None, ids).await
}

/// The dead letters that match, the newest first.
pub(super) async fn dead_letters(
    inner: &Inner,
    filter: &DeadFilter,
    limit: usize,
) -> Result<Vec<DeadLetter>, Failure> {
    let mut found = match &filter.ids {
        Some(ids) => letters_of(inner, ids).await?,
        None => all_letters(inner, filter, limit).await?,
    };
    found.retain(|letter| matches(filter, letter));
    found.sort_by_key(|letter| (letter.age, std::cmp::Reverse(letter.id)));
    found.dedup_by_key(|letter| letter.id);
    found.truncate(limit);
    Ok(found)
}

async fn letters_of(inner: &Inner, ids: &[TaskId]) -> Result<Vec<DeadLetter>, Failure> {
    let mut found = Vec::new();
    for (partition, ids) in inner.partitions.split(ids.to_vec(), |&id| id) {
        for ids in ids.chunks(PAGE) {
            let mut arguments = Arguments::default();
            arguments.number(-1);
            push_ids(&mut arguments, ids);
            found.extend(letters(inner, partition, arguments).await?);
        }
    }
    Ok(found)
}

async fn all_letters(
    inner: &Inner,
    filter: &DeadFilter,
    limit: usize,
) -> Result<Vec<DeadLetter>, Failure> {
    let mut all = Vec::new();
    for partition in inner.partitions.all() {
        let (mut found, mut place) = (Vec::new(), 0);
        while found.len() < limit {
            let mut arguments = Arguments::default();
            arguments.number(place);
            arguments.number(PAGE);
            let page = letters(inner, partition, arguments).await?;
            place += PAGE;
            let is_last = page.len() < PAGE;
            found.extend(page.into_iter().filter(|letter| matches(filter, letter)));
            if is_last {
                break;
            }
        }
        all.append(&mut found);
    }
    Ok(all)
}

async fn letters(
    inner: &Inner,
    partition: usize,
    arguments: Arguments,
) -> Result<Vec<DeadLetter>, Failure> {
    let answer = inner.run(&inner.scripts.dead_letters, partition, arguments);
    reply::letters(answer.await?)
}

fn matches(filter: &DeadFilter, letter: &DeadLetter) -> bool {
    let name = filter.name.as_ref();
    name.is_none_or(|name| *name == letter.name)
}

/// Gives the letters that match another life, or removes them.
pub(super) async fn revive(inner: &Inner, what: &str, filter: &DeadFilter) -> Result<u64, Failure> {
    let letters = dead_letters(inner, filter, usize::MAX).await?;
    let mut ids: Vec<_> = letters.iter().map(|letter| letter.id).collect();
    ids.sort_unstable();
    in_batches(inner, &inner.scripts.revive, Some(what), &ids).await
}

/// Does to tasks what a script does to some of them: how many it has found.
async fn in_batches(
    inner: &Inner,
    script: &Script,
    what: Option<&str>,
    ids: &[TaskId],
) -> Result<u64, Failure> {
    let mut found = 0;
    let mut sent = 0;
    for (partition, ids) in inner.partitions.split(ids.to_vec(), |&id| id) {
        for batch in ids.chunks(AT_ONCE) {
            let mut arguments = Arguments::default();
            what.into_iter().for_each(|what| arguments.push(what));
            push_ids(&mut arguments, batch);
            let answer = inner.run(script, partition, arguments).await;
            let answer = answer.and_then(|answer| reply::number(&answer));
            found += answer.map_err(|failure| after_others(failure, sent))? as u64;
            sent += 1;
        }
    }
    Ok(found)
}
