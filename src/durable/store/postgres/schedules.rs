//! Reads schedules, changes them and hands them out.

use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use super::enqueue;
use super::error::Fault;
use super::text;
use super::time::Now;
use super::transaction::Transaction;
use super::view::{View, task_id, uuid};
use crate::durable::clock::millis;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::schedule::when::{COMPUTES_CRON, COMPUTES_EVERY};
use crate::durable::store::{
    DueSchedule, Enqueued, HAND_OUT_INTERVAL, HandOut, MAX_EXAMINED_SCHEDULES, MAX_HAND_OUTS,
    ScheduleAnswer, ScheduleChange, ScheduleRow, StoredSchedule, repeated,
};

const FIND: &str = "SELECT name, version, needs, time, started, skipped, last_task, body
    FROM throng.schedule WHERE name = $1";

const LIST: &str = "SELECT name, version, needs, time, started, skipped, last_task, body
    FROM throng.schedule WHERE name > $1 ORDER BY name LIMIT $2";

/// Selects the schedules that are handed out next, of each kind of build.
const NEXT: &str = "SELECT next.* FROM unnest($1::smallint[]) AS own (needs) CROSS JOIN LATERAL (
        SELECT name, version, needs, time, started, skipped, last_task, body
        FROM throng.schedule WHERE schedule.needs = own.needs AND hand_out IS NOT NULL
        ORDER BY hand_out, name LIMIT $2
    ) AS next";

/// Selects due schedules, the earliest first.
const DUE: &str = "SELECT due.* FROM unnest($1::smallint[]) AS own (needs) CROSS JOIN LATERAL (
        SELECT name, version, needs, time, started, skipped, last_task, body, hand_out
        FROM throng.schedule WHERE schedule.needs = own.needs AND hand_out <= $2
        ORDER BY hand_out, name LIMIT $3
    ) AS due
    ORDER BY hand_out, name LIMIT $3";

/// Selects the time at which the next schedule is handed out that needs one of the builds `$1`.
const EARLIEST: &str = "SELECT min(hand_out) FROM unnest($1::smallint[]) AS own (needs)
    CROSS JOIN LATERAL (
        SELECT hand_out FROM throng.schedule
        WHERE schedule.needs = own.needs AND hand_out IS NOT NULL ORDER BY hand_out LIMIT 1
    ) AS first";

const HAND_OUT: &str = "UPDATE throng.schedule SET hand_out = $2 WHERE name = ANY ($1)";

const SAVE: &str =
    "INSERT INTO throng.schedule (name, version, needs, time, hand_out, started, skipped,
        last_task, body)
    VALUES ($1, $2, $3, $4, $4, $5, $6, $7, $8)
    ON CONFLICT (name) DO UPDATE SET
        version = excluded.version, needs = excluded.needs, time = excluded.time,
        hand_out = excluded.hand_out, started = excluded.started, skipped = excluded.skipped,
        last_task = excluded.last_task, body = excluded.body";

const REMOVE: &str = "DELETE FROM throng.schedule WHERE name = $1";

const CORRECT: &str =
    "UPDATE throng.schedule SET hand_out = time WHERE hand_out > $1 AND hand_out > time";

/// Returns a schedule.
pub(super) async fn get(view: &View, name: &ScheduleName) -> Result<ScheduleAnswer, Fault> {
    Ok(ScheduleAnswer {
        now: view.now.wall as u64,
        found: find(view, name).await?,
    })
}

/// Returns schedules in the order of their names.
pub(super) async fn list(
    view: &View,
    after: Option<&ScheduleName>,
    limit: usize,
) -> Result<Vec<StoredSchedule>, Fault> {
    let after = text::stored(after.map_or("", ScheduleName::as_str));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = view.rows(LIST, &[&after, &limit]).await?;
    rows.iter().map(read).collect()
}

/// Returns the schedules that are handed out next, of each kind of build.
pub(super) async fn next(view: &View) -> Result<Vec<StoredSchedule>, Fault> {
    let limit = MAX_EXAMINED_SCHEDULES as i64;
    let rows = view.rows(NEXT, &[&bits(u8::MAX), &limit]).await?;
    rows.iter().map(read).collect()
}

/// Changes a schedule, and stores tasks in the same step.
pub(super) async fn change(
    tx: &mut Transaction,
    change: &ScheduleChange,
) -> Result<Option<Enqueued>, Fault> {
    tx.require_exclusive()?;
    let row = find(tx, &change.name).await?.map(|it| it.row);
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
    let enqueued = enqueue::store_all(tx, &change.tasks).await?;
    match change.after.clone() {
        None => {
            let name = text::stored(change.name.as_str());
            tx.execute(REMOVE, &[&name]).await?;
        }
        Some(mut row) => {
            row.count_conflicts(&enqueued.conflicts);
            check_earliest(tx, row.time).await?;
            save(tx, &change.name, &row).await?;
        }
    }
    Ok(Some(enqueued))
}

