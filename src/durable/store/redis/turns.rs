//! Turns: a turn visits one partition after another until it can claim something.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::idle_partitions::Rest;
use super::inner::{Inner, after_others};
use super::nodes::NodeWait;
use super::partition_turn::{GoIdle, PartitionTurn, arguments};
use super::reply::PartitionAnswer;
use super::session_state::SessionState;
use super::{notes, reply, routing};
use crate::durable::clock::since_boot;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Cause, Failure};
use crate::durable::store::{self, Claim, Turn, TurnAnswer, Verdict, Verdicts};

/// The interval at which a worker that receives no messages polls for tasks.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The number of turns of which one begins with a partition in rotation, ahead of those that must be visited anyway.
const FAVOR_INTERVAL: u64 = 4;

/// Sends each partition the verdicts of its tasks, and claims from the first one that has tasks.
pub(super) async fn turn(inner: &Arc<Inner>, request: &Turn) -> Result<TurnAnswer, Failure> {
    let mut round = Round::begin(inner, request);
    for (nth, partition) in round.order().into_iter().enumerate() {
        let part = round.part(partition);
        if round.passes_over(partition, &part) {
            continue;
        }
        round.visit(partition);
        match turn_in(inner, request, partition, &part, round.wait()).await {
            Ok(turned) => round.add(partition, &part, turned),
            // The other partitions do not wait for this one.
            Err(failure) if inner.skips(&failure) => round.skip(partition, &part, failure),
            Err(failure) => {
                round.fail(partition, &failure).await;
                return Err(after_others(failure, nth));
            }
        }
    }
    round.end().await
}

/// A turn, as it goes from one partition to the next.
struct Round<'a> {
    inner: &'a Arc<Inner>,
    request: &'a Turn,
    /// The state of the session at the beginning.
    state: SessionState,
    now: Duration,
    /// The partitions whose messages arrived at the beginning, as bits.
    subscribed: u64,
    /// The partitions that were visited, as bits.
    visited: u64,
    /// The number of partitions that have answered.
    answers: usize,
    /// The failure of a partition that cannot be reached.
    unreachable: Option<Failure>,
    /// The partition that was claimed from.
    claimed: Option<usize>,
    answer: TurnAnswer,
}

impl<'a> Round<'a> {
    fn begin(inner: &'a Arc<Inner>, request: &'a Turn) -> Self {
        let sessions = &inner.sessions;
        if request.quarantined {
            sessions.update(request.session, |state| state.idle.take_quarantined());
        }
        let state = sessions.get(request.session);
        sessions.update(request.session, |state| {
            state.resume_at = None;
            state.reports_apart = false;
        });
        Self {
            inner,
            request,
            state,
            now: since_boot(),
            subscribed: subscribed(inner),
            visited: 0,
            answers: 0,
            unreachable: None,
            claimed: None,
            answer: TurnAnswer::default(),
        }
    }

    /// Returns the partitions in the order of the visits: first those that must be visited anyway, then those that have woken the session,
    /// and then the others, each time from another one.
    fn order(&self) -> Vec<usize> {
        let count = self.inner.partitions.count();
        let first = (self.request.number % count as u64) as usize;
        let mut order: Vec<_> = (0..count).map(|nth| (first + nth) % count).collect();
        let (resumed, favored) = (self.state.resume_at, self.favored());
        order.sort_by_cached_key(|&partition| {
            let is_next = [resumed, favored].map(|it| it == Some(partition));
            let is_empty = self.part(partition).is_empty();
            let is_woken = self.state.idle.is_woken(partition);
            (!is_next[0], !is_next[1], is_empty, !is_woken)
        });
        order
    }

    /// Returns a partition that comes before those that must be visited anyway. If tasks arrive there as fast as they run, a busy session
    /// would otherwise never claim the tasks of others.
    fn favored(&self) -> Option<usize> {
        let (number, count) = (self.request.number, self.inner.partitions.count() as u64);
        let is_now = number.is_multiple_of(FAVOR_INTERVAL);
        is_now.then_some((number / FAVOR_INTERVAL % count) as usize)
    }

