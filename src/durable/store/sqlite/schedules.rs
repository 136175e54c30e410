//! Reads schedules, changes them and hands them out.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::enqueue;
use super::error::Fault;
use super::meta::MAX_ISSUED;
use super::reader::ReadConnection;
use super::time::Now;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::schedule::when::{COMPUTES_CRON, COMPUTES_EVERY};
use crate::durable::store::{
    DueSchedule, Enqueued, HAND_OUT_INTERVAL, HandOut, MAX_EXAMINED_SCHEDULES, MAX_HAND_OUTS,
    ScheduleAnswer, ScheduleChange, ScheduleRow, StoredSchedule, repeated,
};

/// The columns that [`read`] reads.
const COLUMNS: &str = "name, version, needs, time, started, skipped, last_task, body";

/// Selects the time at which the next schedule that needs the build `?1` is handed out.
pub(super) const EARLIEST: &str = "SELECT hand_out FROM throng_schedule
     WHERE needs = ?1 AND hand_out IS NOT NULL ORDER BY hand_out LIMIT 1";

pub(super) fn get(reader: &ReadConnection, name: &ScheduleName) -> Result<ScheduleAnswer, Fault> {
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| {
        Ok(ScheduleAnswer {
            now: now.wall as u64,
            found: find(db, name)?,
        })
    })
}

pub(super) fn list(
    reader: &ReadConnection,
    after: Option<&ScheduleName>,
    limit: usize,
) -> Result<Vec<StoredSchedule>, Fault> {
    let after = after.map_or("", ScheduleName::as_str);
    reader.snapshot(|db| {
        let mut statement = db.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM throng_schedule WHERE name > ?1 ORDER BY name LIMIT ?2"
        ))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = statement.query_map(params![after, limit], read)?;
        Ok(found.collect::<Result<_, _>>()?)
    })
}

/// Returns the schedules that are handed out next, of each kind of build.
pub(super) fn next(db: &Connection) -> Result<Vec<StoredSchedule>, Fault> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM throng_schedule WHERE needs = ?1 AND hand_out IS NOT NULL
         ORDER BY hand_out, name LIMIT ?2"
    ))?;
    let mut all = Vec::new();
    for needs in bits(u8::MAX) {
        let found = statement.query_map(params![needs, MAX_EXAMINED_SCHEDULES as i64], read)?;
        for schedule in found {
            all.push(schedule?);
        }
    }
    Ok(all)
}

pub(super) fn change(
    tx: &mut Transaction<'_>,
    change: &ScheduleChange,
) -> Result<Option<Enqueued>, Fault> {
    let row = find(tx.db, &change.name)?.map(|it| it.row);
    let found = row.as_ref().map(|row| row.version);
    if found == change.after.as_ref().map(|row| row.version) {
        // The request is repeated, or there is no schedule to remove.
        return Ok(Some(repeated(change, row.and_then(|row| row.last_task))));
    }
    let time = change.after.as_ref().and_then(|row| row.time);
    let is_late = change.before.is_none() && time.is_some_and(|time| time <= tx.now.wall as u64);
    if is_late || found != change.before.map(|(version, _)| version) {
        return Ok(None);
    }
    let enqueued = enqueue::store_all(tx, &change.tasks)?;
    match change.after.clone() {
        None => drop(tx.execute(
            "DELETE FROM throng_schedule WHERE name = ?1",
            [change.name.as_str()],
        )?),
        Some(mut row) => {
            row.count_conflicts(&enqueued.conflicts);
            check_earliest(tx, row.time)?;
            save(tx, &change.name, &row)?;
        }
    }
    Ok(Some(enqueued))
}

/// If a schedule is due before all others, requests that a worker be woken, since no worker expects a schedule at that time.
fn check_earliest(tx: &mut Transaction<'_>, time: Option<u64>) -> Result<(), Fault> {
    if let Some(time) = time {
        let earliest = earliest(tx.db, u8::MAX)?;
        tx.notices.has_earlier_task |= earliest.is_none_or(|earliest| (time as i64) < earliest);
    }
    Ok(())
}

