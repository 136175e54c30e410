//! The pools that are compared.

use std::sync::Arc;
use std::time::Duration;

use throng::BlockingPool;
use throng::blocking::Builder;
use tokio::runtime::{Handle, Runtime};

use super::Work;
use crate::areas::compute::peers::{ExecutorsCc, Pool as Executor, Spawner};
use crate::areas::{Peer, two_workers, with_handle};
use crate::watched::watch;

/// All pools, ours first.
pub(super) fn all<W: Work>(work: W) -> Vec<Peer> {
    vec![
        Peer::new("throng", move |rules| work.run::<Throng>(rules)),
        Peer::new("tokio", move |rules| work.run::<Tokio>(rules)),
        Peer::new("tokio-sharded", move |rules| {
            work.run::<TokioSharded>(rules)
        }),
        Peer::new("blocking", move |rules| work.run::<Blocking>(rules)),
        Peer::new("rusty-pool", move |rules| work.run::<RustyPool>(rules)),
        Peer::new("threadpool", move |rules| work.run::<Threadpool>(rules)).note(Some(STARTED)),
        Peer::new("rayon", move |rules| work.run::<Rayon>(rules)).note(Some(STARTED)),
        // The fastest pool of the crate `executors`, except for the one that wraps `threadpool`.
        Peer::new("executors-cc", move |rules| work.run::<ExecutorsCc>(rules)).note(Some(STARTED)),
    ]
}

/// All pools, and ours once more, configured for closures that are shorter than the creation of a thread: the only row
/// with another configuration, which its name shows.
pub(super) fn in_storm<W: Work>(work: W) -> Vec<Peer> {
    let mut peers = all(work);
    let after = Peer::new("throng-after-200us", move |rules| {
        work.run::<ThrongAfter>(rules)
    });
    peers.insert(1, after.note(Some(AFTER)));
    peers
}

const AFTER: &str = "core_threads(2).grow_after(200 us)";

/// The pools that have a keep-alive.
pub(super) fn shrinking<W: Work>(work: W) -> Vec<Peer> {
    vec![
        Peer::new("throng", move |rules| work.run::<Throng>(rules)),
        Peer::new("tokio", move |rules| work.run::<Tokio>(rules)),
        Peer::new("tokio-sharded", move |rules| {
            work.run::<TokioSharded>(rules)
        }),
        Peer::new("rusty-pool", move |rules| work.run::<RustyPool>(rules)).note(Some(CORE)),
    ]
}

const STARTED: &str = "starts all its threads when it is built, and keeps them";

const CORE: &str = "four of its threads are core threads, which stay";

/// The options of a pool that are not the defaults.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// The maximum number of closures that run at once.
    max: usize,
    keep_alive: Option<Duration>,
}

impl Shape {
    pub(super) fn of(max: usize) -> Self {
        Self {
            max,
            keep_alive: None,
        }
    }

    pub(super) fn keep_alive(self, time: Duration) -> Self {
        Self {
            keep_alive: Some(time),
            ..self
        }
    }
}

/// A pool under test.
pub(super) trait Pool: Clone + Send + Sync + 'static {
    /// The runtime from which closures are submitted.
    fn runtime(_shape: &Shape) -> Runtime {
        two_workers().build().expect("a runtime can be built")
    }

    /// Builds the pool; called within the runtime.
    fn start(shape: &Shape) -> Self;

    /// Submits at once, and returns a future of the result.
    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send;

    /// Submits a closure whose result nobody awaits.
    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        drop(self.run(f));
    }
}

#[derive(Clone)]
pub(super) struct Throng(BlockingPool);

impl Throng {
    fn builder(shape: &Shape) -> Builder {
        let mut builder = BlockingPool::builder();
        builder.max_threads(shape.max);
        if let Some(time) = shape.keep_alive {
            builder.keep_alive(time);
        }
        builder
    }
}

