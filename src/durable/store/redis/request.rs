//! The arguments of scripts.

use std::collections::{HashMap, HashSet};

use super::entry::{self, INLINE, short_millis};
use super::link::Arguments;
use super::partitions::Partitions;
use super::reply::{epoch_text, millis_text, reason_number};
use super::routing::{self, KnownRoutes};
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::store::kind::Kind;
use crate::durable::store::routes::ListId;
use crate::durable::store::{Enqueue, Epoch, NewTask, Turn, Verdict, Verdicts};

/// Returns the arguments of `enqueue`, by the known routes and the estimated time of the server.
pub(super) fn enqueue(
    request: &Enqueue,
    tasks: &[&NewTask],
    client_id: &str,
    known: &KnownRoutes,
    now: u64,
) -> Arguments {
    let first = tasks.first().map(|task| task.id.to_bytes().to_vec());
    let kinds = kinds(tasks);
    // Of an id that comes twice, the first counts.
    let mut ids = HashSet::with_capacity(tasks.len());
    let tasks = tasks.iter().copied().filter(|task| ids.insert(task.id));
    let (delayed, mut waiting): (Vec<_>, Vec<_>) = tasks.partition(|task| millis(task.delay) != 0);
    let list_of = |task: &&NewTask| known.routes.entrance(kinds[&named(task)]);
    waiting.sort_by_key(list_of);
    let lists = together(waiting.iter().map(list_of));
    let all = || waiting.iter().chain(&delayed);
    let apart = || all().filter(|task| task.payload.len() > INLINE);

    let mut arguments = Arguments::default();
    arguments.number(request.session);
    arguments.number(request.number);
    arguments.push(first.unwrap_or_default());
    arguments.number(waiting.len());
    arguments.number(delayed.len());
    arguments.number(apart().count());
    arguments.push(&*known.version);
    arguments.number(lists.len());
    for task in all() {
        arguments.push(task.id.to_bytes());
        arguments.push(owner(task, client_id, kinds[&named(task)]));
    }
    all().for_each(|task| arguments.push(entry::pack(task, client_id, kinds[&named(task)], now)));
    delayed
        .iter()
        .for_each(|task| arguments.push(millis_text(task.delay)));
    for task in apart() {
        arguments.push(task.id.to_bytes());
        arguments.push(&*task.payload);
    }
    for (list, tasks) in lists {
        arguments.push(routing::list_text(list));
        arguments.number(tasks);
    }
    arguments
}

/// The name of a task, and the version of its envelope.
type Named<'a> = (&'a str, u8);

fn named(task: &NewTask) -> Named<'_> {
    (&task.name, task.envelope)
}

/// The kinds of tasks, each computed once.
fn kinds<'a>(tasks: &[&'a NewTask]) -> HashMap<Named<'a>, Kind> {
    let mut kinds = HashMap::new();
    for task in tasks {
        kinds.entry(named(task)).or_insert_with(|| task.kind());
    }
    kinds
}

/// Returns each of the lists and how often it comes in succession; nothing if there is only the main one.
fn together(lists: impl Iterator<Item = ListId>) -> Vec<(ListId, usize)> {
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

/// Returns the client id of a task's owner, how long its end is kept, and its kind.
fn owner(task: &NewTask, client_id: &str, kind: Kind) -> Vec<u8> {
    let mut owner = client_id.as_bytes().to_vec();
    owner.extend(&short_millis(task.retention).to_be_bytes()[2..]);
    owner.extend(kind.to_bytes());
    owner
}

/// The verdicts of a turn, as they are sent: each with its place among all.
struct Said<'a> {
    done: Vec<(usize, TaskId, &'a [u8])>,
    others: Vec<(usize, TaskId, &'a Verdict)>,
}

impl<'a> Said<'a> {
    fn of(verdicts: &'a Verdicts, before: usize) -> Self {
        let (mut done, mut others) = (Vec::new(), Vec::new());
        for (place, (id, verdict)) in (before..).zip(&verdicts.tasks) {
            match verdict {
                Verdict::Done(output) => done.push((place, *id, &**output)),
                other => others.push((place, *id, other)),
            }
        }
        Self { done, others }
    }
}

/// What a turn is for one partition.
#[derive(Default)]
pub(super) struct Part<'a> {
    pub(super) verdicts: Vec<&'a Verdicts>,
    /// The claim with which the last turn was answered, if it was of this partition.
    pub(super) seen: Option<Epoch>,
    pub(super) want: usize,
    pub(super) park: Park,
}

/// When to be told that there is more to claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Park {
    #[default]
    Not,
    /// If nothing was claimed.
    IfNothing,
    /// If less was claimed than wanted.
    IfLess,
}

