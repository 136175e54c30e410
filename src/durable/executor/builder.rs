//! [`Builder`]: how an executor works.

use std::fmt;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::DurableExecutor;
use super::registry::{Registry, Runnable};
use super::worker::{FOR_EVER, Settings};
use crate::durable::store::kind::TypeSet;
use crate::durable::{DurableClient, DurableError, Run};
use crate::retry::Retry;

/// How a [`DurableExecutor`] works: see [`DurableExecutor::builder`].
#[must_use = "a builder does nothing until it is started"]
pub struct Builder<App> {
    client: DurableClient,
    registry: Registry<App>,
    concurrency: usize,
    retry: Retry,
    lease: Duration,
    stall_limit: Duration,
}

impl<App: Send + Sync + 'static> Builder<App> {
    pub(super) fn new(client: DurableClient) -> Self {
        Self {
            client,
            registry: Registry::new(),
            concurrency: 64,
            retry: Retry::exponential(),
            lease: Duration::from_secs(10),
            stall_limit: Duration::from_secs(60),
        }
    }

    /// Lets the executor run tasks of this type. It never claims a task of another type: that task waits,
    /// without a time limit, for a worker that has registered its type.
    pub fn register<T: Run<App>>(mut self) -> Self {
        self.registry.register::<T>();
        self
    }

    /// Sets how many tasks may run at once: 64 by default; 0 counts as 1. A task does not count while it
    /// [awaits other tasks](crate::durable::DurableHandle#in-a-run-of-another-task).
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// How often a task that fails is tried again. [`Retry::exponential`] by default.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How long the tasks of a worker that hangs, or that the store cannot reach, are kept from the
    /// others: 10 s by default, and at least 100 ms. It is renewed for as long as the worker lives, so
    /// it need not be longer than a task takes.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.clamp(Duration::from_millis(100), FOR_EVER);
        self
    }

    /// How long the runtime that the tasks run on may be stuck, with no thread that takes up
    /// anything, before the leases of its tasks are not renewed any longer. A minute by default.
    pub fn stall_limit(mut self, stall_limit: Duration) -> Self {
        self.stall_limit = stall_limit;
        self
    }

    /// Starts to run tasks, on the current runtime. `app` is what they work with.
    ///
    /// # Errors
    ///
    /// - The store does not answer.
    /// - No type is [registered](Self::register): [`DurableError::is_invalid`].
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing is started.
    pub async fn start(self, app: impl Into<StdArc<App>>) -> Result<DurableExecutor, DurableError> {
        let settings = self.settings();
        let runnable = self.runnable(app.into())?;
        DurableExecutor::start(
            runnable.client.clone(),
            runnable,
            settings,
            Handle::current(),
        )
        .await
    }

    /// Starts nothing: tasks run when the caller [says so](super::inline::InlineExecutor::run_due), on
    /// the caller. For tests.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing has happened.
    #[cfg(any(test, feature = "test-util"))]
    pub async fn start_inline(
        self,
        app: impl Into<StdArc<App>>,
    ) -> Result<super::inline::InlineExecutor, DurableError> {
        let runnable = self.runnable(app.into())?;
        super::inline::InlineExecutor::start(runnable.client.clone(), runnable).await
    }

    fn settings(&self) -> Settings {
        Settings {
            concurrency: self.concurrency,
            lease: self.lease,
            stall_limit: self.stall_limit,
        }
    }

    fn runnable(self, app: StdArc<App>) -> Result<Runnable<App>, DurableError> {
        let set = self.set()?;
        Ok(Runnable {
            registry: self.registry,
            set,
            app,
            client: self.client,
            retry: self.retry,
        })
    }

    /// The types that are registered, as stores know them.
    fn set(&self) -> Result<TypeSet, DurableError> {
        let invalid = |reason| DurableError::invalid(self.client.queue(), reason);
        let set = TypeSet::of_names(self.registry.names());
        let set = set.map_err(|(one, other)| {
            let reason =
                format!("the names {one:?} and {other:?} have the same hash: rename one of them");
            invalid(reason)
        })?;
        match set.kinds() {
            [] => Err(invalid(
                "the executor has no type of task: call `register` before `start`".to_owned(),
            )),
            _ => Ok(set),
        }
    }
}

impl<App> fmt::Debug for Builder<App> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.registry.names().collect();
        f.debug_struct("Builder")
            .field("client", &self.client)
            .field("registered", &names)
            .field("concurrency", &self.concurrency)
            .field("retry", &self.retry)
            .field("lease", &self.lease)
            .field("stall_limit", &self.stall_limit)
            .finish()
    }
}
