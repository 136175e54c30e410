//! `throng spawn`: stores a task.

use std::io::{self, Read};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use throng::durable::{DurableHandle, EncodedTask, Key, Priority, SpawnOptions, TaskId};

use crate::duration;
use crate::failure::Failure;
use crate::out::Output;
use crate::store::Session;

#[derive(Args, Debug)]
pub(crate) struct SpawnArgs {
    /// The name of the type of the task
    name: String,

    /// The task as JSON, or `-` to read it from the standard input
    #[arg(default_value = "{}")]
    json: String,

    /// The version of the type
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    type_version: u8,

    /// The named queue in which the task waits [default: the default queue]
    #[arg(long)]
    queue: Option<String>,

    /// The group of the task within its queue
    #[arg(long, requires = "queue")]
    group: Option<String>,

    /// How urgent the task is
    #[arg(long, value_enum)]
    priority: Option<PriorityName>,

    /// The time before which the task does not run, such as `90s`
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    delay: Option<Duration>,

    /// The time for which the store keeps the ended task [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    retention: Option<Duration>,

    /// A key: while another task of the type and queue holds it, nothing is stored
    #[arg(long, conflicts_with = "id")]
    key: Option<String>,

    /// The id of the task, so that it is stored only once
    #[arg(long)]
    id: Option<TaskId>,

    /// Waits for the end of the task, and prints its output instead of its id
    #[arg(long)]
    wait: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PriorityName {
    High,
    Normal,
    Low,
}

/// Stores a task.
pub(crate) async fn run(
    session: &Session,
    args: SpawnArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let json = read_json("task", &args.json)?;
    let options = options(&args);
    let task = EncodedTask::new(args.name, json).version(args.type_version);
    let spawned = session.client.spawn_encoded(task, options);
    let handle: DurableHandle<Box<RawValue>> = session.ask(spawned).await?;
    if handle.was_joined() {
        out.note(&format!(
            "nothing was stored: the task {} holds the key",
            handle.id()
        ));
    }
    match args.wait {
        false => out.id(handle.id()),
        true => out.stored_json(handle.await?.get()),
    }
}

fn options(args: &SpawnArgs) -> SpawnOptions {
    let mut options = SpawnOptions::new().delay(args.delay.unwrap_or_default());
    if let Some(queue) = &args.queue {
        options = options.queue(queue);
    }
    if let Some(group) = &args.group {
        options = options.group(group);
    }
    if let Some(priority) = args.priority {
        options = options.priority(priority.into());
    }
    if let Some(retention) = args.retention {
        options = options.retention(retention);
    }
    if let Some(key) = &args.key {
        options = options.key(Key::new(key));
    }
    match args.id {
        Some(id) => options.id(id),
        None => options,
    }
}

/// Returns the bytes of a JSON text, or of the standard input for `-`. Refuses what no worker can decode.
pub(crate) fn read_json(what: &str, json: &str) -> Result<Vec<u8>, Failure> {
    checked(what, read(json)?)
}

fn read(json: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    match json {
        "-" => io::stdin().lock().read_to_end(&mut bytes)?,
        json => return Ok(json.into()),
    };
    Ok(bytes)
}

/// The bytes stay as they are. JSON that is only skipped may still contain half of a surrogate pair, a number that is out of range, or too
/// many nested arrays.
fn checked(what: &str, json: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let Err(error) = serde_json::from_slice::<Value>(&json) else {
        return Ok(json);
    };
    let is_json = serde_json::from_slice::<IgnoredAny>(&json).is_ok();
    Err(Failure::Usage(match is_json {
        true => format!("no worker could read the {what} ({error}): correct it"),
        false => format!(
            "the {what} is not JSON ({error}): quote it for the shell, for example '{{\"to\":\"a@b.c\"}}'"
        ),
    }))
}

impl From<PriorityName> for Priority {
    fn from(name: PriorityName) -> Self {
        match name {
            PriorityName::High => Self::High,
            PriorityName::Normal => Self::Normal,
            PriorityName::Low => Self::Low,
        }
    }
}
