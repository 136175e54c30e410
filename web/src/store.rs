//! [`ShownStore`]: a store that a dashboard shows.

use std::future::Future;
use std::time::Duration;

use throng::durable::{DurableClient, DurableError};
use tokio_util::sync::CancellationToken;

use crate::error::WebError;
use crate::gate::Gate;
use crate::operations::jobs::BulkJobs;
use crate::recent::{Question, RecentAnswers};
use crate::sampler::Sampler;

/// The maximum time of a request that reads.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum time of a request that changes something. Redis may need longer than a read to move a task out of a long list.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// A store that a dashboard shows. All requests of pages and operations go through it.
#[derive(Debug)]
pub(crate) struct ShownStore {
    pub(crate) name: String,
    pub(crate) client: DurableClient,
    pub(crate) jobs: BulkJobs,
    pub(crate) sampler: Sampler,
    gate: Gate,
    recent: RecentAnswers,
}

impl ShownStore {
    pub(crate) fn new(name: String, client: DurableClient, shutdown: &CancellationToken) -> Self {
        Self {
            name,
            sampler: Sampler::new(client.clone(), shutdown),
            client,
            jobs: BulkJobs::default(),
            gate: Gate::new(),
            recent: RecentAnswers::default(),
        }
    }

    /// Sends a request that reads. If an equal question was asked shortly before, returns its answer instead.
    pub(crate) async fn read<T: Clone + Send + Sync + 'static>(
        &self,
        question: Question,
        request: impl Future<Output = Result<T, DurableError>>,
    ) -> Result<T, WebError> {
        self.recent.get(question, self.read_now(request)).await
    }

    /// Sends a request that reads, and never returns an earlier answer instead.
    pub(crate) async fn read_now<T>(
        &self,
        request: impl Future<Output = Result<T, DurableError>>,
    ) -> Result<T, WebError> {
        Ok(self.gate.run(READ_TIMEOUT, request).await??)
    }

    /// Sends a request that changes something.
    pub(crate) async fn change<T>(
        &self,
        request: impl Future<Output = Result<T, DurableError>>,
    ) -> Result<T, WebError> {
        let result = self.gate.run(CHANGE_TIMEOUT, request).await;
        // Even a change that has failed may have taken effect. The next page shows it.
        self.sampler.expire();
        self.recent.clear();
        Ok(result??)
    }
}

#[cfg(test)]
impl ShownStore {
    /// Returns the number of requests that were sent to the store.
    pub(crate) fn requests(&self) -> usize {
        self.gate.begun()
    }

    /// Returns `true` if another request may run or wait.
    pub(crate) fn has_capacity(&self) -> bool {
        self.gate.has_capacity()
    }
}
