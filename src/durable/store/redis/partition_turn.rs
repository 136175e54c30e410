//! [`PartitionTurn`]: the part of a turn that concerns one partition, and the arguments with which it is sent.

use super::entry;
use super::partitions::Partitions;
use super::reply::{epoch_text, millis_text, reason_number};
use super::scripts::Arguments;
use crate::durable::TaskId;
use crate::durable::store::{Epoch, Turn, Verdict, Verdicts};

/// The maximum number of completed tasks of a claim that are written together with those of other claims. A pushed claim has one task.
const SMALL_CLAIM: usize = 8;
/// The maximum number of claims whose completed tasks are written together.
const MAX_JOINED: usize = 64;

/// The part of a turn that concerns one partition.
#[derive(Default)]
pub(super) struct PartitionTurn<'a> {
    pub(super) verdicts: Vec<&'a Verdicts>,
    /// `true` if the verdicts of each claim are written apart from those of the others.
    pub(super) is_apart: bool,
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
    /// If fewer tasks were claimed than wanted.
    IfLessClaimed,
    /// As [`IfLessClaimed`](Self::IfLessClaimed), and claims may then be [pushed](crate::durable::store::ClaimPushes) to the session.
    AcceptingPushes,
}

impl GoIdle {
    /// Claims of several partitions might use the same permits, so they are pushed only if there is no other partition.
    fn when(request: &Turn, partitions: Partitions) -> Self {
        match (request.go_idle, partitions.count() == 1) {
            (false, _) => Self::Never,
            (true, true) if request.pushes.are_accepted => Self::AcceptingPushes,
            (true, _) => Self::IfLessClaimed,
        }
    }
}

impl<'a> PartitionTurn<'a> {
    /// `queue_partition` is `Some` if the session claims tasks in that partition only.
    pub(super) fn of(
        request: &'a Turn,
        partitions: Partitions,
        partition: usize,
        queue_partition: Option<usize>,
    ) -> Self {
        let verdicts = request.verdicts.iter();
        Self {
            verdicts: verdicts
                .filter(|it| partitions.of_claim(it.epoch) == partition)
                .collect(),
            is_apart: false,
            received: request
                .received
                .filter(|&epoch| partitions.of_claim(epoch) == partition),
            want: match queue_partition.is_none_or(|it| it == partition) {
                true => request.want,
                false => 0,
            },
            go_idle: GoIdle::when(request, partitions),
        }
    }

    /// Returns `true` if the partition need not be visited, unless tasks are wanted from it.
    pub(super) fn is_empty(&self) -> bool {
        self.verdicts.is_empty() && self.received.is_none()
    }
}

/// Returns the arguments of `turn`, and the positions in the request of the verdicts, in the order in which they are sent.
pub(super) fn arguments(
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
    let (sent, positions) = SentVerdicts::of_all(&part.verdicts);
    let verdict_parts = verdict_parts(&sent, part.is_apart);
    arguments.push_number(verdict_parts.len());
    arguments.push(part.received.map_or_else(String::new, epoch_text));
    arguments.push(epoch_text(request.floor));
    let received = request.pushes.received;
    arguments.push(received.map_or_else(String::new, epoch_text));
    arguments.push_number(u8::from(request.pushes.may_be_lost));
    for claims in verdict_parts {
        push_claims(&mut arguments, claims);
    }
    (arguments, positions)
}

/// The verdicts of a claim, grouped as they are sent. Each has its position in the request.
struct SentVerdicts<'a> {
    epoch: Epoch,
    done: Vec<(usize, TaskId, &'a [u8])>,
    others: Vec<(usize, TaskId, &'a Verdict)>,
}

impl<'a> SentVerdicts<'a> {
    /// Also returns the positions of the verdicts, in the order in which they are sent.
    fn of_all(verdicts: &[&'a Verdicts]) -> (Vec<Self>, Vec<usize>) {
        let (mut all, mut positions) = (Vec::new(), Vec::new());
        for verdicts in verdicts {
            let sent = Self::of(verdicts, positions.len());
            positions.extend(sent.done.iter().map(|it| it.0));
            positions.extend(sent.others.iter().map(|it| it.0));
            all.push(sent);
        }
        (all, positions)
    }

    fn of(verdicts: &'a Verdicts, before: usize) -> Self {
        let (mut done, mut others) = (Vec::new(), Vec::new());
        for (position, (id, verdict)) in (before..).zip(&verdicts.tasks) {
            match verdict {
                // A run that holds its group has failed: see `HoldGroup`.
                Verdict::Done(output) => done.push((position, *id, &**output)),
                other => others.push((position, *id, other)),
            }
        }
        let epoch = verdicts.epoch;
        Self {
            epoch,
            done,
            others,
        }
    }

    /// Returns `true` if the completed tasks of this claim and those of `next` may be written together.
    fn is_joined_by(&self, next: &Self) -> bool {
        let is_small = |it: &Self| it.done.len() <= SMALL_CLAIM;
        self.others.is_empty() && is_small(self) && is_small(next)
    }
}

/// Divides the verdicts into the parts that `turn` applies one after the other. In each, only the last claim has other verdicts than done.
fn verdict_parts<'s, 'a>(
    sent: &'s [SentVerdicts<'a>],
    is_apart: bool,
) -> Vec<&'s [SentVerdicts<'a>]> {
    let joined = sent.chunk_by(|one, next| !is_apart && one.is_joined_by(next));
    joined
        .flat_map(|joined| joined.chunks(MAX_JOINED))
        .collect()
}

/// Adds one part of the verdicts.
fn push_claims(arguments: &mut Arguments, claims: &[SentVerdicts<'_>]) {
    arguments.push_number(claims.len());
    for claim in claims {
        arguments.push(epoch_text(claim.epoch));
        arguments.push_number(claim.done.len());
    }
    let done = || claims.iter().flat_map(|claim| &claim.done);
    done().for_each(|(_, id, _)| arguments.push(id.to_bytes()));
    done().for_each(|(_, _, output)| arguments.push(*output));
    let others = claims.last().map_or(&[][..], |last| &last.others);
    arguments.push_number(others.len());
    others
        .iter()
        .for_each(|(_, id, _)| arguments.push(id.to_bytes()));
    others
        .iter()
        .for_each(|(_, _, verdict)| push_other(arguments, verdict));
}

/// Adds a verdict other than done: its name, two values, and the duration of the run. The name also says for how long the group is held.
fn push_other(arguments: &mut Arguments, verdict: &Verdict) {
    let (verdict, hold) = verdict.split();
    let until = match verdict {
        Verdict::Suspend {
            until: Some(until),
            waits_for,
            ..
        } => format!("{until} {waits_for}"),
        _ => String::new(),
    };
    let (name, one, two) = match verdict {
        Verdict::Retry { after, error, .. } => ("retry", millis_text(*after), &**error),
        Verdict::Snooze { after } => ("snooze", millis_text(*after), ""),
        Verdict::Suspend { after, .. } => ("suspend", millis_text(*after), &*until),
        Verdict::Dead { reason, error, .. } => {
            let name = if reason.is_failure() {
                "1dead"
            } else {
                "0dead"
            };
            (name, reason_number(*reason).to_string(), &**error)
        }
        Verdict::Done(_) | Verdict::Release | Verdict::HoldGroup { .. } => {
            ("release", String::new(), "")
        }
    };
    match hold {
        Some(wait) => arguments.push(format!("{name} {}", millis_text(wait))),
        None => arguments.push(name),
    }
    arguments.push(one);
    arguments.push(two);
    arguments.push(entry::run_time_bytes(verdict.took()));
}
