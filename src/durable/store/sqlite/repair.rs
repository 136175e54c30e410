//! Repairs stored data that cannot be read.
//!
//! A request that encounters such data fails and is repeated on a new connection. If it fails again, the writer repairs
//! the store and repeats the request. A repair
//!
//! 1. rebuilds each table that has an unreadable page, from the rows that can be read. The old table stays beside the
//!    new one, under a name that begins with `throng_damaged_`: its pages may belong to other tables, so they are not
//!    freed;
//! 2. removes rows that make no sense. If the row is that of a task, the task becomes a dead letter;
//! 3. makes the lists, the claims and the tasks consistent: a task that is in no list and no claim is put back, and a
//!    task of which only the id is left becomes a dead letter;
//! 4. counts the tasks again.
//!
//! A repair reads the whole store and may write all of it, in one transaction. This takes some seconds for each
//! 100,000 tasks. Maintenance looks for damage that no request has encountered, a bounded number of rows at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::error::{Fault, corrupt};
use super::held::Held;
use super::meta::read_store_time;
use super::state::{State, reason_number};
use super::work::{Now, Work};
use crate::durable::TaskId;
use crate::durable::store::DeadReason;
use crate::durable::store::kind::Kind;
use crate::durable::store::routes::Routes;
use crate::sync::{Mutex, Number, lock};

mod rows;
mod tables;

/// How many finds are remembered.
const MAX_FINDS: i64 = 100;
/// How long a store is reported as damaged after the last find.
const REPORTED: Duration = Duration::from_secs(3600);

/// The damage that a repair has found: the number of rows, and what is wrong with the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) found: u64,
    pub(super) last: String,
}

impl Damage {
    fn note(&mut self, found: usize, what: impl FnOnce() -> String) {
        if found > 0 {
            self.found += found as u64;
            self.last = what();
        }
    }
}

/// Mends what cannot be read, within a transaction for writing.
///
/// A repair reads damaged data with `old`, another connection, which sees what was there before: SQLite writes no
/// more in a transaction that has met a page which it cannot read.
pub(super) fn repair(db: &Connection, old: &Connection, now: Now) -> Result<Damage, Fault> {
    let mut damage = Damage::default();
    let mut known: BTreeSet<_> = tables::ids_of_line(old)?.into_iter().collect();
    known.extend(tables::ids_of_claims(old)?);
    tables::rebuild_all(db, old, &mut known, &mut damage)?;
    rows::mend_meta(db, now, &mut damage)?;
    rows::remove_senseless(db, &mut damage)?;
    rows::end_sessions_of_unknown_sets(db, &mut damage)?;
    rows::end_senseless_tasks(db, now, &mut damage)?;
    end_missing(db, now, &known, &mut damage)?;
    agree(db, &mut damage)?;
    count(db)?;
    remember(db, now, &damage)?;
    Ok(damage)
}

// ===== Tasks, lines and claims agree =====

/// Makes dead letters of tasks of which only the id is left.
fn end_missing(
    db: &Connection,
    now: Now,
    known: &BTreeSet<TaskId>,
    damage: &mut Damage,
) -> Result<(), Fault> {
    let mut missing = db.prepare(
        "INSERT OR IGNORE INTO throng_task
             (id, state, at, name, kind, max_crashes, retention, endpoint, error, reason)
         VALUES (?1, 4, ?2, '', 0, 0, 0, 0, 'the row of the task cannot be read', ?3)",
    )?;
    let reason = reason_number(DeadReason::Damaged);
    let time = read_store_time(db, now)?;
    for id in known {
        let ended = missing.execute(params![id.to_bytes(), time, reason])?;
        damage.note(ended, || format!("the row of task {id} cannot be read"));
    }
    Ok(())
}

/// Removes entries without a task from the lines and the claims, and puts back tasks without an entry.
fn agree(db: &Connection, damage: &mut Damage) -> Result<(), Fault> {
    let held = agree_claims(db)?;
    db.execute(
        "DELETE FROM throng_ready WHERE NOT EXISTS (
             SELECT 1 FROM throng_task AS task
             WHERE task.id = throng_ready.id AND task.state = 0
                 AND task.list = throng_ready.list AND task.place = throng_ready.place)",
        [],
    )?;
    let mut orphans = orphans(db)?;
    orphans.retain(|orphan| !held.contains(&orphan.id));
    put_back(db, &orphans)?;
    let last = orphans.last().map(|orphan| orphan.id);
    damage.note(orphans.len(), || {
        let id = last.map_or_else(String::new, |id| id.to_string());
        format!("task {id} was in no list")
    });
    Ok(())
}

