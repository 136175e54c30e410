//! Reads and changes schedules.
//!
//! A schedule is in the partition of its tasks, so that one script can change it and store them. A request for a schedule by its
//! name reads all partitions.

use redis::Value;

use super::inner::{Inner, after_others};
use super::reply::{self, Reader};
use super::scripts::Arguments;
use super::{enqueue, entry};
use crate::durable::TaskId;
use crate::durable::failure::Failure;
use crate::durable::key::KeyHash;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{
    Enqueued, MAX_HAND_OUTS, ScheduleAnswer, ScheduleChange, ScheduleRow, StoredSchedule,
};

/// Returns a schedule.
pub(super) async fn get(inner: &Inner, name: &ScheduleName) -> Result<ScheduleAnswer, Failure> {
    let mut time = 0;
    for partition in inner.partitions.all() {
        let (now, mut found) = read(inner, partition, std::slice::from_ref(name)).await?;
        let found = found.pop();
        if found.is_some() {
            return Ok(ScheduleAnswer { now, found });
        }
        time = now;
    }
    Ok(ScheduleAnswer {
        now: time,
        found: None,
    })
}

/// Returns schedules in the order of their names.
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
    // Nothing else can be found by its name.
    let names = names.iter().filter_map(|name| ScheduleName::new(name).ok());
    Ok(names.collect())
}

/// Returns the time, and those of these schedules that are in a partition.
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
        let row = unpack(&row?)?;
        Some(StoredSchedule {
            name: name.clone(),
            home: partition,
            row,
        })
    });
    Ok((now, found.collect()))
}

/// Changes a schedule. If its tasks are now in another partition, it moves there: it is removed first, so it is never in two of them.
/// If this process dies in between, the schedule is missing until a process defines it again.
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
            let moved = change_in(inner, home, change, MOVED.into(), after).await;
            moved.map_err(|failure| after_others(failure, 1))
        }
        _ => change_in(inner, home, change, version, after).await,
    }
}

/// Says instead of a version that a schedule has moved from another partition.
const MOVED: &str = "moved";

/// Replaces the row of a schedule in a partition.
async fn change_in(
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
    arguments.push(after.map(pack).unwrap_or_default());
    let now = inner.server_time();
    enqueue::push_tasks(&mut arguments, &tasks, &inner.client_id, &routes, now);
    let script = &inner.scripts.change_schedule;
    let answer = inner.run_storing(script, partition, arguments).await?;
    if matches!(&answer, Value::BulkString(answer) if answer == b"CHANGED") {
        return Ok(None);
    }
    let stored = reply::enqueued(answer)?;
    if stored.has_other_routes {
        inner.routes.remove(partition);
    }
    Ok(Some(Enqueued {
        conflicts: stored.conflicts,
    }))
}

/// The positions in a row, counted from zero: see `lua/layout.lua`.
mod layout {
    use std::ops::Range;

    pub(super) const VERSION: Range<usize> = 0..8;
    pub(super) const NEEDS: usize = 8;
    pub(super) const TIME: Range<usize> = 9..15;
    pub(super) const STARTED: Range<usize> = 15..21;
    pub(super) const SKIPPED: Range<usize> = 21..27;
    pub(super) const LAST_TASK: Range<usize> = 27..43;
    pub(super) const BODY: usize = 43;
}

/// Returns a row as it is stored.
fn pack(row: &ScheduleRow) -> Vec<u8> {
    let mut packed = row.version.to_be_bytes().to_vec();
    packed.push(row.needs);
    for number in [row.time.unwrap_or(0), row.started, row.skipped] {
        packed.extend(&number.to_be_bytes()[2..]);
    }
    packed.extend(row.last_task.map_or([0; 16], TaskId::to_bytes));
    packed.extend(&row.body);
    packed
}

/// Reads a stored row. Returns `None` if a part of it is missing.
pub(super) fn unpack(packed: &[u8]) -> Option<ScheduleRow> {
    let body = packed.get(layout::BODY..)?;
    let last_task = packed[layout::LAST_TASK].try_into().ok()?;
    Some(ScheduleRow {
        version: entry::number(&packed[layout::VERSION]),
        needs: packed[layout::NEEDS],
        time: Some(entry::number(&packed[layout::TIME])).filter(|&time| time > 0),
        started: entry::number(&packed[layout::STARTED]),
        skipped: entry::number(&packed[layout::SKIPPED]),
        last_task: Some(TaskId::from_bytes(last_task)).filter(|_| last_task != [0; 16]),
        body: body.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::names;
    use super::*;

    #[test]
    fn a_row_has_the_documented_layout() {
        let mut row = ScheduleRow {
            version: 0x0102_0304_0506_0708,
            needs: 2,
            time: Some(9),
            started: 10,
            skipped: 11,
            last_task: Some(TaskId::from_bytes([12; 16])),
            body: b"body".to_vec(),
        };
        let packed = pack(&row);
        let mut expected = vec![1, 2, 3, 4, 5, 6, 7, 8, 2];
        expected.extend([0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 11]);
        expected.extend([12; 16]);
        expected.extend(b"body");
        assert_eq!(packed, expected);
        assert_eq!(unpack(&packed).as_ref(), Some(&row));
        assert_eq!(unpack(&packed[..layout::BODY - 1]), None);
        (row.time, row.last_task) = (None, None);
        assert_eq!(unpack(&pack(&row)), Some(row));
    }

    #[test]
    fn scripts_have_the_same_layout() {
        let lua: HashMap<_, usize> = names::layout()
            .map(|(name, position)| (name, position.parse().unwrap()))
            .filter(|(name, _)| name.starts_with("SCHEDULE_"))
            .collect();
        // Lua counts positions from one, and includes the last one.
        let expected = HashMap::from([
            ("SCHEDULE_VERSION_END", layout::VERSION.end),
            ("SCHEDULE_NEEDS", layout::NEEDS + 1),
            ("SCHEDULE_TIME", layout::TIME.start + 1),
            ("SCHEDULE_STARTED", layout::STARTED.start + 1),
            ("SCHEDULE_BODY", layout::BODY + 1),
        ]);
        assert_eq!(lua, expected);
    }
}
