//! [`Sessions`]: what a process remembers of its sessions between requests.

use std::collections::HashMap;

use crate::durable::store::SessionId;
use crate::durable::store::kind::SetId;
use crate::sync::{Mutex, lock};

/// The sessions of this process.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<SessionId, SessionState>>);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SessionState {
    /// The set of types that the session claims.
    pub(super) set: Option<SetId>,
    /// The partition of the queue of the session, if the queue is a named one: only there the session claims tasks.
    pub(super) home: Option<usize>,
    /// The partition from which the last turn, if it is sent again, begins: the one that was claimed from, or that may
    /// have been claimed from because it has not answered.
    pub(super) resume_at: Option<usize>,
    /// `true` if the session may be idle in some partitions.
    pub(super) is_idle: bool,
}

impl Sessions {
    pub(super) fn get(&self, session: SessionId) -> SessionState {
        lock(&self.0).get(&session).copied().unwrap_or_default()
    }

    pub(super) fn set(&self, session: SessionId, state: SessionState) {
        lock(&self.0).insert(session, state);
    }

    pub(super) fn remove(&self, session: SessionId) {
        lock(&self.0).remove(&session);
    }
}