/// Removes from the claims what does not run. Returns what does.
fn agree_claims(db: &Connection) -> Result<BTreeSet<TaskId>, rusqlite::Error> {
    let mut all = BTreeSet::new();
    for (epoch, mut held) in claims(db)? {
        let mut runs =
            db.prepare_cached("SELECT 1 FROM throng_task WHERE id = ?1 AND state = 0")?;
        for id in held.ids().collect::<Vec<_>>() {
            // At most one claim has it.
            if !runs.exists([id.to_bytes()])? || !all.insert(id) {
                held.remove(id);
            }
        }
        match held.is_empty() {
            true => db.execute("DELETE FROM throng_claim WHERE epoch = ?1", [epoch])?,
            false => db.execute(
                "UPDATE throng_claim SET held = ?2 WHERE epoch = ?1",
                params![epoch, held],
            )?,
        };
    }
    Ok(all)
}

fn claims(db: &Connection) -> Result<Vec<(i64, Held)>, rusqlite::Error> {
    let mut claims = db.prepare("SELECT epoch, held FROM throng_claim")?;
    let claims = claims.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    claims.collect()
}

/// A task that is not in the list where it should wait. It may be held by a claim.
struct Orphan {
    id: TaskId,
    kind: Kind,
    place: Option<i64>,
}

fn orphans(db: &Connection) -> Result<Vec<Orphan>, rusqlite::Error> {
    let mut orphans = db.prepare(
        "SELECT id, kind, place FROM throng_now WHERE now = 2 AND state = 0 ORDER BY place",
    )?;
    let orphans = orphans.query_map([], |row| {
        Ok(Orphan {
            id: TaskId::from_bytes(row.get(0)?),
            kind: Kind::from_number(row.get(1)?),
            place: row.get(2)?,
        })
    })?;
    orphans.collect()
}

/// Puts tasks into the lists from which they are claimed, each at its place if that is free.
fn put_back(db: &Connection, orphans: &[Orphan]) -> Result<(), Fault> {
    let routes = routes(db).ok_or_else(corrupt)?;
    let tail = "SELECT coalesce(max(place), 0) FROM throng_ready";
    let mut tail: i64 = db.query_row(tail, [], |row| row.get(0))?;
    let mut stand =
        db.prepare("INSERT OR IGNORE INTO throng_ready (list, place, id) VALUES (?1, ?2, ?3)")?;
    let mut tell = db.prepare("UPDATE throng_task SET list = ?2, place = ?3 WHERE id = ?1")?;
    for orphan in orphans {
        let (id, list) = (orphan.id.to_bytes(), routes.leaf(orphan.kind).number());
        let mut place = orphan.place.unwrap_or(tail);
        while stand.execute(params![list, place, id])? == 0 {
            tail += 1;
            place = tail;
        }
        tell.execute(params![id, list, place])?;
    }
    Ok(())
}

/// The routes of the store, if they make sense.
fn routes(db: &Connection) -> Option<Routes> {
    let routes = db.query_row("SELECT routes FROM throng_meta", [], |row| {
        row.get::<_, Option<String>>(0)
    });
    match routes.ok()? {
        Some(text) => serde_json::from_str(&text).ok(),
        None => Some(Routes::default()),
    }
}

// ===== Counts =====

/// Counts what there is. Claims of which nobody knows the end were lost.
fn count(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute(
        "UPDATE throng_meta SET
             waiting = (SELECT count(*) FROM throng_ready),
             running = (SELECT coalesce(sum(length(held)), 0) / ?1 FROM throng_claim),
             (delayed, dead, results) = (
                 SELECT coalesce(sum(state = 1), 0), coalesce(sum(state = 4), 0),
                     coalesce(sum(state IN (3, 5)), 0)
                 FROM throng_task)",
        [Held::ENTRY as i64],
    )?;
    let ends = "done + retried + snoozed + died + released + crashed + lost + cancelled + running";
    db.execute_batch(&format!(
        "UPDATE throng_meta SET claimed = max(claimed, {ends});
         UPDATE throng_meta SET lost = lost + claimed - ({ends});"
    ))?;
    Ok(())
}

// ===== Reports =====

fn remember(db: &Connection, now: Now, damage: &Damage) -> Result<(), rusqlite::Error> {
    if damage.found == 0 {
        return Ok(());
    }
    db.execute(
        "INSERT INTO throng_damaged (at, found, what) VALUES (?1, ?2, ?3)",
        params![
            now.wall,
            damage.found.min(u32::MAX.into()) as i64,
            damage.last
        ],
    )?;
    db.execute(
        "DELETE FROM throng_damaged WHERE number <= (SELECT max(number) FROM throng_damaged) - ?1",
        [MAX_FINDS],
    )?;
    Ok(())
}

