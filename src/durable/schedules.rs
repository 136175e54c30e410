//! [`DurableClient::schedule`] defines schedules, and [`Schedules`] lists and changes them.

use std::fmt;
use std::sync::Arc as StdArc;

use super::client::DEFAULT_MAX_CRASHES;
use super::clock::millis;
use super::failure::{Cause, Effect, Failure};
use super::key::KeyHash;
use super::queue::name::QueueName;
use super::report;
use super::schedule::body::{Definition, MAX_SCHEDULE_PAYLOAD_BYTES, Template};
use super::schedule::name::ScheduleName;
use super::schedule::step::{self, DefinitionEffect};
use super::schedule::{ScheduleInfo, ScheduleOptions, When};
use super::store::{Enqueued, ScheduleAnswer, ScheduleChange};
use super::task::version_of;
use super::{DurableClient, DurableError, DurableTask, SpawnOptions, TaskId};

/// The maximum number of times that a change is computed, since others may change the schedule before it takes effect.
const MAX_TRIES: usize = 32;

impl DurableClient {
    /// Defines a *schedule*, which stores a task again and again at the given times. Every process may call this whenever it
    /// starts: if the store already has the same definition, the schedule continues unchanged. Returns `true` if the store now has
    /// this definition, and `false` if it keeps another one with a higher [revision](ScheduleOptions::revision).
    ///
    /// A *tick* is a time at which the schedule fires. For each tick, one task is stored, even if processes die or requests are
    /// lost. There is no leader: any executor of the store may fire the schedule, even if it does not run tasks of this type. The
    /// store's clock determines when a tick has come. [`TaskContext::tick`](super::TaskContext::tick) returns the tick of a task.
    /// If no executor was running at a tick, [`Missed`](super::Missed) determines whether a task is stored. If an earlier task has
    /// not ended, [`Overlap`](super::Overlap) does. While all executors are busy, it may take 30 s until one of them learns of a new
    /// schedule.
    ///
    /// The name identifies the schedule. It consists of 1 to 64 ASCII letters, digits, and the characters `._:/-`. Another
    /// definition with the same name replaces the old one, unless the old one has a higher revision. Two definitions are the same
    /// if they have the same times, the same options apart from the revision, and the same encoded task. If an old and a new
    /// release define a schedule differently, increase the revision with the release. Otherwise, the process that started last
    /// determines the definition.
    ///
    /// To run a task only once at a later time, spawn it with a [delay](SpawnOptions::delay) instead.
    ///
    /// # Errors
    ///
    /// - The name, the times or the options are [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The encoded task is [larger](DurableError::is_too_large) than 16 KiB, or it cannot be
    ///   [encoded](DurableError::is_encode).
    /// - The store does not answer, or other processes kept [changing](DurableError::is_busy) the schedule. It is safe to call
    ///   this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the schedule may or may not be defined. It is safe to call this again.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Sweep {}
    /// # impl DurableTask for Sweep { const NAME: &'static str = "sweep"; type Output = (); }
    /// use std::time::Duration;
    ///
    /// use throng::durable::Every;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let five_minutes = Every::new(Duration::from_secs(300));
    /// client.schedule("sweep", five_minutes, Sweep {}).await?;
    /// # #[cfg(feature = "cron")] {
    /// # use throng::durable::Cron;
    /// # #[derive(Serialize, Deserialize)] struct Nightly {}
    /// # impl DurableTask for Nightly { const NAME: &'static str = "nightly"; type Output = (); }
    /// let at_three = Cron::parse("0 3 * * *", "Europe/Berlin")?; // with the feature `cron`
    /// client.schedule("nightly", at_three, Nightly {}).await?;
    /// # }
    /// # Ok(()) }
    /// ```
    pub async fn schedule<T: DurableTask>(
        &self,
        name: &str,
        when: impl Into<When>,
        task: T,
    ) -> Result<bool, DurableError> {
        self.schedule_with(name, when, task, ScheduleOptions::new())
            .await
    }

