//! Commands fail while children end, and while their parents are told.

use super::super::super::notes;
use super::*;
use crate::durable::store::redis::tests::pushes_tests::rest;
use crate::durable::store::{ChildEnd, NewStep, StepAnswer, StepKind, StepName};

/// Returns a child of task 10, which the worker holds.
fn child(number: u64) -> NewTask {
    NewTask {
        parent: Some(id(10)),
        ..task(number)
    }
}

fn ended(number: u64, state: TaskState) -> (String, ChildEnd) {
    let name = StepName::of_child(id(number));
    (name.as_str().to_owned(), ChildEnd::Ended(state))
}

impl Scene {
    /// Stores children of task 10, which are claimed. Returns the claim.
    async fn with_children(&self, children: impl IntoIterator<Item = NewTask>) -> Claim {
        while let Some(claim) = self.other.turn(Vec::new(), 9).await.claim {
            self.other.turn(done(&claim), 0).await;
        }
        self.other.enqueue(children).await;
        self.other.claim(9).await
    }

    /// Suspends task 10 until it has this number of steps.
    async fn suspend(&self, until: u32) {
        let verdict = Verdict::Suspend {
            after: HOUR,
            until: Some(until),
            waits_for: String::new(),
        };
        let verdicts = Verdicts {
            epoch: self.claim.epoch,
            tasks: vec![(id(10), verdict)],
        };
        let turned = self.worker.turn(vec![verdicts], 0).await;
        assert_eq!(turned.refused, []);
    }

    /// Returns the number of idle sessions. A session that is woken is not idle any more.
    fn idle_sessions(&self) -> redis::Value {
        self.run(
            "local n = 0
            for _, key in ipairs(redis.call('KEYS', ARGV[1] .. 'idle:*')) do n = n + redis.call('ZCARD', key) end
            return n",
        )
    }

    async fn child_ends(&self) -> Vec<(String, ChildEnd)> {
        let steps = self.other.store.steps(id(10)).await.unwrap();
        let ends = steps.into_iter();
        let mut ends: Vec<_> = ends
            .map(|step| (step.name, ChildEnd::decode(&step.value).expect("an end")))
            .collect();
        ends.sort_by(|one, other| one.0.cmp(&other.0));
        ends
    }

    /// Waits until these ends are steps of task 10, and nothing else: a note may have been left to the worker that takes the next turn.
    async fn has_ends(&self, expected: &[(String, ChildEnd)], trial: Trial) {
        let end = Instant::now() + DEADLINE;
        loop {
            self.other.turn(Vec::new(), 0).await;
            let ends = self.child_ends().await;
            let is_left = self.ask::<bool>(&["EXISTS", &self.key("notes")]);
            if ends == expected && !is_left {
                return;
            }
            assert!(Instant::now() < end, "{trial:?}: {ends:?}");
        }
    }

    /// Waits until task 10 is ready.
    async fn is_woken(&self, trial: Trial) {
        let end = Instant::now() + DEADLINE;
        loop {
            self.other.turn(Vec::new(), 0).await;
            let states = self.other.store.status(vec![id(10)]).await.unwrap();
            if states == [TaskState::Waiting] {
                return;
            }
            assert!(Instant::now() < end, "{trial:?}: {states:?}");
        }
    }
}

#[tokio::test]
async fn children_end_and_their_parent_is_told_or_neither() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let claim = scene.with_children((NEW..NEW + 3).map(child)).await;
        scene.suspend(3).await;
        let dead = Verdict::Dead {
            reason: DeadReason::Fatal,
            error: "error".into(),
            took: None,
        };
        scene.other.store.cancel(vec![id(NEW + 2)]).await.unwrap();
        let verdicts = Verdicts {
            epoch: claim.epoch,
            tasks: vec![
                (id(NEW), Verdict::Done(b"output".to_vec())),
                (id(NEW + 1), dead),
                (id(NEW + 2), Verdict::Release),
            ],
        };
        let turn = scene.other.new_turn(vec![verdicts], 0);
        let send = || scene.other.store.turn(Arc::clone(&turn));
        let (turned, has_failed) = scene.send(trial, false, send).await;
        if turned.is_err() {
            // Some of the verdicts may have taken effect.
            let numbers = [NEW, NEW + 1, NEW + 2];
            let states = scene.other.store.status(numbers.map(id).to_vec()).await;
            let ends = states.unwrap().into_iter().zip(numbers);
            let is_running = |(state, _): &(TaskState, u64)| *state == TaskState::Running;
            let expected: Vec<_> = ends
                .filter(|it| !is_running(it))
                .map(|(state, number)| ended(number, state))
                .collect();
            scene.has_ends(&expected, trial).await;
            scene.other.store.turn(Arc::clone(&turn)).await.unwrap();
        }
        let dead = TaskState::Dead {
            reason: DeadReason::Fatal,
            error: "error".into(),
        };
        let expected = [
            ended(NEW, TaskState::Done(b"output".to_vec())),
            ended(NEW + 1, dead),
            ended(NEW + 2, TaskState::Cancelled),
        ];
        scene.has_ends(&expected, trial).await;
        scene.is_woken(trial).await;
        has_failed
    })
    .await;
}

