//! The executors that Tokio applications lack.
//!
//! | part | description | common alternatives |
//! | --- | --- | --- |
//! | [`BlockingPool`] | a thread pool for blocking closures: adds threads before it queues, bounded, isolated, measurable | [`tokio::task::spawn_blocking`]: one pool per runtime, an unbounded queue |
//! | [`ComputePool`] | a few threads for very large numbers of tiny closures: recycled memory, batches, keys, work stealing; its threads sleep when idle | [`tokio::spawn`], `rayon::spawn`, a channel with threads |
//! | [`SerialExecutor`] | an actor that needs neither a thread nor a mailbox: jobs on a state, one at a time; if it is idle, it runs the job on the caller's thread | a task with a channel, [`tokio::sync::Mutex`] |
//! | [`CompletionStream`] | a bounded stream that yields jobs as they finish, wherever they run | [`tokio::task::JoinSet`], `FuturesUnordered` |
//! | `durable` (features `redis`, `sqlite`) | tasks that survive the process: stored before `spawn` returns, run at least once, awaited from any process | a table of jobs and a loop that polls it, a job queue on Redis |
//!
//! The executors compose with Tokio and with one another. Both pools and the serial executor return the
//! same [`JoinHandle`], which is awaited like Tokio's. A [`Slot`] feeds the completion of any other work into
//! a stream. A [`Spawn`] (a runtime's handle or a pool) determines where an executor runs its work. The module [`watch`] shows
//! the numbers of all of them, for Prometheus for example.
//!
//! ```
//! use throng::{BlockingPool, CompletionStream, SerialExecutor};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = BlockingPool::builder().max_threads(4).build()?;
//! let total = SerialExecutor::new(0_u64);
//! let (jobs, mut done) = CompletionStream::builder().build()?;
//!
//! for path in ["Cargo.toml", "src/lib.rs"] {
//!     jobs.submit_blocking(&pool, path, move || std::fs::metadata(path)).await?;
//! }
//! jobs.close();
//!
//! while let Some(completed) = done.next().await {
//!     let bytes = completed.outcome??.len();
//!     total.submit(move |total| *total += bytes).await?;
//! }
//! assert!(total.into_inner().await.expect("no job panics") > 0);
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! No feature is enabled by default.
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `redis` | `durable`, with a store in Redis 6.2 or later, or Valkey |
//! | `redis-tls` | the same, and `rediss://` URLs |
//! | `postgres` | `durable`, with a store in PostgreSQL 13 or later; experimental: its tables may change |
//! | `postgres-tls` | the same, and encrypted connections: `sslmode` |
//! | `sqlite` | `durable`, with a store in a SQLite file; compiles and links a bundled SQLite |
//! | `sqlite-unbundled` | the same, linked to the system's SQLite or to one that another dependency compiles |
//! | `cron` | `durable`, with schedules that fire at the times of cron expressions, in the time zones of the system |
//! | `cron-bundled` | the same, with a time zone database for systems without one |
//! | `metrics` | [`watch`] passes the numbers of parts to the crate `metrics`, for its exporters |
//! | `test-util` | `durable`, with an in-memory store, a clock that tests control, and an executor that runs tasks on the caller's thread |
//! | `durable` | `durable` without a store; the features above enable it |
//! | `tokio-util` | `durable`, and a `CancellationToken` in the context of a durable task |
//! | `tower` | `durable`, and middleware around the runs of durable tasks: layers of the crate `tower`, or your own |
//! | `tracing` | spans for the tasks of a [`BlockingPool`], in the form that tokio-console reads, and for each run of a durable task; events for panics of tasks of [`ComputePool::execute`] and for errors that no caller receives |
//!
//! See `ARCHITECTURE.md` for the structure and a reading order.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]
#![doc(test(attr(deny(warnings))))]

