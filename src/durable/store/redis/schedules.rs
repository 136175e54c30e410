//! Reads and changes schedules.
//!
//! A schedule is in the partition of its tasks, so that one script can change the schedule and store its tasks. Its name does not
//! determine the partition, so a request for a schedule looks into all of them.

use std::sync::Arc;

use redis::Value;
use tokio::task::JoinSet;

use super::error::unexpected_answer;
use super::inner::{Inner, after_others};
use super::reply::{self, Reader};
use super::scripts::Arguments;
use super::turns::earlier;
use super::{enqueue, schedule_row};
use crate::durable::failure::Failure;
use crate::durable::key::KeyHash;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::schedule::step;
use crate::durable::store::{
    Enqueued, HAND_OUT_INTERVAL, HandOut, MAX_HAND_OUTS, ScheduleAnswer, ScheduleChange,
    ScheduleRow, StoredSchedule, repeated,
};

/// Hands out the due schedules of all partitions that answer. Fails only if none of them does.
pub(super) async fn hand_out(inner: Arc<Inner>, computes: u8) -> Result<HandOut, Failure> {
    let mut answers = JoinSet::new();
    for partition in inner.partitions.all() {
        let inner = Arc::clone(&inner);
        answers.spawn(async move { hand_out_of(&inner, partition, computes).await });
    }
    let (mut whole, mut last_failure) = (None::<HandOut>, None);
    while let Some(answer) = answers.join_next().await {
        match answer.unwrap_or_else(|_| Err(unexpected_answer(&Value::Nil))) {
            Ok(part) => {
                let whole = whole.get_or_insert_default();
                whole.due.extend(part.due);
                whole.next = earlier(whole.next, part.next);
            }
            Err(failure) => last_failure = Some(failure),
        }
    }
    match (whole, last_failure) {
        // The partitions that have failed are asked again soon.
        (Some(whole), Some(_)) => Ok(HandOut {
            next: earlier(whole.next, Some(HAND_OUT_INTERVAL)),
            ..whole
        }),
        (whole, None) => Ok(whole.unwrap_or_default()),
        (None, Some(failure)) => Err(failure),
    }
}

async fn hand_out_of(inner: &Inner, partition: usize, computes: u8) -> Result<HandOut, Failure> {
    let mut arguments = Arguments::default();
    arguments.push_number(computes);
    let script = &inner.scripts.hand_out;
    let answer = inner.run(script, partition, arguments).await?;
    reply::handed_out(answer, partition)
}

/// Returns the schedule with this name, and the server's time.
///
/// Two processes that define a schedule at the same time, in different queues, may each store a row. Of these, the first row with the
/// highest revision is kept.
pub(super) async fn get(inner: &Inner, name: &ScheduleName) -> Result<ScheduleAnswer, Failure> {
    let (mut time, mut kept) = (0, None::<StoredSchedule>);
    for partition in inner.partitions.all() {
        let (now, mut found) = read(inner, partition, std::slice::from_ref(name)).await?;
        time = time.max(now);
        let Some(found) = found.pop() else { continue };
        let is_later = |kept: &StoredSchedule| step::revision(&found) > step::revision(kept);
        let other = match kept.take_if(|kept| is_later(kept)) {
            Some(replaced) => Some(replaced),
            None if kept.is_some() => Some(found.clone()),
            None => None,
        };
        kept.get_or_insert(found);
        if let Some(other) = other {
            // If this fails, the next request removes it.
            remove(inner, &other).await.ok();
        }
    }
    Ok(ScheduleAnswer {
        now: time,
        found: kept,
    })
}

/// Removes a row, unless it has changed.
async fn remove(inner: &Inner, row: &StoredSchedule) -> Result<(), Failure> {
    let change = step::remove(row);
    let version = Vec::from(row.row.version.to_be_bytes());
    change_in(inner, row.home, &change, version, None).await?;
    Ok(())
}

