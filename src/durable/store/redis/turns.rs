//! Turns: a turn goes from one partition to the next until it can claim something.

use std::collections::HashMap;
use std::time::Duration;

use super::inner::{Inner, after_others};
use super::mail::Mail;
use super::reply::Answered;
use super::request::{Park, Part};
use super::{reply, request, routing};
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Cause, Failure};
use crate::durable::store::{Claim, SessionId, Turn, TurnAnswer, Verdict, Verdicts};
use crate::sync::{Mutex, lock};

/// How soon a worker looks again to whom nobody can tell that there is something to do.
const WHILE_MUTE: Duration = Duration::from_millis(500);

/// What is known of sessions between their turns.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<SessionId, Known>>);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The partition to be asked first when the last turn is sent again: the one that something was
    /// claimed from, or may have been, since it has not answered.
    again: Option<usize>,
    /// It rests in some partitions.
    rests: bool,
}

impl Sessions {
    fn known(&self, session: SessionId) -> Known {
        lock(&self.0).get(&session).copied().unwrap_or_default()
    }

    fn note(&self, session: SessionId, known: Known) {
        lock(&self.0).insert(session, known);
    }

    pub(super) fn forget(&self, session: SessionId) {
        lock(&self.0).remove(&session);
    }
}

/// Tells each partition the verdicts of its tasks, and claims from the first that has something.
pub(super) async fn turn(inner: &Inner, request: &Turn) -> Result<TurnAnswer, Failure> {
    let count = inner.partitions.count();
    let mut known = inner.sessions.known(request.session);
    let by_number = (request.number % count as u64) as usize;
    let first = known.again.take().unwrap_or(by_number);
    let hears = inner.mail() == Mail::Comes;
    let (mut whole, mut claimed) = (TurnAnswer::default(), None::<usize>);
    for nth in 0..count {
        let partition = (first + nth) % count;
        let mut part = Part::of(request, inner.partitions, partition);
        if claimed.is_some() {
            if part.verdicts.is_empty() && part.seen.is_none() {
                // Nobody knows.
                whole.more = true;
                continue;
            }
            part.want = 0;
        }
        if part.want == 0 || !hears {
            part.park = Park::Not;
        }
        known.rests |= part.park == Park::IfNothing;
        let turned = match turn_in(inner, request, partition, &part).await {
            Ok(turned) => turned,
            Err(failure) => {
                known.again = claimed.or(Some(partition));
                inner.sessions.note(request.session, known);
                if let Some(claim) = whole.claim.filter(|_| failure.cause == Cause::NoSession) {
                    give_back(inner, request, claim).await;
                }
                return Err(after_others(failure, nth));
            }
        };
        claimed = claimed.or_else(|| turned.claim.is_some().then_some(partition));
        add(&mut whole, turned);
    }
    if let Some(claimed) = claimed.filter(|_| known.rests) {
        leave(inner, request, claimed).await;
        known.rests = false;
    }
    inner.sessions.note(request.session, known);
    if request.park && !hears && inner.mail() != Mail::Comes {
        whole.next = Some(whole.next.map_or(WHILE_MUTE, |next| next.min(WHILE_MUTE)));
    }
    Ok(whole)
}

async fn turn_in(
    inner: &Inner,
    request: &Turn,
    partition: usize,
    part: &Part<'_>,
) -> Result<TurnAnswer, Failure> {
    let (arguments, places) = request::turn(request, part, &inner.client_id);
    failpoint("redis.before-turn");
    let answer = inner.run_turn(partition, arguments).await?;
    failpoint("redis.after-turn");
    let Answered {
        mut turned,
        mut refused,
        is_drained,
    } = reply::turned(answer, partition)?;
    if is_drained {
        // If this fails, the next turn says so again.
        routing::collapse(inner, partition).await.ok();
    }
    // In the order in which they were asked.
    for place in &mut refused {
        *place = places.get(*place - 1).copied().unwrap_or_default();
    }
    refused.sort_unstable();
    let verdicts: Vec<_> = part.verdicts.iter().flat_map(|it| &it.tasks).collect();
    let refused = refused.into_iter().filter_map(|place| verdicts.get(place));
    turned.refused = refused.map(|verdict| verdict.0).collect();
    turned.claim = turned.claim.filter(|claim| !claim.tasks.is_empty());
    Ok(turned)
}

/// Gives back what was claimed for a session that has ended in another partition: its worker opens another session, and
/// receives no claim of this one. If this fails, the tasks come back when the lease is over.
async fn give_back(inner: &Inner, request: &Turn, claim: Claim) {
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
    let part = Part::of(&release, inner.partitions, partition);
    let (arguments, _) = request::turn(&release, &part, &inner.client_id);
    let turn = inner.run(&inner.scripts.turn, partition, arguments);
    turn.await.ok();
}

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

/// Who has something to do rests nowhere: also not where it was not asked this time. If that fails, which
/// is not worth a lease, a wake-up may go to a worker that is busy, and others find the task when they
/// look.
async fn leave(inner: &Inner, request: &Turn, claimed: usize) {
    for partition in inner.partitions.all().filter(|&other| other != claimed) {
        let (arguments, _) = request::turn(request, &Part::default(), &inner.client_id);
        let turn = inner.run(&inner.scripts.turn, partition, arguments);
        if turn.await.is_err() {
            return;
        }
    }
}
