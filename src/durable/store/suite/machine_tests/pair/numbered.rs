//! Numbered requests, and the comparison of their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Claimed, Outcome, Pair, equal, refusal, same};
use crate::durable::TaskId;
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::machine_tests::TurnStep;
use crate::durable::store::suite::machine_tests::requests::{self, Request, TurnRequest};
use crate::durable::store::{Epoch, NewTask, TurnAnswer, Verdict};

/// By claim, as the test numbers them.
type Verdicts = Vec<(usize, Vec<(TaskId, Verdict)>)>;

impl<H: Harness> Pair<H> {
    pub(super) async fn turn(&mut self, step: &TurnStep) -> Outcome {
        let at = self.session(step.session).await;
        let session = &mut self.sessions[at];
        let after_turn = matches!(session.sent.last(), Some((_, Request::Turn(_))));
        if !(step.same_number && after_turn) {
            session.number += 1;
        }
        let verdicts = self.verdicts(step);
        let newest =
            |pick: u8| -> Option<usize> { self.epochs[0].len().checked_sub(usize::from(pick) + 1) };
        let floor = step.floor;
        let request = TurnRequest {
            verdicts,
            received: step.received.and_then(newest),
            floor: floor.and_then(|(pick, above)| Some((newest(pick)?, above))),
            want: step.want,
            want_bytes: step.want_bytes,
            lease: step.lease,
            quarantined: step.quarantined,
            go_idle: step.go_idle,
        };
        self.send(at, Request::Turn(request)).await
    }

    /// Grouped by claim, each task once.
    fn verdicts(&mut self, step: &TurnStep) -> Verdicts {
        let mut groups = BTreeMap::new();
        let mut chosen: Vec<Claimed> = Vec::new();
        for (pick, said) in &step.verdicts {
            let newest = self.claimed.iter().rev().nth(usize::from(*pick)).copied();
            let Some(one) = newest.filter(|one| !chosen.contains(one)) else {
                continue;
            };
            chosen.push(one);
            self.marks += 1;
            let verdicts: &mut Vec<_> = groups.entry(one.claim).or_default();
            verdicts.push((one.task, said.verdict(self.marks)));
        }
        // A store may apply the successes of a claim first. The order matters if a task dies in the same turn as its child ends.
        let successes_first =
            |(_, verdict): &(TaskId, Verdict)| !matches!(verdict, Verdict::Done(_));
        groups
            .values_mut()
            .for_each(|all| all.sort_by_key(successes_first));
        groups.into_iter().collect()
    }

    pub(super) async fn again(&mut self, choice: u8, back: usize) -> Outcome {
        if self.sessions.is_empty() {
            return Ok(());
        }
        // Closed ones, too.
        let session = usize::from(choice) % self.sessions.len();
        let sent = &self.sessions[session].sent;
        match sent.iter().rev().nth(back).cloned() {
            Some((number, request)) => self.send_as(session, number, &request).await,
            None => Ok(()),
        }
    }

    pub(super) async fn send(&mut self, session: usize, request: Request) -> Outcome {
        let number = self.sessions[session].number;
        let sent = self.send_as(session, number, &request).await;
        self.sessions[session].sent.push((number, request));
        sent
    }

    async fn send_as(&mut self, session: usize, number: u64, request: &Request) -> Outcome {
        match request {
            Request::Enqueue(tasks) => self.send_enqueue(session, number, tasks).await,
            Request::Turn(turn) => self.send_turn(session, number, turn).await,
        }
    }

    async fn send_enqueue(&self, session: usize, number: u64, tasks: &[NewTask]) -> Outcome {
        let [model, tested] = self.sessions[session].ids;
        let stores = self.stores_of(session);
        let stored = stores[0]
            .0
            .enqueue(requests::enqueue(model, number, tasks))
            .await;
        let request = requests::enqueue(tested, number, tasks);
        same((stored, stores[1].0.enqueue(request).await))
    }

