//! What both releases of the application have: the ledger of runs, and two types of tasks.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use throng::durable::{DurableTask, Run, TaskContext, TaskError};

/// The queue of the bills. Each customer has a group.
pub(crate) const BILLS: &str = "bills";

/// Writes a line to the ledger: `start` or `end`, the id, the process, the group, and the time in microseconds.
pub(crate) fn record(what: &str, cx: &TaskContext<PathBuf>) -> Result<(), TaskError> {
    let mut options = OpenOptions::new();
    let mut ledger = options
        .append(true)
        .create(true)
        .open(cx.app().join("ledger"))?;
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let group = cx.group().unwrap_or("-");
    let (id, process, time) = (cx.id(), std::process::id(), time.as_micros());
    // One write, so that the lines of several processes do not mix.
    ledger.write_all(format!("{what} {id} {process} {group} {time}\n").as_bytes())?;
    Ok(())
}

/// Runs until a file exists.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) gate: String,
}

impl DurableTask for Hold {
    const NAME: &'static str = "hold";
    type Output = String;
}

impl Run<PathBuf> for Hold {
    async fn run(self, cx: TaskContext<PathBuf>) -> Result<String, TaskError> {
        record("start", &cx)?;
        while !cx.app().join(&self.gate).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        record("end", &cx)?;
        Ok(self.gate)
    }
}

/// Fails twice, and becomes a dead letter, unless the file `mended` exists.
#[derive(Serialize, Deserialize)]
pub(crate) struct Fragile;

impl DurableTask for Fragile {
    const NAME: &'static str = "fragile";
    type Output = String;
}

impl Run<PathBuf> for Fragile {
    async fn run(self, cx: TaskContext<PathBuf>) -> Result<String, TaskError> {
        record("start", &cx)?;
        if !cx.app().join("mended").exists() {
            return Err(match cx.attempt() {
                1 => TaskError::retry("it is broken"),
                _ => TaskError::fatal("it is broken for good"),
            });
        }
        record("end", &cx)?;
        Ok("mended".into())
    }
}
