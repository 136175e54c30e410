//! Commands fail while steps are stored and removed, and while tasks are suspended and woken.

use super::*;
use crate::durable::store::{
    Change, ChangeAnswer, NewStep, SignalAnswer, StepAnswer, StepKind, StepName, StepReplay,
};

fn step(epoch: Epoch, number: u64, name: &str) -> NewStep {
    NewStep {
        id: id(number),
        epoch,
        name: StepName::new(StepKind::Step, name).unwrap(),
        value: name.as_bytes().to_vec(),
    }
}

/// Returns a verdict by which a task waits for this number of steps.
fn suspended(claim: &Claim, number: u64, until: u32) -> Vec<Verdicts> {
    let verdict = Verdict::Suspend {
        after: HOUR,
        until: Some(until),
        waits_for: String::new(),
    };
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: vec![(id(number), verdict)],
    }]
}

impl Scene {
    async fn steps(&self, number: u64) -> Vec<String> {
        let steps = self.other.store.steps(id(number)).await.unwrap();
        steps.into_iter().map(|step| step.name).collect()
    }

    async fn store_steps(&self, steps: Vec<NewStep>) {
        let len = steps.len();
        let answers = self.worker.store.store_steps(steps).await.unwrap();
        assert_eq!(answers, vec![StepAnswer::Stored; len]);
    }

    async fn signal(&self, number: u64) -> Result<SignalAnswer, Failure> {
        let name = StepName::new(StepKind::Signal, "go").unwrap();
        self.worker
            .store
            .signal(id(number), name, b"go".to_vec())
            .await
    }

    /// Claims a task that waits, and ends those before it.
    async fn claim_of(&self, number: u64) -> Claim {
        loop {
            let claim = self.other.claim(1).await;
            if claim.tasks[0].id == id(number) {
                return claim;
            }
            self.other.turn(done(&claim), 0).await;
        }
    }

    async fn replay(&self, number: u64, nonce: u64) -> Result<Vec<ChangeAnswer>, Failure> {
        let step = StepName::new(StepKind::Step, "b").unwrap();
        let change = Change::ReplayFrom(StepReplay::new(step, nonce));
        self.worker.store.change(vec![id(number)], change).await
    }

    /// Returns `true` if the next turn makes a task ready, at once.
    async fn is_due(&self, number: u64) -> bool {
        self.other.turn(Vec::new(), 0).await;
        let states = self.other.store.status(vec![id(number)]).await.unwrap();
        states == [TaskState::Waiting]
    }
}

