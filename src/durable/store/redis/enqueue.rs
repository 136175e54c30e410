//! Stores batches of tasks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::join_all;

use super::entry::{self, MAX_INLINE_PAYLOAD, MAX_MILLIS, short_millis};
use super::inner::{Inner, after_others};
use super::reply::{self, StoredAnswer, millis_text};
use super::routes_cache::KnownRoutes;
use super::routing;
use super::scripts::Arguments;
use super::tail::KeptTasks;
use super::types::{self, may_replace};
use crate::durable::clock::millis;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Effect, Failure};
use crate::durable::key::{Conflict, NewKey};
use crate::durable::queue::Priority;
use crate::durable::queue::group::GroupName;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::Kind;
use crate::durable::store::routes::ListId;
use crate::durable::store::{Enqueue, Enqueued, KeyConflict, NewTask};

/// Stores a batch of tasks. Each partition stores its own tasks, all under the same number, and no partition waits for another. Callers
/// whose tasks are in partitions that have answered do not wait for others.
pub(super) async fn enqueue(inner: &Inner, request: &Arc<Enqueue>) -> Result<Enqueued, Failure> {
    let batch = request.batch.rest();
    let mut parts = inner.partitions.split(batch, |(_, task)| task.id);
    if parts.is_empty() {
        // An empty batch must still fail if the session has ended.
        parts.push((0, Vec::new()));
    }
    let parts = parts.into_iter();
    let answers = join_all(parts.map(|(partition, part)| part_of(inner, request, partition, part)));
    joined(answers.await, |failure| inner.skips(failure))
}

/// Stores the tasks of a batch that belong to a partition, and returns their conflicts. If there are several partitions, this also records
/// the outcome for the callers.
async fn part_of(
    inner: &Inner,
    request: &Arc<Enqueue>,
    partition: usize,
    part: Vec<(usize, &NewTask)>,
) -> Result<Vec<KeyConflict>, Failure> {
    let (positions, tasks): (Vec<_>, Vec<_>) = part.into_iter().unzip();
    let stored = store_part(inner, request, partition, &positions, &tasks).await;
    if inner.partitions.count() > 1 {
        request.batch.end_part(&positions, &stored);
    }
    stored
}

async fn store_part(
    inner: &Inner,
    request: &Arc<Enqueue>,
    partition: usize,
    positions: &[usize],
    tasks: &[&NewTask],
) -> Result<Vec<KeyConflict>, Failure> {
    let answer = enqueue_in(inner, request, partition, tasks).await?;
    if answer.has_other_routes {
        inner.routes.remove(partition);
    }
    failpoint("redis.after-enqueue");
    let in_batch = |it: KeyConflict| {
        let position = *positions.get(it.position)?;
        Some(KeyConflict { position, ..it })
    };
    Ok(answer.conflicts.into_iter().filter_map(in_batch).collect())
}

/// Joins the answers of partitions to that of the whole store. If some have failed, returns the failure of one of them: if possible, one
/// that is not `vague`.
fn joined(
    answers: Vec<Result<Vec<KeyConflict>, Failure>>,
    vague: impl Fn(&Failure) -> bool,
) -> Result<Enqueued, Failure> {
    let may_be_stored = |answer: &&Result<_, Failure>| match answer {
        Ok(_) => true,
        Err(failure) => failure.effect == Effect::Unknown,
    };
    let stored = answers.iter().filter(may_be_stored).count();
    let (mut conflicts, mut failures) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Ok(some) => conflicts.extend(some),
            Err(failure) => failures.push(failure),
        }
    }
    if let Some(failure) = failures.into_iter().min_by_key(vague) {
        return Err(after_others(failure, stored));
    }
    conflicts.sort_by_key(|it| it.position);
    Ok(Enqueued { conflicts })
}

/// Keeps the tasks of a request that a partition has acknowledged, in case that it loses them.
fn keep(
    inner: &Inner,
    partition: usize,
    request: &Arc<Enqueue>,
    batch: &[&NewTask],
    answer: &StoredAnswer,
) {
    let conflicts = answer.conflicts.iter();
    let conflicts = conflicts.filter_map(|it| Some((batch.get(it.position)?.id, it.resolution)));
    let mut kept = KeptTasks {
        conflicts: conflicts.collect(),
        ..KeptTasks::default()
    };
    if !batch.iter().any(|task| kept.had_effect(task.id)) {
        return;
    }
    kept.count = batch.len() - kept.conflicts.len();
    kept.bytes = batch.iter().map(|task| task.payload.len()).sum();
    let (now, partitions) = (inner.since_boot(), inner.partitions.count());
    inner.tail.record(partition, request, kept, now, partitions);
}

async fn enqueue_in(
    inner: &Inner,
    request: &Arc<Enqueue>,
    partition: usize,
    batch: &[&NewTask],
) -> Result<StoredAnswer, Failure> {
    let routes = routes_for(inner, partition, batch).await?;
    types::record(inner, partition, batch).await?;
    let now = inner.server_time();
    let arguments = arguments(request, batch, &inner.client_id, &routes, now);
    failpoint("redis.before-enqueue");
    let script = &inner.scripts.enqueue;
    let answer = inner.run_storing(script, partition, arguments).await?;
    let answer = reply::enqueued(answer)?;
    keep(inner, partition, request, batch, &answer);
    Ok(answer)
}

