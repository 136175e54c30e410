//! Examines what an overview does not show. Each query reads a limited number of rows.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension};

use super::error::Fault;
use super::meta::Meta;
use super::reader::ReadConnection;
use super::shared::Shared;
use super::time::Now;
use super::unserved::live_sets;
use super::{outbox, ready_queue, schedules, workers};
use crate::durable::store::kind::Kind;
use crate::durable::store::routes::ListId;
use crate::durable::store::{
    Diagnoses, Diagnosis, MAX_DIAGNOSED, MAX_EXAMINED_WORKERS, MAX_HEAD_LISTS, RunType,
    UnclaimedType,
};
use crate::durable::{WorkerInfo, WorkerState};

/// Selects the claims whose lease has been over at the time `?1` for more than two lease times.
pub(super) const OVERDUE: &str =
    "SELECT 1 FROM throng_claim WHERE until < ?1 AND ?1 - until > 2 * lease LIMIT ?2";

/// Selects the type of the first task of a list, and the time at which the task became ready.
pub(super) const FIRST: &str = "
    SELECT name, queue, ready_at, kind FROM throng_ready AS ready
    CROSS JOIN throng_task AS task ON task.id = ready.id
    WHERE ready.list = ?1 ORDER BY ready.sublist, ready.place LIMIT 1";

pub(super) fn diagnose(reader: &ReadConnection) -> Result<Diagnoses, Fault> {
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| {
        let shared = &reader.shared;
        shared.damage.load(db, now)?;
        let meta = Meta::load(db, shared.layouts)?;
        let diagnosis = Diagnosis {
            now: now.wall.max(0) as u64,
            dead: meta.counts.dead,
            dead_most: meta.limits.retention().dead_most,
            overdue_claims: overdue_claims(db, now)?,
            workers: workers_in_trouble(reader, db)?,
            schedules: schedules::next(db)?,
            unclaimed: unclaimed_types(db, shared, now)?,
        };
        Ok(Diagnoses {
            newer_outbox_rows: outbox::count_newer(db)?,
            ..diagnosis.into()
        })
    })
}

fn overdue_claims(db: &Connection, now: Now) -> Result<u64, rusqlite::Error> {
    let mut statement = db.prepare_cached(OVERDUE)?;
    let overdue = statement.query_map([now.boot, MAX_DIAGNOSED as i64], |_| Ok(()))?;
    let mut claims = 0;
    for claim in overdue {
        claim?;
        claims += 1;
    }
    Ok(claims)
}

fn workers_in_trouble(reader: &ReadConnection, db: &Connection) -> Result<Vec<WorkerInfo>, Fault> {
    let mut workers = workers::read(reader, db, 0, MAX_EXAMINED_WORKERS)?;
    workers.retain(|worker| worker.state != WorkerState::Live);
    Ok(workers)
}

/// Returns the types of the first tasks in lists from which no live worker claims. Such a list usually has tasks of one type.
fn unclaimed_types(
    db: &Connection,
    shared: &Shared,
    now: Now,
) -> Result<Vec<UnclaimedType>, Fault> {
    let routes = shared.routes.load(db)?;
    let sets = live_sets(db, &shared.endpoint)?;
    let known: BTreeSet<_> = sets.keys().flat_map(|&set| routes.kinds(set)).collect();
    let claimed = known.iter().filter(|&&kind| !routes.is_paused(kind));
    let claimed: BTreeSet<_> = claimed.flat_map(|&kind| routes.path(kind)).collect();
    let mut found = Vec::new();
    for list in ready_queue::lists(db)?.into_iter().take(MAX_HEAD_LISTS) {
        if found.len() < MAX_DIAGNOSED && !claimed.contains(&list) {
            found.extend(first_in(db, list, &known, now)?);
        }
    }
    Ok(found)
}

fn first_in(
    db: &Connection,
    list: ListId,
    known: &BTreeSet<Kind>,
    now: Now,
) -> Result<Option<UnclaimedType>, rusqlite::Error> {
    let mut statement = db.prepare_cached(FIRST)?;
    let first = statement.query_row([list.number()], |row| {
        let (name, queue): (String, Option<String>) = (row.get(0)?, row.get(1)?);
        let ready_at: Option<i64> = row.get(2)?;
        Ok(UnclaimedType {
            run_type: RunType::new(&name.into(), &queue.into()),
            is_known: known.contains(&Kind::from_number(row.get(3)?)),
            ready_for: ready_at.map(|at| now.since(at)),
        })
    });
    first.optional()
}
