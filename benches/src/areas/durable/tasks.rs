//! The tasks that are run, and what they work with.

use std::fs::File;
use std::io::Write as _;
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use throng::durable::{DurableTask, Run, TaskContext, TaskError};

use crate::measure::monotonic_ns;

/// The duration of a [`Slow`] task or a [`Nap`].
pub(super) const SLOW: Duration = Duration::from_millis(20);

/// Does nothing.
#[derive(Serialize, Deserialize)]
pub(super) struct Nothing(Payload);

/// Returns its number.
#[derive(Serialize, Deserialize)]
pub(super) struct Echo(Payload);

/// As long as its text: a task with the name of one of an application.
#[derive(Serialize, Deserialize)]
pub(super) struct Mail(pub(super) String);

/// Says when it begins.
#[derive(Serialize, Deserialize)]
pub(super) struct Stamp(Payload);

/// The task of a schedule: says when it begins, with its tick as its number.
#[derive(Serialize, Deserialize)]
pub(super) struct Tick(Payload);

/// Sleeps, and says when it begins and ends.
#[derive(Serialize, Deserialize)]
pub(super) struct Slow(Payload);

/// Sleeps.
#[derive(Serialize, Deserialize)]
pub(super) struct Nap(Payload);

/// The payload of all tasks: about a hundred bytes.
#[derive(Serialize, Deserialize)]
pub(super) struct Payload {
    pub(super) number: u64,
    text: String,
}

/// When tasks have begun: their numbers, and nanoseconds.
#[derive(Default)]
pub(super) struct Starts(pub(super) Mutex<Vec<(u64, u64)>>);

/// A file to whose end several processes write lines.
pub(super) struct Ledger(pub(super) File);

impl Payload {
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            text: format!("{number:080}"),
        }
    }

    /// A payload whose JSON has this number of bytes, but at least as many as that of `new`.
    pub(super) fn sized(number: u64, bytes: usize) -> Self {
        // The JSON around the text has about 30 bytes.
        let digits = bytes.saturating_sub(30).max(80);
        Self {
            number,
            text: format!("{number:0digits$}"),
        }
    }
}

impl Nothing {
    pub(super) fn new(number: u64) -> Self {
        Self(Payload::new(number))
    }

    pub(super) fn sized(number: u64, bytes: usize) -> Self {
        Self(Payload::sized(number, bytes))
    }
}

impl Echo {
    pub(super) fn new(number: u64) -> Self {
        Self(Payload::new(number))
    }
}

impl Stamp {
    pub(super) fn new(number: u64) -> Self {
        Self(Payload::new(number))
    }
}

impl Tick {
    pub(super) fn new(number: u64) -> Self {
        Self(Payload::new(number))
    }
}

impl Nap {
    pub(super) fn new(number: u64) -> Self {
        Self(Payload::new(number))
    }
}

impl Slow {
    pub(super) fn new(number: u64) -> Self {
        Self(Payload::new(number))
    }
}

impl DurableTask for Nothing {
    const NAME: &'static str = "bench.nothing";
    type Output = ();
}

impl DurableTask for Echo {
    const NAME: &'static str = "bench.echo";
    type Output = u64;
}

impl DurableTask for Mail {
    const NAME: &'static str = "mail.send";
    type Output = ();
}

impl DurableTask for Stamp {
    const NAME: &'static str = "bench.stamp";
    type Output = ();
}

impl DurableTask for Tick {
    const NAME: &'static str = "bench.tick";
    type Output = ();
}

impl DurableTask for Slow {
    const NAME: &'static str = "bench.slow";
    type Output = ();
}

impl DurableTask for Nap {
    const NAME: &'static str = "bench.nap";
    type Output = ();
}

impl Run<()> for Nap {
    async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
        tokio::time::sleep(SLOW).await;
        Ok(())
    }
}

impl Run<()> for Nothing {
    async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
        Ok(())
    }
}

impl Run<()> for Echo {
    async fn run(self, _: TaskContext<()>) -> Result<u64, TaskError> {
        Ok(self.0.number)
    }
}

impl Run<Starts> for Stamp {
    async fn run(self, cx: TaskContext<Starts>) -> Result<(), TaskError> {
        let begun = monotonic_ns();
        let mut starts = cx.app().0.lock().expect("nobody panics with it");
        starts.push((self.0.number, begun));
        Ok(())
    }
}

impl Run<Starts> for Tick {
    async fn run(self, cx: TaskContext<Starts>) -> Result<(), TaskError> {
        let begun = monotonic_ns();
        let tick = cx.tick().expect("only schedules store it");
        let tick = tick.duration_since(UNIX_EPOCH).expect("it is after 1970");
        let mut starts = cx.app().0.lock().expect("nobody panics with it");
        starts.push((tick.as_millis() as u64, begun));
        Ok(())
    }
}

impl Run<Ledger> for Slow {
    async fn run(self, cx: TaskContext<Ledger>) -> Result<(), TaskError> {
        cx.app().write('S', self.0.number);
        tokio::time::sleep(SLOW).await;
        cx.app().write('E', self.0.number);
        Ok(())
    }
}

impl Starts {
    /// Prints a line for each start.
    pub(super) fn print(&self) {
        for (number, begun) in self.0.lock().expect("nobody panics with it").iter() {
            println!("{number} {begun}");
        }
    }
}

impl Ledger {
    /// One line, in one call of the system: it is there as a whole or not at all.
    fn write(&self, what: char, task: u64) {
        let pid = std::process::id();
        let line = format!("{what} {task} {pid} {}\n", monotonic_ns());
        (&self.0)
            .write_all(line.as_bytes())
            .expect("the ledger can be written");
    }
}
