//! Requests that can be sent to either store, and sent again.

use std::sync::Arc;
use std::time::Duration;

use super::{Choice, KeyChoice, New, Types, VerdictChoice};
use crate::durable::envelope::envelope_of;
use crate::durable::key::{Conflict, NewKey};
use crate::durable::policy::Policy;
use crate::durable::queue::Priority;
use crate::durable::queue::group::GroupName;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::suite::process::{id, queue_name, schedule_name};
use crate::durable::store::{
    ClaimPushes, DeadReason, Enqueue, Epoch, NewTask, SessionId, Turn, Verdict, Verdicts,
};
use crate::durable::{DeadFilter, Key, TaskId};

/// A request of a session.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Enqueue(Vec<NewTask>),
    Turn(TurnRequest),
}

/// A turn, whose claims are numbered by the test.
#[derive(Clone, Debug)]
pub(super) struct TurnRequest {
    pub(super) verdicts: Vec<(usize, Vec<(TaskId, Verdict)>)>,
    /// The claim that this turn confirms.
    pub(super) received: Option<usize>,
    /// The position of a claim, and how far the floor is above its epoch.
    pub(super) floor: Option<(usize, u64)>,
    pub(super) want: usize,
    pub(super) want_bytes: usize,
    pub(super) lease: Duration,
    pub(super) quarantined: bool,
    pub(super) go_idle: bool,
}

pub(super) fn enqueue(session: SessionId, number: u64, tasks: &[NewTask]) -> Arc<Enqueue> {
    Arc::new(Enqueue {
        session,
        number,
        batch: Arc::new(tasks.to_vec().into()),
    })
}

impl TurnRequest {
    /// Returns the request to one of the stores, whose claims have these epochs.
    pub(super) fn to(&self, session: SessionId, number: u64, epochs: &[Epoch]) -> Arc<Turn> {
        let verdicts = self.verdicts.iter().map(|(claim, tasks)| Verdicts {
            epoch: epochs[*claim],
            tasks: tasks.clone(),
        });
        Arc::new(Turn {
            session,
            number,
            verdicts: verdicts.collect(),
            received: self.received.map(|claim| epochs[claim]),
            floor: self.floor(epochs),
            want: self.want,
            want_bytes: self.want_bytes,
            lease: self.lease,
            quarantined: self.quarantined,
            go_idle: self.go_idle,
            pushes: ClaimPushes::default(),
        })
    }

    /// Returns the floor above which new epochs of one of the stores must be.
    pub(super) fn floor(&self, epochs: &[Epoch]) -> Epoch {
        self.floor.map_or(0, |(claim, above)| epochs[claim] + above)
    }
}

impl New {
    /// Returns the task. All tasks have one type if the order between types depends on the store.
    pub(super) fn task(
        &self,
        ids: &mut Ids,
        has_types: bool,
        has_queues: bool,
        has_keys: bool,
    ) -> NewTask {
        let is_queued = self.is_queued && has_queues;
        let group = self.group.filter(|_| is_queued);
        let is_other = self.other_name && has_types && group.is_none();
        let version = if is_other && self.is_newer { 2 } else { 1 };
        let (name, queue) = (name(is_other), queue(is_queued));
        let key = has_keys.then(|| self.key.of(name, &queue));
        if has_keys {
            ids.renew(self.task);
        }
        NewTask {
            id: ids.of(self.task),
            name: name.into(),
            envelope: envelope_of(version, None, Policy::DEFAULT),
            version,
            payload: vec![self.task; self.len],
            queue,
            group: group
                .map(|group| GroupName::new(&group.to_string()).expect("it is a valid name")),
            priority: match (has_queues, group) {
                (false, _) | (true, Some('a' | 'b')) => Priority::Normal,
                (true, Some(_)) => Priority::Low,
                (true, None) => self.priority,
            },
            key,
            delay: self.delay,
            retention: self.retention(key, ids),
            max_crashes: self.max_crashes,
            parent: self
                .parent
                .filter(|_| !has_keys)
                .map(|parent| ids.of(parent)),
        }
    }
}

