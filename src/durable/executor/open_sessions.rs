//! [`OpenSessions`]: the sessions of an executor that is starting.

use std::mem;
use std::sync::Arc as StdArc;

use tokio::time::timeout;

use super::served_queue::QueueShare;
use crate::durable::engine::Engine;
use crate::durable::resend::STORE_TIMEOUT;
use crate::durable::store::SessionId;
use crate::durable::store::kind::TypeSet;
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
        set: &TypeSet,
        queues: &[QueueShare],
    ) -> Result<Self, DurableError> {
        let mut sessions = Self {
            engine: StdArc::clone(client.engine()),
            ids: Vec::new(),
        };
        for share in queues {
            let set = set.in_queue(share.queue.clone());
            let opened = client.ask(None, |store| store.open_session(Some(set.clone())));
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
