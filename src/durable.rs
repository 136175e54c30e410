//! Tasks that survive the process.
//!
//! A [`DurableTask`] is stored before [`spawn`](DurableClient::spawn) returns. It runs at least once, in some process that
//! has a [`DurableExecutor`] for its type, and any process can await its [`DurableHandle`]. A program that only spawns and
//! awaits tasks needs a [`DurableClient`] and the types of the tasks. Only workers need the code of the tasks and the `App`
//! that this code uses.
//!
//! # Which store
//!
//! | | `RedisStore` | `PostgresStore`, experimental | `SqliteStore` | `MemoryStore` |
//! | --- | --- | --- | --- | --- |
//! | feature | `redis` | `postgres` | `sqlite` | `test-util` |
//! | choose it | if many tasks run on many machines | if your machines share a PostgreSQL server and no Redis | if one machine is enough: it needs no server | for tests, with a clock that the test controls |
//! | who can share it | any number of machines | any number of machines | the processes of a machine | the clients of a process |
//! | an acknowledged task survives | what the server's `appendonly` and `appendfsync` allow | a power failure, with the server's default settings | a power failure | until the process ends |
//! | work starts elsewhere | at once, by messages | at once, by notifications | at once | at once |
//! | server | Redis 6.2 or later, or Valkey, with or without Sentinels; as a cluster, 7.0 or later | PostgreSQL 13 or later | none | none |
//!
//! [`Durability`] describes the failures that a task survives, and [`DurableClient::require`] refuses a store with too little of it. All
//! stores behave alike otherwise, so a program can change from one to another. `benches/README.md` in the repository has the rates of
//! tasks of each store.
//!
//! # Examples
//!
//! One process stores a task in Redis and awaits it. Another process, on any machine, runs it.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use serde::{Deserialize, Serialize};
//! use throng::durable::{
//!     Durability, DurableClient, DurableExecutor, DurableTask, RedisStore, Run, TaskContext, TaskError,
//! };
//!
//! #[derive(Serialize, Deserialize)]
//! struct Thumbnail {
//!     picture: u64,
//! }
//!
//! impl DurableTask for Thumbnail {
//!     const NAME: &'static str = "thumbnail";
//!     type Output = u64;
//! }
//!
//! // Only in the program that runs it.
//! impl Run<()> for Thumbnail {
//!     async fn run(self, _: TaskContext<()>) -> Result<u64, TaskError> {
//!         Ok(self.picture)
//!     }
//! }
//!
//! async fn produce(client: &DurableClient) -> Result<u64, Box<dyn std::error::Error>> {
//!     let thumbnail = client.spawn(Thumbnail { picture: 7 }).await?; // it is stored
//!     Ok(thumbnail.await?) // another process may have run it
//! }
//!
//! async fn work(client: DurableClient) -> Result<(), Box<dyn std::error::Error>> {
//!     let executor = DurableExecutor::builder(client).register::<Thumbnail>().start(()).await?;
//!     tokio::signal::ctrl_c().await?;
//!     executor.shutdown(Duration::from_secs(20)).await;
//!     Ok(())
//! }
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = DurableClient::open(RedisStore::open("redis://127.0.0.1/").await?);
//! client.require(Durability::Synced).await?; // otherwise a crash of the server could lose tasks
//! # tokio::spawn({ let client = client.clone(); async move { work(client).await.ok(); } });
//! # produce(&client).await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - A task whose spawn has returned `Ok` runs until it succeeds, fails for good, or is cancelled, as long as the store
//!   keeps acknowledged data. [`durability`](DurableClient::durability) returns the failures that the store survives, and
//!   [`require`](DurableClient::require) fails if the store does not reach a given level.
//! - A spawn stores at most one task, even if the store's answer is lost and the request is sent again. A [`TaskId`] identifies one
//!   task for as long as the task lives or its end is kept.
//! - One worker at a time holds a task. The verdict of a worker that has lost the task is refused, so a task ends once.
//! - The death of a worker costs its tasks no retry. It delays them by their lease at most; with SQLite, by 2.5 s at most. A
//!   task that crashes several workers becomes a dead letter.
//! - Awaiting a handle never hangs because a message was lost, or because the task no longer exists.
//!
//! It is *not* guaranteed that a task runs only once. Its worker may die after the task has taken effect and before the
//! store has recorded its end. To guard against a second run, use [`TaskContext::idempotency_key`] or [`TaskContext::fencing_token`].
//!
//! # Queues
//!
//! A task waits in the default queue, or in the named queue that [`SpawnOptions::queue`] or [`DurableTask::QUEUE`] specifies. A
//! named [`Queue`] can be paused, and can have limits, which hold for all processes. Within a queue, tasks of a higher [`Priority`]
//! start first. An executor serves the default queue, or the queues that are passed to [`Builder::serve`]. Each of them can have a
//! weight, and a maximum number of the executor's permits ([`ServedQueue`]).
//!
//! The tasks of a named queue can have groups, for example one for each customer. Groups take turns, so a group with many tasks does not
//! delay the others ([`SpawnOptions::group`], [`Groups`]).
//!
//! # Middleware
//!
//! With the feature `tower`, layers of the crate `tower`, or your own, wrap each run, for example to add logs, metrics or a circuit
//! breaker. See `Builder::layer`. To limit the time of runs, use [`DurableTask::TIMEOUT`].
//!
//! # Schedules
//!
//! A [schedule](DurableClient::schedule) stores a task again and again: at regular intervals ([`Every`]) or, with the feature
//! `cron`, at the times of a cron expression in a time zone. Each of these times is a *tick*. There is no leader: any executor of
//! the store may fire the schedule, and each tick fires once. [`ScheduleOptions`] determine what happens after an outage, and while
//! an earlier task has not ended. [`Schedules`] lists, pauses, resumes, fires and removes schedules.
//!
//! # Progress
//!
//! A run can report [progress](TaskContext::progress). A [stream](DurableHandle::progress) in any process yields it, and the next run
//! of the task can [read](TaskContext::last_progress) it, for example to continue where the last run stopped.
//!
//! # Workflows
//!
//! A task can consist of *steps* that run once, even if the task runs several times:
//!
//! ```
//! use std::time::Duration;
//! # use throng::durable::{TaskContext, TaskError};
//! # struct Order { id: u64 }
//! # async fn reserve(_: u64, _: String) -> Result<u64, TaskError> { Ok(7) }
//! # async fn release(_: u64) -> Result<(), TaskError> { Ok(()) }
//! # async fn ship(_: u64) -> Result<(), TaskError> { Ok(()) }
//!
//! async fn run(order: Order, cx: TaskContext<()>) -> Result<(), TaskError> {
//!     let goods = cx.step("reserve", || reserve(order.id, cx.idempotency_key())).await?;
//!     let three_days = Duration::from_secs(3 * 24 * 3600);
//!     match cx.signal_within::<bool>("paid", three_days).await? {
//!         Some(true) => cx.step("ship", || ship(goods)).await,
//!         _ => cx.step("release", || release(goods)).await,
//!     }
//! }
//! # let _ = run;
//! ```
//!
//! - The store keeps the output of a [step](TaskContext::step), and later runs of the task get it.
//! - A run that waits for days, in [`sleep`](TaskContext::sleep), [`signal`](TaskContext::signal) or [`join`](TaskContext::join), ends. Its task
//!   holds neither a permit nor a worker meanwhile. When the wait is over, the task runs again from its beginning, and finds its steps.
//! - Steps are found by their names, so a program may change while tasks wait: it runs the steps that it does not find. What is not in a step
//!   runs each time, so it should have no effects. The page [`steps`] says what belongs in a step, how to wait for any of several signals, and
//!   which changes of a program are safe while its tasks wait.
//! - [`spawn_all`](TaskContext::spawn_all) spawns children once, and `join` waits for their results.
//!
//! # Tasks in your own transaction
//!
//! Suppose that an order and the task that ships it must be stored together, or not at all. If the store is in the same SQLite or
//! PostgreSQL database as the order, your own transaction can store the task: it inserts a row into the [outbox](Outbox) of the database.
//! This takes one statement per task, with any driver.
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! # use throng::durable::{DurableClient, DurableTask};
//! # #[derive(Serialize, Deserialize)] struct Ship { order: u64 }
//! # impl DurableTask for Ship { const NAME: &'static str = "ship"; type Output = (); }
//! # #[cfg(feature = "sqlite-unbundled")]
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use throng::durable::{Outbox, SpawnOptions};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("app.db");
//! # let client = DurableClient::open(throng::durable::SqliteStore::open(&path).await?);
//! # let mut db = rusqlite::Connection::open(&path)?;
//! # db.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")?;
//!
//! db.execute_batch(Outbox::CREATE)?; // once, for instance in a migration
//! let tx = db.transaction()?;
//! tx.execute("INSERT INTO orders (id) VALUES (7)", [])?;
//! let row = client.outbox(Ship { order: 7 }, SpawnOptions::new())?; // nothing is sent
//! tx.execute(row.insert(), (row.id_bytes(), row.body()))?;
//! tx.commit()?;
//! let handle = client.committed(row); // the task starts now
//! # drop(handle);
//! # Ok(()) }
//! # #[cfg(not(feature = "sqlite-unbundled"))] fn main() {}
//! ```
//!
//! - [`DurableClient::outbox`] encodes the task as a row, and [`DurableClient::committed`] returns its handle after the commit. With the
//!   features `rusqlite` and `tokio-postgres`, [`DurableClient::spawn_in`] also inserts the row. With any other driver, such as `sqlx` or
//!   `diesel`, execute the row's statement yourself.
//! - Each task is moved into the store exactly once, in one transaction that also removes its row. If `committed` is never called, because
//!   the process has died or another program has inserted the row, the task is moved within about a second, provided that an executor of
//!   the store is running.
//! - Until then, the task waits. It can be awaited, cancelled and signalled, but lists and counts do not include it yet. If the row was made
//!   by a later version of this crate, the task can only be awaited until a program with that version moves it.
//! - In SQLite, create the table with [`Outbox::CREATE`]. No worker can write to the file while your transaction does, so keep it short.
//!
//! If your rows are in one of these databases and your tasks elsewhere, such as in Redis, an `OutboxRelay` moves the tasks: it has the same
//! methods, `outbox`, `spawn_in` and `committed`. Your transaction stays the same.
//!
//! # Operating a store
//!
//! [`DurableClient::admin`] returns the interface for the people who operate a store, for example behind a web interface:
//!
//! - [`Admin::overview`] summarises the store, its queues and its types, and [`Admin::report`] lists what is wrong with it.
//! - [`Admin::tasks`] lists the tasks with a given status, a page at a time. [`Admin::task`] shows one task in detail, and
//!   [`Admin::head`] shows the tasks of a queue that have waited longest.
//! - [`Admin::workers`] lists the workers. [`Admin::stats`] returns how many runs of each type have started and ended in each minute.
//! - [`Admin::change`] cancels, moves, replays or deletes a task, or makes it due now. [`Admin::change_all`] does so to all tasks that
//!   match a filter.
//!
//! A program that changes nothing can open the store with `observe` instead of `open`, for example with `SqliteStore::observe`. It then
//! writes nothing to the store, and other processes do not see it.
//!
//! # If a process exits at a given step
//!
//! The test suite kills processes, freezes them or cuts their connections at each of these steps.
//!
//! | failure | effect on the task |
//! | --- | --- |
//! | The producer dies before it has sent the task. | It is not stored, and no caller was told that it was. |
//! | The producer dies later, but before the answer. | It is stored as a whole or not at all. If it is spawned again under the same id, it is stored once. |
//! | The producer dies after the answer. | It runs. |
//! | The connection fails before the answer. | It is stored once, since the client sends the request again. |
//! | Redis is killed and restarted. | It is still stored (`appendfsync always`); or it is missing if it was stored in the last two seconds (`everysec`). Its producer then stores it again, unless that process has exited; otherwise, the task is lost, and its handle reports that: see [`Losses`]. All clients reconnect, and runs continue. |
//! | The primary of Redis fails, and the replica that takes over lacks the task. | Its producer stores it again, if it has stored it within the last 15 seconds and still runs. Otherwise, the task is lost, and its handle reports that. |
//! | The SQLite file is removed or replaced while it is open. | Spawning fails with an error that [`is_replaced`](DurableError::is_replaced). |
//! | A page or a row of the SQLite file cannot be read. | It becomes a [dead letter](DeadReason::Damaged) if its own data are lost. All other tasks continue, and [`health`](DurableClient::health) returns `Damaged`. |
//! | A process dies before it has committed a [transaction](#tasks-in-your-own-transaction) that stores the task. | It is not stored, and neither are the other rows of the transaction. |
//! | A process dies after this commit, before it has called [`committed`](DurableClient::committed). | It is moved into the store within about a second, and runs. |
//! | The disk of the SQLite file is full. | Spawning fails at once with an error that [`is_full`](DurableError::is_full). Runs continue, and their outcomes are stored as soon as there is room; until then, `health` returns `Failing`. |
//! | A process is frozen inside a write to the SQLite file. | All processes wait with their writes until that process resumes or dies. Requests fail after ten seconds with an error that [`is_busy`](DurableError::is_busy) and names the process. |
//! | Redis hangs for longer than a lease. | It is not taken from its worker. |
//! | A worker dies after it has claimed the task and before it runs. | It counts as lost, and runs elsewhere. Losses alone never make it a dead letter. |
//! | A worker dies while it runs the task. | It runs again elsewhere. This counts as a crash, not as a retry. |
//! | All workers die. | It runs again as soon as there is a worker. |
//! | A worker dies after the task has taken effect, and before its outcome is stored. | It runs again, with the same idempotency key and a higher fencing token. |
//! | A worker dies after the outcome is stored. | It has ended, and does not run again. |
//! | A worker freezes, and resumes after its lease. | It belongs to another worker by then. The first run is asked to stop, and its outcome is refused. |
//! | A message to a worker is lost. | The next worker is notified, and all workers also poll. |
//! | A message to a process that awaits the task is lost. | The process requests its status when messages arrive again, or after a few seconds at most. |
//! | The process that awaits the task dies. | It keeps its output, and another process can attach to its id. |
//! | A worker dies while it fires a [schedule](DurableClient::schedule). | The task of the tick is stored once: by this worker, or by another one, usually 5 s later. |
//! | A run exceeds its [timeout](DurableTask::TIMEOUT), and does not stop. | It is tried again or becomes a dead letter, even if the run blocks its thread. The result of this run is ignored. |
//! | A worker is shut down. | It may end within the grace period. Otherwise, it is given back, and goes ahead of the waiting tasks. |
//! | The task crashes its worker each time. | It becomes a dead letter after [three crashes](SpawnOptions::max_crashes), and no other task does. |

