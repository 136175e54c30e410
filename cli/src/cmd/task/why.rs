//! The reason why a task waits.

use throng::durable::{Status, TaskInfo, WaitReason};

use crate::failure::Failure;
use crate::store::Session;

/// Returns why no worker claims a task, if it waits and the summary of the store shows the reason. A task may also wait because others are
/// before it.
pub(super) async fn why_waiting(
    session: &Session,
    task: &TaskInfo,
) -> Result<Option<String>, Failure> {
    if task.status != Status::Waiting {
        return Ok(None);
    }
    let overview = session.ask(session.client.admin().overview()).await?;
    let reason = overview.wait_reason(task);
    Ok(reason.map(|reason| match command(reason) {
        Some(command) => format!("{reason}: see `{command}`"),
        None => reason.to_string(),
    }))
}

/// Returns the command that ends the wait.
fn command(reason: WaitReason) -> Option<&'static str> {
    match reason {
        WaitReason::TypePaused => Some("throng type resume"),
        WaitReason::QueuePaused => Some("throng queue resume"),
        _ => None,
    }
}
