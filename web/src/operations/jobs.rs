//! [`BulkJobs`]: runs changes of many tasks in the background.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use throng::durable::{Changed, DurableClient, Refusal, TaskId, TaskPage};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::audit::Audit;
use super::bulk::BulkOrder;
use crate::error::{ErrorKind, WebError};
use crate::store::ShownStore;
use crate::views::tasks::has_error;
use crate::visit::StoreVisit;

/// The bulk changes of a store: those that run, and the last ones that have ended.
#[derive(Debug, Default)]
pub(crate) struct BulkJobs {
    state: Mutex<JobsState>,
}

#[derive(Debug, Default)]
struct JobsState {
    last_number: u64,
    jobs: VecDeque<Arc<BulkJob>>,
}

/// A change of many tasks that runs in the background.
#[derive(Debug)]
pub(crate) struct BulkJob {
    pub(crate) number: u64,
    pub(crate) order: BulkOrder,
    progress: Mutex<BulkProgress>,
    stop: CancellationToken,
}

/// The progress of a bulk change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BulkProgress {
    pub(crate) state: JobState,
    pub(crate) changed: u64,
    pub(crate) unchanged: u64,
    pub(crate) refused: BTreeMap<Refusal, u64>,
    pub(crate) examined: usize,
    /// The last error of the store.
    pub(crate) error: Option<String>,
}

/// The state of a bulk change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JobState {
    #[default]
    Running,
    Finished,
    Stopped,
    Failed,
}

/// The number of bulk changes of a store that are kept, including those that run.
const MAX_JOBS: usize = 32;
/// The number of dead letters that are read before those with an error are changed. A few, so that what was read is still true.
const PART: usize = 20;
/// The number of bulk changes of a store that run at once.
const MAX_RUNNING_JOBS: usize = 4;
/// The number of failures in a row after which a bulk change ends.
const MAX_FAILURES: u32 = 5;
/// The time between a failure and the next attempt.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl BulkJobs {
    /// Starts a bulk change, which continues after the request has ended.
    pub(crate) fn start(visit: &StoreVisit, order: BulkOrder) -> Result<Arc<BulkJob>, WebError> {
        order.check()?;
        let stop = visit.visit.shared.shutdown.child_token();
        let job = visit.store.jobs.add(order, stop)?;
        let (visit, running) = (visit.clone(), Arc::clone(&job));
        tokio::spawn(async move { running.run(&visit).await });
        Ok(job)
    }

    /// Stops the bulk change with this number.
    pub(crate) fn stop(visit: &StoreVisit, number: u64) -> Result<Arc<BulkJob>, WebError> {
        let job = visit.store.jobs.get(number)?;
        let subject = number.to_string();
        let audit = Audit::begin(visit, "stop-bulk", &subject);
        job.stop();
        audit.end(&Ok(String::from("yes")));
        Ok(job)
    }

    /// Returns the bulk change with this number.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<BulkJob>, WebError> {
        let state = lock(&self.state);
        let found = state.jobs.iter().find(|job| job.number == number);
        found.cloned().ok_or_else(|| {
            WebError::not_found(format!(
                "This process has no bulk change {number}: it keeps only the last {MAX_JOBS}, until it exits."
            ))
        })
    }

    fn add(&self, order: BulkOrder, stop: CancellationToken) -> Result<Arc<BulkJob>, WebError> {
        let mut state = lock(&self.state);
        let running = state.jobs.iter().filter(|job| job.is_running()).count();
        if running >= MAX_RUNNING_JOBS {
            return Err(WebError::new(
                ErrorKind::TooMany,
                "Too many bulk changes of this store run: wait until one of them has ended, or stop one.",
            ));
        }
        if state.jobs.len() >= MAX_JOBS
            && let Some(oldest) = state.jobs.iter().position(|job| !job.is_running())
        {
            state.jobs.remove(oldest);
        }
        state.last_number += 1;
        let job = Arc::new(BulkJob {
            number: state.last_number,
            order,
            progress: Mutex::default(),
            stop,
        });
        state.jobs.push_back(Arc::clone(&job));
        Ok(job)
    }
}

impl BulkJob {
    pub(crate) fn progress(&self) -> BulkProgress {
        lock(&self.progress).clone()
    }

    /// Stops the change after the part that runs. Its effects remain.
    fn stop(&self) {
        self.stop.cancel();
    }

    fn is_running(&self) -> bool {
        lock(&self.progress).state == JobState::Running
    }

