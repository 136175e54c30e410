//! [`Claims`]: the tasks that a worker holds.

use std::collections::HashMap;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::permits::{PermitRequest, Permits, Phase};
use crate::durable::context::Stop;
use crate::durable::store::Epoch;
use crate::durable::{StopReason, TaskId};
use crate::sync::Number;

/// The tasks that a worker holds, by claim: those that it runs, and those that have ended without the store having
/// confirmed their verdicts. Times are measured since the machine was started.
pub(crate) struct Claims {
    claims: HashMap<Epoch, HeldClaim>,
    /// The runs that were fenced and have not ended.
    fenced: HashMap<(Epoch, TaskId), FencedRun>,
    permits: Permits,
}

/// A claim of which the worker still holds something.
struct HeldClaim {
    /// The number of the queue of its tasks.
    queue: usize,
    /// The time at which the last renewal was sent that the store has answered.
    renewed: Duration,
    /// The lease was not renewed in time, so the store may have given the tasks to others.
    late: bool,
    /// The store has given the tasks to others.
    gone: bool,
    runs: HashMap<TaskId, TaskRun>,
    /// The number of ended tasks whose verdicts the store has not confirmed.
    unconfirmed: usize,
}

/// A run of a task.
pub(crate) struct TaskRun {
    /// The name of the type of the task.
    pub(crate) name: StdArc<str>,
    pub(crate) stop: Stop,
    pub(crate) start: StartToken,
    pub(crate) quarantined: bool,
    pub(crate) abort: AbortHandle,
    pub(crate) phase: Phase,
}

/// A run that has ended, or whose task gets a verdict before the run ends.
pub(crate) struct EndedRun {
    pub(crate) holder: Holder,
    /// The number of its queue.
    pub(crate) queue: usize,
    pub(crate) name: StdArc<str>,
    /// `true` if the run was asked to stop because its task was to be cancelled.
    pub(crate) was_cancelled: bool,
}

/// A run that goes on although its task has got a verdict.
struct FencedRun {
    /// The number of its queue.
    queue: usize,
    phase: Phase,
    quarantined: bool,
}

/// The right to start a run, or to prevent that it ever starts. The first caller of [`take`](Self::take) gets it.
#[derive(Clone, Default)]
pub(crate) struct StartToken(StdArc<Number>);

/// The holder of a task whose run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This worker, so it owes the store a verdict.
    This,
    /// This worker or another one. The run was asked to stop because of this; the worker owes a verdict nevertheless.
    Uncertain,
    /// Another worker.
    Another,
}

impl Claims {
    pub(crate) fn new(permits: Permits) -> Self {
        Self {
            claims: HashMap::new(),
            fenced: HashMap::new(),
            permits,
        }
    }

    pub(crate) fn permits(&self) -> &Permits {
        &self.permits
    }

    /// Returns the number of runs.
    pub(crate) fn held(&self) -> usize {
        self.permits.held()
    }

    /// Returns the number of runs that have a permit.
    pub(crate) fn running(&self) -> usize {
        self.permits.count(Phase::Running)
    }

    /// Returns the number of permits that runs have or wait for. For each queue, at most its limit counts.
    pub(crate) fn active(&self) -> usize {
        self.permits.used()
    }

    /// Returns the number of the queue of a claim, or `None` if the worker holds no task of the claim.
    pub(crate) fn queue_of(&self, epoch: Epoch) -> Option<usize> {
        self.claims.get(&epoch).map(|claim| claim.queue)
    }

    /// Adds a run of a task of the queue with this number.
    pub(crate) fn insert(
        &mut self,
        queue: usize,
        (epoch, renewed): (Epoch, Duration),
        id: TaskId,
        run: TaskRun,
    ) {
        let claim = self.claims.entry(epoch).or_insert_with(|| HeldClaim {
            queue,
            renewed,
            late: false,
            gone: false,
            runs: HashMap::new(),
            unconfirmed: 0,
        });
        self.permits.add(queue, run.phase);
        claim.runs.insert(id, run);
    }