    /// Defines a schedule with options: what happens after an outage or when tasks overlap, the jitter, the revision, and the
    /// options of the tasks. Otherwise, this does the same as [`schedule`](Self::schedule).
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    ///
    /// # Cancel safety
    ///
    /// As [`schedule`](Self::schedule).
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Sweep {}
    /// # impl DurableTask for Sweep { const NAME: &'static str = "sweep"; type Output = (); }
    /// use std::time::Duration;
    ///
    /// use throng::durable::{Every, Missed, ScheduleOptions};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let hourly = Every::new(Duration::from_secs(3600));
    /// let options = ScheduleOptions::new()
    ///     .missed(Missed::Skip)
    ///     .jitter(Duration::from_secs(30))
    ///     .revision(2);
    /// client.schedule_with("sweep", hourly, Sweep {}, options).await?;
    /// # Ok(()) }
    /// ```
    pub async fn schedule_with<T: DurableTask>(
        &self,
        name: &str,
        when: impl Into<When>,
        task: T,
        options: ScheduleOptions,
    ) -> Result<bool, DurableError> {
        let name = self.schedule_name(name)?;
        let definition = self.definition(&when.into(), &task, &options)?;
        let ticks = definition.spec.ticks();
        let ticks = ticks.map_err(|reason| self.invalid(reason))?;
        for _ in 0..MAX_TRIES {
            let ScheduleAnswer { now, found } = self.find(&name).await?;
            let revision = options.revision;
            let found = found.as_ref();
            let change = match step::define(&name, found, now, &definition, revision, &ticks) {
                DefinitionEffect::Unchanged => return Ok(true),
                DefinitionEffect::Superseded => return Ok(false),
                DefinitionEffect::Never => return Err(self.never_fires(&definition)),
                DefinitionEffect::Change(change) => change,
                DefinitionEffect::Flip(change) => {
                    report::schedule_flipped(self.store_name(), name.as_str(), revision);
                    change
                }
            };
            if self.change(change).await?.is_some() {
                return Ok(true);
            }
        }
        Err(self.contended())
    }

    /// Returns the interface that lists, pauses, fires and removes the schedules of the store.
    ///
    /// # Examples
    ///
    /// See [`Schedules`].
    pub fn schedules(&self) -> Schedules<'_> {
        Schedules { client: self }
    }

    /// Returns the definition as it is stored.
    fn definition<T: DurableTask>(
        &self,
        when: &When,
        task: &T,
        options: &ScheduleOptions,
    ) -> Result<Definition, DurableError> {
        let invalid = |reason| self.invalid(reason);
        options.check().map_err(invalid)?;
        Ok(Definition {
            spec: when.spec().map_err(invalid)?,
            missed: options.missed,
            overlap: options.overlap,
            jitter: millis(options.jitter),
            template: self.template(task, &options.spawn)?,
        })
    }

    fn template<T: DurableTask>(
        &self,
        task: &T,
        options: &SpawnOptions,
    ) -> Result<Template, DurableError> {
        let (store_name, id) = (self.store_name(), TaskId::new());
        let encoded = task.encode();
        let payload = encoded.map_err(|error| DurableError::encode(store_name, id, error))?;
        let (len, most) = (payload.len(), MAX_SCHEDULE_PAYLOAD_BYTES);
        if len > most {
            return Err(DurableError::too_large(store_name, id, len, most));
        }
        let queue = self.queue_name(options.queue.as_deref().or(T::QUEUE))?;
        Ok(Template {
            name: T::NAME.to_owned(),
            version: version_of::<T>(),
            group: self.group_name(options.group.as_deref(), &queue)?,
            queue,
            priority: options.priority.unwrap_or(T::PRIORITY),
            retention: millis(options.retention.unwrap_or(T::RETENTION)),
            max_crashes: options.max_crashes.unwrap_or(DEFAULT_MAX_CRASHES),
            policy: options
                .policy
                .check()
                .map_err(|reason| self.invalid(reason))?,
            payload,
        })
    }

    fn schedule_name(&self, name: &str) -> Result<ScheduleName, DurableError> {
        ScheduleName::new(name).map_err(|reason| self.invalid(reason))
    }

    async fn find(&self, name: &ScheduleName) -> Result<ScheduleAnswer, DurableError> {
        self.ask(None, |store| store.schedule(name.clone())).await
    }

    /// Changes a schedule. Returns `None` if another change has taken effect since the schedule was read.
    async fn change(&self, change: ScheduleChange) -> Result<Option<Enqueued>, DurableError> {
        let change = StdArc::new(change);
        self.ask(None, |store| store.change_schedule(StdArc::clone(&change)))
            .await
    }

    fn never_fires(&self, definition: &Definition) -> DurableError {
        let spec = &definition.spec;
        self.invalid(format!(
            "there is no time at which `{spec}` fires: use other times"
        ))
    }

    /// Returns the error for a change that did not take effect because others kept changing the schedule.
    fn contended(&self) -> DurableError {
        let failure = Failure::new(Effect::None, Cause::Contended);
        DurableError::store(self.store_name(), None, failure)
    }
}