/// Hands out the due schedules whose ticks these builds compute.
pub(super) fn hand_out(tx: &Transaction<'_>, computes: u8) -> Result<HandOut, Fault> {
    let mut due = Vec::new();
    for needs in bits(computes) {
        due.extend(due_of(tx, needs, MAX_HAND_OUTS - due.len())?);
    }
    let again = tx.now.wall + millis(HAND_OUT_INTERVAL) as i64;
    for DueSchedule { schedule, .. } in &due {
        let sql = "UPDATE throng_schedule SET hand_out = ?2 WHERE name = ?1";
        tx.execute(sql, params![schedule.name.as_str(), again])?;
    }
    let next = wait(tx.db, tx.now, computes)?;
    Ok(HandOut { due, next })
}

/// Returns the due schedules that need this build, the earliest first.
fn due_of(tx: &Transaction<'_>, needs: u8, limit: usize) -> Result<Vec<DueSchedule>, Fault> {
    let mut statement = tx.db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM throng_schedule WHERE needs = ?1 AND hand_out <= ?2
         ORDER BY hand_out, name LIMIT ?3"
    ))?;
    let now = tx.now.wall;
    let due = statement.query_map(params![needs, now, limit as i64], read)?;
    let due = due.map(|schedule| {
        let now = now as u64;
        schedule.map(|schedule| DueSchedule { now, schedule })
    });
    Ok(due.collect::<Result<_, _>>()?)
}

/// Returns the time until the next schedule is handed out, among those whose ticks these builds compute.
pub(super) fn next_hand_out(
    reader: &ReadConnection,
    computes: u8,
) -> Result<Option<Duration>, Fault> {
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| Ok(wait(db, now, computes)?))
}

/// Returns the same as [`next_hand_out`], in a request that has begun.
pub(super) fn wait(
    db: &Connection,
    now: Now,
    computes: u8,
) -> Result<Option<Duration>, rusqlite::Error> {
    let left = |at| u64::try_from(at - now.wall).unwrap_or_default();
    let earliest = earliest(db, computes)?;
    Ok(earliest.map(|at| Duration::from_millis(left(at))))
}

fn earliest(db: &Connection, computes: u8) -> Result<Option<i64>, rusqlite::Error> {
    let mut statement = db.prepare_cached(EARLIEST)?;
    let mut found = Vec::new();
    for needs in bits(computes) {
        let first = statement.query_row([needs], |row| row.get::<_, i64>(0));
        found.extend(first.optional()?);
    }
    Ok(found.into_iter().min())
}

/// Returns each of these bits alone.
fn bits(computes: u8) -> impl Iterator<Item = u8> {
    [COMPUTES_EVERY, COMPUTES_CRON]
        .into_iter()
        .filter(move |bit| computes & bit != 0)
}

fn find(db: &Connection, name: &ScheduleName) -> Result<Option<StoredSchedule>, rusqlite::Error> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM throng_schedule WHERE name = ?1"
    ))?;
    statement.query_row([name.as_str()], read).optional()
}

fn save(
    tx: &Transaction<'_>,
    name: &ScheduleName,
    row: &ScheduleRow,
) -> Result<(), rusqlite::Error> {
    let time = row.time.map(|time| time as i64);
    let sql = "INSERT OR REPLACE INTO throng_schedule
             (name, version, needs, time, hand_out, started, skipped, last_task, body)
         VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8)";
    let values = params![
        name.as_str(),
        row.version as i64,
        row.needs,
        time,
        row.started as i64,
        row.skipped as i64,
        row.last_task.map(TaskId::to_bytes),
        row.body,
    ];
    tx.execute(sql, values).map(drop)
}

fn read(row: &Row<'_>) -> Result<StoredSchedule, rusqlite::Error> {
    let number = |column| match row.get(column)? {
        number @ 0..=MAX_ISSUED => Ok(number as u64),
        number => Err(rusqlite::Error::IntegralValueOutOfRange(column, number)),
    };
    let name: String = row.get(0)?;
    // If the name is invalid, the row is damaged, and a repair removes it.
    let invalid = |_| rusqlite::Error::IntegralValueOutOfRange(0, 0);
    let name = ScheduleName::new(&name).map_err(invalid)?;
    let time: Option<i64> = row.get(3)?;
    Ok(StoredSchedule {
        name,
        partition: 0,
        row: ScheduleRow {
            version: row.get::<_, i64>(1)? as u64,
            needs: row.get(2)?,
            time: time.map(|_| number(3)).transpose()?,
            started: number(4)?,
            skipped: number(5)?,
            last_task: row.get::<_, Option<_>>(6)?.map(TaskId::from_bytes),
            body: row.get(7)?,
        },
    })
}
