//! Reads one task in detail, and the tasks at the head of a queue.

use std::cmp::Reverse;

use super::entry::{self, Entry};
use super::inner::Inner;
use super::list_tasks::{info, left, status_of};
use super::progress::progress_in;
use super::reply::{self, Reader};
use super::scripts::Arguments;
use crate::durable::admin::detail::{KeyState, Runner};
use crate::durable::admin::excerpt::Excerpt;
use crate::durable::failure::Failure;
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::Kind;
use crate::durable::store::{Beginning, FoundTask, MAX_READ_BYTES};
use crate::durable::{QueueHead, Status, TaskId, TaskInfo};

/// Returns a task, or `None` if there is no such task.
pub(super) async fn find(inner: &Inner, id: TaskId) -> Result<Option<FoundTask>, Failure> {
    let partition = inner.partitions.of_task(id);
    let mut arguments = Arguments::default();
    arguments.push(id.to_bytes());
    arguments.push_number(MAX_READ_BYTES);
    let answer = inner.run(&inner.scripts.find_task, partition, arguments);
    let parts = Reader::new(answer.await?)?;
    match parts.is_empty() {
        true => Ok(None),
        false => found(parts, partition).map(Some),
    }
}

/// Returns the tasks of a queue that became ready first, among those at the heads of its lists.
pub(super) async fn head(
    inner: &Inner,
    queue: &QueueName,
    limit: usize,
) -> Result<QueueHead, Failure> {
    let queue_partition = inner.partitions.of_queue(queue);
    let partitions = queue_partition.map_or_else(|| inner.partitions.all(), |it| it..it + 1);
    let mut first_now = None;
    let mut tasks = Vec::new();
    for partition in partitions {
        let mut arguments = Arguments::default();
        arguments.push(queue.as_str());
        arguments.push_number(limit);
        let answer = inner.run(&inner.scripts.queue_head, partition, arguments);
        let mut parts = Reader::new(answer.await?)?;
        let now = parts.number()?;
        first_now.get_or_insert(now);
        tasks.extend(parts.rest(|part| info(part.list()?, Status::Waiting, now, partition))?);
    }
    tasks.sort_by_key(|task| Reverse(task.ready_for));
    tasks.truncate(limit);
    let now = first_now.unwrap_or_default().max(0) as u64;
    Ok(QueueHead::at(now, tasks))
}

fn found(mut parts: Reader, partition: usize) -> Result<FoundTask, Failure> {
    let status = status_of(&parts.text()?);
    let description = parts.list()?;
    let (time, now) = (parts.number()?, parts.number()?);
    let mut found = FoundTask::new(
        info(description, status, time, partition)?,
        now.max(0) as u64,
    );
    let (entry, kind) = (parts.bytes()?, parts.bytes()?);
    let separate = beginning(&mut parts)?;
    found.output = beginning(&mut parts)?;
    let errors = parts.bytes()?;
    found.detail.errors = reply::attempt_errors(&errors, now);
    let error = parts.bytes()?;
    let progress = progress_in(&parts.bytes()?, partition);
    let detail = &mut found.detail;
    detail.progress = progress.map(|it| Excerpt::new(&it.bytes, it.bytes.len()));
    if status == Status::Dead {
        detail.error = Some(String::from_utf8_lossy(&error).into_owned());
    }
    detail.key = match &*parts.text()? {
        "h" => Some(KeyState::Held),
        "r" => Some(KeyState::Released),
        _ => None,
    };
    add_run(&mut parts, &mut found, now)?;
    let damage = parts.text()?;
    found.detail.damage = Some(damage).filter(|damage| !damage.is_empty());
    found.waits_for = waits_for(&parts.bytes()?);
    let parent = parts.bytes()?.try_into().ok();
    found.detail.parent = parent.map(TaskId::from_bytes);
    add_payload(&mut found, &entry, separate);
    found.detail.priority = match kind.len() {
        8 => priority(&found.detail.task, &kind),
        _ => None,
    };
    Ok(found)
}

/// Reads the description of the steps for which a suspended task waits.
fn waits_for(row: &[u8]) -> Option<String> {
    let (until, rest) = row.split_at_checked(4)?;
    let (_, text) = rest.split_at_checked(4)?;
    (entry::number(until) > 0).then(|| String::from_utf8_lossy(text).into_owned())
}

/// Reads the beginning of some bytes, if there is one, and the length of the bytes.
fn beginning(parts: &mut Reader) -> Result<Option<Beginning>, Failure> {
    let (bytes, len) = (parts.optional_bytes()?, parts.number()? as usize);
    Ok(bytes.map(|bytes| Beginning { bytes, len }))
}

/// Reads the fields of a running task.
fn add_run(parts: &mut Reader, found: &mut FoundTask, now: i64) -> Result<(), Failure> {
    let is_cancelled = parts.number()? == 1;
    let (lease_end, session) = (parts.text()?, parts.text()?);
    let (process, is_suspect) = (parts.text()?, parts.number()? == 1);
    if found.status() != Status::Running {
        return Ok(());
    }
    let detail = &mut found.detail;
    detail.is_cancel_requested = is_cancelled;
    let lease_end: Option<f64> = lease_end.parse().ok();
    detail.lease_left = lease_end.map(|end| left(end as i64, now));
    detail.runner = session.parse().ok().map(|session| Runner {
        session,
        process: Some(process).filter(|process| !process.is_empty()),
        is_suspect,
    });
    Ok(())
}

/// Adds the payload in an entry, or else the separate one. If the entry cannot be read, the separate payload is not checked.
fn add_payload(found: &mut FoundTask, entry: &[u8], separate: Option<Beginning>) {
    let Some(entry) = Entry::read(entry) else {
        found.payload = separate;
        return;
    };
    match entry.beginning(separate) {
        Ok(payload) => found.payload = Some(payload),
        Err(damage) => drop(found.detail.damage.get_or_insert(damage)),
    }
}

/// Returns the priority of a task of this kind, or `None` if its name is not known. The kind is a hash of the type, the queue and the
/// priority, so this tries all versions and priorities. Version 1 is by far the most frequent.
fn priority(task: &TaskInfo, kind: &[u8]) -> Option<Priority> {
    let types = Kind::all_of(task.name.as_deref()?);
    let queue = task.queue.as_deref().map(QueueName::new);
    let queue = queue.transpose().ok()?.unwrap_or_default();
    let versions = (1..=u8::MAX).flat_map(|version| types.map(|of| of.with_version(version)));
    let mut placed = versions.flat_map(|of| Priority::ALL.map(|it| (it, of.placed(&queue, it))));
    let found = placed.find(|(_, placed)| placed.to_bytes() == *kind);
    found.map(|(priority, _)| priority)
}
