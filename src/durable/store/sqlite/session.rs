//! Sessions: they identify the process that sends a request, and detect repeated requests.

use rusqlite::{OptionalExtension, params};

use super::error::Fault;
use super::work::Work;
use super::{admin, reap};
use crate::durable::failure::Cause;
use crate::durable::store::SessionId;
use crate::durable::store::kind::{SetId, TypeSet};

pub(super) struct Session {
    pub(super) id: i64,
    number: i64,
    /// The types that it claims.
    pub(super) set: Option<SetId>,
    /// What its last turn claimed.
    pub(super) claim: Option<i64>,
    /// The first task of its last enqueue.
    pub(super) first: Option<[u8; 16]>,
}

impl Session {
    /// Whether this number is its last one, and not the next; older ones are refused.
    pub(super) fn is_last(&self, number: u64) -> Result<bool, Fault> {
        match number as i64 {
            number if number < self.number => Err(Fault::Refused(Cause::NoSession)),
            number => Ok(number == self.number),
        }
    }
}

pub(super) fn open(work: &mut Work<'_>, set: Option<&TypeSet>) -> Result<SessionId, Fault> {
    reap::reap_dead(work)?;
    work.meta.session += 1;
    work.execute(
        "INSERT INTO throng_session (id, endpoint, types) VALUES (?1, ?2, ?3)",
        params![
            work.meta.session,
            work.endpoint.id,
            set.map(|set| set.id().number())
        ],
    )?;
    if let Some(set) = set {
        // So each copy that is taken while a worker has a session has a ceiling that is high enough.
        work.recall();
        work.meta.raise_ceiling(work.now);
        work.change_routes(|routes| routes.declare(set))?;
    }
    work.notes.newcomer = true;
    Ok(work.meta.session as SessionId)
}

pub(super) fn close(work: &mut Work<'_>, session: SessionId) -> Result<(), Fault> {
    let Ok(closed) = find(work, session) else {
        return Ok(());
    };
    work.execute("DELETE FROM throng_session WHERE id = ?1", [session as i64])?;
    // Its claims are nobody's now.
    reap::reap_dead(work)?;
    work.notes.closed.push(session);
    // It may have been woken for what is in them.
    work.look_at_lists_of(closed.set);
    work.forget_sets()
}

/// All sessions of this process end; and what the dead have left behind is removed, where that can be done.
pub(super) fn leave(work: &mut Work<'_>) -> Result<(), Fault> {
    let sql = "SELECT id FROM throng_session WHERE endpoint = ?1";
    while let Some(session) = work.number(sql, [work.endpoint.id])? {
        close(work, session as SessionId)?;
    }
    admin::sweep(work)
}

pub(super) fn find(work: &Work<'_>, session: SessionId) -> Result<Session, Fault> {
    let mut statement = work
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