    /// Requests a permit for a run that is to start. The returned receiver resolves when it is granted.
    pub(crate) fn request_start(
        &mut self,
        queue: usize,
        epoch: Epoch,
        id: TaskId,
    ) -> oneshot::Receiver<()> {
        let (grant, granted) = oneshot::channel();
        let request = PermitRequest { epoch, id, grant };
        self.permits.request(queue, true, request);
        granted
    }

    /// Takes the permit of a run that awaits handles.
    pub(crate) fn suspend(&mut self, epoch: Epoch, id: TaskId) {
        self.change(epoch, id, Phase::Running, Phase::Suspended);
    }

    /// Requests a permit for a suspended run.
    pub(crate) fn request_resume(&mut self, epoch: Epoch, id: TaskId, grant: oneshot::Sender<()>) {
        if let Some(queue) = self.queue_of(epoch) {
            self.change(epoch, id, Phase::Suspended, Phase::Ready);
            let request = PermitRequest { epoch, id, grant };
            self.permits.request(queue, false, request);
        }
    }

    /// Grants requests while there are permits.
    pub(crate) fn grant(&mut self) {
        while let Some(request) = self.permits.next_request() {
            // A run that has ended meanwhile needs no permit.
            if self.change(request.epoch, request.id, Phase::Ready, Phase::Running) {
                request.grant.send(()).ok();
            }
        }
    }

    /// Changes the phase of a run. Returns `false` if the run is not in the phase `from`.
    fn change(&mut self, epoch: Epoch, id: TaskId, from: Phase, to: Phase) -> bool {
        let Some(claim) = self.claims.get_mut(&epoch) else {
            return false;
        };
        let queue = claim.queue;
        let run = claim.runs.get_mut(&id);
        let Some(run) = run.filter(|run| run.phase == from) else {
            return false;
        };
        run.phase = to;
        self.permits.remove(queue, from);
        self.permits.add(queue, to);
        true
    }

    /// Returns `true` if the worker runs a quarantined task. A fenced run may still end the process, and another one would be blamed.
    pub(crate) fn has_quarantined(&self) -> bool {
        let mut runs = self.claims.values().flat_map(|it| it.runs.values());
        runs.any(|run| run.quarantined) || self.fenced.values().any(|run| run.quarantined)
    }

    /// Returns `true` if this is a run of a quarantined task.
    pub(crate) fn is_quarantined(&self, epoch: Epoch, id: TaskId) -> bool {
        let claim = self.claims.get(&epoch);
        let run = claim.and_then(|claim| claim.runs.get(&id));
        let fenced = self.fenced.get(&(epoch, id));
        run.is_some_and(|run| run.quarantined) || fenced.is_some_and(|run| run.quarantined)
    }

    /// Removes a run that has ended. Returns `None` if it was aborted, released or fenced before.
    pub(crate) fn end(&mut self, epoch: Epoch, id: TaskId) -> Option<EndedRun> {
        let Some((queue, run, holder)) = self.take_run(epoch, id) else {
            if let Some(run) = self.fenced.remove(&(epoch, id)) {
                self.permits.remove(run.queue, run.phase);
            }
            return None;
        };
        self.permits.remove(queue, run.phase);
        Some(run.ended(queue, holder))
    }

    /// Aborts a run whose task gets a verdict at once. The run keeps its permit until it ends. Returns `None` if it has already ended.
    pub(crate) fn fence(&mut self, epoch: Epoch, id: TaskId) -> Option<EndedRun> {
        let (queue, run, holder) = self.take_run(epoch, id)?;
        run.abort.abort();
        let fenced = FencedRun {
            queue,
            phase: run.phase,
            quarantined: run.quarantined,
        };
        self.fenced.insert((epoch, id), fenced);
        Some(run.ended(queue, holder))
    }

    /// Removes a run from its claim. The worker owes a verdict, unless the claim is gone. Also returns the queue of the claim.
    fn take_run(&mut self, epoch: Epoch, id: TaskId) -> Option<(usize, TaskRun, Holder)> {
        let claim = self.claims.get_mut(&epoch)?;
        let run = claim.runs.remove(&id)?;
        let (queue, holder) = (claim.queue, claim.holder());
        claim.add_unconfirmed(1);
        self.remove_if_over(epoch);
        Some((queue, run, holder))
    }