#[tokio::test]
async fn each_step_is_stored_once() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let epoch = scene.claim.epoch;
        scene.store_steps(vec![step(epoch, 10, "a")]).await;
        // The worker does not hold the last task.
        let all = vec![
            step(epoch, 10, "b"),
            step(epoch, 10, "a"),
            step(epoch, 11, "b"),
            step(epoch, 20, "b"),
        ];
        let store = || scene.worker.store.store_steps(all.clone());
        let (answers, has_failed) = scene.send(trial, true, store).await;
        let answers = answers.unwrap();
        // A step that was stored before the failure is found.
        let is_stored = |at: usize, value: &[u8]| {
            answers[at] == StepAnswer::Stored || answers[at] == StepAnswer::Found(value.to_vec())
        };
        assert!(
            is_stored(0, b"b") && is_stored(2, b"b"),
            "{trial:?}: {answers:?}"
        );
        assert_eq!(answers[1], StepAnswer::Found(b"a".to_vec()), "{trial:?}");
        assert_eq!(answers[3], StepAnswer::Refused, "{trial:?}");
        assert_eq!(scene.steps(10).await, ["step:a", "step:b"], "{trial:?}");
        assert_eq!(scene.steps(11).await, ["step:b"], "{trial:?}");
        // Both tasks have as many steps as they wait for.
        for (number, until) in [(10, 2), (11, 1)] {
            scene
                .worker
                .turn(suspended(&scene.claim, number, until), 0)
                .await;
            assert!(scene.is_due(number).await, "{trial:?}");
        }
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_signal_is_stored_and_wakes_its_task_or_neither() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        scene.worker.turn(suspended(&scene.claim, 10, 1), 0).await;
        let send = || scene.signal(10);
        let (answer, has_failed) = scene.send(trial, false, send).await;
        if answer.is_err() {
            assert_eq!(scene.steps(10).await, [""; 0], "{trial:?}");
            assert!(!scene.is_due(10).await, "{trial:?}");
            assert_eq!(
                scene.signal(10).await.unwrap(),
                SignalAnswer::Stored,
                "{trial:?}"
            );
        }
        assert_eq!(scene.steps(10).await, ["signal:go"], "{trial:?}");
        assert!(scene.is_due(10).await, "{trial:?}");
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_suspension_takes_effect_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let epoch = scene.claim.epoch;
        scene
            .store_steps(vec![step(epoch, 10, "a"), step(epoch, 18, "a")])
            .await;
        // The first one waits for a signal, and the second one, which has failed before, has the step for which it waits.
        let mut verdicts = suspended(&scene.claim, 10, 2);
        verdicts[0]
            .tasks
            .extend(suspended(&scene.claim, 18, 1).remove(0).tasks);
        let turn = scene.worker.new_turn(verdicts, 0);
        let send = || scene.worker.store.turn(Arc::clone(&turn));
        let (turned, has_failed) = scene.send(trial, true, send).await;
        assert!(turned.is_ok(), "{trial:?}: {turned:?}");
        assert!(!scene.is_due(10).await, "{trial:?}");
        assert!(scene.is_due(18).await, "{trial:?}");
        assert_eq!(
            scene.other.store.errors(id(18)).await.unwrap(),
            [],
            "{trial:?}"
        );
        assert_eq!(
            scene.signal(10).await.unwrap(),
            SignalAnswer::Stored,
            "{trial:?}"
        );
        assert!(scene.is_due(10).await, "{trial:?}");
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_retry_of_a_suspended_task_waits_for_no_steps() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        scene.worker.turn(suspended(&scene.claim, 10, 1), 0).await;
        assert_eq!(scene.signal(10).await.unwrap(), SignalAnswer::Stored);
        scene.other.turn(Vec::new(), 0).await;
        let claim = scene.claim_of(10).await;
        let turn = scene.other.new_turn(again(&claim), 0);
        let send = || scene.other.store.turn(Arc::clone(&turn));
        let (turned, has_failed) = scene.send(trial, true, send).await;
        assert!(turned.is_ok(), "{trial:?}: {turned:?}");
        let name = StepName::new(StepKind::Signal, "other").unwrap();
        let signal = scene.worker.store.signal(id(10), name, Vec::new()).await;
        assert_eq!(signal.unwrap(), SignalAnswer::Stored, "{trial:?}");
        assert!(!scene.is_due(10).await, "{trial:?}");
        has_failed
    })
    .await;
}

/// Replays a task from its step `b`. If this fails, nothing has changed, and it is repeated.
async fn assert_replayed_from(scene: &Scene, trial: Trial, number: u64) -> bool {
    let store = &scene.worker.store;
    let replay = || scene.replay(number, 7);
    let status = async || store.status(vec![id(number)]).await.unwrap().remove(0);
    let before = status().await;
    let (answer, has_failed) = scene.send(trial, false, replay).await;
    if let Err(failure) = answer {
        assert_eq!(failure.effect, Effect::None, "{trial:?}: {failure}");
        assert_eq!(status().await, before, "{trial:?}");
        assert_eq!(
            scene.steps(number).await,
            ["step:a", "step:b", "step:c"],
            "{trial:?}"
        );
        assert_eq!(
            replay().await.unwrap(),
            [ChangeAnswer::Changed],
            "{trial:?}"
        );
    }
    assert_eq!(status().await, TaskState::Waiting, "{trial:?}");
    assert_eq!(
        scene.steps(number).await,
        ["step:a", "replay:2"],
        "{trial:?}"
    );
    for (nonce, expected) in [(7, ChangeAnswer::Changed), (8, ChangeAnswer::Same)] {
        let answers = scene.replay(number, nonce).await.unwrap();
        assert_eq!(answers, [expected], "{trial:?}");
    }
    has_failed
}

#[tokio::test]
async fn a_task_is_replayed_from_a_step_as_a_whole() {
    needs_redis!();
    let dead = Verdict::Dead {
        reason: DeadReason::Fatal,
        error: "it is bad".into(),
        took: None,
    };
    let suspend = Verdict::Suspend {
        after: HOUR,
        until: Some(9),
        waits_for: "text".into(),
    };
    for verdict in [dead, suspend, Verdict::Release] {
        for_each_command(async |scene, trial| {
            let epoch = scene.claim.epoch;
            let steps = ["a", "b", "c"].map(|name| step(epoch, 10, name));
            scene.store_steps(steps.to_vec()).await;
            let tasks = vec![(id(10), verdict.clone())];
            scene.worker.turn(vec![Verdicts { epoch, tasks }], 0).await;
            assert_replayed_from(scene, trial, 10).await
        })
        .await;
    }
}

