//! [`Chore`]: the tasks of the torture, which say in the ledger what they are.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableTask, Groups, Key, QueueSettings, Rate, Run, ServedQueue, SpawnOptions, StopReason,
    TaskContext, TaskError,
};

use crate::job::{Folder, Job, Line, Outcome};

/// A task of the torture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Chore {
    pub(crate) lane: Lane,
    pub(crate) origin: Origin,
    /// A chore that was stored later has a higher number, if both have the same group or the same key.
    pub(crate) serial: u64,
    pub(crate) act: Act,
}

impl DurableTask for Chore {
    const NAME: &'static str = "test.chore";
    type Output = Outcome;
}

/// The queue of a chore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Lane {
    /// The default queue.
    Default,
    /// It has a higher weight than the others, and no limit.
    Plain,
    /// Few of its tasks run at once.
    Limited,
    /// Each of its groups runs one task at a time.
    Grouped,
    /// Few of its tasks start per second.
    Rated,
}

/// The limit of [`Lane::Limited`].
pub(crate) const MAX_RUNNING: usize = 3;
/// The interval and the burst of [`Lane::Rated`].
pub(crate) const RATE: (Duration, u32) = (Duration::from_millis(50), 3);

impl Lane {
    pub(crate) const ALL: [Self; 5] = [
        Self::Default,
        Self::Plain,
        Self::Limited,
        Self::Grouped,
        Self::Rated,
    ];

    pub(crate) fn queue(self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::Plain => Some("plain"),
            Self::Limited => Some("limited"),
            Self::Grouped => Some("grouped"),
            Self::Rated => Some("rated"),
        }
    }

    /// Returns the limits of the queue.
    pub(crate) fn settings(self) -> QueueSettings {
        let settings = QueueSettings::new();
        match self {
            Self::Default | Self::Plain => settings,
            Self::Limited => settings.max_running(MAX_RUNNING as u32),
            Self::Grouped => settings.grouped(Groups::new().max_running(1)),
            Self::Rated => settings.rate(Rate::every(RATE.0).burst(RATE.1)),
        }
    }

    /// Returns the share of the queue in a worker.
    pub(crate) fn served(self) -> ServedQueue {
        let served = self
            .queue()
            .map_or_else(ServedQueue::default_queue, ServedQueue::new);
        served.weight(if self == Self::Plain { 4 } else { 1 })
    }

    /// Returns the options of a chore in this queue. Its end is kept for longer than the torture takes, and however many
    /// workers die, it is not to blame.
    pub(crate) fn options(self) -> SpawnOptions {
        let options = SpawnOptions::new()
            .max_crashes(u32::MAX)
            .retention(Duration::from_secs(4 * 3600));
        match self.queue() {
            Some(queue) => options.queue(queue),
            None => options,
        }
    }
}

/// The origin of a chore: the code that has stored it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Origin {
    /// A producer, without a key.
    Free,
    /// A producer, with the key of this kind and number.
    Keyed(Kind, u64),
    /// The schedule of this name.
    Schedule(String),
}

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Kind {
    UntilEnd,
    UntilStarted,
    Window,
    Reject,
    Replace,
    Debounce,
}

/// The time for which a key of [`Kind::Window`] is held at least.
pub(crate) const WINDOW: Duration = Duration::from_millis(700);

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::UntilEnd,
        Self::UntilStarted,
        Self::Window,
        Self::Reject,
        Self::Replace,
        Self::Debounce,
    ];

    pub(crate) fn key(self, number: u64) -> Key {
        let key = Key::new(format!("{self:?} {number}"));
        match self {
            Self::UntilEnd => key,
            Self::UntilStarted => key.until_started(),
            Self::Window => key.throttle(WINDOW),
            Self::Reject => key.reject(),
            Self::Replace => key.replace(),
            Self::Debounce => key
                .debounce(Duration::from_millis(100))
                .at_latest(Duration::from_millis(300)),
        }
    }

    /// Returns `true` if a task with such a key has not started when another spawn finds that it holds the key.
    pub(crate) fn is_until_started(self) -> bool {
        matches!(self, Self::UntilStarted | Self::Replace | Self::Debounce)
    }
}

/// The work of a chore.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Act {
    Do(Job),
    /// Fails once, and holds its group for so many milliseconds.
    Hold(u64),
    /// Fails for good.
    Fatal,
}

impl Run<Folder> for Chore {
    async fn run(self, cx: TaskContext<Folder>) -> Result<Outcome, TaskError> {
        let mut record = Record::begin(&self, &cx);
        let act = self.act.perform(&cx).await;
        record.what = match (&act, self.act) {
            (Ok(()), _) => "end",
            (Err(_), Act::Fatal) => "fatal",
            _ => "fail",
        };
        act?;
        Ok(Outcome {
            pid: std::process::id(),
            epoch: cx.fencing_token(),
        })
    }
}

impl Act {
    async fn perform(&self, cx: &TaskContext<Folder>) -> Result<(), TaskError> {
        match self {
            Self::Do(job) => job.clone().perform(cx).await,
            Self::Hold(millis) if cx.attempt() == 1 => {
                let wait = Duration::from_millis(*millis);
                Err(TaskError::retry_after("told to wait", wait).and_hold_group(wait))
            }
            Self::Hold(_) => Ok(()),
            Self::Fatal => Err(TaskError::fatal("it cannot be done")),
        }
    }
}

/// The facts that the ledger has of each run, besides those that it has of all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) chore: Chore,
    pub(crate) group: Option<String>,
    /// In milliseconds since 1970.
    pub(crate) tick: Option<u64>,
}

impl Note {
    fn of(chore: &Chore, cx: &TaskContext<Folder>) -> Self {
        let tick = cx.tick().map(|tick| {
            let since_1970 = tick.duration_since(std::time::UNIX_EPOCH);
            since_1970.expect("it is after 1970").as_millis() as u64
        });
        Self {
            chore: chore.clone(),
            group: cx.group().map(str::to_owned),
            tick,
        }
    }
}

/// Writes into the ledger that a run has ended when it is dropped, so that a panic or an abort is recorded, too.
struct Record<'a> {
    cx: &'a TaskContext<Folder>,
    note: String,
    what: &'static str,
}

impl<'a> Record<'a> {
    fn begin(chore: &Chore, cx: &'a TaskContext<Folder>) -> Self {
        let note = serde_json::to_string(&Note::of(chore, cx)).expect("a text");
        cx.app().write(&Line::noted("start", cx, &note));
        Self {
            cx,
            note,
            what: "fail",
        }
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        // The lease was over at some time before, so the run has ended for its queue.
        if self.cx.stop_reason() == Some(StopReason::LeaseLost) {
            let late = Line::noted("late", self.cx, "-");
            self.cx.app().write(&late);
        }
        let line = Line::noted(self.what, self.cx, &self.note);
        self.cx.app().write(&line);
    }
}
