//! [`Admin`]: describes a store, and lists and changes its tasks, for the people who operate it.

use std::fmt;

use super::engine::Engine;
use super::store::Backend;
use super::{
    Bulk, Changed, Cursor, DurableError, Overview, QueueHead, Report, Retention, Stats,
    StatsFilter, StoreLayout, TaskChange, TaskDetail, TaskFilter, TaskId, TaskPage, WorkerInfo,
    WorkersPage,
};

pub(crate) mod bulk;
pub(crate) mod change;
pub(crate) mod cursor;
pub(crate) mod detail;
pub(crate) mod excerpt;
pub(crate) mod filter;
mod find;
pub(crate) mod finding;
mod findings;
pub(crate) mod json;
pub(crate) mod layout;
mod list;
pub(crate) mod overview;
pub(crate) mod page;
pub(crate) mod refusal;
pub(crate) mod report;
pub(crate) mod retention;
pub(crate) mod run_totals;
mod shown_steps;
pub(crate) mod stats;
pub(crate) mod task_step;
pub(crate) mod wait_reason;
pub(crate) mod worker_info;
mod workers;

/// The interface of a store for the people who operate it: see [`DurableClient::admin`](super::DurableClient::admin).
///
/// - [`overview`](Self::overview) summarises the store, its queues and its types, and [`report`](Self::report) lists what is wrong with it.
///   [`check_writes`](Self::check_writes) checks that the store accepts writes.
/// - [`tasks`](Self::tasks) lists the tasks with a status, [`task`](Self::task) shows one task in detail, and [`head`](Self::head) shows
///   the tasks of a queue that have waited longest.
/// - [`workers`](Self::workers) lists the workers, and [`worker`](Self::worker) returns one of them. [`stats`](Self::stats) returns how
///   many runs have started and ended over time.
/// - [`change`](Self::change) cancels, moves, replays or deletes one task, or makes it due now, and [`change_all`](Self::change_all) does
///   so to all tasks that match a filter.
///
/// The program need not know the types of the tasks. A program that changes nothing can open the store with `observe` instead of `open`.
///
/// Each request reads one task, one page or a summary, so its cost does not grow with the number of tasks in the store. There are two
/// exceptions: [`MemoryStore`](super::MemoryStore) examines all of its tasks, and Redis searches lists of waiting tasks to
/// [move](TaskChange::MoveTo) single tasks to another queue. To move many of them, use [`change_all`](Self::change_all), which does not
/// search.
///
/// # Examples
///
/// ```
/// # use throng::durable::{DurableClient, MemoryStore};
/// use throng::durable::{Status, TaskFilter};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// let waiting = TaskFilter::new(Status::Waiting).name("mail.send");
/// let mut after = None;
/// loop {
///     let page = client.admin().tasks(&waiting, after.as_ref(), 50).await?;
///     for task in page.tasks {
///         println!("{} has failed {:?} times", task.id, task.failures);
///     }
///     after = page.next;
///     if after.is_none() {
///         break;
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct Admin<'a> {
    engine: &'a Engine,
}