    async fn run(&self, visit: &StoreVisit) {
        let subject = serde_json::to_string(&self.order).unwrap_or_default();
        let audit = Audit::begin(visit, "bulk", &subject);
        let ended = match (&self.order.ids[..], &self.order.error) {
            ([], None) => self.change_matching(&visit.store).await,
            ([], Some(text)) => self.change_with_error(visit, text).await,
            (ids, _) => self.change_each(&visit.store, ids).await,
        };
        let progress = {
            let mut progress = lock(&self.progress);
            progress.state = ended.as_ref().map_or(JobState::Failed, |state| *state);
            progress.error = ended.as_ref().err().map(|error| error.detail.clone());
            progress.clone()
        };
        let effect = serde_json::to_string(&progress).unwrap_or_default();
        audit.end(&ended.as_ref().map(|_| effect));
    }

    /// Changes all tasks that match the filter, a part at a time.
    async fn change_matching(&self, store: &ShownStore) -> Result<JobState, WebError> {
        let (filter, change) = (self.order.filter()?, self.order.change()?);
        let client: DurableClient = store.client.clone();
        let mut bulk = client.admin().change_all(filter, change);
        let mut failures = 0;
        while !self.stop.is_cancelled() {
            let part = store.change(async { bulk.next().await.transpose() }).await;
            match part {
                Ok(None) => return Ok(JobState::Finished),
                Ok(Some(part)) => {
                    failures = 0;
                    let mut progress = lock(&self.progress);
                    progress.changed += part.changed;
                    progress.unchanged += part.unchanged;
                    progress.examined += part.examined;
                    for (refusal, tasks) in part.refused {
                        *progress.refused.entry(refusal).or_default() += tasks;
                    }
                }
                Err(error) => self.failed(&mut failures, error).await?,
            }
        }
        Ok(JobState::Stopped)
    }

    /// Changes the dead letters that match the filter and whose errors contain a text, a page at a time. The store cannot select them.
    async fn change_with_error(
        &self,
        visit: &StoreVisit,
        text: &str,
    ) -> Result<JobState, WebError> {
        let (filter, store) = (self.order.filter()?, &visit.store);
        let (mut after, mut failures) = (None, 0);
        while !self.stop.is_cancelled() {
            let admin = store.client.admin();
            let page = admin.tasks(&filter, after.as_ref(), PART);
            match store.read_now(page).await {
                Err(error) => self.failed(&mut failures, error).await?,
                Ok(page) => {
                    failures = 0;
                    after = page.next.clone();
                    let state = self.change_page(visit, page, text).await?;
                    if after.is_none() || state == JobState::Stopped {
                        return Ok(state);
                    }
                }
            }
        }
        Ok(JobState::Stopped)
    }

    /// Changes the dead letters of a page whose errors contain a text.
    async fn change_page(
        &self,
        visit: &StoreVisit,
        mut page: TaskPage,
        text: &str,
    ) -> Result<JobState, WebError> {
        visit.redact_errors(&mut page.tasks);
        page.tasks.retain(|task| has_error(task, Some(text)));
        let ids: Vec<_> = page.tasks.iter().map(|task| task.id).collect();
        lock(&self.progress).examined += page.examined - ids.len();
        self.change_each(&visit.store, &ids).await
    }

    /// Changes the tasks with these ids, one after the other.
    async fn change_each(&self, store: &ShownStore, ids: &[TaskId]) -> Result<JobState, WebError> {
        let (change, mut failures) = (self.order.change()?, 0);
        let mut ids = ids.iter().peekable();
        while let Some(id) = ids.peek() {
            if self.stop.is_cancelled() {
                return Ok(JobState::Stopped);
            }
            let admin = store.client.admin();
            let changed = store.change(admin.change(**id, change.clone()));
            match changed.await {
                Ok(changed) => {
                    failures = 0;
                    lock(&self.progress).count(changed);
                    ids.next();
                }
                Err(error) => self.failed(&mut failures, error).await?,
            }
        }
        Ok(JobState::Finished)
    }

    /// Waits after a failure, which usually passes. Returns the error if it does not.
    async fn failed(&self, failures: &mut u32, error: WebError) -> Result<(), WebError> {
        *failures += 1;
        let may_pass = error.kind.retry_after().is_some();
        if !may_pass || *failures >= MAX_FAILURES {
            return Err(error);
        }
        lock(&self.progress).error = Some(error.detail);
        self.stop.run_until_cancelled(sleep(RETRY_DELAY)).await;
        Ok(())
    }
}

impl BulkProgress {
    fn count(&mut self, changed: Changed) {
        self.examined += 1;
        *match changed {
            Changed::Yes => &mut self.changed,
            Changed::Refused(refusal) => self.refused.entry(refusal).or_default(),
            _ => &mut self.unchanged,
        } += 1;
    }
}

/// Locks a mutex whose holders only count, so they leave it usable even if they panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