/// If a schedule is due before all others, requests that a worker be woken, since no worker expects a schedule at that time.
async fn check_earliest(tx: &mut Transaction, time: Option<u64>) -> Result<(), Fault> {
    if let Some(time) = time {
        let earliest = earliest(tx, u8::MAX).await?;
        tx.notices.needs_any |= earliest.is_none_or(|earliest| (time as i64) < earliest);
    }
    Ok(())
}

/// Hands out the due schedules whose ticks these builds compute.
pub(super) async fn hand_out(tx: &mut Transaction, computes: u8) -> Result<HandOut, Fault> {
    tx.require_exclusive()?;
    let (now, limit) = (tx.now.wall, MAX_HAND_OUTS as i64);
    let rows = tx.rows(DUE, &[&bits(computes), &now, &limit]).await?;
    let due = rows.iter().map(read);
    let due = due.collect::<Result<Vec<_>, _>>()?;
    if !due.is_empty() {
        let names: Vec<_> = due
            .iter()
            .map(|schedule| text::stored(schedule.name.as_str()))
            .collect();
        let again = now + millis(HAND_OUT_INTERVAL) as i64;
        tx.execute(HAND_OUT, &[&names, &again]).await?;
    }
    let now = now as u64;
    let due = due.into_iter();
    Ok(HandOut {
        due: due.map(|schedule| DueSchedule { now, schedule }).collect(),
        next: wait(tx, computes).await?,
    })
}

/// Returns the time until the next schedule is handed out, among those whose ticks these builds compute.
pub(super) async fn wait(view: &View, computes: u8) -> Result<Option<Duration>, Fault> {
    let earliest = earliest(view, computes).await?;
    Ok(earliest.map(|at| Now::left(view.now.wall, at)))
}

/// Corrects the times of schedules that were handed out while the clock was ahead.
pub(super) async fn correct_hand_outs(tx: &Transaction) -> Result<(), Fault> {
    let latest = tx.now.wall + millis(HAND_OUT_INTERVAL) as i64;
    tx.execute(CORRECT, &[&latest]).await?;
    Ok(())
}

async fn earliest(view: &View, computes: u8) -> Result<Option<i64>, Fault> {
    let earliest: Option<Option<i64>> = view.value(EARLIEST, &[&bits(computes)]).await?;
    Ok(earliest.flatten())
}

/// Returns each of these bits alone.
fn bits(computes: u8) -> Vec<i16> {
    let bits = [COMPUTES_EVERY, COMPUTES_CRON].into_iter();
    let bits = bits.filter(|bit| computes & bit != 0);
    bits.map(i16::from).collect()
}

async fn find(view: &View, name: &ScheduleName) -> Result<Option<StoredSchedule>, Fault> {
    let name = text::stored(name.as_str());
    let row = view.row(FIND, &[&name]).await?;
    row.as_ref().map(read).transpose()
}

async fn save(tx: &Transaction, name: &ScheduleName, row: &ScheduleRow) -> Result<(), Fault> {
    tx.execute(
        SAVE,
        &[
            &text::stored(name.as_str()),
            &(row.version as i64),
            &i16::from(row.needs),
            &row.time.map(|time| time as i64),
            &(row.started as i64),
            &(row.skipped as i64),
            &row.last_task.map(uuid),
            &row.body,
        ],
    )
    .await?;
    Ok(())
}

fn read(row: &Row) -> Result<StoredSchedule, Fault> {
    let name = text::loaded(row.try_get("name")?);
    let number = |column| -> Result<u64, Fault> { Ok(row.try_get::<_, i64>(column)? as u64) };
    let time: Option<i64> = row.try_get("time")?;
    let needs: i16 = row.try_get("needs")?;
    Ok(StoredSchedule {
        name: ScheduleName::new(&name).map_err(Fault::Corrupt)?,
        partition: 0,
        row: ScheduleRow {
            version: number("version")?,
            needs: u8::try_from(needs).unwrap_or(u8::MAX),
            time: time.map(|time| time as u64),
            started: number("started")?,
            skipped: number("skipped")?,
            last_task: row.try_get::<_, Option<Uuid>>("last_task")?.map(task_id),
            body: row.try_get("body")?,
        },
    })
}