    /// Records that the worker owes verdicts on `count` tasks of a claim that it has not started. Does nothing if the worker runs no
    /// task of the claim, since it then does not renew the lease.
    pub(crate) fn owe(&mut self, epoch: Epoch, count: usize) {
        if let Some(claim) = self.claims.get_mut(&epoch) {
            claim.add_unconfirmed(count);
        }
    }

    /// Records that the store has confirmed `count` verdicts of a claim.
    pub(crate) fn confirmed(&mut self, epoch: Epoch, count: usize) {
        if let Some(claim) = self.claims.get_mut(&epoch) {
            claim.unconfirmed = claim.unconfirmed.saturating_sub(count);
        }
        self.remove_if_over(epoch);
    }

    /// Aborts all runs. Returns those whose tasks are to be given back to the store.
    pub(crate) fn abort_all(&mut self) -> Vec<(Epoch, TaskId)> {
        for (_, run) in self.fenced.drain() {
            self.permits.remove(run.queue, run.phase);
        }
        self.remove(|run| {
            run.abort.abort();
            true
        })
    }

    /// Removes the runs that have not started, and prevents that they ever do. Returns those whose tasks are to be given
    /// back to the store.
    pub(crate) fn release_unstarted(&mut self) -> Vec<(Epoch, TaskId)> {
        self.remove(|run| run.start.take())
    }

    fn remove(&mut self, choose: impl Fn(&TaskRun) -> bool) -> Vec<(Epoch, TaskId)> {
        let mut owed = Vec::new();
        for (&epoch, claim) in &mut self.claims {
            let removed: Vec<_> = claim.runs.extract_if(|_, run| choose(run)).collect();
            for (_, run) in &removed {
                self.permits.remove(claim.queue, run.phase);
            }
            claim.add_unconfirmed(removed.len());
            if !claim.gone {
                owed.extend(removed.into_iter().map(|(id, _)| (epoch, id)));
            }
        }
        self.claims.retain(|_, claim| !claim.is_over());
        owed
    }

    /// Returns the time of the oldest renewal of the claims that are not gone.
    pub(crate) fn oldest_renewal(&self) -> Option<Duration> {
        let held = self.claims.values().filter(|claim| !claim.gone);
        held.map(|claim| claim.renewed).min()
    }

    /// Returns the time of the oldest renewal of the claims that are neither late nor gone.
    pub(crate) fn next_late(&self) -> Option<Duration> {
        let held = self.claims.values();
        let held = held.filter(|claim| claim.holder() == Holder::This);
        held.map(|claim| claim.renewed).min()
    }

    /// Returns the claims that are not gone and were last renewed at this time or earlier.
    pub(crate) fn older_than(&self, time: Duration) -> Vec<Epoch> {
        let claims = self.claims.iter();
        let old = claims.filter(|(_, claim)| !claim.gone && claim.renewed <= time);
        old.map(|(&epoch, _)| epoch).collect()
    }

    pub(crate) fn renew(&mut self, epoch: Epoch, time: Duration) {
        if let Some(claim) = self.claims.get_mut(&epoch) {
            claim.renewed = claim.renewed.max(time);
        }
    }

    /// Marks a claim as late and asks its runs to stop. Returns `false` if it already was late.
    pub(crate) fn mark_late(&mut self, epoch: Epoch) -> bool {
        let claim = self.claims.get_mut(&epoch);
        let Some(claim) = claim.filter(|claim| claim.holder() == Holder::This) else {
            return false;
        };
        claim.late = true;
        for run in claim.runs.values() {
            run.stop.set(StopReason::LeaseLost);
        }
        true
    }

