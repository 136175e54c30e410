//! The pools that are compared.

use std::thread;

use async_executor::Executor;
use executors::{Executor as _, FuturesExecutor as _, crossbeam_channel_pool};
use executors::{crossbeam_workstealing_pool as workstealing, parker};
use throng::ComputePool;
use tokio::runtime::{Handle, Runtime};

use super::{THREADS, Work, spawn_window};
use crate::areas::{Peer, two_workers, with_handle};
use crate::watched::watch;

/// Everyone, ours first.
pub(super) fn all<W: Work>(work: W) -> Vec<Peer> {
    vec![
        Peer::new("throng", move |rules| work.run::<Throng>(rules)),
        Peer::new("rayon", move |rules| work.run::<Rayon>(rules)),
        Peer::new("rayon-fifo", move |rules| work.run::<RayonFifo>(rules)),
        Peer::new("tokio", move |rules| work.run::<Tokio>(rules)),
        Peer::new("async-executor", move |rules| {
            work.run::<AsyncExecutor>(rules)
        }),
        Peer::new("executors-ws", move |rules| work.run::<ExecutorsWs>(rules)),
        Peer::new("executors-cc", move |rules| work.run::<ExecutorsCc>(rules)),
        Peer::new("threadpool", move |rules| work.run::<Threadpool>(rules)),
        Peer::new("crossbeam-channel", move |rules| {
            work.run::<CrossbeamChannel>(rules)
        }),
        Peer::new("flume", move |rules| work.run::<Flume>(rules)),
    ]
}

/// Those whose users await handles, ours first.
pub(super) fn with_handles() -> Vec<Peer> {
    vec![
        Peer::new("throng", spawn_window::<Throng>),
        Peer::new("rayon", spawn_window::<Rayon>).note(Some(ONESHOT)),
        Peer::new("tokio", spawn_window::<Tokio>).note(Some("on the workers that spawn")),
        Peer::new("async-executor", spawn_window::<AsyncExecutor>),
        Peer::new("executors-ws", spawn_window::<ExecutorsWs>),
        Peer::new("executors-cc", spawn_window::<ExecutorsCc>),
        Peer::new("threadpool", spawn_window::<Threadpool>).note(Some(ONESHOT)),
    ]
}

const ONESHOT: &str = "has no handles: results come through a Tokio oneshot channel";

/// A pool of two threads.
pub(in crate::areas) trait Pool: Sized + Send + Sync + 'static {
    fn start() -> Self;

    /// Submits at once, from a thread of the pool or another one.
    fn execute(&self, f: impl FnOnce() + Send + 'static);
}

/// A pool of which results can be awaited.
pub(in crate::areas) trait Spawner: Pool {
    /// Builds the pool for tasks that spawn on `runtime`.
    fn start_beside(_runtime: &Runtime) -> Self {
        Self::start()
    }

    /// Submits at once, and returns what awaits the result.
    fn spawn<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send;
}

pub(super) struct Throng(pub(super) ComputePool);

impl Pool for Throng {
    fn start() -> Self {
        let pool = ComputePool::builder().threads(THREADS).build();
        let pool = pool.expect("a pool can be built");
        watch(&pool);
        Self(pool)
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.execute(f);
    }
}

impl Spawner for Throng {
    fn spawn<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let handle = self.0.spawn(f);
        async move { handle.await.expect("a measured closure ended badly") }
    }
}

struct Rayon(rayon::ThreadPool);

impl Pool for Rayon {
    fn start() -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build();
        Self(pool.expect("a pool can be built"))
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.spawn(f);
    }
}

impl Spawner for Rayon {
    fn spawn<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let (job, handle) = with_handle(f);
        self.execute(job);
        handle
    }
}

/// Rayon with its other order for what a thread of the pool submits.
struct RayonFifo(Rayon);

impl Pool for RayonFifo {
    fn start() -> Self {
        Self(Rayon::start())
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.0.spawn_fifo(f);
    }
}

struct Tokio(Handle);

impl Pool for Tokio {
    fn start() -> Self {
        let runtime = two_workers().build().expect("a runtime can be built");
        Self(Box::leak(Box::new(runtime)).handle().clone())
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.spawn(async move { f() });
    }
}

impl Spawner for Tokio {
    fn start_beside(runtime: &Runtime) -> Self {
        Self(runtime.handle().clone())
    }

    fn spawn<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let handle = self.0.spawn(async move { f() });
        async move { handle.await.expect("a measured closure panicked") }
    }
}

struct AsyncExecutor(&'static Executor<'static>);

impl Pool for AsyncExecutor {
    fn start() -> Self {
        let executor: &Executor<'_> = Box::leak(Box::new(Executor::new()));
        on_two_threads(|| futures::executor::block_on(executor.run(std::future::pending())));
        Self(executor)
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.spawn(async move { f() }).detach();
    }
}

impl Spawner for AsyncExecutor {
    fn spawn<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        self.0.spawn(async move { f() })
    }
}

/// The pool of the crate `executors` whose threads steal from each other.
struct ExecutorsWs(workstealing::ThreadPool<parker::StaticParker<parker::SmallThreadData>>);

impl Pool for ExecutorsWs {
    fn start() -> Self {
        Self(workstealing::small_pool(THREADS))
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.execute(f);
    }
}

impl Spawner for ExecutorsWs {
    fn spawn<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        self.0.spawn(async move { f() })
    }
}

/// The pool of the crate `executors` whose threads share one channel.
#[derive(Clone)]
pub(in crate::areas) struct ExecutorsCc(crossbeam_channel_pool::ThreadPool);

impl ExecutorsCc {
    /// With so many threads.
    pub(in crate::areas) fn of(threads: usize) -> Self {
        Self(crossbeam_channel_pool::ThreadPool::new(threads))
    }
}

impl Pool for ExecutorsCc {
    fn start() -> Self {
        Self::of(THREADS)
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.execute(f);
    }
}

impl Spawner for ExecutorsCc {
    fn spawn<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        self.0.spawn(async move { f() })
    }
}

struct Threadpool(threadpool::ThreadPool);

impl Pool for Threadpool {
    fn start() -> Self {
        Self(threadpool::ThreadPool::new(THREADS))
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.execute(f);
    }
}

impl Spawner for Threadpool {
    fn spawn<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let (job, handle) = with_handle(f);
        self.execute(job);
        handle
    }
}

/// The job type that the hand-written pools send through a channel.
type Job = Box<dyn FnOnce() + Send>;

struct CrossbeamChannel(crossbeam_channel::Sender<Job>);

impl Pool for CrossbeamChannel {
    fn start() -> Self {
        let (sender, receiver) = crossbeam_channel::unbounded::<Job>();
        on_two_threads(move || receiver.iter().for_each(|job| job()));
        Self(sender)
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        let sent = self.0.send(Box::new(f));
        assert!(sent.is_ok(), "the threads live as long as this sender");
    }
}

struct Flume(flume::Sender<Job>);

impl Pool for Flume {
    fn start() -> Self {
        let (sender, receiver) = flume::unbounded::<Job>();
        on_two_threads(move || receiver.iter().for_each(|job| job()));
        Self(sender)
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        let sent = self.0.send(Box::new(f));
        assert!(sent.is_ok(), "the threads live as long as this sender");
    }
}

/// Starts the threads of a pool that has none of its own.
fn on_two_threads(run: impl FnOnce() + Clone + Send + 'static) {
    for _ in 0..THREADS {
        thread::spawn(run.clone());
    }
}
