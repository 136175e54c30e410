//! The executor on a store in memory, in a runtime whose time is paused.

use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{
    Answer, ClaimPushes, Enqueue, HAND_OUT_INTERVAL, NewTask, SessionId, Store, Turn,
};
use crate::durable::{
    Builder, DurableClient, DurableError, DurableExecutor, DurableHandle, DurableTask, Key,
    MemoryStore, Run, SpawnOptions, TaskContext, TaskError, TaskId,
};
use crate::retry::Retry;
use crate::sync::{Mutex, lock};

mod damage_tests;
mod groups_tests;
mod nested_tests;
mod progress_tests;
mod pushes_tests;
mod queues_tests;
mod schedules_tests;
mod shares_tests;
mod shutdown_tests;
mod stats_tests;
mod steps_tests;
mod timeouts_tests;
mod workers_tests;

/// A task that does what its [`App`] says.
#[derive(Serialize, Deserialize)]
struct Number(u64);

impl DurableTask for Number {
    const NAME: &'static str = "number";
    type Output = u64;
}

type Outcome = Pin<Box<dyn Future<Output = Result<u64, TaskError>> + Send>>;

/// The function that a [`Number`] runs.
struct App(Box<dyn Fn(u64, TaskContext<Self>) -> Outcome + Send + Sync>);

impl App {
    fn new<F>(act: impl Fn(u64, TaskContext<Self>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<u64, TaskError>> + Send + 'static,
    {
        Self(Box::new(move |number, cx| Box::pin(act(number, cx))))
    }
}

impl Run<App> for Number {
    async fn run(self, cx: TaskContext<App>) -> Result<u64, TaskError> {
        let app = StdArc::clone(cx.app());
        (app.0)(self.0, cx).await
    }
}

fn id(number: u64) -> TaskId {
    TaskId::derive("test", &number.to_le_bytes())
}

/// Spawns a task whose id is that of its number.
async fn spawn(client: &DurableClient, number: u64) -> Result<DurableHandle<u64>, DurableError> {
    let options = SpawnOptions::new().id(id(number));
    client.spawn_with(Number(number), options).await
}

/// Spawns a task and awaits it, but not for longer than this: the run that awaits it is suspended meanwhile.
async fn await_in_vain(
    cx: &TaskContext<App>,
    number: u64,
    time: Duration,
) -> Result<(), DurableError> {
    let never = spawn(cx.client(), number).await?;
    _ = timeout(time, never).await;
    Ok(())
}

/// A client whose engine works in this runtime.
fn client_of(store: &MemoryStore) -> DurableClient {
    client_with(store, |_| Box::pin(async { Ok(()) }))
}

/// The same, whose requests wait for something.
fn client_with(
    store: &MemoryStore,
    before: impl Fn(&'static str) -> Answer<'static, ()> + Send + Sync + 'static,
) -> DurableClient {
    DurableClient::open(store.within(&Handle::current(), before))
}

/// An executor of [`Number`]s, still to be started.
fn builder(client: &DurableClient) -> Builder<App> {
    let mut builder = DurableExecutor::builder(client.clone());
    builder
        .register::<Number>()
        .retry(Retry::exponential().attempts(1));
    builder
}

/// Waits until the condition holds.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        let waited = start.elapsed();
        assert!(
            waited < Duration::from_secs(24 * 3600),
            "waited in vain until {what}"
        );
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn maintenance_begins_with_the_executor() {
    let passes = StdArc::new(Mutex::new(0));
    let noted = StdArc::clone(&passes);
    let client = client_with(&MemoryStore::new(), move |name| {
        *lock(&noted) += u32::from(name == "maintain");
        Box::pin(async { Ok(()) })
    });
    let start = Instant::now();
    let app = App::new(|number, _| async move { Ok(number) });
    let _executor = builder(&client).start(app).await.unwrap();
    until("the store is maintained", || *lock(&passes) > 0).await;
    let waited = start.elapsed();
    assert!(waited < Duration::from_secs(1), "{waited:?}");
}

/// The types of the tasks.
fn set() -> TypeSet {
    TypeSet::of_names([Number::NAME]).unwrap()
}

fn claim_all(session: SessionId) -> Turn {
    Turn {
        session,
        number: 1,
        verdicts: Vec::new(),
        received: None,
        floor: 0,
        want: 256,
        want_bytes: 1 << 20,
        quarantined: true,
        lease: Duration::from_secs(10),
        go_idle: false,
        pushes: ClaimPushes::default(),
    }
}

/// A later version writes the second envelope, with a trace context.
#[tokio::test(start_paused = true)]
async fn a_task_in_envelope_version_2_runs() {
    let store = MemoryStore::new();
    let client = client_of(&store);
    let app = App::new(|number, _| async move { Ok(number) });
    let _executor = builder(&client).start(app).await.unwrap();
    let backend = store
        .within(&Handle::current(), |_| Box::pin(async { Ok(()) }))
        .0;
    let task = NewTask {
        id: id(7),
        name: Number::NAME.into(),
        envelope: 2,
        version: 1,
        queue: QueueName::DEFAULT,
        group: None,
        priority: Priority::Normal,
        key: None,
        payload: [&b"\x02\x01\x01"[..], &[9; 25], b"7"].concat(),
        delay: Duration::ZERO,
        retention: Duration::from_secs(60),
        max_crashes: 3,
        parent: None,
    };
    let enqueue = Enqueue {
        session: backend.open_session(None).await.unwrap(),
        number: 1,
        batch: StdArc::new(vec![task].into()),
    };
    backend.enqueue(StdArc::new(enqueue)).await.unwrap();
    assert_eq!(client.attach::<Number>(id(7)).await.unwrap(), 7);
}