impl<'a> Part<'a> {
    pub(super) fn of(request: &'a Turn, partitions: Partitions, partition: usize) -> Self {
        let verdicts = request.verdicts.iter();
        Self {
            verdicts: verdicts
                .filter(|it| partitions.of_claim(it.epoch) == partition)
                .collect(),
            seen: request
                .received
                .filter(|&epoch| partitions.of_claim(epoch) == partition),
            want: request.want,
            park: match (request.park, partitions.count()) {
                (false, _) => Park::Not,
                (true, 1) => Park::IfLess,
                (true, _) => Park::IfNothing,
            },
        }
    }
}

/// What is asked of `turn`, and the places of the verdicts in the order in which they are sent.
pub(super) fn turn(request: &Turn, part: &Part<'_>, client_id: &str) -> (Arguments, Vec<usize>) {
    let mut arguments = Arguments::default();
    arguments.number(request.session);
    arguments.number(request.number);
    arguments.push(client_id);
    arguments.number(part.want);
    arguments.number(request.want_bytes.min(1 << 40));
    arguments.number(u8::from(request.quarantined));
    arguments.push(millis_text(request.lease));
    arguments.number(part.park as u8);
    arguments.number(part.verdicts.len());
    arguments.push(part.seen.map_or_else(String::new, epoch_text));
    arguments.push(epoch_text(request.floor));
    let mut places = Vec::new();
    for verdicts in &part.verdicts {
        let said = Said::of(verdicts, places.len());
        push_verdicts(&mut arguments, verdicts, &said);
        places.extend(said.done.iter().map(|it| it.0));
        places.extend(said.others.iter().map(|it| it.0));
    }
    (arguments, places)
}

fn push_verdicts(arguments: &mut Arguments, verdicts: &Verdicts, said: &Said<'_>) {
    arguments.push(epoch_text(verdicts.epoch));
    arguments.number(said.done.len());
    said.done
        .iter()
        .for_each(|(_, id, _)| arguments.push(id.to_bytes()));
    said.done
        .iter()
        .for_each(|(_, _, output)| arguments.push(*output));
    arguments.number(said.others.len());
    let others = &said.others;
    others
        .iter()
        .for_each(|(_, id, _)| arguments.push(id.to_bytes()));
    others
        .iter()
        .for_each(|(_, _, verdict)| push_other(arguments, verdict));
}

/// What a verdict is called, and what belongs to it.
fn push_other(arguments: &mut Arguments, verdict: &Verdict) {
    let (what, after) = match verdict {
        Verdict::Done(_) | Verdict::Release => ("release", String::new()),
        Verdict::Retry { after, error } => {
            arguments.push("retry");
            arguments.push(millis_text(*after));
            return arguments.push(&**error);
        }
        Verdict::Snooze { after } => ("snooze", millis_text(*after)),
        Verdict::Dead { reason, error } => {
            let what = if reason.is_failure() {
                "1dead"
            } else {
                "0dead"
            };
            arguments.push(what);
            arguments.number(reason_number(*reason));
            return arguments.push(&**error);
        }
    };
    arguments.push(what);
    arguments.push(after);
    arguments.push("");
}

/// A list of ids, with its length before it.
pub(super) fn push_ids(arguments: &mut Arguments, ids: &[TaskId]) {
    arguments.number(ids.len());
    ids.iter().for_each(|id| arguments.push(id.to_bytes()));
}
