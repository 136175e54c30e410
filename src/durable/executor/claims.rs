//! [`Claims`]: what a worker holds.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::durable::context::Stop;
use crate::durable::store::Epoch;
use crate::durable::{StopReason, TaskId};
use crate::sync::Number;

/// What a worker holds: by claim, the tasks that it runs, and how many of those that have ended the
/// store does not know about yet. Times are since the machine was started.
#[derive(Default)]
pub(crate) struct Claims {
    claims: HashMap<Epoch, Holding>,
    /// The runs that there are, by phase.
    phases: Phases,
    /// Runs that ask for a permit: those that go on come before those that begin.
    resumes: VecDeque<Request>,
    starts: VecDeque<Request>,
}

/// A run that asks for a permit.
struct Request {
    epoch: Epoch,
    id: TaskId,
    grant: oneshot::Sender<()>,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has a permit.
    Running,
    /// It awaits durable handles, and needs no permit.
    Suspended,
    /// It asks for a permit, to begin or to go on.
    Ready,
}

/// The number of runs in each [`Phase`].
#[derive(Default)]
struct Phases([usize; 3]);

impl Phases {
    fn of(&mut self, phase: Phase) -> &mut usize {
        &mut self.0[phase as usize]
    }
}

/// What is left of a claim.
struct Holding {
    /// When the request was sent that the store has answered with the last renewal.
    renewed: Duration,
    /// It was not renewed in time: the store may have given the tasks to others, or may not.
    late: bool,
    /// The store has given the tasks to others.
    lost: bool,
    tasks: HashMap<TaskId, Run>,
    /// Those that have ended, and of which the store has not confirmed that it knows.
    untold: usize,
}

/// A run of a task.
pub(crate) struct Run {
    pub(crate) stop: Stop,
    pub(crate) start: Start,
    pub(crate) quarantined: bool,
    pub(crate) abort: AbortHandle,
    pub(crate) phase: Phase,
}

/// The right to begin a run, or to say that it never will: the first who takes it has it.
#[derive(Clone, Default)]
pub(crate) struct Start(StdArc<Number>);

/// Who holds a task whose run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This worker: the store is owed a verdict.
    Us,
    /// This worker, perhaps, and its run was told that it has lost it: the same.
    UsPerhaps,
    /// Another.
    Another,
}

impl Claims {
    /// Returns how many runs there are.
    pub(crate) fn held(&self) -> usize {
        self.phases.0.iter().sum()
    }

    /// Returns how many runs have a permit.
    pub(crate) fn running(&self) -> usize {
        self.phases.0[Phase::Running as usize]
    }

    /// Returns how many runs have a permit, or ask for one.
    pub(crate) fn active(&self) -> usize {
        self.held() - self.phases.0[Phase::Suspended as usize]
    }

    pub(crate) fn insert(&mut self, epoch: Epoch, renewed: Duration, id: TaskId, run: Run) {
        let holding = self.claims.entry(epoch).or_insert_with(|| Holding {
            renewed,
            late: false,
            lost: false,
            tasks: HashMap::new(),
            untold: 0,
        });
        *self.phases.of(run.phase) += 1;
        holding.tasks.insert(id, run);
    }

    /// A run that is to begin asks for a permit.
    pub(crate) fn ask_to_start(&mut self, epoch: Epoch, id: TaskId) -> oneshot::Receiver<()> {
        let (grant, granted) = oneshot::channel();
        self.starts.push_back(Request { epoch, id, grant });
        granted
    }

    /// A run awaits handles, and gives its permit back.
    pub(crate) fn suspend(&mut self, epoch: Epoch, id: TaskId) {
        self.change(epoch, id, Phase::Running, Phase::Suspended);
    }

    /// A run that was suspended asks for a permit.
    pub(crate) fn ask_to_resume(&mut self, epoch: Epoch, id: TaskId, grant: oneshot::Sender<()>) {
        self.change(epoch, id, Phase::Suspended, Phase::Ready);
        self.resumes.push_back(Request { epoch, id, grant });
    }

