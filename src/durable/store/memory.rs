//! [`MemoryStore`]: tasks in the memory of a process, and the model of what a store does.

use std::fmt;
use std::sync::Arc as StdArc;

#[cfg(test)]
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::model::Model;
use super::kind::TypeSet;
use super::{
    Answer, Backend, Enqueue, Epoch, Event, RenewAnswer, SessionId, Store, TaskState, Turn,
    TurnAnswer,
};
use crate::durable::clock::Clock;
use crate::durable::failure::Failure;
use crate::durable::{AttemptError, Counts, DeadFilter, DeadLetter, Durability, TaskId};
use crate::sync::{Mutex, lock};

mod model;

/// Tasks in the memory of a process: for tests.
///
/// Nothing survives the process. In everything else it does what the other stores do; and it can go
/// by a [`Clock`] that a test moves. That clock also decides how long results and dead letters are kept, whether or
/// not an executor runs. Each [`Store`] that is made of a clone is, to it, a process of its own.
///
/// # Examples
///
/// ```
/// use throng::durable::{DurableClient, MemoryStore};
///
/// let store = MemoryStore::new();
/// let web = DurableClient::open(store.clone());
/// let worker = DurableClient::open(store);
/// # drop((web, worker));
/// ```
#[derive(Clone)]
pub struct MemoryStore(StdArc<Mutex<Model>>);

impl MemoryStore {
    /// An empty store, which goes by the machine's time.
    #[allow(
        clippy::new_without_default,
        reason = "two stores by default are not equal"
    )]
    pub fn new() -> Self {
        Self::with_clock(&Clock::machine())
    }

    /// An empty store, which goes by `clock`.
    pub fn with_clock(clock: &Clock) -> Self {
        let model = StdArc::new(Mutex::new(Model::new(clock.clone())));
        let watched = StdArc::downgrade(&model);
        clock.watch(move || {
            let model = watched.upgrade();
            model.map(|model| lock(&model).wake_all()).is_some()
        });
        Self(model)
    }

    /// A process that uses the store, and whose engine works in this runtime: in one that is paused, time
    /// passes when nothing happens. Each request waits for what `before` returns, given the request's name,
    /// and fails if that does.
    #[cfg(test)]
    pub(crate) fn within(
        &self,
        runtime: &Handle,
        before: impl Fn(&'static str) -> Answer<'static, ()> + Send + Sync + 'static,
    ) -> Store {
        let endpoint = lock(&self.0).connect();
        Store::new(Connection {
            store: self.clone(),
            endpoint,
            test: Some(Test {
                runtime: runtime.clone(),
                before: Box::new(before),
            }),
        })
    }

    /// Sends an event to all processes.
    #[cfg(test)]
    pub(crate) fn send_all(&self, event: &Event) {
        lock(&self.0).send_all(event);
    }

    /// How many things there are of which nothing should be left in the end.
    #[cfg(test)]
    pub(crate) fn leftovers(&self) -> u64 {
        lock(&self.0).leftovers()
    }
}

impl From<MemoryStore> for Store {
    fn from(store: MemoryStore) -> Self {
        let endpoint = lock(&store.0).connect();
        Self::new(Connection {
            store,
            endpoint,
            #[cfg(test)]
            test: None,
        })
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("counts", &lock(&self.0).counts())
            .finish()
    }
}

/// What one process has of a store.
struct Connection {
    store: MemoryStore,
    endpoint: usize,
    #[cfg(test)]
    test: Option<Test>,
}

/// What a test has changed about a connection.
#[cfg(test)]
struct Test {
    runtime: Handle,
    before: Box<dyn Fn(&'static str) -> Answer<'static, ()> + Send + Sync>,
}

impl Connection {
    /// Asks the model, which answers at once.
    #[cfg_attr(not(test), allow(unused_variables, reason = "tests go by the name"))]
    fn ask<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        question: impl FnOnce(&mut Model, usize) -> Result<T, Failure> + Send + 'a,
    ) -> Answer<'a, T> {
        #[cfg(test)]
        if let Some(test) = &self.test {
            let before = (test.before)(name);
            return Box::pin(async move {
                before.await?;
                question(&mut lock(&self.store.0), self.endpoint)
            });
        }
        let answer = question(&mut lock(&self.store.0), self.endpoint);
        Box::pin(async move { answer })
    }
}

impl Backend for Connection {
    fn name(&self) -> &str {
        "memory"
    }

    #[cfg(test)]
    fn runtime(&self) -> Option<&Handle> {
        self.test.as_ref().map(|test| &test.runtime)
    }

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        lock(&self.store.0).subscribe(self.endpoint)
    }

    fn open_session(&self, set: Option<TypeSet>) -> Answer<'_, SessionId> {
        self.ask("open_session", move |model, endpoint| {
            Ok(model.open_session(endpoint, set))
        })
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.ask("close_session", move |model, _| {
            model.close_session(session);
            Ok(())
        })
    }

    fn enqueue(&self, request: StdArc<Enqueue>) -> Answer<'_, ()> {
        self.ask("enqueue", move |model, endpoint| {
            model.enqueue(endpoint, &request)
        })
    }

    fn turn(&self, request: StdArc<Turn>) -> Answer<'_, TurnAnswer> {
        self.ask("turn", move |model, _| model.turn(&request))
    }

    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        self.ask("renew", move |model, _| Ok(model.renew(&claims)))
    }

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        self.ask("status", move |model, endpoint| {
            Ok(model.status(endpoint, &ids))
        })
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.ask("errors", move |model, _| Ok(model.errors(id)))
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.ask("cancel", move |model, _| Ok(model.cancel(&ids)))
    }

    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.ask("dead_letters", move |model, _| {
            Ok(model.dead_letters(&filter, limit))
        })
    }

    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.ask("replay_dead_letters", move |model, _| {
            Ok(model.replay_dead_letters(&filter))
        })
    }

    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.ask("delete_dead_letters", move |model, _| {
            Ok(model.delete_dead_letters(&filter))
        })
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.ask("maintain", move |model, _| Ok(model.maintain(budget)))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.ask("counts", move |model, _| Ok(model.counts()))
    }

    fn probe(&self) -> Answer<'_, Durability> {
        self.ask("probe", move |_, _| Ok(Durability::Memory))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.store.0).disconnect(self.endpoint);
    }
}