    async fn send_turn(&mut self, session: usize, number: u64, turn: &TurnRequest) -> Outcome {
        let [model, tested] = self.sessions[session].ids;
        let sent = &self.sessions[session].sent;
        let is_repeated = sent.iter().any(|&(other, _)| other == number);
        let stores = self.stores_of(session);
        let request = turn.to(model, number, &self.epochs[0]);
        let expected = stores[0].0.turn(request).await;
        let request = turn.to(tested, number, &self.epochs[1]);
        let answered = stores[1].0.turn(request).await;
        let both = (expected.map_err(refusal), answered.map_err(refusal));
        match both {
            (Ok(expected), Ok(answered)) => {
                let process = self.sessions[session].process;
                let floors = [0, 1].map(|side| turn.floor(&self.epochs[side]));
                let claims = self.epochs[0].len();
                self.turned(process, floors, is_repeated, expected, answered)?;
                match self.epochs[0].len() > claims {
                    true => self.check_limit(session).await,
                    false => Ok(()),
                }
            }
            (expected, answered) => equal("a turn", &expected, &answered),
        }
    }

    /// Checks that a session has claimed no more tasks than the limit of its queue allows.
    async fn check_limit(&self, session: usize) -> Outcome {
        let limit = self.limit.filter(|_| self.sessions[session].is_queued);
        let Some(limit) = limit else {
            return Ok(());
        };
        let [_, tested] = self.stores_of(session);
        let info = tested.0.queue(requests::queue(true)).await;
        let running = info.map_err(refusal)?.running;
        match running <= limit {
            true => Ok(()),
            false => Err(format!("{running} tasks run, more than {limit}")),
        }
    }

    fn turned(
        &mut self,
        process: usize,
        floors: [Epoch; 2],
        is_repeated: bool,
        expected: TurnAnswer,
        answered: TurnAnswer,
    ) -> Outcome {
        let context = || format!("\n  model: {expected:?}\n  store: {answered:?}");
        // A repeated turn drains nothing. So a store may have to look again, even if no task in its draining lists may start. If the
        // turn was to go idle, it says so by `next`.
        let same_more = expected.more == answered.more || is_repeated && answered.more;
        let looks_again = is_repeated && answered.next == Some(Duration::ZERO);
        let same_tick = expected.next_tick == answered.next_tick;
        let same_rest = expected.refused == answered.refused && same_more && same_tick;
        // The store may have to check whether others have died.
        let foreign = self.opened.iter().any(|&other| other != process);
        let same_next = expected.next == answered.next
            || looks_again
            || foreign
                && answered
                    .next
                    .is_some_and(|next| expected.next.is_none_or(|it| next < it));
        let same_claim = match (&expected.claim, &answered.claim) {
            (Some(expected), Some(answered)) => {
                let known = self.claim([expected.epoch, answered.epoch], floors);
                if let Some((claim, true)) = known {
                    let tasks = expected.tasks.iter().map(|task| task.id);
                    let claimed = tasks.map(|task| Claimed {
                        claim,
                        task,
                        process,
                    });
                    self.claimed.extend(claimed);
                }
                known.is_some() && expected.tasks == answered.tasks
            }
            (expected, answered) => expected == answered,
        };
        match same_rest && same_next && same_claim {
            true => Ok(()),
            false => Err(format!("a turn is answered otherwise:{}", context())),
        }
    }

    /// The claim of these epochs, and whether it is new. None: they are not those of one claim, or
    /// do not rise, or are not above these floors.
    fn claim(&mut self, epochs: [Epoch; 2], floors: [Epoch; 2]) -> Option<(usize, bool)> {
        let known = self.epochs[0].iter().position(|&epoch| epoch == epochs[0]);
        if let Some(claim) = known {
            return (self.epochs[1][claim] == epochs[1]).then_some((claim, false));
        }
        let rises = |side: usize| {
            let epoch = epochs[side];
            self.epochs[side].last() < Some(&epoch) && floors[side] < epoch
        };
        let both = rises(0) && rises(1);
        self.epochs[0].push(epochs[0]);
        self.epochs[1].push(epochs[1]);
        both.then(|| (self.epochs[0].len() - 1, true))
    }
}