/// Returns the routes of a partition for these tasks. If they are the first ones with another priority than the normal one, prepares
/// lists for them.
pub(super) async fn routes_for(
    inner: &Inner,
    partition: usize,
    batch: &[&NewTask],
) -> Result<Arc<KnownRoutes>, Failure> {
    let known = known_routes(inner, partition).await;
    let are_normal = batch.iter().all(|task| task.priority == Priority::Normal);
    if are_normal || known.routes.uses_priorities() {
        return Ok(known);
    }
    routing::use_priorities(inner, partition).await?;
    inner.routes.remove(partition);
    Ok(known_routes(inner, partition).await)
}

/// Returns the routes of a partition. If they cannot be read, they are unknown, and the script looks them up.
async fn known_routes(inner: &Inner, partition: usize) -> Arc<KnownRoutes> {
    if let Some(known) = inner.routes.get(partition) {
        return known;
    }
    match routing::read(inner, partition).await {
        Ok(stored) if stored.is_whole => {
            let known = Arc::new(stored.known);
            inner.routes.insert(partition, &known);
            known
        }
        _ => Arc::default(),
    }
}

/// Returns the arguments of `enqueue` for the tasks of a partition, given the known routes and the estimated time of the
/// server.
pub(super) fn arguments(
    request: &Enqueue,
    batch: &[&NewTask],
    client_id: &str,
    known: &KnownRoutes,
    now: u64,
) -> Arguments {
    let first = batch.first().map(|task| task.id.to_bytes().to_vec());
    let mut arguments = Arguments::default();
    arguments.push_number(request.session);
    arguments.push_number(request.number);
    arguments.push(first.unwrap_or_default());
    push_tasks(&mut arguments, batch, client_id, known, now);
    arguments
}

/// Adds the arguments that describe tasks: see `lua/add_tasks.lua`.
pub(super) fn push_tasks(
    arguments: &mut Arguments,
    batch: &[&NewTask],
    client_id: &str,
    known: &KnownRoutes,
    now: u64,
) {
    let kinds = kinds(batch);
    // Of several tasks with one id, only the first is stored.
    let mut ids = HashSet::with_capacity(batch.len());
    let tasks = (0..).zip(batch.iter().copied());
    let tasks = tasks.filter(|(_, task)| ids.insert(task.id));
    let (delayed, mut waiting): (Vec<Placed<'_>>, Vec<_>) =
        tasks.partition(|(_, task)| millis(task.delay) != 0);
    let list_of = |(_, task): &Placed<'_>| known.routes.entrance(kinds[&named(task)]);
    // If a task may replace another, the script needs the order of the request, and determines the lists itself.
    if !batch.iter().any(|task| may_replace(task)) {
        waiting.sort_by_key(list_of);
    }
    let lists = runs_of_lists(waiting.iter().map(list_of));
    let all = || waiting.iter().chain(&delayed).map(|&(_, task)| task);
    let separate = || all().filter(|task| task.payload.len() > MAX_INLINE_PAYLOAD);

    arguments.push_number(waiting.len());
    arguments.push_number(delayed.len());
    arguments.push_number(separate().count());
    arguments.push(&*known.version);
    // The script assigns tasks with groups to sublists.
    let has_groups = batch.iter().any(|task| task.group.is_some());
    let lists = if has_groups { Vec::new() } else { lists };
    match has_groups {
        true => arguments.push("-1"),
        false => arguments.push_number(lists.len()),
    }
    arguments.push(key_records(&waiting, &delayed));
    for task in all() {
        arguments.push(task.id.to_bytes());
        arguments.push(alive_row(task, client_id, kinds[&named(task)]));
    }
    all().for_each(|task| arguments.push(entry::pack(task, client_id, kinds[&named(task)], now)));
    delayed
        .iter()
        .for_each(|(_, task)| arguments.push(millis_text(task.delay)));
    for task in separate() {
        arguments.push(task.id.to_bytes());
        arguments.push(&*task.payload);
    }
    for (list, tasks) in lists {
        arguments.push(routing::list_text(list));
        arguments.push_number(tasks);
    }
}

/// A task, and its position in the batch.
type Placed<'a> = (u16, &'a NewTask);

/// Returns the records of the tasks with keys, in the order of the batch: see `lua/key_conflicts.lua`.
fn key_records(waiting: &[Placed<'_>], delayed: &[Placed<'_>]) -> Vec<u8> {
    let all = waiting.iter().chain(delayed).zip(1..);
    let keyed = all.filter_map(|(&(at, task), index)| Some((at, index, task, task.key.as_ref()?)));
    let mut keyed: Vec<_> = keyed.collect();
    keyed.sort_unstable_by_key(|it| it.0);
    if keyed.is_empty() {
        return Vec::new();
    }
    let mut records = Vec::with_capacity(1 + keyed.len() * KEY_RECORD_LEN);
    let is_simple = |key: &NewKey| !key.is_until_started && short_millis(key.window) == 0;
    records.push(if keyed.iter().any(|it| may_replace(it.2)) {
        b'p'
    } else if keyed.iter().all(|it| is_simple(it.3)) {
        b's'
    } else {
        b'-'
    });
    for (position, index, task, key) in keyed {
        push_key_record(&mut records, index, position, task, key);
    }
    records
}

