//! The pools that are compared.

use std::sync::Arc;
use std::time::Duration;

use throng::BlockingPool;
use tokio::runtime::{Handle, Runtime};

use super::Work;
use crate::areas::{Peer, two_workers, with_handle};

/// Everyone, ours first.
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
    ]
}

const STARTED: &str = "starts all its threads when it is built, and keeps them";

/// A pool with room for `max` closures at once.
pub(super) trait Pool: Clone + Send + Sync + 'static {
    /// The runtime from which closures are submitted.
    fn runtime(_max: usize) -> Runtime {
        two_workers().build().expect("a runtime can be built")
    }

    /// Builds the pool; called within the runtime.
    fn start(max: usize) -> Self;

    /// Submits at once, and returns what awaits the result.
    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send;
}

#[derive(Clone)]
pub(super) struct Throng(pub(super) BlockingPool);

impl Pool for Throng {
    fn start(max: usize) -> Self {
        Self(
            BlockingPool::builder()
                .max_threads(max)
                .build()
                .expect("a pool can be built"),
        )
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let handle = self.0.spawn_blocking(f);
        async move { handle.await.expect("a measured closure ended badly") }
    }
}

#[derive(Clone)]
struct Tokio(Handle);

impl Pool for Tokio {
    fn runtime(max: usize) -> Runtime {
        two_workers()
            .max_blocking_threads(max)
            .build()
            .expect("a runtime can be built")
    }

    fn start(_max: usize) -> Self {
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

/// Tokio's pool with the queue that it offers on request.
#[derive(Clone)]
struct TokioSharded(Tokio);

impl Pool for TokioSharded {
    fn runtime(max: usize) -> Runtime {
        set_switch("TOKIO_UNSTABLE_SHARDED_BLOCKING_QUEUE", "1");
        Tokio::runtime(max)
    }

    fn start(max: usize) -> Self {
        Self(Tokio::start(max))
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
    fn runtime(max: usize) -> Runtime {
        set_switch("BLOCKING_MAX_THREADS", &max.to_string());
        two_workers().build().expect("a runtime can be built")
    }

    fn start(_max: usize) -> Self {
        Self
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        blocking::unblock(f)
    }
}

#[derive(Clone)]
struct RustyPool(rusty_pool::ThreadPool);

impl Pool for RustyPool {
    fn start(max: usize) -> Self {
        let builder = rusty_pool::Builder::new()
            .core_size(max.min(4))
            .max_size(max);
        Self(builder.keep_alive(Duration::from_secs(10)).build())
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let (job, handle) = with_handle(f);
        self.0.execute(job);
        handle
    }
}

#[derive(Clone)]
struct Threadpool(threadpool::ThreadPool);

impl Pool for Threadpool {
    fn start(max: usize) -> Self {
        Self(threadpool::ThreadPool::new(max))
    }

    fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        let (job, handle) = with_handle(f);
        self.0.execute(job);
        handle
    }
}

#[derive(Clone)]
struct Rayon(Arc<rayon::ThreadPool>);

impl Pool for Rayon {
    fn start(max: usize) -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(max).build();
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
}

/// Sets a variable of the environment that a peer reads.
fn set_switch(name: &str, value: &str) {
    // SAFETY: a child sets its switches before it starts the first thread, so nobody reads meanwhile.
    unsafe { std::env::set_var(name, value) }
}
