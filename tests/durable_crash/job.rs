//! The tasks of these tests, and the ledger in which they record their runs.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::abort;
use std::thread;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use throng::durable::{DurableTask, Run, SpawnOptions, TaskContext, TaskError, TaskId};
use tokio::time::sleep;

/// The behaviour of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Takes that many milliseconds.
    Work(u64),
    /// Waits until the gate is open, and does not care for anything else.
    Wait,
    /// Waits until the gate is open, or it is told to stop; then it has succeeded, too.
    Finish,
    /// Waits until the gate is open; told to stop, it fails.
    GiveUp,
    /// Takes that many milliseconds, and blocks its thread meanwhile.
    Block(u64),
    /// Waits until the gate is open, and blocks its thread meanwhile.
    BlockWait,
    /// Fails that many times.
    Fail(u32),
    /// Panics that many times.
    Panic(u32),
    /// Asks once to run later.
    Snooze,
    /// Becomes a dead letter. It succeeds when it is replayed.
    Die,
    /// Takes its process along.
    Abort,
    /// Takes its process along, after that many milliseconds.
    AbortAfter(u64),
    /// Reports a progress of 50, and waits until the gate is open. A later run records the progress that it reads, and succeeds.
    ReportHalf,
    /// Stores its [child](child_of), and awaits it.
    Parent,
}

impl DurableTask for Job {
    const NAME: &'static str = "test.job";
    type Output = Outcome;
}

/// The process that has run a task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) pid: u32,
    pub(crate) epoch: u64,
}

/// The folder of a test: where its store is, its ledger, and its gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Run<Folder> for Job {
    async fn run(self, cx: TaskContext<Folder>) -> Result<Outcome, TaskError> {
        let folder = &**cx.app();
        let line = Line::of("start", &cx);
        folder.write(&line);
        self.perform(&cx).await?;
        folder.write(&Line::of("end", &cx));
        Ok(Outcome {
            pid: line.pid,
            epoch: line.epoch,
        })
    }
}

impl Job {
    pub(crate) async fn perform(self, cx: &TaskContext<Folder>) -> Result<(), TaskError> {
        let folder = &**cx.app();
        match self {
            Self::Work(millis) => sleep(Duration::from_millis(millis)).await,
            Self::Wait => folder.gate().await,
            Self::Finish => drop(stopped(cx).await),
            Self::GiveUp => stopped(cx).await?,
            Self::Block(millis) => thread::sleep(Duration::from_millis(millis)),
            Self::BlockWait => folder.block_until_gate(),
            Self::Fail(times) if cx.attempt() <= times => Err("it fails")?,
            Self::Panic(times) if cx.attempt() <= times => quiet_panic(),
            Self::Snooze if folder.is_first(cx.id()) => {
                return Err(TaskError::snooze(Duration::from_millis(20)));
            }
            Self::Die if folder.is_first(cx.id()) => return Err(TaskError::fatal("it dies")),
            Self::Abort => abort(),
            Self::AbortAfter(millis) => {
                sleep(Duration::from_millis(millis)).await;
                abort()
            }
            Self::ReportHalf => match cx.last_progress::<u32>().await? {
                Some(before) => folder.write(&Line::noted("resumed", cx, &before.to_string())),
                None => {
                    cx.progress(&50);
                    folder.gate().await;
                }
            },
            Self::Parent => {
                let options = SpawnOptions::new().id(child_of(cx.id()));
                cx.client().spawn_with(Child, options).await?.await?;
            }
            Self::Fail(_) | Self::Panic(_) | Self::Snooze | Self::Die => {}
        }
        Ok(())
    }
}

/// The child of a [parent](Job::Parent).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Child;

impl DurableTask for Child {
    const NAME: &'static str = "test.child";
    type Output = ();
}

impl Run<Folder> for Child {
    async fn run(self, cx: TaskContext<Folder>) -> Result<(), TaskError> {
        for what in ["start", "end"] {
            cx.app().write(&Line::of(what, &cx));
        }
        Ok(())
    }
}

/// Returns the id of a parent's child, which is the same in each run of the parent.
pub(crate) fn child_of(parent: TaskId) -> TaskId {
    TaskId::derive(Child::NAME, &parent.to_bytes())
}

