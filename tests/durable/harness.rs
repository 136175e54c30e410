//! Shared by the tests of durable tasks: stores, a task whose behaviour a test defines, and doors that
//! delay it.

use std::borrow::Borrow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{
    Builder, Clock, DurableClient, DurableExecutor, DurableHandle, DurableTask, InlineExecutor,
    MemoryStore, Run, SpawnOptions, Status, TaskContext, TaskError, TaskFilter, TaskId,
};
use tokio::sync::Semaphore;

#[cfg(feature = "redis")]
use crate::redis_server::Server;
use crate::support::TEST_TIMEOUT;

/// Makes a test for each store of functions that take a [`TestStore`].
macro_rules! on_all_stores {
    ($($name:ident,)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::harness::in_time(super::$name($crate::harness::TestStore::memory())).await;
            })*
        }

        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::harness::in_time(super::$name($crate::harness::TestStore::file())).await;
            })*
        }

        #[cfg(feature = "redis")]
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                needs_redis!();
                $crate::harness::in_time(super::$name($crate::harness::TestStore::server())).await;
            })*
        }
    };
}

/// The time limit of a test.
const LONG: Duration = Duration::from_secs(120);

pub(crate) async fn in_time(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(LONG, test).await;
    assert!(ended.is_ok(), "the test goes on for ever");
}

// ===== Stores =====

/// A store that many clients can open, as many processes would.
pub(crate) enum TestStore {
    Memory(MemoryStore),
    #[cfg(feature = "sqlite")]
    File(tempfile::TempDir),
    /// A namespace of a server, and the number of its partitions.
    #[cfg(feature = "redis")]
    Server(Arc<Server>, String, usize),
}

impl TestStore {
    pub(crate) fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn file() -> Self {
        Self::File(tempfile::tempdir().expect("a folder"))
    }

    #[cfg(feature = "redis")]
    pub(crate) fn server() -> Self {
        Self::partitions(1)
    }

    #[cfg(feature = "redis")]
    pub(crate) fn partitions(count: usize) -> Self {
        Self::Server(Server::shared(), TaskId::new().to_string(), count)
    }

    /// Returns `true` if what is stored survives the loss of power. (The server of the tests writes nothing down.)
    pub(crate) fn is_on_disk(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::File(_) => true,
            _ => false,
        }
    }

    /// A client that shares only the store with others.
    pub(crate) async fn client(&self) -> DurableClient {
        match self {
            Self::Memory(store) => DurableClient::open(store.clone()),
            #[cfg(feature = "sqlite")]
            Self::File(folder) => {
                let path = folder.path().join("tasks.db");
                let store = throng::durable::SqliteStore::open(path).await;
                DurableClient::open(store.expect("the file can be opened"))
            }
            #[cfg(feature = "redis")]
            Self::Server(server, namespace, partitions) => {
                let mut builder = throng::durable::RedisStore::builder(&server.url());
                builder.namespace(namespace).partitions(*partitions);
                let store = builder.open().await;
                DurableClient::open(store.expect("the server can be reached"))
            }
        }
    }
}

/// A client of a store in memory that goes by a clock of ours.
pub(crate) fn timed() -> (Clock, DurableClient) {
    let clock = Clock::manual();
    let client = DurableClient::open(MemoryStore::with_clock(&clock));
    (clock, client)
}

// ===== Tasks =====

/// A task that does what its [`App`] says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Number(pub(crate) u64);

impl DurableTask for Number {
    const NAME: &'static str = "number";
    type Output = u64;
}

type Outcome = Pin<Box<dyn Future<Output = Result<u64, TaskError>> + Send>>;

/// The behaviour of a [`Number`].
pub(crate) struct App(Box<dyn Fn(u64, TaskContext<Self>) -> Outcome + Send + Sync>);

impl App {
    pub(crate) fn new<F>(act: impl Fn(u64, TaskContext<Self>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<u64, TaskError>> + Send + 'static,
    {
        Self(Box::new(move |number, cx| Box::pin(act(number, cx))))
    }
}

impl Run<App> for Number {
    async fn run(self, cx: TaskContext<App>) -> Result<u64, TaskError> {
        let app = Arc::clone(cx.app());
        (app.0)(self.0, cx).await
    }
}

/// Many attempts, soon after each other.
pub(crate) const SOON: Retry = Retry::exponential()
    .base(Duration::from_millis(1))
    .attempts(3);

/// An executor of [`Number`]s, still to be started.
pub(crate) fn builder(client: &DurableClient) -> Builder<App> {
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Number>().retry(SOON);
    builder
}

pub(crate) async fn start<F>(
    client: &DurableClient,
    act: impl Fn(u64, TaskContext<App>) -> F + Send + Sync + 'static,
) -> DurableExecutor
where
    F: Future<Output = Result<u64, TaskError>> + Send + 'static,
{
    start_as(builder(client), act).await
}

pub(crate) async fn start_as<F>(
    builder: impl Borrow<Builder<App>>,
    act: impl Fn(u64, TaskContext<App>) -> F + Send + Sync + 'static,
) -> DurableExecutor
where
    F: Future<Output = Result<u64, TaskError>> + Send + 'static,
{
    let started = builder.borrow().start(App::new(act)).await;
    started.expect("the store answers")
}

pub(crate) async fn start_inline<F>(
    builder: impl Borrow<Builder<App>>,
    act: impl Fn(u64, TaskContext<App>) -> F + Send + Sync + 'static,
) -> InlineExecutor
where
    F: Future<Output = Result<u64, TaskError>> + Send + 'static,
{
    let started = builder.borrow().start_inline(App::new(act)).await;
    started.expect("the store answers")
}

/// Runs what is due; how many runs that were.
pub(crate) async fn run_due(executor: &mut InlineExecutor) -> usize {
    executor.run_due().await.expect("the store answers")
}

pub(crate) async fn spawn(client: &DurableClient, number: u64) -> DurableHandle<u64> {
    let spawned = client.spawn(Number(number)).await;
    spawned.expect("the store takes it")
}

pub(crate) async fn spawn_as(
    client: &DurableClient,
    number: u64,
    options: SpawnOptions,
) -> DurableHandle<u64> {
    let spawned = client.spawn_with(Number(number), options).await;
    spawned.expect("the store takes it")
}

pub(crate) fn id(number: u64) -> TaskId {
    TaskId::derive("test", &number.to_le_bytes())
}

// ===== Waiting =====

/// Waits until a task is so far.
pub(crate) async fn reaches<T>(handle: &DurableHandle<T>, status: Status) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let now = handle.status().await.expect("the store answers");
        if now == status {
            return;
        }
        assert!(Instant::now() < deadline, "{now:?}, and not {status:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the clock of the store, which is that of this machine, shows a later millisecond.
pub(crate) async fn pass_a_millisecond(client: &DurableClient) {
    pass_milliseconds(client, 1).await;
}

/// Waits until a filter by the time of a page that is read now selects all tasks that have ended.
pub(crate) async fn pass_two_milliseconds(client: &DurableClient) {
    pass_milliseconds(client, 2).await;
}

async fn pass_milliseconds(client: &DurableClient, number: u64) {
    let now = async || {
        let running = TaskFilter::new(Status::Running);
        client.admin().tasks(&running, None, 1).await.unwrap().now
    };
    let end = now().await + Duration::from_millis(number);
    while now().await < end {}
}

/// Holds up tasks until it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Door(Arc<Semaphore>);

impl Door {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    pub(crate) async fn pass(&self) {
        self.0.acquire().await.expect_err("nobody gives permits");
    }

    pub(crate) fn open(&self) {
        self.0.close();
    }
}