impl Pool for Throng {
    fn start(shape: &Shape) -> Self {
        let pool = Self::builder(shape).build();
        let pool = pool.expect("a pool can be built");
        watch(&pool);
        Self(pool)
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let handle = self.0.spawn_blocking(f);
        async move { handle.await.expect("a measured closure ended badly") }
    }
}

/// Ours, with two threads for short closures, and more if those block.
#[derive(Clone)]
struct ThrongAfter(Throng);

impl Pool for ThrongAfter {
    fn start(shape: &Shape) -> Self {
        let pool = Throng::builder(shape)
            .core_threads(2)
            .grow_after(Duration::from_micros(200))
            .build();
        Self(Throng(pool.expect("a pool can be built")))
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        self.0.run(f)
    }
}

#[derive(Clone)]
struct Tokio(Handle);

impl Pool for Tokio {
    fn runtime(shape: &Shape) -> Runtime {
        let mut builder = two_workers();
        builder.max_blocking_threads(shape.max);
        if let Some(time) = shape.keep_alive {
            builder.thread_keep_alive(time);
        }
        builder.build().expect("a runtime can be built")
    }

    fn start(_shape: &Shape) -> Self {
        Self(Handle::current())
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let handle = self.0.spawn_blocking(f);
        async move { handle.await.expect("a measured closure panicked") }
    }
}

/// Tokio's pool with its optional queue.
#[derive(Clone)]
struct TokioSharded(Tokio);

impl Pool for TokioSharded {
    fn runtime(shape: &Shape) -> Runtime {
        set_switch("TOKIO_UNSTABLE_SHARDED_BLOCKING_QUEUE", "1");
        Tokio::runtime(shape)
    }

    fn start(shape: &Shape) -> Self {
        Self(Tokio::start(shape))
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        self.0.run(f)
    }
}

/// The crate `blocking`: one pool per process, whose size is read from the environment at its first use.
#[derive(Clone)]
struct Blocking;

impl Pool for Blocking {
    fn runtime(shape: &Shape) -> Runtime {
        set_switch("BLOCKING_MAX_THREADS", &shape.max.to_string());
        two_workers().build().expect("a runtime can be built")
    }

    fn start(_shape: &Shape) -> Self {
        Self
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        blocking::unblock(f)
    }

    /// Dropping the handle would cancel the closure.
    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        blocking::unblock(f).detach();
    }
}

#[derive(Clone)]
struct RustyPool(rusty_pool::ThreadPool);

impl Pool for RustyPool {
    fn start(shape: &Shape) -> Self {
        let builder = rusty_pool::Builder::new()
            .core_size(shape.max.min(4))
            .max_size(shape.max);
        let keep_alive = shape.keep_alive.unwrap_or(Duration::from_secs(10));
        Self(builder.keep_alive(keep_alive).build())
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let (job, handle) = with_handle(f);
        self.0.execute(job);
        handle
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.execute(f);
    }
}

#[derive(Clone)]
struct Threadpool(threadpool::ThreadPool);

impl Pool for Threadpool {
    fn start(shape: &Shape) -> Self {
        Self(threadpool::ThreadPool::new(shape.max))
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let (job, handle) = with_handle(f);
        self.0.execute(job);
        handle
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.execute(f);
    }
}

#[derive(Clone)]
struct Rayon(Arc<rayon::ThreadPool>);

impl Pool for Rayon {
    fn start(shape: &Shape) -> Self {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(shape.max);
        let pool = builder.build();
        Self(Arc::new(pool.expect("a pool can be built")))
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let (job, handle) = with_handle(f);
        self.0.spawn(job);
        handle
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.spawn(f);
    }
}

impl Pool for ExecutorsCc {
    fn start(shape: &Shape) -> Self {
        Self::of(shape.max)
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        Spawner::spawn(self, f)
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        Executor::execute(self, f);
    }
}

/// Sets an environment variable that a peer reads.
fn set_switch(name: &str, value: &str) {
    // SAFETY: a child sets its variables before it starts the first thread, so no other thread reads them.
    unsafe { std::env::set_var(name, value) }
}
