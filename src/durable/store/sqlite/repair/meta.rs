//! Repairs the row about the whole store, and the routes in it.

use rusqlite::Connection;

use crate::durable::store::kept::Limits;
use crate::durable::store::kind::SetId;
use crate::durable::store::sqlite::damage::Damage;
use crate::durable::store::sqlite::error::{Fault, corrupt};
use crate::durable::store::sqlite::meta::MAX_ISSUED;
use crate::durable::store::sqlite::route_cache;
use crate::durable::store::sqlite::time::Now;

/// Repairs the row about the whole store. It cannot be repaired without its layout and its birth.
pub(super) fn repair(db: &Connection, now: Now, damage: &mut Damage) -> Result<(), Fault> {
    for (name, is_number) in columns(db)? {
        if is_number || name == "routes" {
            continue;
        }
        let instead = match &*name {
            "layout" | "birth" => return Err(corrupt()),
            // Above all epochs that were issued.
            "epoch" => now.micros().max(ceiling(db)),
            "session" | "routes_version" | "raised" => now.micros(),
            "raised_boot" => now.boot_micros(),
            "aged" => now.wall,
            "aged_at" => now.boot,
            _ => Limits::default_of(&name).unwrap_or_default(),
        };
        db.execute(&format!("UPDATE throng_meta SET {name} = ?1"), [instead])?;
        damage.add(1, || format!("throng_meta has no valid {name}"));
    }
    if route_cache::read(db).is_err() {
        reset_routes(db, now)?;
        damage.add(1, || "throng_meta has no valid routes".into());
    }
    Ok(())
}

/// Returns the ceiling of epochs, or zero if it cannot be read.
fn ceiling(db: &Connection) -> i64 {
    let sql = "SELECT ceiling FROM throng_meta WHERE ceiling BETWEEN 0 AND ?1";
    let ceiling = db.query_row(sql, [MAX_ISSUED], |row| row.get(0));
    ceiling.unwrap_or_default()
}

/// Returns the sets of sessions that are missing in the routes. Such a session would claim nothing.
pub(super) fn unknown_sets(db: &Connection) -> Result<Vec<i64>, rusqlite::Error> {
    let routes = route_cache::read(db).unwrap_or_default();
    let known: Vec<_> = routes.sets().map(SetId::number).collect();
    let sql = "SELECT DISTINCT types FROM throng_session WHERE types IS NOT NULL";
    let mut statement = db.prepare_cached(sql)?;
    let sets = statement.query_map([], |row| row.get(0))?;
    let mut sets = sets.collect::<Result<Vec<_>, _>>()?;
    sets.retain(|set| !known.contains(set));
    Ok(sets)
}

/// Closes the sessions whose set is missing in the routes. Their workers open new ones. If no set is left, the lists of the
/// tasks are lost, too.
pub(super) fn close_sessions_of_unknown_sets(
    db: &Connection,
    now: Now,
    damage: &mut Damage,
) -> Result<(), Fault> {
    let unknown = unknown_sets(db)?;
    if !unknown.is_empty() && route_cache::read(db)?.sets().next().is_none() {
        damage.add(1, || "throng_meta has lost its routes".into());
        return Ok(reset_routes(db, now)?);
    }
    for set in unknown {
        let ended = db.execute("DELETE FROM throng_session WHERE types = ?1", [set])?;
        damage.add(ended, || {
            format!("throng_session names an unknown set, {set}")
        });
    }
    Ok(())
}

/// Returns the names of the columns, each with `true` if its value is a valid number.
fn columns(db: &Connection) -> Result<Vec<(String, bool)>, rusqlite::Error> {
    let mut statement = db.prepare("SELECT * FROM throng_meta")?;
    let names = (0..statement.column_count()).map(|it| statement.column_name(it));
    let names: Vec<_> = names
        .map(|name| name.map(str::to_owned))
        .collect::<Result<_, _>>()?;
    statement.query_row([], |row| {
        let columns = names.into_iter().enumerate().map(|(column, name)| {
            let is_any = name == "birth";
            let number = row.get::<_, i64>(column);
            (
                name,
                number.is_ok_and(|it| is_any || (0..=MAX_ISSUED).contains(&it)),
            )
        });
        Ok(columns.collect())
    })
}

/// Has the routes use priorities if a task has another priority than the normal one: they may have been lost.
pub(super) fn restore_priorities(db: &Connection) -> Result<(), Fault> {
    let mut routes = route_cache::read(db)?;
    let sql = "SELECT EXISTS (SELECT 1 FROM throng_task WHERE priority <> 1)";
    if routes.uses_priorities() || !db.query_row(sql, [], |row| row.get(0))? {
        return Ok(());
    }
    routes.use_priorities();
    let text = serde_json::to_string(&routes).unwrap_or_default();
    db.execute(
        "UPDATE throng_meta SET routes = ?1, routes_version = routes_version + 1",
        [text],
    )?;
    Ok(())
}

/// Resets the routes, so that each task waits in the list of its type, and closes all sessions. The workers open new
/// sessions, which declare their types again.
fn reset_routes(db: &Connection, now: Now) -> Result<(), rusqlite::Error> {
    db.execute("DELETE FROM throng_session", [])?;
    db.execute("DELETE FROM throng_ready", [])?;
    db.execute(
        "UPDATE throng_meta SET routes = NULL, routes_version = max(routes_version + 1, ?1)",
        [now.micros()],
    )?;
    Ok(())
}