/// Returns at most `limit` schedules in the order of their names, those after `after`.
pub(super) async fn list(
    inner: &Inner,
    after: Option<&ScheduleName>,
    limit: usize,
) -> Result<Vec<StoredSchedule>, Failure> {
    let mut names = Vec::new();
    for partition in inner.partitions.all() {
        let all = names_in(inner, partition).await?.into_iter();
        let chosen = all.filter(|name| after.is_none_or(|after| name > after));
        names.extend(chosen.map(|name| (name, partition)));
    }
    names.sort_unstable();
    names.dedup_by(|one, other| one.0 == other.0);
    names.truncate(limit);
    let mut found = Vec::new();
    for partition in inner.partitions.all() {
        let own = names.iter().filter(|(_, home)| *home == partition);
        let own: Vec<_> = own.map(|(name, _)| name.clone()).collect();
        for names in own.chunks(MAX_HAND_OUTS) {
            found.extend(read(inner, partition, names).await?.1);
        }
    }
    found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Returns the names of all schedules of a partition.
async fn names_in(inner: &Inner, partition: usize) -> Result<Vec<ScheduleName>, Failure> {
    let mut arguments = Arguments::default();
    arguments.push_number(0);
    let script = &inner.scripts.read_schedules;
    let answer = inner.run(script, partition, arguments).await?;
    let names = Reader::new(answer)?.rest(Reader::text)?;
    // A damaged name is left out, since it cannot be looked up.
    let names = names.iter().filter_map(|name| ScheduleName::new(name).ok());
    Ok(names.collect())
}

/// Returns the server's time, and those of these schedules that are in a partition.
async fn read(
    inner: &Inner,
    partition: usize,
    names: &[ScheduleName],
) -> Result<(u64, Vec<StoredSchedule>), Failure> {
    let mut arguments = Arguments::default();
    arguments.push_number(names.len());
    names.iter().for_each(|name| arguments.push(name.as_str()));
    let script = &inner.scripts.read_schedules;
    let mut parts = Reader::new(inner.run(script, partition, arguments).await?)?;
    let now = parts.number()? as u64;
    let rows = parts.rest(Reader::optional_bytes)?;
    let found = names.iter().zip(rows).filter_map(|(name, row)| {
        let row = schedule_row::unpack(&row?)?;
        Some(StoredSchedule {
            name: name.clone(),
            home: partition,
            row,
        })
    });
    Ok((now, found.collect()))
}

/// Changes a schedule. If its tasks are now in another partition, the schedule moves there. It is removed from the old partition
/// first, so it is never in both. If this process dies between these two steps, the schedule is missing until a process defines it
/// again.
pub(super) async fn change(
    inner: &Inner,
    change: &ScheduleChange,
) -> Result<Option<Enqueued>, Failure> {
    let key = KeyHash::of_schedule(change.name.as_str());
    let home = inner.partitions.home(&change.queue, Some(key));
    let (home, after) = (home.unwrap_or_default(), change.after.as_ref());
    let version = change.before.map(|(version, _)| version.to_be_bytes());
    let version = version.map(Vec::from).unwrap_or_default();
    match change.before {
        Some((_, before)) if before != home || change.after.is_none() => {
            let removed = change_in(inner, before, change, version, None).await?;
            if removed.is_none() || change.after.is_none() {
                return Ok(removed);
            }
            let moved = add(inner, home, change, MOVED.into()).await;
            moved.map_err(|failure| after_others(failure, 1))
        }
        Some(_) => change_in(inner, home, change, version, after).await,
        None => add(inner, home, change, version).await,
    }
}

/// Adds the row of a schedule to a partition that has none. Returns `None` if another process has added one to another partition, and
/// that one is kept.
async fn add(
    inner: &Inner,
    partition: usize,
    change: &ScheduleChange,
    before: Vec<u8>,
) -> Result<Option<Enqueued>, Failure> {
    let added = change_in(inner, partition, change, before, change.after.as_ref()).await?;
    if added.is_none() || inner.partitions.count() == 1 {
        return Ok(added);
    }
    // If the row is added, a failure of the check does not change that.
    let found = get(inner, &change.name).await.ok().and_then(|it| it.found);
    let is_kept = found.is_none_or(|found| found.home == partition);
    Ok(added.filter(|_| is_kept))
}

/// The text that a request contains instead of a version if the schedule was removed from another partition.
const MOVED: &str = "moved";

/// Replaces, stores or removes the row of a schedule in a partition.
pub(super) async fn change_in(
    inner: &Inner,
    partition: usize,
    change: &ScheduleChange,
    before: Vec<u8>,
    after: Option<&ScheduleRow>,
) -> Result<Option<Enqueued>, Failure> {
    let tasks: Vec<_> = match after {
        Some(_) => change.tasks.iter().collect(),
        None => Vec::new(),
    };
    let routes = enqueue::routes_for(inner, partition, &tasks).await?;
    let mut arguments = Arguments::default();
    arguments.push(change.name.as_str());
    arguments.push(before);
    arguments.push(after.map(schedule_row::pack).unwrap_or_default());
    let now = inner.server_time();
    enqueue::push_tasks(&mut arguments, &tasks, &inner.client_id, &routes, now);
    let script = &inner.scripts.change_schedule;
    let answer = inner.run_storing(script, partition, arguments).await?;
    if matches!(&answer, Value::BulkString(answer) if answer == b"CHANGED") {
        return Ok(None);
    }
    if let Some(last_task) = reply::repeated(&answer) {
        return Ok(Some(repeated(change, last_task)));
    }
    let stored = reply::enqueued(answer)?;
    if stored.has_other_routes {
        inner.routes.remove(partition);
    }
    Ok(Some(Enqueued {
        conflicts: stored.conflicts,
    }))
}