/// The length of a record of a key, in bytes.
const KEY_RECORD_LEN: usize = 58;

fn push_key_record(records: &mut Vec<u8>, index: u16, position: u16, task: &NewTask, key: &NewKey) {
    let conflict = match key.conflict {
        Conflict::Join => b'j',
        Conflict::Reject => b'r',
        Conflict::Replace => b'p',
    };
    let limit = key.latest.map_or(MAX_MILLIS, short_millis);
    records.extend(index.to_be_bytes());
    records.extend(position.to_be_bytes());
    records.extend(key.hash.0);
    records.extend([u8::from(key.is_until_started), conflict]);
    records.extend(&short_millis(key.window).to_be_bytes()[2..]);
    records.extend(&limit.to_be_bytes()[2..]);
    match may_replace(task) {
        true => {
            let of_type = task.type_kind();
            let kinds = Priority::ALL.map(|it| of_type.placed(&task.queue, it).to_bytes());
            records.extend(kinds.concat());
        }
        false => records.extend([0; 3 * 8]),
    }
}

/// The properties that determine the kind of a task: its name, the versions of its envelope and of its payload, its queue, and its
/// priority.
type Named<'a> = (&'a str, [u8; 2], &'a QueueName, Priority);

fn named(task: &NewTask) -> Named<'_> {
    let versions = [task.envelope, task.version];
    (&task.name, versions, &task.queue, task.priority)
}

/// Returns the kinds of tasks. Each is computed once.
fn kinds<'a>(tasks: &[&'a NewTask]) -> HashMap<Named<'a>, Kind> {
    let mut kinds = HashMap::new();
    for task in tasks {
        kinds.entry(named(task)).or_insert_with(|| task.kind());
    }
    kinds
}

/// Returns the lists in succession, each with the number of its tasks. Returns nothing if there is only the main list.
fn runs_of_lists(lists: impl Iterator<Item = ListId>) -> Vec<(ListId, usize)> {
    let mut groups: Vec<(ListId, usize)> = Vec::new();
    for list in lists {
        match groups.last_mut() {
            Some((last, tasks)) if *last == list => *tasks += 1,
            _ => groups.push((list, 1)),
        }
    }
    if let [(ListId::MAIN, _)] = groups[..] {
        groups.clear();
    }
    groups
}

/// Returns the row of a task in `alive`: client id, retention, kind, and the key, the group and the parent if it has any.
fn alive_row(task: &NewTask, client_id: &str, kind: Kind) -> Vec<u8> {
    let group = task.group.as_ref().map_or("", GroupName::as_str);
    let mut row = Vec::with_capacity(8 + 6 + 8 + 16 + group.len());
    row.extend(client_id.as_bytes());
    row.extend(&short_millis(task.retention).to_be_bytes()[2..]);
    row.extend(kind.to_bytes());
    if task.key.is_some() || task.group.is_some() || task.parent.is_some() {
        row.extend(task.key.map_or([0; 16], |key| key.hash.0));
    }
    row.extend(group.as_bytes());
    if let Some(parent) = task.parent {
        // No name contains this byte.
        row.push(255);
        row.extend(parent.to_bytes());
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::failure::Cause;

    fn failed(effect: Effect, cause: Cause) -> Result<Vec<KeyConflict>, Failure> {
        Err(Failure::new(effect, cause))
    }

    fn joined_failure(answers: Vec<Result<Vec<KeyConflict>, Failure>>) -> (Effect, Cause) {
        let failure = joined(answers, |it| it.cause == Cause::Unavailable).unwrap_err();
        (failure.effect, failure.cause)
    }

    #[test]
    fn a_request_may_have_had_an_effect_if_one_of_its_parts_may() {
        let ended = || failed(Effect::None, Cause::NoSession);
        let lost = || failed(Effect::Unknown, Cause::Unavailable);
        let refused = || failed(Effect::None, Cause::Unavailable);
        for (answers, effect) in [
            (vec![refused(), ended()], Effect::None),
            (vec![Ok(Vec::new()), ended()], Effect::Unknown),
            (vec![ended(), Ok(Vec::new())], Effect::Unknown),
            (vec![lost(), ended()], Effect::Unknown),
            (vec![ended(), lost()], Effect::Unknown),
        ] {
            assert_eq!(joined_failure(answers), (effect, Cause::NoSession));
        }
        let unavailable = (Effect::Unknown, Cause::Unavailable);
        assert_eq!(joined_failure(vec![Ok(Vec::new()), refused()]), unavailable);
    }
}
