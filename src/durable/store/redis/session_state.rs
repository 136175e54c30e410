//! [`Sessions`]: what a process remembers of its sessions between requests.

use std::collections::HashMap;

use super::idle_partitions::IdlePartitions;
use crate::durable::store::SessionId;
use crate::sync::{Mutex, lock};

/// The sessions of this process.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<SessionId, SessionState>>);

#[derive(Clone, Debug, Default)]
pub(super) struct SessionState {
    /// The partition of the queue of the session, if the queue is a named one: only there the session claims tasks.
    pub(super) queue_partition: Option<usize>,
    /// The partition from which the last turn, if it is sent again, begins: the one that was claimed from, or that may
    /// have been claimed from because it has not answered.
    pub(super) resume_at: Option<usize>,
    /// The last turn has failed. What it has reported together is reported apart, so that damage of one claim holds up no other.
    pub(super) reports_apart: bool,
    pub(super) idle: IdlePartitions,
}

impl Sessions {
    pub(super) fn get(&self, session: SessionId) -> SessionState {
        lock(&self.0).get(&session).cloned().unwrap_or_default()
    }

    /// Changes the state of a session. Messages change it at the same time.
    pub(super) fn update(&self, session: SessionId, change: impl FnOnce(&mut SessionState)) {
        change(lock(&self.0).entry(session).or_default());
    }

    /// Records a wake-up that a partition has sent to a session. Without a session, it is for all of them.
    pub(super) fn wake(&self, session: Option<SessionId>, partition: usize) {
        let mut sessions = lock(&self.0);
        let woken = sessions.iter_mut();
        let woken = woken.filter(|(id, _)| session.is_none_or(|woken| woken == **id));
        woken.for_each(|(_, state)| state.idle.wake(partition));
    }

    /// Records that messages may have been lost.
    pub(super) fn miss_messages(&self) {
        let mut sessions = lock(&self.0);
        sessions.values_mut().for_each(|state| state.idle.forget());
    }

    pub(super) fn remove(&self, session: SessionId) {
        lock(&self.0).remove(&session);
    }
}
