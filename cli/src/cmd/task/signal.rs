//! `throng task signal`: sends a signal to a task.

use clap::Args;
use serde_json::value::RawValue;
use throng::durable::TaskId;

use crate::cmd::spawn::read_json;
use crate::failure::Failure;
use crate::out::Output;
use crate::store::Session;

#[derive(Args, Debug)]
pub(crate) struct SignalArgs {
    /// The id of the task
    id: TaskId,

    /// The name of the signal
    name: String,

    /// The value as JSON, or `-` to read it from the standard input
    #[arg(default_value = "null")]
    json: String,
}

/// Sends a signal. The first one with a name stands.
pub(crate) async fn signal(
    session: &Session,
    args: SignalArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let json = read_json("value", &args.json)?;
    let value: Box<RawValue> = serde_json::from_slice(&json)?;
    let sent = session.client.signal(args.id, &args.name, &value);
    match session.ask(sent).await? {
        true => out.id(args.id),
        false => Err(Failure::Nothing(format!(
            "not sent: the task {} has already received the signal `{}`, or has given up waiting for it",
            args.id, args.name
        ))),
    }
}