#![cfg_attr(
    not(any(
        test,
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "test-util"
    )),
    allow(dead_code, reason = "without a store, this is unused")
)]
#![cfg_attr(
    not(feature = "unstable-store"),
    allow(
        unnameable_types,
        unreachable_pub,
        reason = "a part of it is public with this feature"
    )
)]

/// Makes functions of public types public with the feature `unstable-store`. Without it, they are visible in the crate only.
macro_rules! for_stores {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($argument:tt)*) $(-> $answer:ty)? $body:block
    )+) => {$(
        $(#[$meta])*
        #[cfg(feature = "unstable-store")]
        pub fn $name($($argument)*) $(-> $answer)? $body

        $(#[$meta])*
        #[cfg(not(feature = "unstable-store"))]
        pub(crate) fn $name($($argument)*) $(-> $answer)? $body
    )+};
}

mod admin;
mod client;
#[cfg_attr(
    not(any(test, feature = "sqlite-unbundled", feature = "test-util")),
    allow(dead_code, reason = "a server has its own clock")
)]
mod clock;
#[cfg(feature = "tracing")]
mod contained_span;
mod context;
mod dead_letters;
mod encoded_task;
mod engine;
mod envelope;
mod error;
pub(crate) mod executor;
mod failpoint;
mod failure;
mod handle;
mod id;
mod inspect;
mod key;
mod named_queue;
mod options;
mod outbox;
mod outbox_client;
mod policy;
mod progress;
mod progress_stream;
mod queue;
#[cfg(any(feature = "postgres", feature = "sqlite-unbundled"))]
mod relay;
mod report;
mod resend;
mod run;
pub(crate) mod schedule;
mod schedules;
mod spawn_queue;
#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/STEPS.md")]
pub mod steps {}
#[cfg(feature = "unstable-store")]
pub mod store;
#[cfg(not(feature = "unstable-store"))]
pub(crate) mod store;
mod task;
mod task_error;
mod task_types;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
pub(crate) mod weak_parts;
pub(crate) mod workflow;