/// The damage that was found recently.
fn recent(db: &Connection, now: Now) -> Result<Option<Damage>, rusqlite::Error> {
    let mut statement =
        db.prepare_cached("SELECT found, what FROM throng_damaged WHERE at > ?1 ORDER BY number")?;
    let finds = statement.query_map([now.wall - REPORTED.as_millis() as i64], |row| {
        Ok((row.get::<_, u32>(0)?, row.get(1)?))
    })?;
    let finds = finds.collect::<Result<Vec<_>, _>>()?;
    let found = finds.iter().map(|find| u64::from(find.0)).sum();
    let last = finds.into_iter().last();
    Ok(last.map(|(_, last)| Damage { found, last }))
}

/// The damage that this process knows of.
#[derive(Default)]
pub(super) struct DamageWatch {
    /// The latest damage, and the time at which this process learned of it.
    recent: Mutex<Option<(Damage, Instant)>>,
    /// The last row that maintenance has looked at.
    looked_at: Mutex<Option<TaskId>>,
    /// How often this process has repaired the store.
    repairs: Number,
}

impl DamageWatch {
    /// Returns the damage that was found within the last hour.
    pub(super) fn recent(&self) -> Option<Damage> {
        let recent = lock(&self.recent);
        let (damage, since) = recent.as_ref()?;
        (since.elapsed() < REPORTED).then(|| damage.clone())
    }

    pub(super) fn repairs(&self) -> usize {
        self.repairs.get()
    }

    /// Counts a repair, and records the damage that it has found.
    pub(super) fn repaired(&self, damage: Damage) {
        self.repairs.add(1);
        if damage.found > 0 {
            self.found(damage);
        }
    }

    /// Records damage.
    fn found(&self, damage: Damage) {
        let before = self.recent().map_or(0, |recent| recent.found);
        let found = before + damage.found;
        *lock(&self.recent) = Some((Damage { found, ..damage }, Instant::now()));
    }

    /// The payload or the output of a task could not be read.
    pub(super) fn met(&self, what: &str) {
        if self.recent().is_none_or(|recent| recent.last != what) {
            self.found(Damage {
                found: 1,
                last: what.to_owned(),
            });
        }
    }

    /// Looks for damage, and for what others have found.
    pub(super) fn look(&self, work: &Work<'_>) -> Result<(), Fault> {
        let last = *lock(&self.looked_at);
        *lock(&self.looked_at) = look_for_damage(work, last)?;
        self.learn(work.db, work.now)
    }

    /// Learns of what others have found.
    pub(super) fn learn(&self, db: &Connection, now: Now) -> Result<(), Fault> {
        if let Some(damage) = recent(db, now)?
            && self.recent().is_none_or(|known| known.found < damage.found)
        {
            *lock(&self.recent) = Some((damage, Instant::now()));
        }
        Ok(())
    }
}

// ===== Damage that no request has met =====

/// How many rows one pass looks at.
const PAGE: i64 = 1024;

/// Looks for damage: compares the counts with what there is, and looks at the next rows after `last`.
/// Returns the last of them, if there are more.
fn look_for_damage(work: &Work<'_>, last: Option<TaskId>) -> Result<Option<TaskId>, Fault> {
    let mut held = BTreeMap::new();
    for (epoch, claim) in claims(work.db)? {
        held.extend(claim.ids().map(|id| (id, epoch)));
    }
    let waiting = work.number("SELECT count(*) FROM throng_ready", [])?;
    let counts = &work.meta.counts;
    if held.len() as u64 != counts.running || waiting != Some(counts.waiting as i64) {
        return Err(corrupt());
    }
    if !rows::unknown_sets(work.db)?.is_empty() {
        return Err(corrupt());
    }
    let last = last.map(|id| id.to_bytes());
    let mut statement = work.db.prepare_cached(
        "SELECT * FROM throng_now WHERE ?1 IS NULL OR id > ?1 ORDER BY id LIMIT ?2",
    )?;
    let mut page = statement.query(params![last, PAGE])?;
    let (mut seen, mut last) = (0, None);
    while let Some(row) = page.next()? {
        if !rows::is_sensible(row) {
            return Err(corrupt());
        }
        let id = TaskId::from_bytes(row.get("id")?);
        let is_unlisted = row.get::<_, i64>("now")? == State::Running as i64;
        if is_unlisted && !held.contains_key(&id) {
            return Err(corrupt());
        }
        (seen, last) = (seen + 1, Some(id));
    }
    Ok(last.filter(|_| seen == PAGE))
}
