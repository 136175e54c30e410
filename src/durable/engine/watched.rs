//! [`Watched`]: a store that records which sorts of requests fail.

use std::collections::BTreeMap;
use std::sync::Arc as StdArc;
use std::time::SystemTime;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::durable::error::{Cause, Failure};
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{
    Answer, Backend, Beaten, Enqueue, Epoch, Event, Seen, SessionId, Turn, Turned,
};
use crate::durable::{AttemptError, Counts, DeadFilter, DeadLetter, Durability, Health, TaskId};
use crate::sync::{Mutex, lock};

/// A store that records which sorts of requests fail.
pub(super) struct Watched {
    store: StdArc<dyn Backend>,
    failing: Mutex<BTreeMap<&'static str, Failing>>,
}

/// A sort of requests whose last request has failed.
#[derive(Clone)]
struct Failing {
    since: SystemTime,
    error: String,
    failures: u32,
}

impl Watched {
    pub(super) fn new(store: StdArc<dyn Backend>) -> Self {
        Self {
            store,
            failing: Mutex::default(),
        }
    }

    /// Waits for the answer to a request of some sort, and remembers whether it is a failure.
    fn watch<'a, T: 'a>(&'a self, sort: &'static str, answer: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            let answer = answer.await;
            match &answer {
                Ok(_) => drop(lock(&self.failing).remove(sort)),
                // A store that does not answer is unreachable, not failing; and a session may end.
                Err(failure) if !failure.by_store || failure.cause == Cause::NoSession => {}
                Err(failure) => self.failed(sort, failure),
            }
            answer
        })
    }

    fn failed(&self, sort: &'static str, failure: &Failure) {
        let mut failing = lock(&self.failing);
        let entry = failing.entry(sort).or_insert_with(|| Failing {
            since: SystemTime::now(),
            error: String::new(),
            failures: 0,
        });
        entry.error = format!("{sort}: {failure}");
        entry.failures = entry.failures.saturating_add(1);
    }

    /// Returns the sort that has been failing for longest.
    fn failing(&self) -> Option<Failing> {
        let failing = lock(&self.failing);
        failing.values().min_by_key(|it| it.since).cloned()
    }
}

/// Returns the worst of these states.
fn worst(health: Health, failing: Option<Failing>, damage: Option<(u64, String)>) -> Health {
    match (health, failing, damage) {
        (unreachable @ Health::Unreachable(_), ..) => unreachable,
        (_, Some(it), _) => Health::Failing {
            since: it.since,
            error: it.error,
            failures: it.failures,
        },
        (_, None, Some((found, last))) => Health::Damaged { found, last },
        (health, None, None) => health,
    }
}

impl Backend for Watched {
    fn name(&self) -> &str {
        self.store.name()
    }

    fn runtime(&self) -> Option<&Handle> {
        self.store.runtime()
    }

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        self.store.events()
    }

    fn open_session(&self, set: Option<TypeSet>) -> Answer<'_, SessionId> {
        self.watch("opening a session", self.store.open_session(set))
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.watch("closing a session", self.store.close_session(session))
    }

    fn enqueue(&self, request: StdArc<Enqueue>) -> Answer<'_, ()> {
        self.watch("storing tasks", self.store.enqueue(request))
    }

    fn turn(&self, request: StdArc<Turn>) -> Answer<'_, Turned> {
        self.watch("a worker's turn", self.store.turn(request))
    }

    fn beat(&self, claims: Vec<Epoch>) -> Answer<'_, Beaten> {
        self.watch("renewing leases", self.store.beat(claims))
    }

    fn look(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<Seen>> {
        self.watch("the status of tasks", self.store.look(ids))
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.watch("cancelling", self.store.cancel(ids))
    }

    fn dead(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.watch("listing dead letters", self.store.dead(filter, limit))
    }

    fn replay(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.watch("replaying dead letters", self.store.replay(filter))
    }

    fn bury(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.watch("removing dead letters", self.store.bury(filter))
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.watch("maintenance", self.store.maintain(budget))
    }

    fn close(&self) -> Answer<'_, ()> {
        self.watch("closing the store", self.store.close())
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.watch("the errors of a task", self.store.errors(id))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.watch("counting", self.store.counts())
    }

    fn health(&self) -> Health {
        worst(self.store.health(), self.failing(), self.damage())
    }

    fn damage(&self) -> Option<(u64, String)> {
        self.store.damage()
    }

    fn probe(&self) -> Answer<'_, Durability> {
        self.watch("asking how durable it is", self.store.probe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::error::Effect;
    use crate::durable::store::Store;
    use crate::durable::store::memory::MemoryStore;

    fn watched() -> Watched {
        Watched::new(Store::from(MemoryStore::new()).0)
    }

    async fn answer(watched: &Watched, sort: &'static str, answer: Result<(), Failure>) {
        let answer = watched.watch(sort, Box::pin(async { answer }));
        answer.await.ok();
    }

    fn full() -> Failure {
        Failure::new(Effect::None, Cause::Full).said_by_store()
    }

    #[tokio::test]
    async fn a_sort_fails_until_one_of_it_succeeds() {
        let watched = watched();
        assert_eq!(watched.health(), Health::Well);
        answer(&watched, "one", Err(full())).await;
        answer(&watched, "other", Err(full())).await;
        answer(&watched, "other", Ok(())).await;
        answer(&watched, "one", Err(full())).await;
        let Health::Failing {
            error, failures, ..
        } = watched.health()
        else {
            panic!("{:?}", watched.health());
        };
        assert!(error.starts_with("one: there is no room left"), "{error}");
        assert_eq!(failures, 2);
        answer(&watched, "one", Ok(())).await;
        assert_eq!(watched.health(), Health::Well);
    }

    #[tokio::test]
    async fn no_answer_and_the_end_of_a_session_are_no_failures() {
        let watched = watched();
        let lost = Failure::new(Effect::Unknown, Cause::Unavailable);
        answer(&watched, "one", Err(lost)).await;
        let ended = Failure::new(Effect::None, Cause::NoSession).said_by_store();
        answer(&watched, "one", Err(ended)).await;
        assert_eq!(watched.health(), Health::Well);
    }

    #[test]
    fn the_worst_is_said() {
        let failing = Failing {
            since: SystemTime::UNIX_EPOCH,
            error: "full".into(),
            failures: 7,
        };
        let said = Health::Failing {
            since: SystemTime::UNIX_EPOCH,
            error: "full".into(),
            failures: 7,
        };
        let damage = || Some((3, "a row".to_owned()));
        let damaged = Health::Damaged {
            found: 3,
            last: "a row".into(),
        };
        let gone = Health::Unreachable("gone".into());
        let all = worst(gone.clone(), Some(failing.clone()), damage());
        assert_eq!(all, gone);
        assert_eq!(worst(Health::Mute, Some(failing), damage()), said);
        assert_eq!(worst(Health::Mute, None, damage()), damaged);
        assert_eq!(worst(Health::Mute, None, None), Health::Mute);
    }
}