    /// Returns the part of the request for a partition.
    fn part(&self, partition: usize) -> PartitionTurn<'a> {
        let queue_partition = self.state.queue_partition;
        let mut part = PartitionTurn::of(
            self.request,
            self.inner.partitions,
            partition,
            queue_partition,
        );
        part.is_apart = self.state.reports_apart;
        if self.claimed.is_some() {
            part.want = 0;
        }
        if part.want == 0 || !self.is_subscribed(partition) {
            part.go_idle = GoIdle::Never;
        }
        part
    }

    /// Returns `true` if the partition need not be visited.
    fn passes_over(&self, partition: usize, part: &PartitionTurn<'_>) -> bool {
        let is_elsewhere = self.state.queue_partition.is_some_and(|it| it != partition);
        part.is_empty() && (is_elsewhere || self.claimed.is_some() || self.rests(partition))
    }

    /// Returns `true` if the partition wakes the session when it has a task, and it is too early to look at it nevertheless. A turn that
    /// claims nothing visits it even so, since the session has no permit for its tasks. So does each turn of a session that claims from one
    /// partition, since there is a reason for each.
    fn rests(&self, partition: usize) -> bool {
        let rest = self.state.idle.get(partition);
        let is_early = rest.is_some_and(|rest| self.now < rest.until);
        is_early
            && self.served().len() > 1
            && self.request.want > 0
            && self.is_subscribed(partition)
    }

    /// Returns `true` if a partition was not visited because it would wake the session.
    fn has_passed_over_rests(&self) -> bool {
        let mut others = self.served().filter(|&it| !self.is_visited(it));
        others.any(|it| self.rests(it))
    }

    fn is_visited(&self, partition: usize) -> bool {
        self.visited & (1 << partition) != 0
    }

    fn is_subscribed(&self, partition: usize) -> bool {
        self.subscribed & (1 << partition) != 0
    }

    /// Returns the partitions in which the session claims tasks.
    fn served(&self) -> Range<usize> {
        let all = self.inner.partitions.all();
        self.state.queue_partition.map_or(all, |it| it..it + 1)
    }

    fn visit(&mut self, partition: usize) {
        self.visited |= 1 << partition;
        self.update(|state| state.idle.leave(partition));
    }

    /// Returns how long the turn waits for a partition that is not ready: for the first one only.
    fn wait(&self) -> NodeWait {
        match self.unreachable {
            Some(_) => NodeWait::None,
            None => self.inner.wait_for_part(),
        }
    }

    /// Adds the answer of a partition to that of the whole store.
    fn add(&mut self, partition: usize, part: &PartitionTurn<'_>, turned: TurnAnswer) {
        let is_idle = !turned.more && (turned.claim.is_none() || turned.is_idle);
        let rest = (part.go_idle != GoIdle::Never && is_idle).then(|| self.rest_after(&turned));
        self.update(|state| state.idle.answered(partition, rest));
        self.answers += 1;
        let whole = &mut self.answer;
        self.claimed = self
            .claimed
            .or_else(|| turned.claim.is_some().then_some(partition));
        whole.refused.extend(turned.refused);
        whole.claim = whole.claim.take().or(turned.claim);
        whole.more |= turned.more;
        whole.is_pushed |= turned.is_pushed;
        whole.idle_sessions = match self.answers {
            1 => turned.idle_sessions,
            _ => whole.idle_sessions.min(turned.idle_sessions),
        };
        whole.next = earlier(whole.next, turned.next);
        whole.next_tick = earlier(whole.next_tick, turned.next_tick);
    }

    /// Goes on without a partition whose node cannot be reached.
    fn skip(&mut self, partition: usize, part: &PartitionTurn<'_>, failure: Failure) {
        let unreached = part.verdicts.iter().map(|it| it.epoch);
        self.answer.unreached.extend(unreached);
        // The partition still relies on the session, which may have no permit after this turn. A turn that claims nothing is repeated soon.
        if self.request.want > 0 && self.state.idle.is_relied_on(partition) {
            self.update(|state| state.idle.wake(partition));
        }
        self.unreachable = Some(failure);
    }

    /// Returns the rest of the session after an answer that says that it is idle.
    fn rest_after(&self, turned: &TurnAnswer) -> Rest {
        let now = since_boot();
        let latest = self.now + store::rest(self.request.lease, turned.idle_sessions);
        let mut claimed = turned.claim.iter().flat_map(|claim| &claim.tasks);
        let is_any_quarantined = claimed.any(|task| task.quarantined);
        Rest {
            until: turned.next.map_or(latest, |next| latest.min(now + next)),
            next_tick: turned.next_tick.map(|next| now + next),
            takes_quarantined: self.request.quarantined && !is_any_quarantined,
        }
    }

    async fn fail(mut self, partition: usize, failure: &Failure) {
        let resume_at = self.claimed.or(Some(partition));
        self.update(|state| {
            state.resume_at = resume_at;
            state.reports_apart = true;
        });
        if failure.cause == Cause::NoSession {
            // The other partitions would wake a session that its worker has replaced.
            self.leave_others().await;
            if let Some(claim) = self.answer.claim.take() {
                release(self.inner, self.request, claim).await;
            }
            self.inner.sessions.remove(self.request.session);
        }
    }

    async fn end(mut self) -> Result<TurnAnswer, Failure> {
        let is_silent = self.answers == 0 && !self.has_passed_over_rests();
        if let Some(failure) = self.unreachable.take_if(|_| is_silent) {
            let resume_at = self.state.resume_at;
            self.update(|state| state.resume_at = resume_at);
            return Err(failure);
        }
        if self.claims_all_wanted() {
            self.leave_others().await;
        }
        let idle = self.inner.sessions.get(self.request.session).idle;
        let served = self.served();
        let is_idle = served.clone().all(|it| idle.get(it).is_some());
        self.answer.is_idle = is_idle && self.claimed.is_some();
        self.answer.passes_on = !is_idle && served.clone().any(|it| idle.is_relied_on(it));
        // If there are several partitions, a turn visits each of them again only when its rest is over.
        let is_divided = served.len() > 1;
        for partition in served {
            let rest = idle.get(partition);
            if !self.is_visited(partition) || is_divided && rest.is_some() {
                self.add_rest(rest);
            }
        }
        self.add_tick();
        if self.has_to_poll() {
            self.answer.next = earlier(self.answer.next, Some(POLL_INTERVAL));
        }
        Ok(self.answer)
    }

    /// Returns `true` if the session may have to claim a task of which no message tells.
    fn has_to_poll(&self) -> bool {
        let is_deaf =
            self.served().any(|it| !self.is_subscribed(it)) && !self.inner.is_subscribed();
        self.unreachable.is_some() || self.request.go_idle && is_deaf
    }

    /// Adds a partition in which the session is idle, or which this turn has passed over.
    fn add_rest(&mut self, rest: Option<Rest>) {
        let whole = &mut self.answer;
        match rest {
            Some(rest) => {
                let next = rest.until.saturating_sub(self.now);
                whole.next = earlier(whole.next, Some(next));
            }
            // It may have tasks.
            None => whole.more = true,
        }
    }

    /// Adds the schedules of partitions that an earlier turn has visited, if that turn has failed. When the time of a schedule has passed,
    /// it says nothing about the next one, so each is reported once.
    fn add_tick(&mut self) {
        let mut tick = None;
        self.update(|state| tick = state.idle.take_tick());
        let next = tick.map(|tick| tick.saturating_sub(self.now));
        self.answer.next_tick = earlier(self.answer.next_tick, next);
    }

    /// Returns `true` if the session may have no permit left.
    fn claims_all_wanted(&self) -> bool {
        let claim = self.answer.claim.as_ref();
        claim.is_some_and(|claim| claim.tasks.len() >= self.request.want)
    }

    /// Ensures that a session without permits is idle in no partition. If a request fails, the remaining ones are sent only if the failure
    /// concerns just its node. The session passes on the wake-ups of partitions that it has not left. To retry would endanger the lease.
    async fn leave_others(&self) {
        let mut wait = self.wait();
        let idle = self.inner.sessions.get(self.request.session).idle;
        for partition in self.served().filter(|&it| idle.is_relied_on(it)) {
            let (arguments, _) = arguments(
                self.request,
                &PartitionTurn::default(),
                &self.inner.client_id,
            );
            self.update(|state| state.idle.leave(partition));
            let script = &self.inner.scripts.turn;
            let turn = self.inner.run_within(wait, script, partition, arguments);
            if let Err(failure) = turn.await {
                self.update(|state| state.idle.wake(partition));
                if !self.inner.skips(&failure) {
                    return;
                }
                wait = NodeWait::None;
            }
        }
    }

    fn update(&self, change: impl FnOnce(&mut SessionState)) {
        self.inner.sessions.update(self.request.session, change);
    }
}

/// Returns the partitions whose messages arrive, as bits.
fn subscribed(inner: &Inner) -> u64 {
    let all = inner.partitions.all();
    let subscribed = all.filter(|&it| inner.nodes.is_subscribed(it));
    subscribed.fold(0, |bits, it| bits | 1 << it)
}

async fn turn_in(
    inner: &Arc<Inner>,
    request: &Turn,
    partition: usize,
    part: &PartitionTurn<'_>,
    wait: NodeWait,
) -> Result<TurnAnswer, Failure> {
    let (arguments, positions) = arguments(request, part, &inner.client_id);
    failpoint("redis.before-turn");
    let sent = since_boot();
    let answer = inner.run_turn(wait, partition, arguments).await?;
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

pub(super) fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}
