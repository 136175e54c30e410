//! Turns: a turn visits one partition after another until it can claim something.

use std::sync::Arc;
use std::time::Duration;

use super::entry;
use super::inner::{Inner, after_others};
use super::partitions::Partitions;
use super::reply::{PartitionAnswer, epoch_text, millis_text, reason_number};
use super::scripts::Arguments;
use super::{notes, reply, routing};
use crate::durable::TaskId;
use crate::durable::clock::since_boot;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Cause, Failure};
use crate::durable::store::{Claim, Epoch, Turn, TurnAnswer, Verdict, Verdicts};

/// The interval at which a worker that receives no messages polls for tasks.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Sends each partition the verdicts of its tasks, and claims from the first one that has tasks.
pub(super) async fn turn(inner: &Arc<Inner>, request: &Turn) -> Result<TurnAnswer, Failure> {
    let count = inner.partitions.count();
    let mut state = inner.sessions.get(request.session);
    let by_number = (request.number % count as u64) as usize;
    let first = state.resume_at.take().unwrap_or(by_number);
    let is_subscribed = inner.is_subscribed();
    let (mut whole, mut claimed) = (TurnAnswer::default(), None::<usize>);
    let (mut answers, mut unreachable) = (0, None);
    for nth in 0..count {
        let partition = (first + nth) % count;
        let mut part = PartitionTurn::of(request, inner.partitions, partition, state.home);
        if part.is_empty() && state.home.is_some_and(|home| home != partition) {
            continue;
        }
        if claimed.is_some() {
            if part.is_empty() {
                // This partition is not visited, so it may have tasks.
                whole.more = true;
                continue;
            }
            part.want = 0;
        }
        if part.want == 0 || !inner.nodes.is_subscribed(partition) {
            part.go_idle = GoIdle::Never;
        }
        state.is_idle |= part.go_idle == GoIdle::IfNothingClaimed;
        let turned = match turn_in(inner, request, partition, &part).await {
            Ok(turned) => turned,
            // The other partitions do not wait for this one.
            Err(failure) if inner.skips(&failure) => {
                whole
                    .unreached
                    .extend(part.verdicts.iter().map(|it| it.epoch));
                unreachable = Some(failure);
                continue;
            }
            Err(failure) => {
                state.resume_at = claimed.or(Some(partition));
                inner.sessions.set(request.session, state);
                if let Some(claim) = whole.claim.filter(|_| failure.cause == Cause::NoSession) {
                    release(inner, request, claim).await;
                }
                return Err(after_others(failure, nth));
            }
        };
        answers += 1;
        claimed = claimed.or_else(|| turned.claim.is_some().then_some(partition));
        add(&mut whole, turned);
    }
    if let Some(failure) = unreachable {
        if answers == 0 {
            inner.sessions.set(request.session, state);
            return Err(failure);
        }
        // The worker is not woken by a task in a partition in which it is not idle.
        whole.next = earlier(whole.next, Some(POLL_INTERVAL));
    }
    if let Some(claimed) = claimed.filter(|_| state.is_idle && state.home.is_none()) {
        leave_idle(inner, request, claimed).await;
        state.is_idle = false;
    }
    inner.sessions.set(request.session, state);
    if request.go_idle && !is_subscribed && !inner.is_subscribed() {
        let next = whole.next.unwrap_or(POLL_INTERVAL);
        whole.next = Some(next.min(POLL_INTERVAL));
    }
    Ok(whole)
}

async fn turn_in(
    inner: &Arc<Inner>,
    request: &Turn,
    partition: usize,
    part: &PartitionTurn<'_>,
) -> Result<TurnAnswer, Failure> {
    let (arguments, positions) = arguments(request, part, &inner.client_id);
    failpoint("redis.before-turn");
    let sent = since_boot();
    let answer = inner.run_turn(partition, arguments).await?;
    failpoint("redis.after-turn");
    let PartitionAnswer {
        mut turned,
        mut refused,
        is_drained,
        has_notes,
        now,
    } = reply::turned(answer, partition)?;
    inner.clock.record(sent, now);
    if has_notes {
        notes::relay(inner, partition);
    }
    if is_drained {
        // If this fails, the next turn reports the empty list again.
        routing::collapse(inner, partition).await.ok();
    }
    // The script counts the verdicts as they were sent.
    for position in &mut refused {
        *position = positions.get(*position - 1).copied().unwrap_or_default();
    }
    refused.sort_unstable();
    let verdicts: Vec<_> = part.verdicts.iter().flat_map(|it| &it.tasks).collect();
    let refused = refused
        .into_iter()
        .filter_map(|position| verdicts.get(position));
    turned.refused = refused.map(|verdict| verdict.0).collect();
    turned.claim = turned.claim.filter(|claim| !claim.tasks.is_empty());
    Ok(turned)
}

