//! Sessions, which identify the process that sends a request, and detect repeated requests.

use std::sync::Arc;

use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Fault;
use super::meta;
use super::queues::queue_column;
use super::reap;
use super::text;
use super::transaction::Transaction;
use super::view::View;
use crate::durable::StoreLayout;
use crate::durable::failure::Cause;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::{Kind, TypeSet};
use crate::durable::store::layouts::Layouts;
use crate::durable::store::{NewSession, SessionId, WorkerCard};
use crate::sync::lock;

const OPEN: &str = "INSERT INTO throng.session
        (id, endpoint, layout, process, types, queue, opened, seen, card)
    VALUES (nextval('throng.session_id'), $1, $2, $3, $4, $5, $6, $6, $7) RETURNING id";

pub(super) const FIND: &str = "SELECT number, claim, first, types, queue, seen FROM throng.session
    WHERE id = $1 FOR UPDATE";

const SEEN: &str = "UPDATE throng.session SET seen = $2 WHERE id = $1";

const CLOSE: &str = "DELETE FROM throng.session WHERE id = $1";

const UNPARK: &str = "DELETE FROM throng.park WHERE session = $1";

const OF_ENDPOINT: &str = "SELECT id FROM throng.session WHERE endpoint = $1";

const OLDER_PROCESSES: &str =
    "SELECT DISTINCT process FROM throng.session WHERE layout < $1 ORDER BY 1";

const UPGRADE: &str = "UPDATE throng.meta SET layout = $1";

/// The time after which a request records that its session lives, in milliseconds.
const SEEN_INTERVAL: u64 = 30_000;

pub(super) struct Session {
    pub(super) id: i64,
    number: i64,
    /// The types of the tasks that it claims.
    pub(super) set: Option<Arc<TypeSet>>,
    /// The epoch of the claim that its last turn made.
    pub(super) claim: Option<i64>,
    /// The first task of its last enqueue.
    pub(super) first: Option<Uuid>,
}

impl Session {
    /// Returns `true` if the session has made the request with this number, which is repeated. Refuses older numbers.
    pub(super) fn is_last(&self, number: u64) -> Result<bool, Fault> {
        match number as i64 {
            number if number < self.number => Err(Fault::Refused(Cause::NoSession)),
            number => Ok(number == self.number),
        }
    }

    pub(super) fn queue(&self) -> QueueName {
        let set = self.set.as_ref();
        set.map(|set| set.queue().clone()).unwrap_or_default()
    }
}

pub(super) async fn open(tx: &mut Transaction, new: &NewSession) -> Result<SessionId, Fault> {
    tx.require_exclusive()?;
    reap::reap_dead(tx).await?;
    reap::reap_gone(tx).await?;
    tx.rows(meta::RAISE_EPOCH, &[&tx.now.micros()]).await?;
    let set = new.set.as_ref();
    let types = set.map(|set| {
        set.types()
            .iter()
            .map(|kind| kind.number())
            .collect::<Vec<_>>()
    });
    let card = new.card.clone().map(|card| stored_card(tx, card));
    let id: Option<i64> = tx
        .value(
            OPEN,
            &[
                &tx.shared.endpoint,
                &tx.shared.layouts.newest,
                &i64::from(std::process::id()),
                &types,
                &set.and_then(|set| queue_column(set.queue())),
                &tx.now.wall,
                &card,
            ],
        )
        .await?;
    let id = id.unwrap_or_default() as SessionId;
    let set = new.set.clone().map(Arc::new);
    lock(&tx.shared.sets).insert(id, set);
    Ok(id)
}

/// Returns a card in its stored form.
fn stored_card(tx: &Transaction, card: WorkerCard) -> Vec<u8> {
    let Layouts { oldest, newest } = tx.shared.layouts;
    let layouts = Some((oldest, newest));
    WorkerCard { layouts, ..card }.to_bytes()
}

