//! `throng task wait`: waits for the end of a task.

use std::time::Duration;

use clap::Args;
use serde_json::value::RawValue;
use throng::durable::{DurableHandle, TaskId};

use crate::duration::{self, short};
use crate::failure::Failure;
use crate::out::Output;
use crate::store::Session;

#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    /// The id of the task
    id: TaskId,

    /// The maximum time to wait. If the task has not ended by then, the exit status is 5
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    limit: Option<Duration>,
}

/// Waits for the end of a task, and prints its output.
pub(crate) async fn wait(
    session: &Session,
    args: WaitArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    // A store that does not answer is reported at once. The handle would wait for it.
    session.ask(session.client.status(args.id)).await?;
    let handle = handle(session, args.id)?;
    let output = match args.limit {
        None => handle.await?,
        Some(limit) => tokio::time::timeout(limit, handle).await.map_err(|_| {
            Failure::Unmet(format!("the task has not ended within {}", short(limit)))
        })??,
    };
    out.stored_json(output.get())
}

/// Returns a handle that does not need to know the type of the task.
pub(crate) fn handle(
    session: &Session,
    id: TaskId,
) -> Result<DurableHandle<Box<RawValue>>, Failure> {
    let handle: DurableHandle<_> = serde_json::from_value(serde_json::to_value(id)?)?;
    Ok(handle.attach(&session.client))
}
