//! `throng task payload`: prints the payload of a task.

use std::io::{self, Write};

use clap::Args;
use throng::durable::{Status, TaskId};

use super::show::absent;
use crate::failure::Failure;
use crate::out::{Output, escape, hex};
use crate::store::Session;

#[derive(Args, Debug)]
pub(crate) struct PayloadArgs {
    /// The id of the task
    id: TaskId,

    /// Prints the bytes as they are stored, which is refused on a terminal
    #[arg(long)]
    raw: bool,
}

/// Prints the payload of a task.
pub(crate) async fn payload(
    session: &Session,
    args: PayloadArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    if args.raw && out.is_terminal() {
        let how = "a payload may contain bytes that your terminal obeys: write it to a file or a pipe, or leave out `--raw`";
        return Err(Failure::Usage(how.into()));
    }
    let bytes = read(session, args.id).await?;
    let mut stdout = io::stdout().lock();
    match args.raw {
        true => stdout.write_all(&bytes)?,
        false => writeln!(stdout, "{}", printable(&bytes))?,
    }
    Ok(stdout.flush()?)
}

/// Reads the whole payload of a task.
pub(crate) async fn read(session: &Session, id: TaskId) -> Result<Vec<u8>, Failure> {
    let detail = session.ask(session.client.admin().task(id)).await?;
    let detail = detail.ok_or_else(|| absent(id))?;
    let status = detail.task.status;
    if status == Status::Dead {
        let dead_letters = session.client.dead_letters();
        let payload = session.ask(dead_letters.payload(id)).await?;
        return payload.ok_or_else(|| absent(id));
    }
    let payload = detail.payload.ok_or_else(|| not_returned(status))?;
    match payload.is_whole() {
        true => Ok(payload.bytes),
        false => Err(Failure::Failed(format!(
            "the payload has {} bytes, and the store returns only the first {} of a task that is no dead letter: `throng task show {id}` shows them",
            payload.len,
            payload.bytes.len(),
        ))),
    }
}

fn not_returned(status: Status) -> Failure {
    let reason = match status {
        Status::Done | Status::Cancelled => "it is not kept after the task has ended",
        _ => {
            "it is damaged, or it is a small payload that Redis does not find in a long list of waiting tasks"
        }
    };
    Failure::Nothing(format!(
        "the store does not return the payload of this task: {reason}"
    ))
}

fn printable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
            escape::json(text)
        }
        Ok(text) => escape::text(text),
        Err(_) => hex(bytes),
    }
}
