//! Turns: a turn visits one partition after another until it can claim something.

use std::time::Duration;

use super::inner::{Inner, after_others};
use super::reply::PartitionAnswer;
use super::request::{GoIdle, PartitionTurn};
use super::{reply, request, routing};
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Cause, Failure};
use crate::durable::store::{Claim, Turn, TurnAnswer, Verdict, Verdicts};

/// How often a worker that receives no messages polls for tasks.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Sends each partition the verdicts of its tasks, and claims from the first one that has tasks.
pub(super) async fn turn(inner: &Inner, request: &Turn) -> Result<TurnAnswer, Failure> {
    let count = inner.partitions.count();
    let mut state = inner.sessions.get(request.session);
    let by_number = (request.number % count as u64) as usize;
    let first = state.resume_at.take().unwrap_or(by_number);
    let is_subscribed = inner.is_subscribed();
    let (mut whole, mut claimed) = (TurnAnswer::default(), None::<usize>);
    for nth in 0..count {
        let partition = (first + nth) % count;
        let mut part = PartitionTurn::of(request, inner.partitions, partition);
        if claimed.is_some() {
            if part.verdicts.is_empty() && part.received.is_none() {
                // This partition is not visited, so it may have tasks.
                whole.more = true;
                continue;
            }
            part.want = 0;
        }
        if part.want == 0 || !is_subscribed {
            part.go_idle = GoIdle::Never;
        }
        state.is_idle |= part.go_idle == GoIdle::IfNothingClaimed;
        let turned = match turn_in(inner, request, partition, &part).await {
            Ok(turned) => turned,
            Err(failure) => {
                state.resume_at = claimed.or(Some(partition));
                inner.sessions.set(request.session, state);
                if let Some(claim) = whole.claim.filter(|_| failure.cause == Cause::NoSession) {
                    release(inner, request, claim).await;
                }
                return Err(after_others(failure, nth));
            }
        };
        claimed = claimed.or_else(|| turned.claim.is_some().then_some(partition));
        add(&mut whole, turned);
    }
    if let Some(claimed) = claimed.filter(|_| state.is_idle) {
        leave_idle(inner, request, claimed).await;
        state.is_idle = false;
    }
    inner.sessions.set(request.session, state);
    if request.park && !is_subscribed && !inner.is_subscribed() {
        let next = whole.next.unwrap_or(POLL_INTERVAL);
        whole.next = Some(next.min(POLL_INTERVAL));
    }
    Ok(whole)
}

async fn turn_in(
    inner: &Inner,
    request: &Turn,
    partition: usize,
    part: &PartitionTurn<'_>,
) -> Result<TurnAnswer, Failure> {
    let (arguments, positions) = request::turn(request, part, &inner.client_id);
    failpoint("redis.before-turn");
    let answer = inner.run_turn(partition, arguments).await?;
    failpoint("redis.after-turn");
    let PartitionAnswer {
        mut turned,
        mut refused,
        is_drained,
    } = reply::turned(answer, partition)?;
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
        park: false,
        ..request.clone()
    };
    let part = PartitionTurn::of(&release, inner.partitions, partition);
    let (arguments, _) = request::turn(&release, &part, &inner.client_id);
    let turn = inner.run(&inner.scripts.turn, partition, arguments);
    turn.await.ok();
}

/// Adds the answer of a partition to that of the whole store.
fn add(whole: &mut TurnAnswer, part: TurnAnswer) {
    whole.refused.extend(part.refused);
    whole.claim = whole.claim.take().or(part.claim);
    whole.more |= part.more;
    whole.parked |= part.parked;
    whole.next = match (whole.next, part.next) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
}

/// Ensures that a busy session is idle in no partition, including those that this turn has not visited. If a request
/// fails, the remaining ones are not sent: a wake-up may then reach this busy worker, and others find the task when they
/// poll. To retry would endanger the lease.
async fn leave_idle(inner: &Inner, request: &Turn, claimed: usize) {
    for partition in inner.partitions.all().filter(|&other| other != claimed) {
        let (arguments, _) = request::turn(request, &PartitionTurn::default(), &inner.client_id);
        let turn = inner.run(&inner.scripts.turn, partition, arguments);
        if turn.await.is_err() {
            return;
        }
    }
}