    /// Grants permits until this number is in use.
    pub(crate) fn grant(&mut self, permits: usize) {
        while self.running() < permits {
            let next = self.resumes.pop_front();
            let Some(request) = next.or_else(|| self.starts.pop_front()) else {
                return;
            };
            // One that has ended meanwhile needs none.
            if self.change(request.epoch, request.id, Phase::Ready, Phase::Running) {
                request.grant.send(()).ok();
            }
        }
    }

    /// Returns `false` if the run is not in the first of the phases.
    fn change(&mut self, epoch: Epoch, id: TaskId, from: Phase, to: Phase) -> bool {
        let holding = self.claims.get_mut(&epoch);
        let run = holding.and_then(|holding| holding.tasks.get_mut(&id));
        let Some(run) = run.filter(|run| run.phase == from) else {
            return false;
        };
        run.phase = to;
        *self.phases.of(from) -= 1;
        *self.phases.of(to) += 1;
        true
    }

    /// Whether a quarantined task runs.
    pub(crate) fn has_quarantined(&self) -> bool {
        let mut runs = self.claims.values().flat_map(|it| it.tasks.values());
        runs.any(|run| run.quarantined)
    }

    /// A run has ended. Nothing, if it was given up before.
    pub(crate) fn end(&mut self, epoch: Epoch, id: TaskId) -> Option<Holder> {
        let holding = self.claims.get_mut(&epoch)?;
        let run = holding.tasks.remove(&id)?;
        *self.phases.of(run.phase) -= 1;
        let holder = holding.holder();
        holding.owe(1);
        self.forget_if_over(epoch);
        Some(holder)
    }

    /// The store has answered that it knows the end of so many tasks.
    pub(crate) fn told(&mut self, epoch: Epoch, count: usize) {
        if let Some(holding) = self.claims.get_mut(&epoch) {
            holding.untold = holding.untold.saturating_sub(count);
        }
        self.forget_if_over(epoch);
    }

    /// Gives all runs up. Those of which the store is to know.
    pub(crate) fn give_up_all(&mut self) -> Vec<(Epoch, TaskId)> {
        self.give_up(|run| {
            run.abort.abort();
            true
        })
    }

    /// Gives up the runs that have not begun: they never will. Those of which the store is to know.
    pub(crate) fn give_up_unbegun(&mut self) -> Vec<(Epoch, TaskId)> {
        self.give_up(|run| run.start.take())
    }

    fn give_up(&mut self, choose: impl Fn(&Run) -> bool) -> Vec<(Epoch, TaskId)> {
        let mut owed = Vec::new();
        for (&epoch, holding) in &mut self.claims {
            let given_up: Vec<_> = holding.tasks.extract_if(|_, run| choose(run)).collect();
            for (_, run) in &given_up {
                *self.phases.of(run.phase) -= 1;
            }
            holding.owe(given_up.len());
            if !holding.lost {
                owed.extend(given_up.into_iter().map(|(id, _)| (epoch, id)));
            }
        }
        self.claims.retain(|_, holding| !holding.is_over());
        owed
    }

    /// The time of the oldest renewal of those that others do not have.
    pub(crate) fn oldest_renewal(&self) -> Option<Duration> {
        let held = self.claims.values().filter(|holding| !holding.lost);
        held.map(|holding| holding.renewed).min()
    }

    /// The same, of those that are not late.
    pub(crate) fn next_late(&self) -> Option<Duration> {
        let held = self.claims.values();
        let held = held.filter(|holding| holding.holder() == Holder::Us);
        held.map(|holding| holding.renewed).min()
    }

    /// The claims that were not renewed since then.
    pub(crate) fn older_than(&self, time: Duration) -> Vec<Epoch> {
        let claims = self.claims.iter();
        let old = claims.filter(|(_, holding)| !holding.lost && holding.renewed <= time);
        old.map(|(&epoch, _)| epoch).collect()
    }

    pub(crate) fn renew(&mut self, epoch: Epoch, time: Duration) {
        if let Some(holding) = self.claims.get_mut(&epoch) {
            holding.renewed = holding.renewed.max(time);
        }
    }