    /// Marks a claim as gone, since the store holds no such claim: asks its runs to stop, and prevents that others start.
    /// Returns `true` if the claim was neither late nor gone before.
    ///
    /// A claim without runs is not marked: the store may have dropped it because it has accepted the last verdict. The answer
    /// to the verdicts will tell.
    pub(crate) fn mark_gone(&mut self, epoch: Epoch) -> bool {
        let claim = self.claims.get(&epoch);
        if claim.is_none_or(|claim| claim.runs.is_empty()) {
            return false;
        }
        let is_new = self.mark_late(epoch);
        if let Some(claim) = self.claims.get_mut(&epoch) {
            let unstarted = claim.runs.extract_if(|_, run| run.start.take());
            unstarted.for_each(|(_, run)| self.permits.remove(claim.queue, run.phase));
            (claim.gone, claim.unconfirmed) = (true, 0);
        }
        self.remove_if_over(epoch);
        is_new
    }

    /// Asks the runs of some tasks to stop.
    pub(crate) fn stop(&self, ids: &[TaskId], reason: StopReason) {
        for claim in self.claims.values() {
            let runs = ids.iter().filter_map(|id| claim.runs.get(id));
            runs.for_each(|run| run.stop.set(reason));
        }
    }

    /// Asks a run to stop. Returns `false` if it has ended.
    pub(crate) fn stop_run(&self, epoch: Epoch, id: TaskId, reason: StopReason) -> bool {
        let claim = self.claims.get(&epoch);
        let run = claim.and_then(|claim| claim.runs.get(&id));
        run.inspect(|run| run.stop.set(reason)).is_some()
    }

    /// Asks all runs to stop.
    pub(crate) fn stop_all(&self, reason: StopReason) {
        for claim in self.claims.values() {
            claim.runs.values().for_each(|run| run.stop.set(reason));
        }
    }

    fn remove_if_over(&mut self, epoch: Epoch) {
        if self.claims.get(&epoch).is_some_and(HeldClaim::is_over) {
            self.claims.remove(&epoch);
        }
    }
}

impl HeldClaim {
    fn holder(&self) -> Holder {
        match (self.late, self.gone) {
            (_, true) => Holder::Another,
            (true, _) => Holder::Uncertain,
            (false, _) => Holder::This,
        }
    }

    fn add_unconfirmed(&mut self, verdicts: usize) {
        if !self.gone {
            self.unconfirmed += verdicts;
        }
    }

    fn is_over(&self) -> bool {
        self.runs.is_empty() && self.unconfirmed == 0
    }
}

impl TaskRun {
    fn ended(self, queue: usize, holder: Holder) -> EndedRun {
        EndedRun {
            holder,
            queue,
            name: self.name,
            was_cancelled: self.stop.reason() == Some(StopReason::Cancelled),
        }
    }
}

