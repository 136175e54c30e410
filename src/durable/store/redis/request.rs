//! Encodes requests as the arguments of scripts.

use std::collections::{HashMap, HashSet};

use super::arguments::Arguments;
use super::entry::{self, MAX_INLINE_PAYLOAD, short_millis};
use super::partitions::Partitions;
use super::reply::{epoch_text, millis_text, reason_number};
use super::routes_cache::KnownRoutes;
use super::routing;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::store::kind::Kind;
use crate::durable::store::routes::ListId;
use crate::durable::store::{Enqueue, Epoch, NewTask, Turn, Verdict, Verdicts};

/// Returns the arguments of `enqueue` for the tasks of a partition, given the known routes and the estimated time of the
/// server.
pub(super) fn enqueue(
    request: &Enqueue,
    batch: &[&NewTask],
    client_id: &str,
    known: &KnownRoutes,
    now: u64,
) -> Arguments {
    let first = batch.first().map(|task| task.id.to_bytes().to_vec());
    let kinds = kinds(batch);
    // Of several tasks with one id, only the first is stored.
    let mut ids = HashSet::with_capacity(batch.len());
    let tasks = batch.iter().copied().filter(|task| ids.insert(task.id));
    let (delayed, mut waiting): (Vec<_>, Vec<_>) = tasks.partition(|task| millis(task.delay) != 0);
    let list_of = |task: &&NewTask| known.routes.entrance(kinds[&named(task)]);
    waiting.sort_by_key(list_of);
    let lists = runs_of_lists(waiting.iter().map(list_of));
    let all = || waiting.iter().chain(&delayed);
    let separate = || all().filter(|task| task.payload.len() > MAX_INLINE_PAYLOAD);

    let mut arguments = Arguments::default();
    arguments.push_number(request.session);
    arguments.push_number(request.number);
    arguments.push(first.unwrap_or_default());
    arguments.push_number(waiting.len());
    arguments.push_number(delayed.len());
    arguments.push_number(separate().count());
    arguments.push(&*known.version);
    arguments.push_number(lists.len());
    for task in all() {
        arguments.push(task.id.to_bytes());
        arguments.push(alive_row(task, client_id, kinds[&named(task)]));
    }
    all().for_each(|task| arguments.push(entry::pack(task, client_id, kinds[&named(task)], now)));
    delayed
        .iter()
        .for_each(|task| arguments.push(millis_text(task.delay)));
    for task in separate() {
        arguments.push(task.id.to_bytes());
        arguments.push(&*task.payload);
    }
    for (list, tasks) in lists {
        arguments.push(routing::list_text(list));
        arguments.push_number(tasks);
    }
    arguments
}

/// The name of a task, and the version of its envelope.
type Named<'a> = (&'a str, u8);

fn named(task: &NewTask) -> Named<'_> {
    (&task.name, task.envelope)
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

/// Returns the row of a task in `alive`: client id, retention, and kind.
fn alive_row(task: &NewTask, client_id: &str, kind: Kind) -> Vec<u8> {
    let mut row = client_id.as_bytes().to_vec();
    row.extend(&short_millis(task.retention).to_be_bytes()[2..]);
    row.extend(kind.to_bytes());
    row
}

/// The verdicts of a claim, grouped as they are sent. Each has its position in the request.
struct SentVerdicts<'a> {
    done: Vec<(usize, TaskId, &'a [u8])>,
    others: Vec<(usize, TaskId, &'a Verdict)>,
}

impl<'a> SentVerdicts<'a> {
    fn of(verdicts: &'a Verdicts, before: usize) -> Self {
        let (mut done, mut others) = (Vec::new(), Vec::new());
        for (position, (id, verdict)) in (before..).zip(&verdicts.tasks) {
            match verdict {
                Verdict::Done(output) => done.push((position, *id, &**output)),
                other => others.push((position, *id, other)),
            }
        }
        Self { done, others }
    }
}

/// The part of a turn that concerns one partition.
#[derive(Default)]
pub(super) struct PartitionTurn<'a> {
    pub(super) verdicts: Vec<&'a Verdicts>,
    /// The claim that answered the last turn, if it belongs to this partition.
    pub(super) received: Option<Epoch>,
    pub(super) want: usize,
    pub(super) go_idle: GoIdle,
}

