//! The reason why a task waits.

use throng::durable::{Overview, QueueOverview, Status, TaskInfo};

use crate::failure::Failure;
use crate::store::Session;

const NO_WORKERS: &str = "no live worker serves its queue";

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
    Ok(reason(&overview, task))
}

fn reason(overview: &Overview, task: &TaskInfo) -> Option<String> {
    let queue = overview.queues.iter().find(|it| it.name == task.queue);
    let mut types = overview.types.iter().filter(|it| it.name == task.name);
    if types.clone().any(|it| it.is_paused) {
        return Some("its type is paused: see `throng type resume`".into());
    }
    let by_queue = match queue {
        Some(queue) => reason_in_queue(queue),
        // Queues that workers serve are listed.
        None => (!overview.has_more_queues).then(|| NO_WORKERS.into()),
    };
    let is_unknown = types.any(|it| it.queue == task.queue && !it.is_served);
    by_queue.or_else(|| {
        is_unknown.then(|| "no live worker of its queue has registered its type".into())
    })
}

fn reason_in_queue(queue: &QueueOverview) -> Option<String> {
    let info = &queue.info;
    let limit = info.settings.running_limit();
    if info.is_paused {
        Some("its queue is paused: see `throng queue resume`".into())
    } else if queue.sessions == 0 {
        Some(NO_WORKERS.into())
    } else if limit.is_some_and(|limit| info.running >= u64::from(limit)) {
        Some("its queue runs as many tasks as its limit allows".into())
    } else {
        None
    }
}