impl StartToken {
    /// Takes the right. Returns `false` if it was taken before.
    pub(crate) fn take(&self) -> bool {
        self.0.add(1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = 7;
    const SENT: Duration = Duration::from_secs(1);

    fn end(claims: &mut Claims, epoch: Epoch, id: TaskId) -> Option<Holder> {
        claims.end(epoch, id).map(|run| run.holder)
    }

    fn fence(claims: &mut Claims, epoch: Epoch, id: TaskId) -> Option<Holder> {
        claims.fence(epoch, id).map(|run| run.holder)
    }

    async fn claims(ids: [TaskId; 2]) -> Claims {
        let mut claims = Claims::new(Permits::new(2, [2]));
        for id in ids {
            let run = TaskRun {
                name: "job".into(),
                stop: Stop::default(),
                start: StartToken::default(),
                quarantined: false,
                abort: tokio::spawn(async {}).abort_handle(),
                phase: Phase::Running,
            };
            claims.insert(0, (EPOCH, SENT), id, run);
        }
        claims
    }

    #[tokio::test]
    async fn a_claim_with_a_run_is_gone_once() {
        let ids = [TaskId::new(), TaskId::new()];
        let mut claims = claims(ids).await;
        assert_eq!(end(&mut claims, EPOCH, ids[0]), Some(Holder::This));
        assert!(claims.mark_gone(EPOCH));
        assert!(!claims.mark_gone(EPOCH));
        assert_eq!((claims.held(), claims.oldest_renewal()), (0, None));
    }

    #[tokio::test]
    async fn a_fenced_run_keeps_its_permit_until_it_ends() {
        let ids = [TaskId::new(), TaskId::new()];
        let mut claims = claims(ids).await;
        assert_eq!(fence(&mut claims, EPOCH, ids[0]), Some(Holder::This));
        assert_eq!(fence(&mut claims, EPOCH, ids[0]), None);
        claims.confirmed(EPOCH, 1);
        assert!(claims.mark_late(EPOCH));
        assert_eq!(fence(&mut claims, EPOCH, ids[1]), Some(Holder::Uncertain));
        claims.confirmed(EPOCH, 1);
        // The claim is no longer renewed.
        assert_eq!((claims.running(), claims.oldest_renewal()), (2, None));
        assert_eq!(end(&mut claims, EPOCH, ids[0]), None);
        assert_eq!(claims.running(), 1);
        assert_eq!(claims.abort_all(), []);
        assert_eq!(
            (claims.running(), end(&mut claims, EPOCH, ids[1])),
            (0, None)
        );
    }

    #[tokio::test]
    async fn a_fenced_run_of_a_quarantined_task_is_in_quarantine_until_it_ends() {
        let ids = [TaskId::new(), TaskId::new()];
        let mut claims = claims(ids).await;
        for run in claims
            .claims
            .values_mut()
            .flat_map(|it| it.runs.values_mut())
        {
            run.quarantined = true;
        }
        assert_eq!(end(&mut claims, EPOCH, ids[1]), Some(Holder::This));
        assert_eq!(fence(&mut claims, EPOCH, ids[0]), Some(Holder::This));
        assert!(claims.has_quarantined() && claims.is_quarantined(EPOCH, ids[0]));
        assert_eq!(end(&mut claims, EPOCH, ids[0]), None);
        assert!(!claims.has_quarantined() && !claims.is_quarantined(EPOCH, ids[0]));
    }

    #[tokio::test]
    async fn no_verdict_is_owed_on_a_fenced_run_of_a_claim_that_is_gone() {
        let ids = [TaskId::new(), TaskId::new()];
        let mut claims = claims(ids).await;
        for run in claims.claims.values().flat_map(|claim| claim.runs.values()) {
            assert!(run.start.take());
        }
        assert!(claims.mark_gone(EPOCH));
        for id in ids {
            assert_eq!(fence(&mut claims, EPOCH, id), Some(Holder::Another));
        }
        assert!(claims.claims.is_empty());
        assert_eq!(claims.running(), 2);
    }

    /// One task of a claim was given back at once, and the other one has ended.
    #[tokio::test]
    async fn a_claim_is_held_until_all_of_its_verdicts_are_confirmed() {
        let ids = [TaskId::new(), TaskId::new()];
        let mut claims = claims(ids).await;
        claims.owe(EPOCH, 1);
        for id in ids {
            assert_eq!(end(&mut claims, EPOCH, id), Some(Holder::This));
        }
        claims.confirmed(EPOCH, 1);
        assert_eq!(claims.oldest_renewal(), Some(SENT));
        claims.confirmed(EPOCH, 2);
        assert_eq!(claims.oldest_renewal(), None);
        // The worker runs no task of this claim.
        claims.owe(EPOCH + 1, 1);
        assert_eq!(claims.oldest_renewal(), None);
    }

    /// A renewal and the last verdict may be in flight together, and the answer to the renewal may arrive first.
    #[tokio::test]
    async fn a_claim_without_runs_is_not_gone() {
        let ids = [TaskId::new(), TaskId::new()];
        let mut claims = claims(ids).await;
        for id in ids {
            assert_eq!(end(&mut claims, EPOCH, id), Some(Holder::This));
        }
        assert!(!claims.mark_gone(EPOCH));
        assert_eq!(claims.oldest_renewal(), Some(SENT));
        claims.confirmed(EPOCH, 2);
        assert_eq!(claims.oldest_renewal(), None);
    }
}