pub mod blocking;
pub mod completion;
pub mod compute;
mod drops;
#[cfg(feature = "durable")]
pub mod durable;
mod inbox;
mod join;
mod retry;
mod semaphore;
pub mod serial;
mod sync;
mod task;
mod timer;
mod unwind;
mod wait_queue;
mod waker;
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
mod weak_part;
// The models do not support weak references.
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
pub mod watch;

pub use crate::blocking::{BlockingPool, spawn_blocking};
pub use crate::completion::{CompletionStream, Slot, Wrapped};
pub use crate::compute::ComputePool;
pub use crate::join::{
    AbortHandle, AbortOnDropHandle, Bounded, Closed, Id, JoinError, JoinHandle, Permit,
    PollReserve, Spawn, TrySpawnError, Work, spawn, try_id,
};
pub use crate::retry::Retry;
pub use crate::serial::SerialExecutor;

/// The README's examples are tests; two of them need features.
#[cfg(all(doctest, feature = "redis", feature = "sqlite-unbundled"))]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

/// Checks at compile time which auto traits the public types implement.
const _: () = {
    use std::future::Ready;
    use std::panic::{RefUnwindSafe, UnwindSafe};

    const fn handle<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe>() {}
    const fn shared<T: Send + Sync + Unpin>() {}
    const fn sent<T: Send + Unpin>() {}
    /// A type that is `Send` and not `Sync`, as a state or an output may be.
    type Output = std::cell::Cell<u8>;

    handle::<JoinHandle<Output>>();
    handle::<AbortHandle>();
    handle::<AbortOnDropHandle<Output>>();
    handle::<Id>();
    handle::<SerialExecutor<Output>>();
    shared::<JoinError>();
    shared::<Work>();
    shared::<BlockingPool>();
    shared::<blocking::Builder>();
    shared::<blocking::Bulkhead>();
    shared::<blocking::Histogram>();
    shared::<blocking::Metrics>();
    shared::<ComputePool>();
    shared::<compute::Builder>();
    shared::<compute::Metrics>();
    shared::<compute::LaneMetrics>();
    shared::<Permit<'_, ComputePool>>();
    shared::<Permit<'static, ComputePool>>();
    shared::<PollReserve<ComputePool>>();
    shared::<compute::Scope<'_, '_>>();
    shared::<serial::Builder<Output>>();
    shared::<serial::Exclusive<u8>>();
    sent::<serial::Exclusive<Output>>();
    shared::<serial::ByClone<u8>>();
    shared::<serial::Metrics>();
    shared::<serial::Level>();
    shared::<Permit<'_, SerialExecutor<Output>>>();
    // The models do not support weak references.
    #[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
    shared::<serial::WeakSerialExecutor<Output>>();
    shared::<completion::Builder<Output, Output>>();
    shared::<completion::Submitter<Output, Output>>();
    shared::<Slot<Output, Output>>();
    shared::<Permit<'_, completion::Submitter<Output, Output>>>();
    shared::<CompletionStream<Output, Output>>();
    shared::<completion::Metrics>();
    shared::<completion::JoinSet<u8>>();
    shared::<completion::JoinSet<Output>>();
    shared::<completion::JoinMap<u8, Output>>();
    shared::<Wrapped<Ready<()>>>();
    sent::<completion::Completed<Output, Output>>();
    #[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
    {
        shared::<watch::Registry>();
        shared::<watch::Snapshot>();
    }

    #[cfg(feature = "durable")]
    {
        shared::<durable::DurableClient>();
        shared::<durable::DurableExecutor>();
        shared::<durable::DurableHandle<Output>>();
        shared::<durable::DurableError>();
        shared::<durable::TaskContext<u8>>();
        shared::<durable::TaskError>();
        shared::<durable::Store>();
        shared::<durable::Builder<u8>>();
    }
    #[cfg(feature = "sqlite-unbundled")]
    shared::<durable::SqliteStore>();
    #[cfg(feature = "tower")]
    {
        shared::<durable::RunService<u8>>();
        shared::<durable::RunRequest<u8>>();
        shared::<durable::RunOutput>();
        shared::<durable::RunError>();
        sent::<durable::RunFuture>();
    }
};
