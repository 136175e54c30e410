//! [`SpawnOptions`]: the options of one task.

use std::time::Duration;

use super::policy::Policy;
use super::queue::Priority;
use super::{Key, TaskId};
use crate::retry::Retry;

/// The options of one task: see [`DurableClient::spawn_with`](super::DurableClient::spawn_with).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use throng::durable::{SpawnOptions, TaskId};
///
/// let tomorrow = SpawnOptions::new()
///     .id(TaskId::derive("reminder", b"user 7"))
///     .delay(Duration::from_secs(24 * 3600));
/// # drop(tomorrow);
/// ```
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    pub(crate) id: Option<TaskId>,
    pub(crate) queue: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) priority: Option<Priority>,
    pub(crate) key: Option<Key>,
    pub(crate) delay: Duration,
    pub(crate) retention: Option<Duration>,
    pub(crate) max_crashes: Option<u32>,
    pub(crate) policy: Policy,
}

impl SpawnOptions {
    /// Returns the defaults: a new id, the queue, the priority, the retention, the retries and the timeout of the task's type, no
    /// delay, and three crashes.
    ///
    /// # Examples
    ///
    /// See [`SpawnOptions`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the task's id. If the store already has a task with this id, or still keeps its end, nothing is stored, and the
    /// handle awaits that task.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
    /// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
    /// use throng::durable::{SpawnOptions, TaskId};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let id = TaskId::new();
    /// for _ in 0..2 {
    ///     let mail = SendMail { to: "a@b.c".into() };
    ///     let handle = client.spawn_with(mail, SpawnOptions::new().id(id)).await?;
    ///     assert_eq!(handle.id(), id);
    /// }
    /// assert_eq!(client.counts().await?.waiting, 1); // it is stored once
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn id(mut self, id: TaskId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the [queue](super::Queue) in which the task waits: 1 to 64 ASCII letters, digits, and the characters `._:/-`. The
    /// default is [`QUEUE`](super::DurableTask::QUEUE).
    ///
    /// If the store has several partitions, an [`id`](Self::id) that you set must be in the partition of the queue.
    /// [`DurableClient::derive_id`](super::DurableClient::derive_id) returns such an id.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
    /// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
    /// use throng::durable::SpawnOptions;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let options = SpawnOptions::new().queue("mail"); // the queue need not exist before
    /// client.spawn_with(SendMail { to: "a@b.c".into() }, options).await?;
    /// assert_eq!(client.queue("mail").info().await?.waiting, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the group of the task within its named [queue](Self::queue): any text of 1 to 64 bytes, for example the id of a customer.
    /// By default, the task has no group. The default queue has no groups, so a spawn into it fails if the task has a group.
    ///
    /// The groups of a queue take turns, so a group with many tasks does not delay the others. [`Groups`](super::Groups) can limit how
    /// many tasks of each group run at once. A task without a group starts only when no task of a group may start,
    /// so such tasks may wait for long in a queue whose groups always have tasks.
    ///
    /// The groups take turns within each [priority](Self::priority): tasks of a higher priority start first, whatever their groups are.
    /// They also take turns only among types that the same workers have [registered](super::Builder::register). If some workers of the
    /// queue have registered other types than the rest, the groups take turns separately for each set of types that the same workers share.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::SpawnOptions;
    ///
    /// let account = 7;
    /// let options = SpawnOptions::new().queue("sync").group(format!("account {account}"));
    /// # drop(options);
    /// ```
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets how urgent the task is, compared with the other tasks of its queue. The default is
    /// [`PRIORITY`](super::DurableTask::PRIORITY).
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use std::sync::{Arc, Mutex};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Print(String);
    /// # impl DurableTask for Print { const NAME: &'static str = "print"; type Output = (); }
    /// # impl Run<Mutex<Vec<String>>> for Print {
    /// #     async fn run(self, cx: TaskContext<Mutex<Vec<String>>>) -> Result<(), TaskError> {
    /// #         cx.app().lock().expect("no run panics").push(self.0);
    /// #         Ok(())
    /// #     }
    /// # }
    /// use throng::durable::{Priority, SpawnOptions};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let printed = Arc::new(Mutex::new(Vec::new()));
    /// # let mut builder = DurableExecutor::builder(client.clone());
    /// # let mut executor = builder.register::<Print>().start_inline(printed.clone()).await?;
    /// let low = SpawnOptions::new().priority(Priority::Low);
    /// client.spawn_with(Print("catalogue".into()), low).await?;
    /// let high = SpawnOptions::new().priority(Priority::High);
    /// client.spawn_with(Print("label".into()), high).await?;
    /// # executor.run_due().await?;
    /// // A worker that starts now prints the label first.
    /// assert_eq!(*printed.lock().expect("no run panics"), ["label", "catalogue"]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Gives the task a [key](Key): while another task holds it, this task is not stored, and the handle awaits the other task. There
    /// is no key by default. A task cannot have both a key and an [`id`](Self::id).
    ///
    /// # Examples
    ///
    /// See [`Key`].
    #[must_use]
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets the time before which the task does not run. The default is zero. It cannot be combined with
    /// [`Key::debounce`], which delays the task.
    ///
    /// # Examples
    ///
    /// See [`SpawnOptions`].
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the time for which the end of the task is kept. The default is
    /// [`RETENTION`](super::DurableTask::RETENTION). If it is zero, the end is not kept, and the task cannot be awaited.
    /// Otherwise, the end is kept for longer while no executor runs on the store. With [`Key::throttle`], it is kept for at least
    /// the window. It is kept for a shorter time if the store has more ends than its [maximum](super::Retention::kept_most).
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Report { user: u64 }
    /// # impl DurableTask for Report { const NAME: &'static str = "report"; type Output = (); }
    /// # impl Run<()> for Report {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> { Ok(()) }
    /// # }
    /// use std::time::Duration;
    ///
    /// use throng::durable::{Clock, SpawnOptions, Status};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = Clock::manual();
    /// let client = DurableClient::open(MemoryStore::with_clock(&clock));
    /// # let mut executor = DurableExecutor::builder(client.clone()).register::<Report>().start_inline(()).await?;
    /// let day = Duration::from_secs(24 * 3600);
    /// let options = SpawnOptions::new().retention(7 * day);
    /// let handle = client.spawn_with(Report { user: 7 }, options).await?;
    /// # executor.run_due().await?;
    /// clock.advance(6 * day);
    /// assert_eq!(handle.status().await?, Status::Done); // its output is still kept
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Sets how many workers may die with the task before it becomes a dead letter: the last of them makes it
    /// one. Three by default. With 1, this takes a second death if the store cannot know whether the first
    /// worker ran the task.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::SpawnOptions;
    ///
    /// // If a worker dies while it runs the task, the task becomes a dead letter.
    /// let options = SpawnOptions::new().max_crashes(1);
    /// # drop(options);
    /// ```
    #[must_use]
    pub fn max_crashes(mut self, max_crashes: u32) -> Self {
        self.max_crashes = Some(max_crashes);
        self
    }

    /// Sets how often, and after which delays, the task is tried again if it fails. The default is
    /// [`RETRY`](super::DurableTask::RETRY) or, if that is `None`, the [retries of the executor](super::Builder::retry).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::Retry;
    /// use throng::durable::SpawnOptions;
    ///
    /// let once = SpawnOptions::new().retry(Retry::exponential().attempts(1));
    /// # drop(once);
    /// ```
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.policy.retry = Some(retry);
        self
    }

    /// Sets the maximum time that each run of the task may take. The default is [`TIMEOUT`](super::DurableTask::TIMEOUT), whose
    /// documentation describes what happens to a run that exceeds it. A timeout of zero is refused: spawning the task fails with an
    /// [error](super::DurableError::is_invalid).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::durable::SpawnOptions;
    ///
    /// let options = SpawnOptions::new().timeout(Duration::from_secs(60));
    /// # drop(options);
    /// ```
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.policy.timeout = Some(timeout);
        self
    }
}