/// Releases the tasks claimed for a session that has ended in another partition: its worker opens another session, and
/// receives no claim of this one. If this fails, the tasks are requeued when the lease ends.
async fn release(inner: &Inner, request: &Turn, claim: Claim) {
    let partition = inner.partitions.of_claim(claim.epoch);
    let tasks = claim.tasks.iter().map(|task| (task.id, Verdict::Release));
    let release = Turn {
        number: request.number + 1,
        verdicts: vec![Verdicts {
            epoch: claim.epoch,
            tasks: tasks.collect(),
        }],
        want: 0,
        go_idle: false,
        ..request.clone()
    };
    let part = PartitionTurn::of(&release, inner.partitions, partition, None);
    let (arguments, _) = arguments(&release, &part, &inner.client_id);
    let turn = inner.run(&inner.scripts.turn, partition, arguments);
    turn.await.ok();
}

/// Adds the answer of a partition to that of the whole store.
fn add(whole: &mut TurnAnswer, part: TurnAnswer) {
    whole.refused.extend(part.refused);
    whole.claim = whole.claim.take().or(part.claim);
    whole.more |= part.more;
    whole.is_idle |= part.is_idle;
    whole.is_pushed |= part.is_pushed;
    whole.next = earlier(whole.next, part.next);
    whole.next_tick = earlier(whole.next_tick, part.next_tick);
}

pub(super) fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// Ensures that a busy session is idle in no partition, including those that this turn has not visited. If a request
/// fails, the remaining ones are not sent: a wake-up may then reach this busy worker, and others find the task when they
/// poll. To retry would endanger the lease.
async fn leave_idle(inner: &Inner, request: &Turn, claimed: usize) {
    for partition in inner.partitions.all().filter(|&other| other != claimed) {
        let (arguments, _) = arguments(request, &PartitionTurn::default(), &inner.client_id);
        let turn = inner.run_part(&inner.scripts.turn, partition, arguments);
        match turn.await {
            Err(failure) if !inner.skips(&failure) => return,
            _ => {}
        }
    }
}

// ===== Arguments =====

/// The part of a turn that concerns one partition.
#[derive(Default)]
struct PartitionTurn<'a> {
    verdicts: Vec<&'a Verdicts>,
    /// The claim that answered the last turn, if it belongs to this partition.
    received: Option<Epoch>,
    want: usize,
    go_idle: GoIdle,
}

/// When a session goes idle: it is then woken when there are tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GoIdle {
    #[default]
    Never,
    IfNothingClaimed,
    /// If fewer tasks were claimed than wanted.
    IfLessClaimed,
    /// As [`IfLessClaimed`](Self::IfLessClaimed), and claims may then be [pushed](crate::durable::store::ClaimPushes) to the session.
    AcceptingPushes,
}

impl GoIdle {
    /// `has_home`: tasks are claimed from one partition only. Claims of several partitions might use the same permits, so they are
    /// pushed only if there is no other partition.
    fn when(request: &Turn, partitions: Partitions, has_home: bool) -> Self {
        match (request.go_idle, partitions.count() == 1) {
            (false, _) => Self::Never,
            (true, true) if request.pushes.are_accepted => Self::AcceptingPushes,
            (true, is_only) if is_only || has_home => Self::IfLessClaimed,
            (true, _) => Self::IfNothingClaimed,
        }
    }
}

impl<'a> PartitionTurn<'a> {
    /// `home` is the only partition in which the session claims tasks, if there is one.
    fn of(
        request: &'a Turn,
        partitions: Partitions,
        partition: usize,
        home: Option<usize>,
    ) -> Self {
        let verdicts = request.verdicts.iter();
        Self {
            verdicts: verdicts
                .filter(|it| partitions.of_claim(it.epoch) == partition)
                .collect(),
            received: request
                .received
                .filter(|&epoch| partitions.of_claim(epoch) == partition),
            want: match home.is_none_or(|home| home == partition) {
                true => request.want,
                false => 0,
            },
            go_idle: GoIdle::when(request, partitions, home.is_some()),
        }
    }

    /// Returns `true` if the partition need not be visited, unless tasks are wanted from it.
    fn is_empty(&self) -> bool {
        self.verdicts.is_empty() && self.received.is_none()
    }
}

/// Returns the arguments of `turn`, and the positions in the request of the verdicts, in the order in which they are sent.
fn arguments(request: &Turn, part: &PartitionTurn<'_>, client_id: &str) -> (Arguments, Vec<usize>) {
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
    let received = request.pushes.received;
    arguments.push(received.map_or_else(String::new, epoch_text));
    arguments.push_number(u8::from(request.pushes.may_be_lost));
    let mut positions = Vec::new();
    for verdicts in &part.verdicts {
        let sent = SentVerdicts::of(verdicts, positions.len());
        push_verdicts(&mut arguments, verdicts, &sent);
        positions.extend(sent.done.iter().map(|it| it.0));
        positions.extend(sent.others.iter().map(|it| it.0));
    }
    (arguments, positions)
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
                // A run that holds its group has failed: see `HoldGroup`.
                Verdict::Done(output) => done.push((position, *id, &**output)),
                other => others.push((position, *id, other)),
            }
        }
        Self { done, others }
    }
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