impl<'a> Admin<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }

    /// Returns a summary of the store, its queues and its types. The cost grows with the numbers of queues and types, but not with the
    /// number of tasks.
    ///
    /// If a store has several partitions and some of them do not answer, the overview describes the others, and lists the
    /// [missing](Overview::missing_partitions) ones.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let overview = client.admin().overview().await?;
    /// for queue in &overview.queues {
    ///     let name = queue.name.as_deref().unwrap_or("(default)");
    ///     println!("{name}: {} waiting, {} running", queue.info.waiting, queue.info.running);
    /// }
    /// # assert_eq!(overview.queues[0].name, None);
    /// # Ok(()) }
    /// ```
    pub async fn overview(&self) -> Result<Overview, DurableError> {
        self.engine.ask(None, |store| store.overview()).await
    }

    /// Returns a report on the store: what needs attention, and what to do about it. See [`Finding`](super::Finding) for what it checks.
    ///
    /// The cost is that of an [overview](Self::overview), of a page of [workers](Self::workers) and of a page of dead letters: the report
    /// examines the first 200 workers, the 50 newest dead letters and the 128 schedules that are due next, and lists at most ten names of a
    /// kind. With Redis, it also reads settings of the server. If some partitions do not answer, that is a finding, and the report
    /// describes the others.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let report = client.admin().report().await?;
    /// for finding in &report.findings {
    ///     println!("{finding}"); // for example: warning: tasks wait in paused queues: mail: resume these queues ..
    /// }
    /// # assert!(report.findings.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn report(&self) -> Result<Report, DurableError> {
        report::report(self.engine).await
    }

    /// Returns the same as [`report`](Self::report), given an [overview](Self::overview) that was just read. A program that shows both
    /// spares the store a second overview.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let overview = client.admin().overview().await?;
    /// let report = client.admin().report_of(&overview).await?;
    /// println!("{} tasks wait, {} findings", overview.counts.waiting, report.findings.len());
    /// # assert!(report.findings.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn report_of(&self, overview: &Overview) -> Result<Report, DurableError> {
        report::report_of(self.engine, overview).await
    }

    /// Checks that the store accepts writes: opens a session, as a worker does, and closes it. This has no effect on tasks.
    ///
    /// # Errors
    ///
    /// - if the store refuses the session, for example because its disk or its memory is full;
    /// - if the client observes the store ([`is_read_only`](DurableError::is_read_only));
    /// - if the store does not answer.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the session may stay open until the client is closed or its process exits.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// client.admin().check_writes().await?;
    /// # Ok(()) }
    /// ```
    pub async fn check_writes(&self) -> Result<(), DurableError> {
        let session = self.engine.ask(None, |store| store.open_session(None));
        let session = session.await?;
        let closed = self.engine.ask(None, |store| store.close_session(session));
        closed.await
    }

    /// Returns a page of the tasks that match the filter: the first page or, if `after` is the [`next`](TaskPage::next) of a page, the
    /// page after it. A page has at most `limit` tasks, where `limit` is from 1 to 200.
    ///
    /// For each page, the store examines at most ten times `limit` tasks, and never more than 500. So if few tasks match, a page may have
    /// fewer tasks than `limit`, or none, although more follow. The last page is the one without a [`next`](TaskPage::next).
    ///
    /// The order is:
    ///
    /// - delayed tasks: the task that is due first comes first;
    /// - dead letters: the newest one comes first;
    /// - other tasks: the order depends on the store.
    ///
    /// A task that has the status while all pages are read is on at least one of them, and may be on several. There are two exceptions:
    ///
    /// - A delayed task may be missing if a spawn [replaces](super::Key::replace) it meanwhile, since the task is then due at another time.
    /// - In SQLite, a waiting task may be missing if it moves to another list meanwhile. This happens when workers that know other types
    ///   start or stop, when its type is [paused](super::TaskTypes::pause) or resumed, and when a spawn replaces it by a task of another
    ///   version.
    ///
    /// A task whose status changes meanwhile may be missing.
    ///
    /// # Errors
    ///
    /// - The filter, the cursor or the limit is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// See [`Admin`].
    pub async fn tasks(
        &self,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<TaskPage, DurableError> {
        list::list(self.engine, filter, after, limit).await
    }

    /// Returns what the store knows about a task. Returns `None` if there is no such task: it was never stored, or its end is no longer
    /// kept.
    ///
    /// This takes one or two requests, whose cost depends only on the size of the task and of its steps. For a running task, SQLite also
    /// searches all claims. For a
    /// waiting task, Redis also searches its list, in at most 20 steps: see [`TaskDetail::payload`].
    /// If a part of the task is lost or cannot be read, the answer contains the rest and describes the [damage](TaskDetail::damage).
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// See [`TaskDetail`].
    pub async fn task(&self, id: TaskId) -> Result<Option<TaskDetail>, DurableError> {
        find::task(self.engine, id).await
    }

    /// Returns the tasks at the head of a [queue](super::Queue): the waiting tasks that have been [ready](super::TaskInfo::ready_for) for
    /// the longest time. If `queue` is `None`, it is the default queue. The `limit` is from 1 to 50.
    ///
    /// The tasks of a queue wait in several lists. For each priority, there is one list for the types that the same workers know, and one
    /// for each [group](super::SpawnOptions::group). This method merges the heads of these lists, in the order in which their tasks became
    /// ready. So it shows which tasks have waited longest, but not in which order they start:
    ///
    /// - Tasks of a higher [priority](super::Priority) may start first, and groups take turns.
    /// - A task may have to wait longer than others, for example because of a limit, a pause or a group that is held, or because no worker
    ///   knows its type.
    /// - A task within a list may have been ready for longer than the head of the list, for example if a worker gave it back.
    ///
    /// The cost grows with the number of lists and of groups with waiting tasks. This method examines at most 1,000 lists, and the first
    /// `limit` groups of each.
    ///
    /// # Errors
    ///
    /// - The name of the queue or the limit is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// for task in client.admin().head(Some("mail"), 10).await?.tasks {
    ///     println!("{} has been ready for {:?}", task.id, task.ready_for);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn head(&self, queue: Option<&str>, limit: usize) -> Result<QueueHead, DurableError> {
        find::head(self.engine, queue, limit).await
    }

    /// Returns a page of the workers: the first page or, if `after` is the [`next`](WorkersPage::next) of a page, the page after it. A
    /// page has at most `limit` workers, where `limit` is from 1 to 200. A worker that is registered while all pages are read is on exactly
    /// one of them. If a store has several partitions and some of them do not answer, the pages contain the workers of the others, and list
    /// the [missing](super::WorkersPage::missing_partitions) ones.
    ///
    /// After a deployment, tasks may wait because no worker knows their type. [`Counts::unserved`](super::Counts::unserved) is the number
    /// of these tasks. To find their types, look for types that are not [served](super::TypeOverview::is_served) in the
    /// [overview](Self::overview), or compare the names of [waiting tasks](Self::tasks) with the [types](super::WorkerInfo::types) of the
    /// workers. Tasks of [paused types](super::TaskTypes::paused) also wait, even if workers know the type.
    ///
    /// # Errors
    ///
    /// - The cursor or the limit is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let page = client.admin().workers(None, 100).await?;
    /// for worker in page.workers {
    ///     println!("{} on {} knows {:?}", worker.program, worker.host, worker.types);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn workers(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<WorkersPage, DurableError> {
        workers::list(self.engine, after, limit).await
    }

    /// Returns the worker with this [session](super::WorkerInfo::session), or `None` if the store has no such worker,
    /// because it has ended or was removed after its death. To list the tasks that it runs, use [`TaskFilter::worker`].
    ///
    /// With Redis, this is one request to each partition.
    ///
    /// # Errors
    ///
    /// The store does not answer, or a partition that may contain the worker does not.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// match client.admin().worker(7).await? {
    ///     Some(worker) => println!("process {} on {}", worker.process, worker.host),
    ///     None => println!("it has ended"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn worker(&self, session: u64) -> Result<Option<WorkerInfo>, DurableError> {
        self.engine.ask(None, |store| store.worker(session)).await
    }

    /// Returns a page of the statistics: how many runs of each type have started and ended, by minute for the last 24 hours, or by hour for
    /// the last 30 days. All times are by the clock of the store.
    ///
    /// The numbers are approximate. Each process with executors reports its runs about every ten seconds, and once more when its client is
    /// [closed](super::DurableClient::close):
    ///
    /// - The numbers lag by about ten seconds, so a run may count in the next minute.
    /// - A process that is killed loses the numbers of its last ten seconds.
    /// - A run whose outcome the store refuses, because another worker has the task, may still count.
    ///
    /// A report that is sent twice counts once.
    ///
    /// A page covers whole minutes or hours, and has at most a few thousand rows before they are filtered by name. So it may have no rows
    /// although others follow. The last page is the one without a [`next`](Stats::next).
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// use throng::durable::StatsFilter;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let mut filter = StatsFilter::by_minute().last(Duration::from_secs(3600));
    /// loop {
    ///     let page = client.admin().stats(&filter).await?;
    ///     for row in page.rows {
    ///         println!("{:?} {:?}: {} done", row.start, row.name, row.runs.done);
    ///     }
    ///     let Some(next) = page.next else { break };
    ///     filter = filter.from(next);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn stats(&self, filter: &StatsFilter) -> Result<Stats, DurableError> {
        stats::stats(self.engine, filter).await
    }

    /// Changes a task. A change that does not apply to the task, for example because the task has already started, is not an error: see
    /// [`Changed`].
    ///
    /// # Errors
    ///
    /// - The name of the queue to which the task is to move is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer. It is safe to call this again. If the first call took effect, the second one finds the task changed,
    ///   and usually returns another value than [`Changed::Yes`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the task may or may not be changed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore, TaskId};
    /// use throng::durable::{Changed, TaskChange};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let id = TaskId::new();
    /// let changed = client.admin().change(id, TaskChange::RunNow).await?;
    /// assert_eq!(changed, Changed::NotThere); // there is no task with this id
    /// # Ok(()) }
    /// ```
    pub async fn change(&self, id: TaskId, change: TaskChange) -> Result<Changed, DurableError> {
        change::change_one(self.engine, id, &change).await
    }

    /// Changes all tasks that match, a part at a time: see [`Bulk`]. To leave out tasks that came after an operator looked at a page,
    /// restrict the filter to the time at which the page was [read](TaskPage::now): see [`TaskFilter::until`].
    ///
    /// # Examples
    ///
    /// See [`Bulk`].
    pub fn change_all(&self, filter: TaskFilter, change: TaskChange) -> Bulk<'a> {
        Bulk::new(self.engine, filter, change)
    }

    /// Returns the layout of the store and the processes that prevent an [upgrade](super::DurableClient::upgrade). Writes nothing.
    ///
    /// Ask the primary of a Redis server: a replica does not know which silent processes are still connected.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let layout = client.admin().layout().await?;
    /// if layout.current < layout.newest {
    ///     println!("these processes prevent an upgrade: {:?}", layout.older_processes);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn layout(&self) -> Result<StoreLayout, DurableError> {
        self.engine.ask(None, |store| store.layout()).await
    }

    /// Returns how long, and how many, ended tasks the store keeps.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// See [`set_retention`](Self::set_retention).
    pub async fn retention(&self) -> Result<Retention, DurableError> {
        self.engine.ask(None, |store| store.retention()).await
    }

    /// Changes how long, and how many, ended tasks the store keeps. The store keeps these settings, and they apply to all processes.
    ///
    /// - If dead letters are kept for a shorter time, those that are older expire at once.
    /// - If they are kept for longer, this applies to those that have not expired. Those that have do not come back.
    /// - If there are more dead letters, or more other ends, than the maximum, the maintenance of the executors removes those in excess, a
    ///   limited number at a time: the oldest dead letters, and the ends that expire first. Among ends that expire in the same millisecond,
    ///   the order depends on the store.
    ///
    /// A handle of a task whose end is removed early gets the error that it gets if the end has [expired](DurableError::is_expired), and
    /// the [`Key`](super::Key) of such a task is free.
    ///
    /// A Redis store with several partitions keeps the maximum in each of them.
    ///
    /// # Errors
    ///
    /// - A time or a number is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer. It is safe to call this again. Until then, some partitions of a Redis store may have the new settings.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the settings may be changed or not.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let week = Duration::from_secs(7 * 24 * 3600);
    /// let retention = client.admin().retention().await?;
    /// client.admin().set_retention(retention.dead_for(week)).await?;
    /// # assert_eq!(client.admin().retention().await?.dead_for, week);
    /// # Ok(()) }
    /// ```
    pub async fn set_retention(&self, retention: Retention) -> Result<(), DurableError> {
        let invalid = |reason| DurableError::invalid(&self.engine.store_name, reason);
        retention.check().map_err(invalid)?;
        let set = |store: &'a dyn Backend| store.set_retention(retention);
        self.engine.ask(None, set).await
    }
}

impl fmt::Debug for Admin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("store", &self.engine.store_name)
            .finish()
    }
}