/// Waits until the gate is open; an error, and a line in the ledger, if it is told to stop before.
async fn stopped(cx: &TaskContext<Folder>) -> Result<(), &'static str> {
    tokio::select! {
        () = cx.app().gate() => Ok(()),
        reason = cx.stopped() => {
            cx.app().write(&Line::of(&format!("{reason:?}"), cx));
            Err("told to stop")
        }
    }
}

/// Panics, and says nothing on standard error.
fn quiet_panic() {
    resume_unwind(Box::new("it panics"));
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) id: TaskId,
    pub(crate) pid: u32,
    pub(crate) epoch: u64,
    pub(crate) attempt: u32,
    pub(crate) crashes: u32,
    /// The time at which it was written, in microseconds since 1970.
    pub(crate) time: u64,
    /// A note of the task, or `-`.
    pub(crate) note: String,
}

/// Returns the time, in microseconds since 1970. All processes of a machine have the same clock.
pub(crate) fn now() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_1970.expect("it is after 1970").as_micros() as u64
}

impl Line {
    fn of(what: &str, cx: &TaskContext<Folder>) -> Self {
        Self::noted(what, cx, "-")
    }

    pub(crate) fn noted(what: &str, cx: &TaskContext<Folder>, note: &str) -> Self {
        Self {
            what: what.into(),
            id: cx.id(),
            pid: std::process::id(),
            epoch: cx.fencing_token(),
            attempt: cx.attempt(),
            crashes: cx.crashes(),
            time: now(),
            note: note.into(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self {
            what: words.next()?.into(),
            id: words.next()?.parse().ok()?,
            pid: words.next()?.parse().ok()?,
            epoch: words.next()?.parse().ok()?,
            attempt: words.next()?.parse().ok()?,
            crashes: words.next()?.parse().ok()?,
            time: words.next()?.parse().ok()?,
            note: words.next()?.into(),
        })
    }
}

impl Folder {
    pub(crate) fn open_gate(&self) {
        fs::write(self.0.join("gate"), "").expect("a file can be written");
    }

    /// The lines that were written so far.
    pub(crate) fn ledger(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.0.join("ledger")).unwrap_or_default();
        // The text after the last line end is still being written.
        let written = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = written.lines();
        lines
            .map(|line| Line::parse(line).unwrap_or_else(|| panic!("not a line: {line}")))
            .collect()
    }

    /// Stores the number of late wakes in this process so far.
    pub(crate) fn note_late_wakes(&self, late: u64) {
        let path = self.0.join(format!("late-wakes-{}", std::process::id()));
        fs::write(path, late.to_string()).expect("a file");
    }

    /// The processes that had late wakes.
    pub(crate) fn late_wakers(&self) -> Vec<String> {
        let files = fs::read_dir(&self.0).expect("the folder is there");
        let names = files.map(|file| {
            file.expect("a file")
                .file_name()
                .to_string_lossy()
                .into_owned()
        });
        names
            .filter(|name| name.starts_with("late-wakes-"))
            .collect()
    }

    /// In one piece, so that no other process writes in between, and none dies in between.
    pub(crate) fn write(&self, line: &Line) {
        let (id, pid, epoch) = (line.id, line.pid, line.epoch);
        let (attempt, crashes, time) = (line.attempt, line.crashes, line.time);
        let (what, note) = (&line.what, &line.note);
        let text = format!("{what} {id} {pid} {epoch} {attempt} {crashes} {time} {note}\n");
        let mut options = OpenOptions::new();
        let ledger = options
            .append(true)
            .create(true)
            .open(self.0.join("ledger"));
        let written = ledger.and_then(|mut ledger| ledger.write_all(text.as_bytes()));
        written.expect("the ledger can be written");
    }

    async fn gate(&self) {
        while !self.is_gate_open() {
            sleep(GATE_INTERVAL).await;
        }
    }

    fn block_until_gate(&self) {
        while !self.is_gate_open() {
            thread::sleep(GATE_INTERVAL);
        }
    }

    fn is_gate_open(&self) -> bool {
        self.0.join("gate").exists()
    }

    /// Returns `true` if nobody has asked this about the task before.
    fn is_first(&self, id: TaskId) -> bool {
        File::create_new(self.0.join(id.to_string())).is_ok()
    }
}

/// The interval at which a task checks whether the gate is open.
const GATE_INTERVAL: Duration = Duration::from_millis(10);
