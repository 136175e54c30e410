//! Counts the waiting tasks whose type no live worker has registered.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, params};

use super::endpoint::{Endpoint, EndpointId};
use super::error::Fault;
use super::ready_queue;
use super::shared::Shared;
use crate::durable::store::kind::{Kind, SetId};
use crate::durable::store::routes::{ListId, Routes};

/// The number of tasks that are sampled in a draining list. The result is extrapolated to the others.
const MAX_SAMPLED: i64 = 4096;

/// Counts the waiting tasks whose type no live worker has registered. A paused type counts as any other.
pub(super) fn count(db: &Connection, shared: &Shared) -> Result<u64, Fault> {
    let routes = shared.routes.load(db)?;
    let live = live_sets(db, &shared.endpoint)?;
    let size = |list| ready_queue::count(db, list);
    Ok(count_with(db, &routes, live.into_keys(), size)?)
}

/// As [`count`], given the sets of the sessions of live processes, and a function that returns the number of tasks in a list.
///
/// A list that is not draining has tasks of types that belong to exactly the same sets, so live workers know
/// either all of these types or none. Only the tasks of a draining list are checked one by one.
pub(super) fn count_with(
    db: &Connection,
    routes: &Routes,
    live: impl Iterator<Item = SetId>,
    size: impl Fn(ListId) -> Result<u64, rusqlite::Error>,
) -> Result<u64, rusqlite::Error> {
    let known: BTreeSet<_> = live.flat_map(|set| routes.kinds(set)).collect();
    let leaves: BTreeSet<_> = known.iter().map(|&kind| routes.leaf(kind)).collect();
    let lists = known.iter().flat_map(|&kind| routes.path(kind));
    let draining: BTreeSet<_> = lists.copied().collect();
    let mut unserved = 0;
    for list in ready_queue::lists(db)? {
        unserved += match (leaves.contains(&list), draining.contains(&list)) {
            (true, _) => 0,
            (false, true) => estimate(db, list, size(list)?, |kind| {
                !leaves.contains(&routes.leaf(kind))
            })?,
            (false, false) => size(list)?,
        };
    }
    Ok(unserved)
}

/// Returns the sets of the sessions of live processes, and the numbers of these sessions.
pub(super) fn live_sets(
    db: &Connection,
    endpoint: &Endpoint,
) -> Result<BTreeMap<SetId, u64>, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT types, endpoint, count(*) FROM throng_session WHERE types IS NOT NULL
         GROUP BY types, endpoint",
    )?;
    let counted = statement.query_map([], |row| {
        let (set, worker) = (
            SetId::from_number(row.get(0)?),
            row.get::<_, EndpointId>(1)?,
        );
        Ok((set, worker, row.get::<_, i64>(2)? as u64))
    })?;
    let mut live = BTreeMap::new();
    let mut gone = BTreeMap::new();
    for counted in counted {
        let (set, worker, count) = counted?;
        // A process that exits may remove its lock file shortly before its sessions.
        let is_gone = gone
            .entry(worker)
            .or_insert_with(|| endpoint.is_gone(worker));
        if !*is_gone {
            *live.entry(set).or_default() += count;
        }
    }
    Ok(live)
}

/// Counts the tasks of the chosen kinds in a list of this size, by a sample.
fn estimate(
    db: &Connection,
    list: ListId,
    size: u64,
    choose: impl Fn(Kind) -> bool,
) -> Result<u64, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT kind, count(*)
         FROM (SELECT id FROM throng_ready WHERE list = ?1 ORDER BY place LIMIT ?2) AS ready
         CROSS JOIN throng_task AS task ON task.id = ready.id GROUP BY kind",
    )?;
    let kinds = statement.query_map(params![list.number(), MAX_SAMPLED], |row| {
        Ok((Kind::from_number(row.get(0)?), row.get::<_, i64>(1)? as u64))
    })?;
    let (mut chosen, mut sampled) = (0, 0);
    for kind in kinds {
        let (kind, count) = kind?;
        chosen += if choose(kind) { count } else { 0 };
        sampled += count;
    }
    Ok(chosen * size / sampled.max(1))
}