impl New {
    /// Returns a retention that no other task has. Among ends that expire in the same millisecond, the store chooses those in excess.
    fn retention(&self, key: Option<NewKey>, ids: &Ids) -> Duration {
        let retention = key.map_or(self.retention, |key| key.window.max(self.retention));
        match retention {
            Duration::ZERO => Duration::ZERO,
            retention => retention + Duration::from_millis(17 * ids.number(self.task) % 1000),
        }
    }
}

impl KeyChoice {
    /// Returns the key of a task with this name in a queue.
    fn of(&self, name: &str, queue: &QueueName) -> NewKey {
        let key = Key::new(format!("key {}", self.text)).of(name, queue);
        let key = key.expect("a key without options is valid");
        let replaces = self.conflict == Conflict::Replace;
        let is_until_started = self.is_until_started || replaces;
        NewKey {
            conflict: self.conflict,
            is_until_started,
            window: match is_until_started {
                true => Duration::ZERO,
                false => self.window,
            },
            latest: self.latest.filter(|_| replaces),
            ..key
        }
    }
}

impl VerdictChoice {
    /// Returns the verdict. `mark` distinguishes it from others.
    pub(super) fn verdict(&self, mark: u64) -> Verdict {
        let took = Some(Duration::from_millis(mark));
        let error = format!("error {mark}");
        match *self {
            Self::Done => Verdict::Done(mark.to_be_bytes().to_vec()),
            Self::Retry(after) => Verdict::Retry { after, error, took },
            Self::Snooze(after) => Verdict::Snooze { after },
            Self::Suspend(after, until) => Verdict::Suspend {
                after,
                until,
                waits_for: format!("for {until:?}"),
            },
            Self::Dead => Verdict::Dead {
                reason: DeadReason::Attempts,
                error,
                took,
            },
            Self::Release => Verdict::Release,
            Self::Hold(after, wait) => Verdict::HoldGroup {
                wait,
                then: Box::new(Verdict::Retry { after, error, took }),
            },
        }
    }
}

impl Types {
    pub(super) fn set(self) -> TypeSet {
        let versions: &[(bool, u8)] = match self {
            Self::All => &[(true, 2), (false, 1)],
            Self::Job => &[(false, 1)],
            Self::Other => &[(true, 2)],
            Self::Older => &[(true, 1), (false, 1)],
        };
        let versions = versions.iter();
        let set = TypeSet::of_versions(versions.map(|&(other, newest)| (name(other), newest)));
        set.expect("the names have different hashes")
    }
}

impl Choice {
    pub(super) fn filter(&self, ids: &Ids) -> DeadFilter {
        match self {
            Self::All => DeadFilter::all(),
            Self::Name { other } => DeadFilter::name(name(*other)),
            Self::Tasks(tasks) => DeadFilter::ids(ids.of_all(tasks)),
        }
    }
}

/// Returns the name of a schedule.
pub(super) fn schedule(number: u8) -> ScheduleName {
    schedule_name(&format!("{number}"))
}

/// Returns the named queue, or the default queue.
pub(super) fn queue(is_named: bool) -> QueueName {
    queue_name(if is_named { "q" } else { "" })
}

/// The ids of the tasks that steps choose by number. Each spawn with a key gives the task a new id.
#[derive(Default)]
pub(super) struct Ids([u64; 12]);

impl Ids {
    fn renew(&mut self, task: u8) {
        self.0[usize::from(task)] += 1;
    }

    pub(super) fn of(&self, task: u8) -> TaskId {
        id(self.number(task))
    }

    fn number(&self, task: u8) -> u64 {
        u64::from(task) + 12 * self.0[usize::from(task)]
    }

    /// Returns the ids of tasks, each once.
    pub(super) fn of_all(&self, tasks: &[u8]) -> Vec<TaskId> {
        let mut ids: Vec<_> = tasks.iter().map(|&task| self.of(task)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

pub(super) fn name(other: bool) -> &'static str {
    if other { "other" } else { "job" }
}