pub use self::admin::Admin;
pub use self::admin::bulk::{Bulk, BulkPart};
pub use self::admin::change::{Changed, TaskChange};
pub use self::admin::cursor::{Cursor, ParseCursorError};
pub use self::admin::detail::{KeyState, Runner, TaskDetail};
pub use self::admin::excerpt::Excerpt;
pub use self::admin::filter::TaskFilter;
pub use self::admin::finding::{Finding, FindingLevel};
pub use self::admin::layout::StoreLayout;
pub use self::admin::overview::{Overview, QueueOverview, TypeOverview};
pub use self::admin::page::{QueueHead, TaskInfo, TaskPage};
pub use self::admin::refusal::Refusal;
pub use self::admin::report::Report;
pub use self::admin::retention::Retention;
pub use self::admin::run_totals::RunTotals;
pub use self::admin::stats::{Stats, StatsFilter, TypeStats};
pub use self::admin::task_step::{TaskChild, TaskStep, TaskWait};
pub use self::admin::wait_reason::WaitReason;
pub use self::admin::worker_info::{WorkerInfo, WorkerState, WorkersPage};
pub use self::client::DurableClient;
#[cfg(any(test, feature = "test-util"))]
pub use self::clock::Clock;
pub use self::context::{StopReason, TaskContext};
pub use self::dead_letters::DeadLetters;
pub use self::encoded_task::EncodedTask;
pub use self::error::DurableError;
pub use self::executor::DurableExecutor;
pub use self::executor::builder::Builder;
#[cfg(any(test, feature = "test-util"))]
pub use self::executor::inline::InlineExecutor;
pub use self::executor::metrics::Metrics;
#[cfg(feature = "tower")]
pub use self::executor::middleware::{RunFuture, RunOutput, RunRequest, RunService};
#[cfg(feature = "tower")]
pub use self::executor::run_error::RunError;
pub use self::executor::served_queue::ServedQueue;
pub use self::handle::DurableHandle;
pub use self::id::{ParseTaskIdError, TaskId};
pub use self::inspect::{
    AttemptError, Counts, DeadFilter, DeadLetter, DeadReason, Durability, Health, Losses, Status,
};
pub use self::key::Key;
pub use self::named_queue::Queue;
pub use self::options::SpawnOptions;
pub use self::outbox::{Outbox, OutboxConnection, OutboxRow};
pub use self::progress_stream::ProgressStream;
pub use self::queue::{Groups, Priority, QueueInfo, QueueSettings, Rate};
#[cfg(any(feature = "postgres", feature = "sqlite-unbundled"))]
pub use self::relay::OutboxRelay;
pub use self::run::Run;
#[cfg(feature = "cron")]
pub use self::schedule::{Cron, ParseCronError};
pub use self::schedule::{Every, Missed, Overlap, ScheduleInfo, ScheduleOptions, When};
pub use self::schedules::Schedules;
#[cfg(any(test, feature = "test-util"))]
pub use self::store::memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use self::store::postgres::{PostgresStore, PostgresStoreBuilder};
#[cfg(feature = "redis")]
pub use self::store::redis::{RedisReport, RedisStore, RedisStoreBuilder};
#[cfg(feature = "sqlite-unbundled")]
pub use self::store::sqlite::SqliteStore;
pub use self::store::{StepKind, Store};
pub use self::task::DurableTask;
pub use self::task_error::TaskError;
pub use self::task_types::TaskTypes;
#[cfg(feature = "tracing")]
pub use self::trace::{BeginningRun, DescribedSpawn, Propagate, TraceContext};
