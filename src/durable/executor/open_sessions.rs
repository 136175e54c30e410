//! [`OpenSessions`]: the sessions of an executor that is starting.

use std::mem;
use std::sync::Arc as StdArc;

use tokio::time::timeout;

use super::app_runner::TaskRunner;
use super::served_queue::QueueShare;
use crate::durable::engine::Engine;
use crate::durable::resend::STORE_TIMEOUT;
use crate::durable::store::{NewSession, SessionId, WorkerCard};
use crate::durable::{DurableClient, DurableError};

/// The sessions of an executor, one for each queue that it serves, in the order of the queues. When this is dropped, it closes
/// them in the background.
pub(crate) struct OpenSessions {
    engine: StdArc<Engine>,
    ids: Vec<SessionId>,
}

impl OpenSessions {
    /// Opens a session for each queue. If one cannot be opened, none stays open.
    pub(crate) async fn open(
        client: &DurableClient,
        runner: &dyn TaskRunner,
        queues: &[QueueShare],
    ) -> Result<Self, DurableError> {
        let mut sessions = Self {
            engine: StdArc::clone(client.engine()),
            ids: Vec::new(),
        };
        for share in queues {
            let session = session_of(runner, share);
            let opened = client.ask(None, |store| store.open_session_with(session.clone()));
            sessions.ids.push(opened.await?);
        }
        Ok(sessions)
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn ids(&self) -> &[SessionId] {
        &self.ids
    }

    /// Returns the sessions, which the caller has to close.
    pub(crate) fn into_ids(mut self) -> Vec<SessionId> {
        mem::take(&mut self.ids)
    }
}

/// Returns the session to open for a queue of an executor.
pub(super) fn session_of(runner: &dyn TaskRunner, share: &QueueShare) -> NewSession {
    let queue = &share.queue;
    NewSession {
        set: Some(runner.set().in_queue(queue.clone())),
        card: Some(WorkerCard::new(queue, share.max_running, runner.names())),
    }
}

impl Drop for OpenSessions {
    fn drop(&mut self) {
        let (store, ids) = (StdArc::clone(&self.engine.store), mem::take(&mut self.ids));
        if ids.is_empty() {
            return;
        }
        self.engine.run_to_end(async move {
            for id in ids {
                timeout(STORE_TIMEOUT, store.close_session(id)).await.ok();
            }
        });
    }
}
