//! [`Shared`]: the knowledge that all parts of a store share.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::connection::Connection;
use super::low_marks::LowMarks;
use super::server::{NoticeSender, PostgresServer};
use super::spare::SpareConnection;
use super::time::ServerTime;
use crate::durable::failure::Failure;
use crate::durable::store::SessionId;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::layouts::Layouts;
use crate::sync::{AtomicBool, Mutex};

/// The id of a process in a store. Other processes notify it through the channel of this id.
pub(super) type EndpointId = i64;

/// The knowledge that all parts of a store share.
pub(super) struct Shared {
    pub(super) server: PostgresServer,
    pub(super) endpoint: EndpointId,
    pub(super) layouts: Layouts,
    pub(super) time: ServerTime,
    /// The number of the lock that each transaction which writes holds, shared or for itself.
    pub(super) store_lock: i64,
    /// `true` if the process writes nothing, not even that it awaits a task.
    pub(super) is_observer: bool,
    /// `true` while the process receives notifications.
    pub(super) is_listening: AtomicBool,
    /// The sets of the sessions of this process.
    pub(super) sets: Mutex<HashMap<SessionId, Option<Arc<TypeSet>>>>,
    pub(super) low_marks: LowMarks,
    pub(super) spare: SpareConnection,
    /// The sessions of this process that may be in the table `park`.
    pub(super) parked: Mutex<HashSet<SessionId>>,
    /// The last row of the table `watch` that maintenance has checked.
    pub(super) checked_watch: Mutex<(Uuid, EndpointId)>,
}

impl Shared {
    pub(super) fn new(
        server: PostgresServer,
        layouts: Layouts,
        time: ServerTime,
        is_observer: bool,
    ) -> Self {
        Self {
            store_lock: lock_number(&server.schema),
            server,
            endpoint: fastrand::i64(1..),
            layouts,
            time,
            is_observer,
            is_listening: AtomicBool::new(false),
            sets: Mutex::default(),
            low_marks: LowMarks::default(),
            spare: SpareConnection::default(),
            parked: Mutex::default(),
            checked_watch: Mutex::default(),
        }
    }

    /// Opens a connection that the process needs more than the spare one. Its notifications go to `notices`.
    pub(super) async fn connect(
        &self,
        notices: Option<NoticeSender>,
    ) -> Result<Connection, Failure> {
        let connected = self.spare.connect_other(&self.server, notices).await;
        Ok(connected?)
    }
}

/// Returns the number of the lock of a store: a hash of its schema.
fn lock_number(schema: &str) -> i64 {
    let digest = Sha256::digest(format!("throng {schema}"));
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

/// Returns the channel of a process.
pub(super) fn channel(endpoint: EndpointId) -> String {
    format!("throng_{endpoint:x}")
}
