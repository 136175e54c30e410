//! Reads one task, and the tasks at the head of a queue.

use super::excerpt::{Excerpt, MAX_EXCERPT_BYTES};
use super::shown_steps::add_steps;
use crate::durable::engine::Engine;
use crate::durable::envelope::{open_output, open_payload};
use crate::durable::queue::name::QueueName;
use crate::durable::store::{Beginning, FoundTask};
use crate::durable::{DurableError, QueueHead, Status, TaskDetail, TaskId};

/// The maximum number of tasks that a request for the head of a queue returns.
const MAX_HEAD_TASKS: usize = 50;

/// Returns a task: see [`Admin::task`](crate::durable::Admin::task).
pub(super) async fn task(engine: &Engine, id: TaskId) -> Result<Option<TaskDetail>, DurableError> {
    let found = engine.ask(Some(id), |store| store.find(id)).await?;
    let Some(found) = found else {
        return Ok(None);
    };
    let waits_for = found.waits_for.clone();
    let mut detail = opened(found);
    if !matches!(detail.task.status, Status::Done | Status::Cancelled) {
        match engine.ask(Some(id), |store| store.steps(id)).await {
            Ok(steps) => add_steps(&*engine.store, &mut detail, &steps, waits_for.as_deref()),
            Err(error) if error.is_corrupt() => note_lost_steps(&mut detail),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(detail))
}

/// Returns the tasks at the head of a queue: see [`Admin::head`](crate::durable::Admin::head).
pub(super) async fn head(
    engine: &Engine,
    queue: Option<&str>,
    limit: usize,
) -> Result<QueueHead, DurableError> {
    let invalid = |reason| DurableError::invalid(&engine.store_name, reason);
    if !(1..=MAX_HEAD_TASKS).contains(&limit) {
        return Err(invalid(format!(
            "the limit is {limit}: set it to 1 to {MAX_HEAD_TASKS}"
        )));
    }
    let queue = queue.map_or(Ok(QueueName::DEFAULT), QueueName::new);
    let queue = queue.map_err(invalid)?;
    let head = engine.ask(None, |store| store.head(queue.clone(), limit));
    head.await
}

/// Takes the payload and the output of a task out of their envelopes.
fn opened(found: FoundTask) -> TaskDetail {
    let mut detail = found.detail;
    if let Some(sealed) = &found.payload {
        match open_payload(&sealed.bytes) {
            Some(open) => {
                detail.version = Some(open.version);
                detail.payload = Some(excerpt(sealed, open.bytes));
            }
            None => note_damage(&mut detail, "the payload"),
        }
    }
    if let Some(sealed) = &found.output {
        match open_output(&sealed.bytes) {
            Some(opened) => detail.output = Some(excerpt(sealed, opened.bytes)),
            None => note_damage(&mut detail, "the output"),
        }
    }
    detail
}

/// Returns the excerpt of the contents of an envelope, given the part of them that was read.
fn excerpt(sealed: &Beginning, open: &[u8]) -> Excerpt {
    let head = sealed.bytes.len() - open.len();
    debug_assert!(open.len() >= MAX_EXCERPT_BYTES || sealed.bytes.len() == sealed.len);
    Excerpt::new(open, sealed.len - head)
}

fn note_lost_steps(detail: &mut TaskDetail) {
    let damage = || String::from("some of its steps are lost, or cannot be read");
    detail.damage.get_or_insert_with(damage);
}

fn note_damage(detail: &mut TaskDetail, what: &str) {
    detail.damage.get_or_insert_with(|| {
        format!(
            "the envelope of {what} cannot be read; another version of throng may have written it"
        )
    });
}
