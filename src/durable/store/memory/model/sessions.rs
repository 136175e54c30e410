//! Processes and their sessions.

use std::collections::BTreeSet;

use tokio::sync::mpsc;

use super::state::{Endpoint, Model, Session};
use crate::durable::TaskId;
use crate::durable::store::kind::Kind;
use crate::durable::store::{Enqueued, Event, NewSession, SessionId};

impl Model {
    /// Adds a process. Returns the number of its endpoint.
    pub(in super::super) fn connect(&mut self) -> usize {
        self.last_endpoint += 1;
        let endpoint = self.last_endpoint;
        self.endpoints.insert(endpoint, Endpoint::default());
        endpoint
    }

    /// Removes a process. Its sessions are dead.
    pub(in super::super) fn disconnect(&mut self, endpoint: usize) {
        self.endpoints.remove(&endpoint);
        for session in self.sessions.values_mut() {
            session.is_dead |= session.endpoint == endpoint;
        }
        self.wake_all();
    }

    pub(in super::super) fn subscribe(
        &mut self,
        endpoint: usize,
    ) -> mpsc::UnboundedReceiver<Event> {
        let (sender, receiver) = mpsc::unbounded_channel();
        sender.send(Event::Ready).ok();
        self.endpoints.entry(endpoint).or_default().events = Some(sender);
        receiver
    }

    pub(in super::super) fn open_session(&mut self, endpoint: usize, new: NewSession) -> SessionId {
        self.last_session += 1;
        let session = Session {
            endpoint,
            set: new.set,
            card: new.card,
            opened: self.wall(),
            is_idle: false,
            is_dead: false,
            number: 0,
            claim: None,
            first: None,
            enqueued: Enqueued::default(),
        };
        self.sessions.insert(self.last_session, session);
        self.reap_dead();
        self.wake_for_new_ready();
        self.last_session
    }

    /// Pauses or resumes the type with this name.
    pub(in super::super) fn set_paused(&mut self, name: String, is_paused: bool) {
        let kinds = Kind::all_of(&name);
        match is_paused {
            true => drop(self.paused.insert(name, kinds.to_vec())),
            false => drop(self.paused.remove(&name)),
        }
        if is_paused {
            return;
        }
        // One session of each queue and priority, since each has a list of its own.
        let waits = |id: &TaskId| {
            let row = &self.tasks[id];
            kinds.contains(&row.of()).then_some(row.kind)
        };
        let waiting: BTreeSet<_> = self.ready_queue.iter().filter_map(waits).collect();
        for kind in waiting {
            self.wake(1, |session| session.knows(kind));
        }
    }

    pub(in super::super) fn paused_types(&self) -> Vec<String> {
        self.paused.keys().cloned().collect()
    }

    pub(in super::super) fn close_session(&mut self, id: SessionId) {
        let session = self.sessions.get_mut(&id);
        let endpoint = session.map(|session| {
            session.is_dead = true;
            session.endpoint
        });
        self.wake_all();
        self.reap_dead();
        self.sessions.remove(&id);
        // The other sessions of the process check again.
        if let Some(endpoint) = endpoint {
            self.send(endpoint, Event::Wake(None));
        }
        self.wake_for_new_ready();
    }
}
