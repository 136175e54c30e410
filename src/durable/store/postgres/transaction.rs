//! [`Transaction`]: a transaction for writing, in which the writer runs requests.
//!
//! Each transaction holds the lock of the store: those of the hot requests share it, and rely on the locks of rows. A request that changes
//! what others only read calls [`require_exclusive`](Transaction::require_exclusive): if the lock is shared, the transaction is rolled
//! back, and the request runs again in one that has the store for itself. So the code of such a request need not consider others that run
//! at the same time.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use tokio::try_join;
use tokio_postgres::{Error, Row};

use super::connection::{BEGIN, Connection, Params};
use super::deltas::Deltas;
use super::ended_child::EndedChild;
use super::error::Fault;
use super::group_changes::GroupChanges;
use super::meta;
use super::notices::Notices;
use super::shared::Shared;
use super::view::{Running, View};

const SHARE_STORE: &str = "SELECT pg_advisory_xact_lock_shared($1)";
const LOCK_STORE: &str = "SELECT pg_advisory_xact_lock($1)";

/// Locks sessions, in the order of their ids.
const FIND_SESSIONS: &str = "SELECT id, number, claim, first, types, queue, seen
    FROM throng.session WHERE id = ANY ($1) ORDER BY id FOR UPDATE";

/// The statements with which a transaction begins. They are sent together, so they must be prepared, unless the connection prepares none:
/// otherwise, the last one could be executed before the store is locked.
pub(super) const FIRST_STATEMENTS: [&str; 4] = [SHARE_STORE, LOCK_STORE, meta::LOAD, FIND_SESSIONS];

/// A request with its answer, as the store hands it to the writer.
pub(super) type Run<R, T> = for<'t> fn(&'t mut Transaction, &'t R) -> Running<'t, T>;

/// A transaction for writing.
pub(super) struct Transaction {
    view: View,
    db: Arc<Connection>,
    /// `true` if no other transaction writes to the store at the same time.
    is_exclusive: bool,
    /// The rows of sessions that make requests in this transaction, until the requests read them. They are locked.
    pub(super) sessions: HashMap<i64, Row>,
    pub(super) deltas: Deltas,
    pub(super) notices: Notices,
    /// The changes of groups by the current request.
    pub(super) groups: GroupChanges,
    /// The children that have ended, of which their parents are still to be told.
    pub(super) ended_children: Vec<EndedChild>,
}

impl Transaction {
    /// Begins a transaction. Unless `is_exclusive` is `true`, other transactions may use the store meanwhile. Reads and locks the sessions
    /// that will make requests in it, unless one of the requests may end sessions, which needs an exclusive transaction.
    pub(super) async fn begin(
        db: &Arc<Connection>,
        shared: &Arc<Shared>,
        is_exclusive: bool,
        sessions: &[i64],
    ) -> Result<Self, Fault> {
        let lock = if is_exclusive {
            LOCK_STORE
        } else {
            SHARE_STORE
        };
        let begin = async { Ok(db.begin(BEGIN).await?) };
        let lock = async { Ok(db.execute(lock, &[&shared.store_lock]).await?) };
        let sessions: &[i64] = if is_exclusive { &[] } else { sessions };
        let find = find_sessions(db, sessions);
        let ((), _, meta, sessions) = try_join!(biased; begin, lock, meta::load(db, shared), find)?;
        Ok(Self {
            view: View::new(Arc::clone(db), Arc::clone(shared), meta),
            db: Arc::clone(db),
            is_exclusive,
            sessions,
            deltas: Deltas::default(),
            notices: Notices::default(),
            groups: GroupChanges::default(),
            ended_children: Vec::new(),
        })
    }

    /// Ensures that no other transaction writes to the store at the same time.
    pub(super) fn require_exclusive(&self) -> Result<(), Fault> {
        match self.is_exclusive {
            true => Ok(()),
            false => Err(Fault::NeedsStore),
        }
    }

    /// Returns the connection, for a statement that is sent while the transaction is used.
    pub(super) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.db)
    }

    /// Executes a statement. Returns the number of rows that it has changed.
    pub(super) async fn execute(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<u64, Error> {
        self.db.execute(sql, params).await
    }

    /// Reads the row about the whole store again, after a change of this transaction.
    pub(super) async fn reload_meta(&mut self) -> Result<(), Fault> {
        self.view.meta = meta::load(&self.db, &self.view.shared).await?;
        Ok(())
    }

    /// Completes the transaction, except for what is [written last](Self::write_last).
    pub(super) async fn finish(&mut self) -> Result<(), Fault> {
        self.tell_parents().await?;
        self.choose_wakes().await?;
        self.prepare_last().await
    }
}

impl Deref for Transaction {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

async fn find_sessions(db: &Connection, sessions: &[i64]) -> Result<HashMap<i64, Row>, Fault> {
    if sessions.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = db.rows(FIND_SESSIONS, &[&sessions]).await?;
    let found = rows.into_iter().map(|row| Ok((row.try_get("id")?, row)));
    found.collect()
}