/// The schedules of a store, from [`DurableClient::schedules`].
///
/// [`DurableClient::schedule`] defines a schedule. This interface reads, pauses, fires and removes schedules by their names. It
/// does not need the types of their tasks, so an administration program can use it.
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::{DurableClient, DurableTask, Every, MemoryStore};
/// # #[derive(Serialize, Deserialize)] struct Sweep {}
/// # impl DurableTask for Sweep { const NAME: &'static str = "sweep"; type Output = (); }
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// # let hourly = Every::new(std::time::Duration::from_secs(3600));
/// client.schedule("sweep", hourly, Sweep {}).await?;
///
/// client.schedules().pause("sweep").await?; // for instance, while a disk is replaced
/// let sweep = client.schedules().get("sweep").await?;
/// assert!(sweep.is_some_and(|it| it.is_paused));
/// client.schedules().resume("sweep").await?;
///
/// let task = client.schedules().fire_now("sweep").await?; // stores one more task now
/// assert!(task.is_some());
/// client.schedules().remove("sweep").await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct Schedules<'a> {
    client: &'a DurableClient,
}

impl Schedules<'_> {
    /// Returns the state of a schedule, or `None` if there is no schedule with this name.
    ///
    /// # Errors
    ///
    /// - The name is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer, or other processes kept [changing](DurableError::is_busy) the schedule. It is safe to call
    ///   this again.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, Every, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Sweep {}
    /// # impl DurableTask for Sweep { const NAME: &'static str = "sweep"; type Output = (); }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let hourly = Every::new(std::time::Duration::from_secs(3600));
    /// # client.schedule("sweep", hourly, Sweep {}).await?;
    /// if let Some(sweep) = client.schedules().get("sweep").await? {
    ///     println!("{} fires at {:?}", sweep.name, sweep.next_tick);
    /// }
    /// assert!(client.schedules().get("unknown").await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn get(&self, name: &str) -> Result<Option<ScheduleInfo>, DurableError> {
        let name = self.client.schedule_name(name)?;
        let answer = self.client.find(&name).await?;
        Ok(answer.found.as_ref().map(ScheduleInfo::of))
    }

    /// Returns the states of at most `limit` schedules, in the order of their names. The list begins after the name `after` or,
    /// with `None`, with the first schedule. To read all schedules, pass the last name of each page as `after` of the next one.
    ///
    /// # Errors
    ///
    /// - The name is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer. It is safe to call this again.
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
    /// let mut page = client.schedules().list(None, 100).await?;
    /// while let Some(last) = page.last() {
    ///     page = client.schedules().list(Some(&last.name), 100).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn list(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ScheduleInfo>, DurableError> {
        let after = after.map(|name| self.client.schedule_name(name));
        let after = after.transpose()?;
        let client = self.client;
        let found = client.ask(None, |store| store.schedules(after.clone(), limit));
        let found = found.await?;
        Ok(found.iter().map(ScheduleInfo::of).collect())
    }

    /// Pauses a schedule: it does not fire until it is [resumed](Self::resume), even if it is defined again. Does nothing if the
    /// schedule is already paused. Returns `false` if there is no schedule with this name.
    ///
    /// Tasks that the schedule has stored still run. The schedule stays paused even after all processes exit.
    ///
    /// # Errors
    ///
    /// - The name is [invalid](DurableError::is_invalid), or the stored definition cannot be read. The message names the remedy.
    /// - The store does not answer, or other processes kept [changing](DurableError::is_busy) the schedule. It is safe to call
    ///   this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the schedule may or may not be paused.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, Every, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Sweep {}
    /// # impl DurableTask for Sweep { const NAME: &'static str = "sweep"; type Output = (); }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let hourly = Every::new(std::time::Duration::from_secs(3600));
    /// # client.schedule("sweep", hourly, Sweep {}).await?;
    /// assert!(client.schedules().pause("sweep").await?);
    /// let sweep = client.schedules().get("sweep").await?;
    /// assert!(sweep.is_some_and(|it| it.is_paused));
    /// # Ok(()) }
    /// ```
    pub async fn pause(&self, name: &str) -> Result<bool, DurableError> {
        self.set_paused(name, true).await
    }

    /// Resumes a schedule. Does nothing if the schedule is not paused. If ticks have passed while it was paused,
    /// [`Missed`](super::Missed) determines for which of them tasks are stored, as after an outage. Returns `false` if there is no
    /// schedule with this name.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the schedule may or may not be resumed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, Every, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Sweep {}
    /// # impl DurableTask for Sweep { const NAME: &'static str = "sweep"; type Output = (); }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let hourly = Every::new(std::time::Duration::from_secs(3600));
    /// # client.schedule("sweep", hourly, Sweep {}).await?;
    /// client.schedules().pause("sweep").await?;
    /// assert!(client.schedules().resume("sweep").await?);
    /// assert!(!client.schedules().resume("unknown").await?);
    /// # Ok(()) }
    /// ```
    pub async fn resume(&self, name: &str) -> Result<bool, DurableError> {
        self.set_paused(name, false).await
    }

    /// Stores a task of a schedule now, even if the schedule is paused. The ticks of the schedule stay the same. The
    /// [tick](super::TaskContext::tick) of the task is the current time of the store.
    ///
    /// Returns the id of the task. If the task is not stored because of an [earlier task](super::Overlap), returns the id of the
    /// earlier one. Returns `None` if there is no schedule with this name.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause). But if the store does not answer, the task may be stored, so another call may store a second one.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the task may or may not be stored.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, Every, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Sweep {}
    /// # impl DurableTask for Sweep { const NAME: &'static str = "sweep"; type Output = (); }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let hourly = Every::new(std::time::Duration::from_secs(3600));
    /// # client.schedule("sweep", hourly, Sweep {}).await?;
    /// let id = client.schedules().fire_now("sweep").await?.expect("it is defined");
    /// let handle = client.attach::<Sweep>(id); // awaits the task
    /// # drop(handle);
    /// # Ok(()) }
    /// ```
    pub async fn fire_now(&self, name: &str) -> Result<Option<TaskId>, DurableError> {
        let name = self.client.schedule_name(name)?;
        let key = KeyHash::of_schedule(name.as_str());
        let mut id = TaskId::new();
        for _ in 0..MAX_TRIES {
            let ScheduleAnswer { now, found } = self.client.find(&name).await?;
            let Some(found) = found else { return Ok(None) };
            let body = step::read(&found.row).map_err(|reason| self.client.invalid(reason))?;
            let queue = body.definition.template.queue;
            // If an earlier request has taken effect, the same id stores no second task.
            if !self.can_have(id, &queue, Some(key)) {
                id = self.new_id(&queue, key);
            }
            let change = step::fire_now(&found, now, id, &|id, queue, key| {
                self.can_have(id, queue, key)
            });
            let change = change.map_err(|reason| self.client.invalid(reason))?;
            if let Some(enqueued) = self.client.change(change).await? {
                let conflict = enqueued.conflicts.first();
                return Ok(Some(conflict.map_or(id, |conflict| conflict.holder)));
            }
        }
        Err(self.client.contended())
    }

    /// Removes a schedule. The tasks that it has stored remain. Returns `false` if there is no schedule with this name.
    ///
    /// A process that still defines the schedule creates it again, so deploy programs without the definition first.
    ///
    /// # Errors
    ///
    /// - The name is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer, or other processes kept [changing](DurableError::is_busy) the schedule. It is safe to call
    ///   this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the schedule may or may not be removed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, Every, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Sweep {}
    /// # impl DurableTask for Sweep { const NAME: &'static str = "sweep"; type Output = (); }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let hourly = Every::new(std::time::Duration::from_secs(3600));
    /// # client.schedule("sweep", hourly, Sweep {}).await?;
    /// assert!(client.schedules().remove("sweep").await?);
    /// assert!(client.schedules().get("sweep").await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn remove(&self, name: &str) -> Result<bool, DurableError> {
        let name = self.client.schedule_name(name)?;
        for _ in 0..MAX_TRIES {
            let Some(found) = self.client.find(&name).await?.found else {
                return Ok(false);
            };
            if self.client.change(step::remove(&found)).await?.is_some() {
                return Ok(true);
            }
        }
        Err(self.client.contended())
    }

    async fn set_paused(&self, name: &str, is_paused: bool) -> Result<bool, DurableError> {
        let name = self.client.schedule_name(name)?;
        for _ in 0..MAX_TRIES {
            let ScheduleAnswer { now, found } = self.client.find(&name).await?;
            let Some(found) = found else { return Ok(false) };
            let change = step::set_paused(&found, now, is_paused);
            let change = change.map_err(|reason| self.client.invalid(reason))?;
            let Some(change) = change else {
                return Ok(true);
            };
            if self.client.change(change).await?.is_some() {
                return Ok(true);
            }
        }
        Err(self.client.contended())
    }

    /// Returns a new id for a task of a schedule, in the partition of the schedule.
    fn new_id(&self, queue: &QueueName, key: KeyHash) -> TaskId {
        let mut ids = std::iter::repeat_with(TaskId::new);
        let found = ids.find(|&id| self.can_have(id, queue, Some(key)));
        found.unwrap_or_else(TaskId::new)
    }

    fn can_have(&self, id: TaskId, queue: &QueueName, key: Option<KeyHash>) -> bool {
        self.client.engine().store.can_have(id, queue, key)
    }
}

impl fmt::Debug for Schedules<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedules").finish_non_exhaustive()
    }
}
