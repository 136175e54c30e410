//! Lists the workers.

use std::time::Duration;

use super::state::{Model, Session, Suspect};
use crate::durable::store::{SessionId, WorkerCard};
use crate::durable::{Cursor, WorkerInfo, WorkerState, WorkersPage};

impl Model {
    pub(in super::super) fn workers(
        &self,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Option<WorkersPage> {
        let after = match after {
            Some(bytes) => SessionId::from_be_bytes(bytes.try_into().ok()?),
            None => 0,
        };
        let sessions = self.sessions.range(after.saturating_add(1)..);
        let mut page = WorkersPage::at(self.wall());
        for (&id, session) in sessions {
            let Some(card) = &session.card else {
                continue;
            };
            if page.workers.len() == limit {
                let last = page.workers.last().map_or(0, |worker| worker.session);
                page.next = Some(Cursor::of_workers(last.to_be_bytes().to_vec()));
                break;
            }
            page.workers.push(self.worker(id, session, card));
        }
        Some(page)
    }

    /// Returns the worker of a session, if the session has a card.
    pub(in super::super) fn find_worker(&self, id: SessionId) -> Option<WorkerInfo> {
        let session = self.sessions.get(&id)?;
        let card = session.card.as_ref()?;
        Some(self.worker(id, session, card))
    }

    fn worker(&self, id: SessionId, session: &Session, card: &WorkerCard) -> WorkerInfo {
        let mut claims = self.claims.values();
        let silent = Some(Suspect::Silent);
        let is_suspect = claims.any(|lease| lease.session == id && lease.suspect == silent);
        let state = match (session.is_dead, is_suspect) {
            (true, _) => WorkerState::Gone,
            (false, true) => WorkerState::Suspect,
            (false, false) => WorkerState::Live,
        };
        WorkerInfo {
            started: Duration::from_millis(self.wall().saturating_sub(session.opened)),
            last_seen: (!session.is_dead).then_some(Duration::ZERO),
            ..WorkerInfo::new(id, card.clone(), state)
        }
    }
}