/// When a session goes idle: it is then woken when there are tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum GoIdle {
    #[default]
    Never,
    IfNothingClaimed,
    /// If fewer tasks were claimed than wanted.
    IfLessClaimed,
}

impl<'a> PartitionTurn<'a> {
    pub(super) fn of(request: &'a Turn, partitions: Partitions, partition: usize) -> Self {
        let verdicts = request.verdicts.iter();
        Self {
            verdicts: verdicts
                .filter(|it| partitions.of_claim(it.epoch) == partition)
                .collect(),
            received: request
                .received
                .filter(|&epoch| partitions.of_claim(epoch) == partition),
            want: request.want,
            go_idle: match (request.park, partitions.count()) {
                (false, _) => GoIdle::Never,
                (true, 1) => GoIdle::IfLessClaimed,
                (true, _) => GoIdle::IfNothingClaimed,
            },
        }
    }
}

/// Returns the arguments of `turn`, and the positions in the request of the verdicts, in the order in which they are sent.
pub(super) fn turn(
    request: &Turn,
    part: &PartitionTurn<'_>,
    client_id: &str,
) -> (Arguments, Vec<usize>) {
    let mut arguments = Arguments::default();
    arguments.push_number(request.session);
    arguments.push_number(request.number);
    arguments.push(client_id);
    arguments.push_number(part.want);
    arguments.push_number(request.want_bytes.min(1 << 40));
    arguments.push_number(u8::from(request.quarantined));
    arguments.push(millis_text(request.lease));
    arguments.push_number(part.go_idle as u8);
    arguments.push_number(part.verdicts.len());
    arguments.push(part.received.map_or_else(String::new, epoch_text));
    arguments.push(epoch_text(request.floor));
    let mut positions = Vec::new();
    for verdicts in &part.verdicts {
        let sent = SentVerdicts::of(verdicts, positions.len());
        push_verdicts(&mut arguments, verdicts, &sent);
        positions.extend(sent.done.iter().map(|it| it.0));
        positions.extend(sent.others.iter().map(|it| it.0));
    }
    (arguments, positions)
}

fn push_verdicts(arguments: &mut Arguments, verdicts: &Verdicts, sent: &SentVerdicts<'_>) {
    arguments.push(epoch_text(verdicts.epoch));
    arguments.push_number(sent.done.len());
    sent.done
        .iter()
        .for_each(|(_, id, _)| arguments.push(id.to_bytes()));
    sent.done
        .iter()
        .for_each(|(_, _, output)| arguments.push(*output));
    arguments.push_number(sent.others.len());
    let others = &sent.others;
    others
        .iter()
        .for_each(|(_, id, _)| arguments.push(id.to_bytes()));
    others
        .iter()
        .for_each(|(_, _, verdict)| push_other(arguments, verdict));
}

/// Adds a verdict other than done: its name, and two values.
fn push_other(arguments: &mut Arguments, verdict: &Verdict) {
    let (name, after) = match verdict {
        Verdict::Done(_) | Verdict::Release => ("release", String::new()),
        Verdict::Retry { after, error } => {
            arguments.push("retry");
            arguments.push(millis_text(*after));
            return arguments.push(&**error);
        }
        Verdict::Snooze { after } => ("snooze", millis_text(*after)),
        Verdict::Dead { reason, error } => {
            let name = if reason.is_failure() {
                "1dead"
            } else {
                "0dead"
            };
            arguments.push(name);
            arguments.push_number(reason_number(*reason));
            return arguments.push(&**error);
        }
    };
    arguments.push(name);
    arguments.push(after);
    arguments.push("");
}