pub(super) async fn close(tx: &mut Transaction, session: SessionId) -> Result<(), Fault> {
    tx.require_exclusive()?;
    let closed = match find(tx, session).await {
        Err(Fault::Refused(_)) => return Ok(()),
        found => found?,
    };
    tx.execute(CLOSE, &[&closed.id]).await?;
    tx.execute(UNPARK, &[&closed.id]).await?;
    lock(&tx.shared.sets).remove(&session);
    tx.shared.low_marks.remove(closed.id);
    tx.notices.unparked.push(session);
    // Its claims no longer belong to a session, so they are taken back.
    reap::reap_dead(tx).await?;
    // The session may have been woken for tasks of these kinds.
    if let Some(set) = &closed.set {
        tx.look_again(set.queue().clone(), tx.kinds(set));
    }
    Ok(())
}

/// Closes all sessions of this process.
pub(super) async fn close_all(tx: &mut Transaction) -> Result<(), Fault> {
    tx.require_exclusive()?;
    let sessions: Vec<i64> = tx.values(OF_ENDPOINT, &[&tx.shared.endpoint]).await?;
    for session in sessions {
        close(tx, session as SessionId).await?;
    }
    Ok(())
}

/// Finds a session, and locks its row. A late copy of a request waits here until the other one is committed.
pub(super) async fn find(tx: &mut Transaction, session: SessionId) -> Result<Session, Fault> {
    let known = tx.sessions.remove(&(session as i64));
    find_with(tx, session, known).await
}

/// The same, given the row if the transaction has read it.
pub(super) async fn find_with(
    tx: &Transaction,
    session: SessionId,
    known: Option<Row>,
) -> Result<Session, Fault> {
    let id = session as i64;
    let row = match known {
        Some(row) => Some(row),
        None => tx.row(FIND, &[&id]).await?,
    };
    let row = row.ok_or(Fault::Refused(Cause::NoSession))?;
    let seen: i64 = row.try_get("seen")?;
    // The time may be in the future: the clock may have been set back.
    if tx.now.wall.abs_diff(seen) >= SEEN_INTERVAL {
        tx.execute(SEEN, &[&id, &tx.now.wall]).await?;
    }
    let known = lock(&tx.shared.sets).get(&session).cloned();
    let set = match known {
        Some(set) => set,
        None => read_set(&row)?.map(Arc::new),
    };
    Ok(Session {
        id,
        number: row.try_get("number")?,
        set,
        claim: row.try_get("claim")?,
        first: row.try_get("first")?,
    })
}

/// Reads the set of a session from its columns `types` and `queue`.
pub(super) fn read_set(row: &Row) -> Result<Option<TypeSet>, Fault> {
    let types: Option<Vec<i64>> = row.try_get("types")?;
    let queue: Option<String> = row.try_get("queue")?;
    let queue = QueueName::from(queue.map(text::loaded));
    Ok(types.map(|types| {
        let types = types.into_iter().map(Kind::from_number);
        TypeSet::of(types).in_queue(queue)
    }))
}

/// Returns the layout of the store.
pub(super) async fn layout(view: &View) -> Result<StoreLayout, Fault> {
    let newest = view.shared.layouts.newest;
    let current = view.layout;
    let older_processes = match current < newest {
        true => older_processes(view).await?,
        false => Vec::new(),
    };
    Ok(StoreLayout {
        current,
        newest,
        older_processes,
    })
}

/// Raises the layout of the store to the newest that this process knows, unless a process that has a session does not know it.
pub(super) async fn upgrade(tx: &mut Transaction) -> Result<(), Fault> {
    tx.require_exclusive()?;
    let older = older_processes(tx).await?;
    if !older.is_empty() {
        return Err(Fault::Refused(Cause::OldProcesses(older)));
    }
    tx.execute(UPGRADE, &[&tx.shared.layouts.newest]).await?;
    Ok(())
}

async fn older_processes(view: &View) -> Result<Vec<String>, Fault> {
    let newest = view.shared.layouts.newest;
    let processes: Vec<i64> = view.values(OLDER_PROCESSES, &[&newest]).await?;
    Ok(processes.iter().map(|id| format!("process {id}")).collect())
}
