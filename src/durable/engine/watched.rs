//! [`Watched`]: a store that records which sorts of requests fail.

use std::collections::BTreeMap;
use std::sync::Arc as StdArc;
use std::time::SystemTime;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use crate::durable::error::{Cause, Failure};
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{
    Answer, Backend, Beaten, Enqueue, Epoch, Event, Seen, SessionId, Turn, Turned,
};
use crate::durable::{AttemptError, Counts, DeadFilter, DeadLetter, Durability, Health, TaskId};
use crate::sync::{Mutex, lock};

const STORING: &str = "storing tasks";

/// How long a failure counts. The engine repeats what it has to do within this time, except that it renews a lease of
/// more than six minutes less often. A request that only a user makes may never be made again.
const MEMORY: Duration = Duration::from_secs(60);

/// A store that records which sorts of requests fail.
pub(super) struct Watched {
    store: StdArc<dyn Backend>,
    failing: Mutex<BTreeMap<&'static str, Failing>>,
}

/// A sort of requests whose last request has failed.
#[derive(Clone)]
struct Failing {
    since: SystemTime,
    last: Instant,
    error: String,
    failures: u32,
}

impl Failing {
    fn counts(&self) -> bool {
        self.last.elapsed() < MEMORY
    }
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
                Err(failure) => self.failed(sort, failure),
            }
            answer
        })
    }

    fn failed(&self, sort: &'static str, failure: &Failure) {
        // A store that does not answer is unreachable, not failing; and a session may end.
        if !failure.by_store || failure.cause == Cause::NoSession {
            return;
        }
        let mut failing = lock(&self.failing);
        failing.retain(|_, it| it.counts());
        let entry = failing.entry(sort).or_insert_with(|| Failing {
            since: SystemTime::now(),
            last: Instant::now(),
            error: String::new(),
            failures: 0,
        });
        entry.last = Instant::now();
        entry.error = format!("{sort}: {failure}");
        entry.failures = entry.failures.saturating_add(1);
    }

    /// Returns the sort that has been failing for longest.
    fn failing(&self) -> Option<Failing> {
        let failing = lock(&self.failing);
        let counting = failing.values().filter(|it| it.counts());
        counting.min_by_key(|it| it.since).cloned()
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
        if set.is_some() {
            return self.watch("opening a session", self.store.open_session(set));
        }
        // Without a set, it is a step of storing tasks, which succeeds when they are stored.
        Box::pin(async move {
            let opened = self.store.open_session(set).await;
            opened.inspect_err(|failure| self.failed(STORING, failure))
        })
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.watch("closing a session", self.store.close_session(session))
    }

    fn enqueue(&self, request: StdArc<Enqueue>) -> Answer<'_, ()> {
        self.watch(STORING, self.store.enqueue(request))
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

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_is_not_repeated_counts_for_a_minute() {
        let watched = watched();
        answer(&watched, "one", Err(full())).await;
        tokio::time::advance(MEMORY / 2).await;
        answer(&watched, "one", Err(full())).await;
        tokio::time::advance(MEMORY - Duration::from_millis(1)).await;
        assert!(matches!(
            watched.health(),
            Health::Failing { failures: 2, .. }
        ));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(watched.health(), Health::Well);
        answer(&watched, "one", Err(full())).await;
        assert!(matches!(
            watched.health(),
            Health::Failing { failures: 1, .. }
        ));
    }

    /// A client that has a session opens no other when the store is well again.
    #[tokio::test]
    async fn a_session_that_was_not_opened_counts_until_tasks_are_stored() {
        let mut answers = [Err(full())].into_iter();
        let answers = Mutex::new(move || answers.next().unwrap_or(Ok(())));
        let before = move |_| -> Answer<'static, ()> {
            let answer = lock(&answers)();
            Box::pin(async { answer })
        };
        let store = MemoryStore::new().within(&Handle::current(), before);
        let watched = Watched::new(store.0);
        let fails_once = || {
            let health = watched.health();
            matches!(health, Health::Failing { failures: 1, error, .. } if error.starts_with(STORING))
        };
        watched.open_session(None).await.unwrap_err();
        assert!(fails_once());
        let session = watched.open_session(None).await.unwrap();
        assert!(fails_once());
        let request = StdArc::new(Enqueue {
            session,
            number: 1,
            tasks: StdArc::new(Vec::new().into()),
        });
        watched.enqueue(request).await.unwrap();
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
            last: Instant::now(),
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
