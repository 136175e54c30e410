//! Reads and changes schedules.
//!
//! A schedule is in the partition of its tasks, so that one script can change the schedule and store its tasks. Its name does not
//! determine the partition, so a request for a schedule reads all partitions.

use std::cmp::Reverse;
use std::sync::Arc;

use redis::Value;
use tokio::task::JoinSet;

use super::error::unexpected_answer;
use super::inner::{Inner, after_others};
use super::reply::{self, Reader};
use super::scripts::Arguments;
use super::turns::earlier;
use super::{enqueue, schedule_row, types};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::key::KeyHash;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::schedule::step;
use crate::durable::store::{
    Enqueued, HAND_OUT_INTERVAL, HandOut, MAX_HAND_OUTS, ScheduleAnswer, ScheduleChange,
    StoredSchedule, repeated,
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
/// Two processes that define a schedule at the same time, in different queues, may each store a row. The row with the highest
/// revision is kept. If several rows have that revision, the one in the first partition is kept.
pub(super) async fn get(inner: &Inner, name: &ScheduleName) -> Result<ScheduleAnswer, Failure> {
    for _ in 0..MAX_READS {
        let (now, mut rows) = read_all(inner, name).await?;
        if rows.is_empty() && inner.partitions.count() > 1 {
            // The schedule may have moved to a partition that had already been read.
            rows = read_all(inner, name).await?.1;
        }
        let order = |row: &StoredSchedule| (step::revision(row), Reverse(row.partition));
        rows.sort_unstable_by_key(order);
        let found = rows.pop();
        if rows.is_empty() || is_there(inner, found.as_ref()).await? {
            remove_all(inner, rows).await;
            return Ok(ScheduleAnswer { now, found });
        }
    }
    Err(Failure::new(Effect::None, Cause::Contended))
}

/// The maximum number of times that the partitions are read, since a schedule may move while they are read.
const MAX_READS: usize = 32;

/// Returns the server's time, and the rows with this name in all partitions.
async fn read_all(
    inner: &Inner,
    name: &ScheduleName,
) -> Result<(u64, Vec<StoredSchedule>), Failure> {
    let (mut time, mut rows) = (0, Vec::new());
    for partition in inner.partitions.all() {
        let (now, found) = read(inner, partition, std::slice::from_ref(name)).await?;
        time = time.max(now);
        rows.extend(found);
    }
    Ok((time, rows))
}

/// Returns `true` if a row that was read is still there. Otherwise, the schedule may have moved, and another row may be newer.
async fn is_there(inner: &Inner, row: Option<&StoredSchedule>) -> Result<bool, Failure> {
    let Some(row) = row else { return Ok(true) };
    let (_, found) = read(inner, row.partition, std::slice::from_ref(&row.name)).await?;
    Ok(found.iter().any(|it| it.row.version == row.row.version))
}

/// Removes rows, except for those that have changed. If a request fails, the next process that reads the schedule removes the row.
async fn remove_all(inner: &Inner, rows: Vec<StoredSchedule>) {
    for row in rows {
        let version = row.row.version.to_be_bytes().to_vec();
        remove(inner, row.partition, &row.name, version).await.ok();
    }
}

/// Removes all rows but one of each schedule that has several.
pub(super) async fn remove_duplicates(inner: &Inner) -> Result<(), Failure> {
    let mut names = Vec::new();
    for partition in inner.partitions.all() {
        names.extend(names_in(inner, partition).await?);
    }
    names.sort_unstable();
    for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
        get(inner, &pair[0]).await?;
    }
    Ok(())
}

/// Returns at most `limit` schedules whose names come after `after`, in the order of their names.
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
    let mut found = Vec::new();
    // Rows that cannot be read are left out, and the page continues with the next ones.
    for names in names.chunks(limit.clamp(1, MAX_HAND_OUTS)) {
        found.extend(read_page(inner, names).await?);
        if found.len() >= limit {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// Returns the rows with these names, in the order of the names.
async fn read_page(
    inner: &Inner,
    names: &[(ScheduleName, usize)],
) -> Result<Vec<StoredSchedule>, Failure> {
    let mut found = Vec::new();
    for partition in inner.partitions.all() {
        let own = names
            .iter()
            .filter(|(_, stored_in)| *stored_in == partition);
        let own: Vec<_> = own.map(|(name, _)| name.clone()).collect();
        if !own.is_empty() {
            found.extend(read(inner, partition, &own).await?.1);
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
            partition,
            row,
        })
    });
    Ok((now, found.collect()))
}

