//! Sessions, which identify the process that sends a request, and detect repeated requests.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::endpoint::EndpointId;
use super::error::Fault;
use super::reader::ReadConnection;
use super::shared::Shared;
use super::transaction::Transaction;
use super::{admin, reap, schema};
use crate::durable::StoreLayout;
use crate::durable::failure::Cause;
use crate::durable::store::kind::SetId;
use crate::durable::store::layouts::Layouts;
use crate::durable::store::{NewSession, SessionId, WorkerCard};

pub(super) struct Session {
    pub(super) id: i64,
    number: i64,
    /// The types of the tasks that it claims.
    pub(super) set: Option<SetId>,
    /// The epoch of the claim that its last turn made.
    pub(super) claim: Option<i64>,
    /// The first task of its last enqueue.
    pub(super) first: Option<[u8; 16]>,
}

impl Session {
    /// Returns `true` if the session has made the request with this number, which is repeated. Refuses older numbers.
    pub(super) fn is_last(&self, number: u64) -> Result<bool, Fault> {
        match number as i64 {
            number if number < self.number => Err(Fault::Refused(Cause::NoSession)),
            number => Ok(number == self.number),
        }
    }
}

pub(super) fn open(tx: &mut Transaction<'_>, new: &NewSession) -> Result<SessionId, Fault> {
    let set = new.set.as_ref();
    reap::reap_dead(tx)?;
    tx.meta.session += 1;
    tx.execute(
        "INSERT INTO throng_session (id, endpoint, layout, process, types, opened, card)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            tx.meta.session,
            tx.shared.endpoint.id,
            tx.shared.layouts.newest,
            std::process::id(),
            set.map(|set| set.id().number()),
            tx.now.wall,
            new.card.clone().map(|card| stored_card(tx, card)),
        ],
    )?;
    if let Some(set) = set {
        // A copy that is taken while a worker has a session must have a ceiling that is high enough.
        tx.skip_lost_epochs();
        tx.meta.raise_ceiling(tx.now);
        tx.change_routes(|routes| routes.declare(set))?;
    }
    tx.notices.has_new_process = true;
    Ok(tx.meta.session as SessionId)
}

/// Returns a card in its stored form.
fn stored_card(tx: &Transaction<'_>, card: WorkerCard) -> Vec<u8> {
    let Layouts { oldest, newest } = tx.shared.layouts;
    let layouts = Some((oldest, newest));
    WorkerCard { layouts, ..card }.to_bytes()
}

pub(super) fn close(tx: &mut Transaction<'_>, session: SessionId) -> Result<(), Fault> {
    let Ok(closed) = find(tx, session) else {
        return Ok(());
    };
    tx.execute("DELETE FROM throng_session WHERE id = ?1", [session as i64])?;
    // Its claims no longer belong to a session, so they are taken back.
    reap::reap_dead(tx)?;
    tx.notices.closed_sessions.push(session);
    // The session may have been woken for tasks in these lists.
    tx.recheck_lists_of(closed.set);
    tx.remove_unused_sets()
}

/// Raises the layout of the store to the newest that this process knows, unless a live process does not know it.
pub(super) fn upgrade(tx: &mut Transaction<'_>) -> Result<(), Fault> {
    let newest = tx.shared.layouts.newest;
    admin::sweep(tx)?;
    let older = older_processes(tx.db, tx.shared)?;
    if !older.is_empty() {
        return Err(Fault::Refused(Cause::OldProcesses(older)));
    }
    tx.execute("UPDATE throng_meta SET layout = ?1", [newest])?;
    Ok(())
}

/// Returns the layout of the store.
pub(super) fn layout(reader: &ReadConnection) -> Result<StoreLayout, Fault> {
    let newest = reader.shared.layouts.newest;
    reader.snapshot(|db| {
        let current = schema::layout(db)?.unwrap_or(newest);
        let older_processes = match current < newest {
            true => older_processes(db, &reader.shared)?,
            false => Vec::new(),
        };
        Ok(StoreLayout {
            current,
            newest,
            older_processes,
        })
    })
}

/// Returns the live processes that have a session and do not know the newest layout. If the lock file of a process is missing, the process
/// counts as alive only while its session holds a claim: see [`admin::sweep`].
fn older_processes(db: &Connection, shared: &Shared) -> Result<Vec<String>, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT endpoint, process, EXISTS (SELECT 1 FROM throng_claim WHERE session = throng_session.id)
         FROM throng_session WHERE layout < ?1",
    )?;
    let older = statement.query_map([shared.layouts.newest], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let mut alive = BTreeSet::new();
    for found in older {
        let (endpoint, process, has_claim): (EndpointId, i64, bool) = found?;
        let is_over = match has_claim {
            true => shared.endpoint.is_dead(endpoint),
            false => shared.endpoint.is_gone(endpoint),
        };
        if !is_over {
            alive.insert(format!("process {process}"));
        }
    }
    Ok(alive.into_iter().collect())
}

/// Closes all sessions of this process, and removes what dead processes have left behind.
pub(super) fn close_all(tx: &mut Transaction<'_>) -> Result<(), Fault> {
    let sql = "SELECT id FROM throng_session WHERE endpoint = ?1";
    while let Some(session) = tx.number(sql, [tx.shared.endpoint.id])? {
        close(tx, session as SessionId)?;
    }
    admin::sweep(tx)
}

pub(super) fn find(tx: &Transaction<'_>, session: SessionId) -> Result<Session, Fault> {
    let mut statement = tx
        .db
        .prepare_cached("SELECT number, claim, first, types FROM throng_session WHERE id = ?1")?;
    let session = statement.query_row([session as i64], |row| {
        Ok(Session {
            id: session as i64,
            number: row.get(0)?,
            claim: row.get(1)?,
            first: row.get(2)?,
            set: row.get::<_, Option<_>>(3)?.map(SetId::from_number),
        })
    });
    session.optional()?.ok_or(Fault::Refused(Cause::NoSession))
}
