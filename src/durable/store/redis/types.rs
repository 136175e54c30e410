//! Records the names and queues of types, since most rows contain only their kinds.

use std::iter;

use super::inner::Inner;
use super::scripts::Arguments;
use crate::durable::failure::Failure;
use crate::durable::key::Conflict;
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::store::NewTask;
use crate::durable::store::kind::Kind;

/// Records the types of these tasks in a partition, unless this client has recorded them within the last hour.
pub(super) async fn record(
    inner: &Inner,
    partition: usize,
    batch: &[&NewTask],
) -> Result<(), Failure> {
    inner.types.forget_old(inner.since_boot());
    let types = types_of(batch).into_iter();
    let types = types.map(|(kind, task)| (kind, &task.queue, &*task.name));
    record_kinds(inner, partition, types.collect()).await
}

/// Records these kinds in a partition, each with its queue and the name of its type, unless this client has recorded them lately.
pub(super) async fn record_kinds(
    inner: &Inner,
    partition: usize,
    mut types: Vec<(Kind, &QueueName, &str)>,
) -> Result<(), Failure> {
    types.retain(|&(kind, ..)| !inner.types.contains(partition, kind));
    if types.is_empty() {
        return Ok(());
    }
    let mut arguments = Arguments::default();
    arguments.push_number(types.len());
    for &(kind, queue, name) in &types {
        arguments.push(kind.to_bytes());
        let queue = queue.as_str();
        // The name of a queue has at most 64 bytes.
        arguments.push([&[queue.len() as u8], queue.as_bytes(), name.as_bytes()].concat());
    }
    let script = &inner.scripts.record_types;
    let recorded = inner.run(script, partition, arguments).await;
    // No task has been stored.
    recorded.map_err(Failure::without_effect)?;
    inner.types.insert(partition, types.iter().map(|it| it.0));
    Ok(())
}

/// Returns the kinds of these tasks, each with one of its tasks. Of consecutive tasks of one type, only the first is examined.
fn types_of<'a>(batch: &[&'a NewTask]) -> Vec<(Kind, &'a NewTask)> {
    let mut types: Vec<(Kind, &NewTask)> = Vec::new();
    let mut last = None;
    for &task in batch {
        if last.is_none_or(|last| !is_same_type(last, task)) {
            types.extend(kinds_of(task).map(|kind| (kind, task)));
            last = Some(task);
        }
    }
    types.sort_unstable_by_key(|it| it.0);
    types.dedup_by_key(|it| it.0);
    types
}

/// Returns the kinds that a task may have. A task that replaces another one gets the priority of that task.
fn kinds_of(task: &NewTask) -> impl Iterator<Item = Kind> {
    let others = match may_replace(task) {
        true => &Priority::ALL[..],
        false => &[],
    };
    let others = others
        .iter()
        .map(|&it| task.type_kind().placed(&task.queue, it));
    iter::once(task.kind()).chain(others)
}

/// Returns `true` if the task replaces the payload of a task that holds its key.
pub(super) fn may_replace(task: &NewTask) -> bool {
    task.key
        .is_some_and(|key| key.conflict == Conflict::Replace)
}

fn is_same_type(one: &NewTask, other: &NewTask) -> bool {
    let of = |task: &NewTask| {
        (
            task.envelope,
            task.version,
            task.priority,
            may_replace(task),
        )
    };
    of(one) == of(other) && one.name == other.name && one.queue == other.queue
}