    /// A lease was not renewed in time: tells the runs. Whether it was not known.
    pub(crate) fn late(&mut self, epoch: Epoch) -> bool {
        let holding = self.claims.get_mut(&epoch);
        let Some(holding) = holding.filter(|holding| holding.holder() == Holder::Us) else {
            return false;
        };
        holding.late = true;
        for run in holding.tasks.values() {
            run.stop.set(StopReason::LeaseLost);
        }
        true
    }

    /// The store has no such claim of ours any more. If something still runs, others have it: tells
    /// the runs; those that have not begun never do. Whether it was not known that they may have.
    ///
    /// If nothing runs, the store may have dropped the claim because it has taken the last verdict: its
    /// answer to the verdicts will tell.
    pub(crate) fn lose(&mut self, epoch: Epoch) -> bool {
        let holding = self.claims.get(&epoch);
        if holding.is_none_or(|holding| holding.tasks.is_empty()) {
            return false;
        }
        let is_new = self.late(epoch);
        if let Some(holding) = self.claims.get_mut(&epoch) {
            let unbegun = holding.tasks.extract_if(|_, run| run.start.take());
            unbegun.for_each(|(_, run)| *self.phases.of(run.phase) -= 1);
            (holding.lost, holding.untold) = (true, 0);
        }
        self.forget_if_over(epoch);
        is_new
    }

    /// Tells the runs of some tasks to stop.
    pub(crate) fn stop(&self, ids: &[TaskId], reason: StopReason) {
        for holding in self.claims.values() {
            let runs = ids.iter().filter_map(|id| holding.tasks.get(id));
            runs.for_each(|run| run.stop.set(reason));
        }
    }

    /// Tells all runs to stop.
    pub(crate) fn stop_all(&self, reason: StopReason) {
        for holding in self.claims.values() {
            holding.tasks.values().for_each(|run| run.stop.set(reason));
        }
    }

    fn forget_if_over(&mut self, epoch: Epoch) {
        if self.claims.get(&epoch).is_some_and(Holding::is_over) {
            self.claims.remove(&epoch);
        }
    }
}

impl Holding {
    fn holder(&self) -> Holder {
        match (self.late, self.lost) {
            (_, true) => Holder::Another,
            (true, _) => Holder::UsPerhaps,
            (false, _) => Holder::Us,
        }
    }

    fn owe(&mut self, verdicts: usize) {
        if !self.lost {
            self.untold += verdicts;
        }
    }

    fn is_over(&self) -> bool {
        self.tasks.is_empty() && self.untold == 0
    }
}

impl Start {
    /// Takes the right; `false` if somebody has it already.
    pub(crate) fn take(&self) -> bool {
        self.0.add(1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = 7;
    const SENT: Duration = Duration::from_secs(1);

    async fn claims(ids: [TaskId; 2]) -> Claims {
        let mut claims = Claims::default();
        for id in ids {
            let run = Run {
                stop: Stop::default(),
                start: Start::default(),
                quarantined: false,
                abort: tokio::spawn(async {}).abort_handle(),
                phase: Phase::Running,
            };
            claims.insert(EPOCH, SENT, id, run);
        }
        claims
    }

    #[tokio::test]
    async fn a_claim_of_which_something_runs_is_lost_once() {
        let ids = [TaskId::new(), TaskId::new()];
        let mut claims = claims(ids).await;
        assert_eq!(claims.end(EPOCH, ids[0]), Some(Holder::Us));
        assert!(claims.lose(EPOCH));
        assert!(!claims.lose(EPOCH));
        assert_eq!((claims.held(), claims.oldest_renewal()), (0, None));
    }

    /// A beat and the last verdict may be under way together; and the answer to the beat may come first.
    #[tokio::test]
    async fn a_claim_whose_last_verdict_is_under_way_is_not_lost() {
        let ids = [TaskId::new(), TaskId::new()];
        let mut claims = claims(ids).await;
        for id in ids {
            assert_eq!(claims.end(EPOCH, id), Some(Holder::Us));
        }
        assert!(!claims.lose(EPOCH));
        assert_eq!(claims.oldest_renewal(), Some(SENT));
        claims.told(EPOCH, 2);
        assert_eq!(claims.oldest_renewal(), None);
    }
}
