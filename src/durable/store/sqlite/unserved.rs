//! Counts the waiting tasks whose type no live worker has registered.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use super::endpoint::{Endpoint, EndpointId};
use super::error::Fault;
use super::line::LISTS;
use crate::durable::store::kind::{Kind, SetId};
use crate::durable::store::routes::ListId;

/// The number of tasks that are looked at in a draining list. The others are taken to be alike.
const MAX_LOOKED_AT: i64 = 4096;

/// A list that does not drain has tasks of types that exactly the same sets contain: so live workers know
/// either all of these types or none. Only the tasks of a draining list are looked at one by one.
pub(super) fn count(db: &Connection, endpoint: &Endpoint) -> Result<u64, Fault> {
    let routes = endpoint.routes.load(db)?;
    let live = live_sets(db, endpoint)?;
    let leaves: BTreeSet<_> = live.iter().flat_map(|&set| routes.leaves(set)).collect();
    let draining: BTreeSet<_> = live.iter().flat_map(|&set| routes.draining(set)).collect();
    let mut unserved = 0;
    for list in lists(db)? {
        unserved += match (leaves.contains(&list), draining.contains(&list)) {
            (true, _) => 0,
            (false, true) => count_some(db, list, |kind| !leaves.contains(&routes.leaf(kind)))?,
            (false, false) => count_all(db, list)?,
        };
    }
    Ok(unserved)
}

/// The sets of which a session lives.
fn live_sets(db: &Connection, endpoint: &Endpoint) -> Result<BTreeSet<SetId>, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT DISTINCT types, endpoint FROM throng_session WHERE types IS NOT NULL",
    )?;
    let sessions = statement.query_map([], |row| {
        Ok((
            SetId::from_number(row.get(0)?),
            row.get::<_, EndpointId>(1)?,
        ))
    })?;
    let mut live = BTreeSet::new();
    for session in sessions {
        let (set, holder) = session?;
        // A lock file may be removed shortly before the sessions of its process are.
        if !live.contains(&set) && !endpoint.is_gone(holder) {
            live.insert(set);
        }
    }
    Ok(live)
}

/// The lists in which tasks wait.
fn lists(db: &Connection) -> Result<Vec<ListId>, rusqlite::Error> {
    let mut statement = db.prepare_cached(LISTS)?;
    let lists = statement.query_map([], |row| row.get(0).map(ListId::from_number))?;
    lists.collect()
}

fn count_all(db: &Connection, list: ListId) -> Result<u64, rusqlite::Error> {
    let mut statement = db.prepare_cached("SELECT count(*) FROM throng_ready WHERE list = ?1")?;
    statement.query_row([list.number()], |row| {
        row.get::<_, i64>(0).map(|count| count as u64)
    })
}

/// Counts the tasks of the chosen kinds in a list.
fn count_some(
    db: &Connection,
    list: ListId,
    choose: impl Fn(Kind) -> bool,
) -> Result<u64, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT kind, count(*)
         FROM (SELECT id FROM throng_ready WHERE list = ?1 ORDER BY place LIMIT ?2) AS ready
         CROSS JOIN throng_task AS task ON task.id = ready.id GROUP BY kind",
    )?;
    let kinds = statement.query_map(params![list.number(), MAX_LOOKED_AT], |row| {
        Ok((Kind::from_number(row.get(0)?), row.get::<_, i64>(1)? as u64))
    })?;
    let (mut chosen, mut looked_at) = (0, 0);
    for kind in kinds {
        let (kind, count) = kind?;
        chosen += if choose(kind) { count } else { 0 };
        looked_at += count;
    }
    Ok(chosen * count_all(db, list)? / looked_at.max(1))
}
