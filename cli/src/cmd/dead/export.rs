//! `throng dead export`: prints dead letters with their payloads.

use serde::Serialize;
use serde_json::value::RawValue;
use throng::durable::{AttemptError, TaskInfo};

use super::DeadFilterArgs;
use crate::bulk::has_error;
use crate::failure::Failure;
use crate::out::{Output, hex};
use crate::store::Session;

/// A dead letter with its payload.
#[derive(Debug, Serialize)]
struct ExportedDeadLetter {
    #[serde(flatten)]
    task: TaskInfo,
    /// The errors of the attempts after which the task was tried again.
    errors: Vec<AttemptError>,
    /// The payload, if it is JSON.
    payload: Option<Box<RawValue>>,
    /// The payload in hexadecimal digits, if it is not JSON.
    payload_hex: Option<String>,
}

/// Prints all dead letters that match.
pub(super) async fn export(
    session: &Session,
    filter: DeadFilterArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let filter = filter.until_now(session).await?;
    let (selected, error) = (filter.filter(), filter.error.as_deref());
    let admin = session.client.admin();
    let (mut number, mut after) = (0_u64, None);
    loop {
        let page = admin.tasks(&selected, after.as_ref(), 200);
        let page = session.ask(page).await?;
        for task in page.tasks.into_iter().filter(|task| has_error(task, error)) {
            if let Some(dead_letter) = dead_letter(session, task).await? {
                out.line(&dead_letter)?;
                number += 1;
            }
        }
        out.progress(&format!("{number} exported"));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    out.end_progress();
    super::nothing_if(number == 0)
}

/// Reads the rest of a dead letter. Returns `None` if it is no longer dead.
async fn dead_letter(
    session: &Session,
    mut task: TaskInfo,
) -> Result<Option<ExportedDeadLetter>, Failure> {
    let detail = session.ask(session.client.admin().task(task.id)).await?;
    let Some(detail) = detail.filter(|it| it.task.reason.is_some()) else {
        return Ok(None);
    };
    let dead_letters = session.client.dead_letters();
    let payload = session.ask(dead_letters.payload(task.id)).await;
    let failed = |failure| {
        let text = format!("the dead letter {} cannot be exported: {failure}", task.id);
        Failure::Failed(text)
    };
    let Some(payload) = payload.map_err(failed)? else {
        return Ok(None);
    };
    task.error = detail.error.or(task.error);
    let json = serde_json::from_slice::<Box<RawValue>>(&payload).ok();
    let payload_hex = json.is_none().then(|| hex(&payload));
    Ok(Some(ExportedDeadLetter {
        task,
        errors: detail.errors,
        payload: json,
        payload_hex,
    }))
}