#[tokio::test]
async fn waiting_children_are_cancelled_and_their_parent_is_told_or_neither() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        scene.other.enqueue([child(NEW)]).await;
        let later = NewTask {
            delay: HOUR,
            ..child(NEW + 1)
        };
        scene.other.enqueue([later]).await;
        scene.suspend(2).await;
        let children = vec![id(NEW), id(NEW + 1)];
        let send = || scene.other.store.cancel(children.clone());
        let (cancelled, has_failed) = scene.send(trial, false, send).await;
        if cancelled.is_err() {
            scene.has_ends(&[], trial).await;
            assert_eq!(send().await.unwrap(), 2, "{trial:?}");
        }
        let expected = [
            ended(NEW, TaskState::Cancelled),
            ended(NEW + 1, TaskState::Cancelled),
        ];
        scene.has_ends(&expected, trial).await;
        scene.is_woken(trial).await;
        has_failed
    })
    .await;
}

/// The worker of a child has died.
#[tokio::test]
async fn a_child_crashes_and_its_parent_is_told_or_neither() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let fragile = NewTask {
            max_crashes: 1,
            ..child(NEW)
        };
        let claim = scene.with_children([fragile]).await;
        scene.other.store.renew(vec![claim.epoch]).await.unwrap();
        scene.suspend(1).await;
        scene.clock.advance(LEASE);
        // The first turn makes the claim a suspect.
        scene.worker.turn(Vec::new(), 0).await;
        scene.clock.advance(LEASE);
        let turn = scene.worker.new_turn(Vec::new(), 0);
        let send = || scene.worker.store.turn(Arc::clone(&turn));
        let (_, has_failed) = scene.send(trial, true, send).await;
        let dead = TaskState::Dead {
            reason: DeadReason::Crashes,
            error: String::new(),
        };
        scene.has_ends(&[ended(NEW, dead)], trial).await;
        scene.is_woken(trial).await;
        has_failed
    })
    .await;
}

/// Each script may fail at each command, or have run before.
#[tokio::test]
async fn notes_are_relayed_whatever_fails() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let own = NewStep {
            id: id(10),
            epoch: scene.claim.epoch,
            name: StepName::of_child(id(NEW + 1)),
            value: b"c".to_vec(),
        };
        let stored = scene.worker.store.store_steps(vec![own]).await.unwrap();
        assert_eq!(stored, [StepAnswer::Stored]);
        scene.suspend(2).await;
        scene.run(&format!(
            "{ID} call('HSET', 'meta', 'steps', 2)
            return call('HSET', 'notes', id({NEW}), id(10) .. 'doutput', id({NEW} + 1), id(10) .. 'dother', id({NEW} + 2), id(77) .. 'c')"
        ));
        let send = || notes::relay_all(&scene.other.store.inner, 0);
        let (_, has_failed) = scene.send(trial, false, send).await;
        let expected = [
            ended(NEW, TaskState::Done(b"output".to_vec())),
            ended(NEW + 1, TaskState::Cancelled),
        ];
        scene.has_ends(&expected, trial).await;
        scene.is_woken(trial).await;
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_child_whose_parent_has_steps_of_its_own_ends_once() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let claim = scene.with_children([child(NEW)]).await;
        let own = NewStep {
            id: id(10),
            epoch: scene.claim.epoch,
            name: StepName::new(StepKind::Step, "own").unwrap(),
            value: b"1".to_vec(),
        };
        let stored = scene.worker.store.store_steps(vec![own]).await.unwrap();
        assert_eq!(stored, [StepAnswer::Stored]);
        scene.suspend(2).await;
        let turn = scene.other.new_turn(done(&claim), 0);
        let send = || scene.other.store.turn(Arc::clone(&turn));
        let (turned, has_failed) = scene.send(trial, true, send).await;
        assert!(turned.is_ok(), "{trial:?}: {turned:?}");
        scene.is_woken(trial).await;
        let steps = scene.other.store.steps(id(10)).await.unwrap();
        assert_eq!(steps.len(), 2, "{trial:?}");
        has_failed
    })
    .await;
}

/// Maintenance ends a child that is lost, so its parent is due. If a later transaction of the same pass fails, the pass goes on, and wakes
/// a worker. (A part that is not a transaction ends the pass if it fails. Such parts come later; if one of them fails before the wake-up,
/// no worker is woken.)
#[tokio::test]
async fn maintenance_that_fails_wakes_a_worker_for_a_parent() {
    needs_redis!();
    let are_woken = Mutex::new(Vec::new());
    for_each_trial(1.., &[false], async |scene, trial| {
        scene.begin_census().await;
        scene.with_children([child(NEW)]).await;
        scene.run(&format!(
            "{ID} return call('HSET', 'alive', id({ORPHAN}), call('HGET', 'alive', id({NEW})))"
        ));
        scene.suspend(1).await;
        let turned = rest(&scene.worker, 1, ClaimPushes::default()).await;
        assert_eq!(turned.claim, None);
        let idle = scene.idle_sessions();
        let store = &scene.other.store;
        let (answer, has_failed) = scene.send(trial, false, || store.maintain(100)).await;
        let is_due = scene.child_ends().await.len() == 1;
        if answer.is_err() && is_due {
            lock(&are_woken).push(scene.idle_sessions() != idle);
        }
        has_failed
    })
    .await;
    let are_woken = lock(&are_woken);
    assert!(
        are_woken.windows(2).any(|it| *it == [true, false]),
        "{are_woken:?}"
    );
}