/// Changes a schedule. If its tasks are now in another partition, the schedule moves there. It is removed from the old partition
/// first. If this process dies between these two steps, the schedule is missing until a process defines it again.
pub(super) async fn change(
    inner: &Inner,
    change: &ScheduleChange,
) -> Result<Option<Enqueued>, Failure> {
    let key = KeyHash::of_schedule(change.name.as_str());
    let fixed_partition = inner.partitions.of_queue_or_key(&change.queue, Some(key));
    let partition = fixed_partition.unwrap_or_default();
    let version = change.before.map(|(version, _)| version.to_be_bytes());
    let version = version.map(Vec::from).unwrap_or_default();
    match change.before {
        Some((_, before)) if change.after.is_none() => {
            let removed = remove(inner, before, &change.name, version).await?;
            Ok((removed != Removal::Changed).then(Enqueued::default))
        }
        Some((_, before)) if before != partition => {
            match remove_once(inner, before, &change.name, version).await? {
                Removal::Removed => {
                    let moved = add(inner, partition, change, MOVED.into()).await;
                    moved.map_err(|failure| after_others(failure, 1))
                }
                Removal::Absent => moved_before(inner, change).await,
                Removal::Changed => Ok(None),
            }
        }
        Some(_) => change_in(inner, partition, change, version).await,
        None => add(inner, partition, change, version).await,
    }
}

/// Returns the answer if an earlier attempt of this change has moved the schedule, and its answer was lost. Returns `None` if
/// another process has moved or removed the schedule.
async fn moved_before(inner: &Inner, change: &ScheduleChange) -> Result<Option<Enqueued>, Failure> {
    let found = get(inner, &change.name).await?.found.map(|it| it.row);
    let version = change.after.as_ref().map(|row| row.version);
    let own = found.filter(|row| Some(row.version) == version);
    Ok(own.map(|row| repeated(change, row.last_task)))
}

/// Adds the row of a schedule to a partition that has none. Returns `None` if another process has added a row to another partition,
/// and that row is kept.
async fn add(
    inner: &Inner,
    partition: usize,
    change: &ScheduleChange,
    before: Vec<u8>,
) -> Result<Option<Enqueued>, Failure> {
    let added = change_in(inner, partition, change, before).await?;
    if added.is_none() || inner.partitions.count() == 1 {
        return Ok(added);
    }
    // The row is added, so a failure does not mean that the request had no effect. If it is repeated, it changes nothing.
    let found = get(inner, &change.name).await;
    let found = found.map_err(|failure| after_others(failure, 1))?.found;
    let is_kept = found.is_some_and(|found| found.partition == partition);
    Ok(added.filter(|_| is_kept))
}

/// The result of the removal of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    /// The row had the expected version, and is removed.
    Removed,
    /// There was no row.
    Absent,
    /// The row has another version, and is kept.
    Changed,
}

/// Removes the row of a schedule from a partition if the row has this version.
async fn remove(
    inner: &Inner,
    partition: usize,
    name: &ScheduleName,
    version: Vec<u8>,
) -> Result<Removal, Failure> {
    let mut arguments = Arguments::default();
    arguments.push(name.as_str());
    arguments.push(version);
    arguments.push("");
    let routes = enqueue::routes_for(inner, partition, &[]).await?;
    let now = inner.server_time();
    enqueue::push_tasks(&mut arguments, &[], &inner.client_id, &routes, now);
    let script = &inner.scripts.change_schedule;
    match inner.run_storing(script, partition, arguments).await? {
        Value::BulkString(text) if text == b"REMOVED" => Ok(Removal::Removed),
        Value::BulkString(text) if text == b"CHANGED" => Ok(Removal::Changed),
        _ => Ok(Removal::Absent),
    }
}

/// Does the same as [`remove`] but, if the first answer is lost, sends the request again. If there is no row then, the first
/// request is assumed to have removed it.
async fn remove_once(
    inner: &Inner,
    partition: usize,
    name: &ScheduleName,
    version: Vec<u8>,
) -> Result<Removal, Failure> {
    match remove(inner, partition, name, version.clone()).await {
        Err(failure) if failure.effect == Effect::Unknown => {
            let again = remove(inner, partition, name, version).await;
            match again.map_err(|failure| after_others(failure, 1))? {
                Removal::Absent => Ok(Removal::Removed),
                other => Ok(other),
            }
        }
        answer => answer,
    }
}

/// The text that a request contains instead of a version if the schedule was removed from another partition.
const MOVED: &str = "moved";

/// Replaces or stores the row of a schedule in a partition.
pub(super) async fn change_in(
    inner: &Inner,
    partition: usize,
    change: &ScheduleChange,
    before: Vec<u8>,
) -> Result<Option<Enqueued>, Failure> {
    let tasks: Vec<_> = change.tasks.iter().collect();
    let routes = enqueue::routes_for(inner, partition, &tasks).await?;
    types::record(inner, partition, &tasks).await?;
    let mut arguments = Arguments::default();
    arguments.push(change.name.as_str());
    arguments.push(before);
    let after = change.after.as_ref();
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
