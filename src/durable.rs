//! Tasks that survive the process.
//!
//! A [`DurableTask`] is stored before [`spawn`](DurableClient::spawn) returns, runs at least once in
//! some process that has a [`DurableExecutor`] for it, and its [`DurableHandle`] can be awaited from any
//! process. A program that only stores tasks, and awaits them, needs a [`DurableClient`] and the types
//! of the tasks; what they do, and what they work with, only the workers need.
//!
//! | store | what it is for |
//! | --- | --- |
//! | `RedisStore` (feature `redis`) | any number of machines: a server |
//! | `SqliteStore` (feature `sqlite`) | one machine, any number of processes: a file |
//! | `MemoryStore` (feature `test-util`) | tests, with a clock that the test moves |
//!
//! # Examples
//!
//! One process stores a task in Redis, and awaits it; another, on any machine, runs it.
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
//!     Ok(thumbnail.await?) // whoever has run it
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
//! client.require(Durability::Synced).await?; // else a crash of the server could lose it
//! # tokio::spawn({ let client = client.clone(); async move { work(client).await.ok(); } });
//! # produce(&client).await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - A task whose spawn has returned `Ok` is run until it succeeds, fails for good, or is cancelled, as
//!   long as the store keeps what it has acknowledged. How long that is,
//!   [`durability`](DurableClient::durability) says, and [`require`](DurableClient::require) demands.
//! - A spawn stores one task, also when the store's answer is lost and it is asked again. One
//!   [`TaskId`] is one task for as long as the task lives or its end is kept.
//! - One worker at a time holds a task. What a worker says that has lost it never counts, and a task
//!   ends once.
//! - A worker that is killed costs its tasks no retry, and delays them by its lease at most; with
//!   SQLite, until another worker looks, which is soon. A task that kills its workers becomes a dead
//!   letter.
//! - Awaiting a handle never hangs because a message was lost, or because the task is gone.
//!
//! Not promised: that a task runs only once. Its worker may die between what the task does and the
//! store's knowing of it. [`TaskContext::idempotency_key`] and [`TaskContext::fencing_token`] help.

#![cfg_attr(
    not(any(
        test,
        feature = "redis",
        feature = "sqlite-unbundled",
        feature = "test-util"
    )),
    allow(dead_code, reason = "without a store, nothing of it is used")
)]

mod client;
#[cfg_attr(
    not(any(test, feature = "sqlite-unbundled", feature = "test-util")),
    allow(dead_code, reason = "a server has a clock of its own")
)]
mod clock;
mod context;
mod dead_letters;
mod engine;
mod error;
mod executor;
#[cfg(any(feature = "redis", feature = "sqlite-unbundled"))]
mod failpoint;
mod failure;
mod handle;
mod id;
mod inspect;
mod new_task;
mod options;
mod report;
mod resend;
mod run;
mod spawn_queue;
pub(crate) mod store;
mod task;
mod task_error;

pub use self::client::DurableClient;
#[cfg(any(test, feature = "test-util"))]
pub use self::clock::Clock;
pub use self::context::{StopReason, TaskContext};
pub use self::dead_letters::DeadLetters;
pub use self::error::DurableError;
pub use self::executor::DurableExecutor;
pub use self::executor::builder::Builder;
#[cfg(any(test, feature = "test-util"))]
pub use self::executor::inline::InlineExecutor;
pub use self::executor::metrics::Metrics;
pub use self::handle::DurableHandle;
pub use self::id::{ParseTaskIdError, TaskId};
pub use self::inspect::{
    AttemptError, Counts, DeadFilter, DeadLetter, DeadReason, Durability, Health, Status,
};
pub use self::options::SpawnOptions;
pub use self::run::Run;
pub use self::store::Store;
#[cfg(any(test, feature = "test-util"))]
pub use self::store::memory::MemoryStore;
#[cfg(feature = "redis")]
pub use self::store::redis::{RedisReport, RedisStore, RedisStoreBuilder};
#[cfg(feature = "sqlite-unbundled")]
pub use self::store::sqlite::SqliteStore;
pub use self::task::DurableTask;
pub use self::task_error::TaskError;