/// A dead letter has lost a step. A replay that fails does not hide that.
#[tokio::test]
async fn lost_steps_are_forgotten_with_the_replay() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let epoch = scene.claim.epoch;
        let steps = ["a", "b"].map(|name| step(epoch, 10, name));
        scene.store_steps(steps.to_vec()).await;
        let dead = Verdict::Dead {
            reason: DeadReason::Fatal,
            error: "it is bad".into(),
            took: None,
        };
        let tasks = vec![(id(10), dead)];
        scene.worker.turn(vec![Verdicts { epoch, tasks }], 0).await;
        scene.run(&format!(
            "{ID} return call('HDEL', 'steps:' .. id(10), 'step:b')"
        ));
        let store = &scene.worker.store;
        let replay = || store.replay_dead_letters(DeadFilter::ids([id(10)]));
        let (replayed, has_failed) = scene.send(trial, false, replay).await;
        if replayed.is_err() {
            let failure = store.steps(id(10)).await.unwrap_err();
            assert_eq!(failure.cause, Cause::Corrupt, "{trial:?}");
            assert_eq!(replay().await.unwrap(), 1, "{trial:?}");
        }
        assert_eq!(scene.steps(10).await, ["step:a"], "{trial:?}");
        has_failed
    })
    .await;
}

/// A command that removes steps fails after the end of the task.
#[tokio::test]
async fn another_task_never_has_the_steps_of_an_earlier_one() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let epoch = scene.claim.epoch;
        let numbers = [10, 14, 15, 16];
        let steps = numbers.map(|number| step(epoch, number, "a"));
        scene.store_steps(steps.to_vec()).await;
        let turn = scene.worker.new_turn(all_verdicts(&scene.claim), 0);
        let send = || scene.worker.store.turn(Arc::clone(&turn));
        let (_, has_failed) = scene.send(trial, true, send).await;
        // This one had no retention. The dead letter keeps its steps.
        scene.worker.enqueue([task(14)]).await;
        assert_eq!(scene.steps(14).await, [""; 0], "{trial:?}");
        assert_eq!(scene.steps(16).await, ["step:a"], "{trial:?}");
        let filter = DeadFilter::ids([id(16)]);
        scene
            .worker
            .store
            .delete_dead_letters(filter)
            .await
            .unwrap();
        assert_eq!(scene.steps(16).await, [""; 0], "{trial:?}");
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_new_task_never_has_the_steps_of_an_earlier_one() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let epoch = scene.claim.epoch;
        scene.store_steps(vec![step(epoch, 10, "a")]).await;
        // A script that has failed has left steps behind.
        scene.run(&format!(
            "{ID} call('HSET', 'steps', id({NEW}), '\\0\\0\\0\\1')
            return call('HSET', 'steps:' .. id({NEW}), 'step:a', string.rep('\\0', 10) .. 'a', '', string.rep('\\0', 8))"
        ));
        let request = scene.worker.new_enqueue([task(NEW), delayed(NEW + 1, SECOND)]);
        let send = || scene.worker.store.enqueue(Arc::clone(&request));
        let (stored, has_failed) = scene.send(trial, true, send).await;
        assert!(stored.is_ok(), "{trial:?}: {stored:?}");
        assert_eq!(scene.steps(NEW).await, [""; 0], "{trial:?}");
        has_failed
    })
    .await;
}

/// If the replay fails, the task stays delayed, and the same request makes it due.
#[tokio::test]
async fn a_task_is_replayed_from_the_same_step_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let epoch = scene.claim.epoch;
        let steps = ["a", "b", "c"].map(|name| step(epoch, 10, name));
        scene.store_steps(steps.to_vec()).await;
        scene.worker.turn(suspended(&scene.claim, 10, 9), 0).await;
        scene.replay(10, 7).await.unwrap();
        let claim = scene.claim_of(10).await;
        scene.other.turn(suspended(&claim, 10, 9), 0).await;
        let replay = || scene.replay(10, 8);
        let (answer, has_failed) = scene.send(trial, false, replay).await;
        if let Err(failure) = answer {
            assert_eq!(failure.effect, Effect::None, "{trial:?}: {failure}");
            assert!(!scene.is_due(10).await, "{trial:?}");
            let answers = replay().await.unwrap();
            assert_eq!(answers, [ChangeAnswer::Changed], "{trial:?}");
        }
        assert!(scene.is_due(10).await, "{trial:?}");
        assert_eq!(scene.steps(10).await, ["step:a", "replay:2"], "{trial:?}");
        // The request has been recorded, and is not made again.
        let claim = scene.claim_of(10).await;
        assert_eq!(claim.tasks[0].steps, 2, "{trial:?}");
        scene.other.turn(suspended(&claim, 10, 9), 0).await;
        assert_eq!(replay().await.unwrap(), [ChangeAnswer::Changed]);
        assert!(!scene.is_due(10).await, "{trial:?}");
        has_failed
    })
    .await;
}
