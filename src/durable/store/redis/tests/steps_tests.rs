//! Steps that are lost, and rows of steps that belong to no task.

use super::scene::Scene;
use super::*;
use crate::durable::Refusal;
use crate::durable::store::{Change, ChangeAnswer, NewStep, StepAnswer, StepKind, StepName};

/// Claims task 1, and stores two of its steps. Returns the claim.
async fn with_steps(scene: &Scene) -> Claim {
    scene.worker.enqueue([task(1)]).await;
    let claim = scene.worker.claim(1).await;
    let steps = ["a", "b"].map(|name| NewStep {
        id: id(1),
        epoch: claim.epoch,
        name: StepName::new(StepKind::Step, name).unwrap(),
        value: name.as_bytes().to_vec(),
    });
    let answers = scene
        .worker
        .store
        .store_steps(steps.to_vec())
        .await
        .unwrap();
    assert_eq!(answers, [StepAnswer::Stored, StepAnswer::Stored]);
    claim
}

/// Gives the task back, and claims it again. Returns the number of its steps.
async fn steps_of_next_claim(scene: &Scene, claim: &Claim) -> u32 {
    let verdicts = verdicts(claim, || Verdict::Release);
    scene.worker.turn(verdicts, 0).await;
    scene.worker.claim(1).await.tasks[0].steps
}

#[tokio::test]
async fn lost_steps_are_not_repeated() {
    needs_redis!();
    for damage in [
        "call('HDEL', 'steps:' .. id(1), 'step:b')",
        "call('DEL', 'steps:' .. id(1))",
        "call('HSET', 'steps:' .. id(1), 'step:b', 'x')",
        "call('HSET', 'steps:' .. id(1), '\\255', string.rep('x', 20))",
    ] {
        let scene = Scene::new().await;
        let claim = with_steps(&scene).await;
        scene.run(damage);
        // The next run reads its steps, and fails.
        assert!(steps_of_next_claim(&scene, &claim).await >= 2, "{damage}");
        let failure = scene.worker.store.steps(id(1)).await.unwrap_err();
        assert_eq!(failure.cause, Cause::Corrupt, "{damage}");
    }
}

/// The length of the hash of a task determines how many steps it has.
#[tokio::test]
async fn other_rows_about_steps_may_be_lost() {
    needs_redis!();
    for damage in [
        "call('DEL', 'steps')",
        "call('HSET', 'steps', id(1), '?')",
        "call('HDEL', 'steps:' .. id(1), '')",
        "call('HSET', 'steps:' .. id(1), '', '?')",
    ] {
        let scene = Scene::new().await;
        let claim = with_steps(&scene).await;
        scene.run(damage);
        scene
            .worker
            .turn(verdicts(&claim, || Verdict::Release), 0)
            .await;
        let claim = scene.worker.claim(1).await;
        assert_eq!(claim.tasks[0].steps, 2, "{damage}");
        let step = NewStep {
            id: id(1),
            epoch: claim.epoch,
            name: StepName::new(StepKind::Step, "c").unwrap(),
            value: Vec::new(),
        };
        let answers = scene.worker.store.store_steps(vec![step]).await.unwrap();
        assert_eq!(answers, [StepAnswer::Stored], "{damage}");
        let steps = scene.worker.store.steps(id(1)).await.unwrap();
        let names: Vec<_> = steps.iter().map(|step| &*step.name).collect();
        assert_eq!(names, ["step:a", "step:b", "step:c"], "{damage}");
        scene.check();
    }
}

#[tokio::test]
async fn a_replay_removes_damaged_steps_and_keeps_no_gap() {
    needs_redis!();
    for damage in [
        "call('HDEL', 'steps:' .. id(1), 'step:b')",
        "call('HSET', 'steps:' .. id(1), 'step:b', 'x')",
    ] {
        let scene = Scene::new().await;
        let claim = with_steps(&scene).await;
        let third = NewStep {
            id: id(1),
            epoch: claim.epoch,
            name: StepName::new(StepKind::Step, "c").unwrap(),
            value: Vec::new(),
        };
        scene.worker.store.store_steps(vec![third]).await.unwrap();
        let verdicts = verdicts(&claim, || Verdict::Release);
        scene.worker.turn(verdicts, 0).await;
        scene.run(damage);
        for (step, expected) in [
            ("c", ChangeAnswer::Refused(Refusal::Unreadable)),
            ("b", ChangeAnswer::Refused(Refusal::NoSuchStep)),
            ("a", ChangeAnswer::Changed),
        ] {
            let name = StepName::new(StepKind::Step, step).unwrap();
            let change = Change::ReplayFrom(name);
            let answers = scene.worker.store.change(vec![id(1)], change).await;
            assert_eq!(answers.unwrap(), [expected], "{damage}: {step}");
        }
        let steps = scene.worker.store.steps(id(1)).await.unwrap();
        let names: Vec<_> = steps.iter().map(|step| &*step.name).collect();
        assert_eq!(names, ["replay:1"], "{damage}");
        assert_eq!(scene.worker.claim(1).await.tasks[0].steps, 1, "{damage}");
    }
}

#[tokio::test]
async fn maintenance_restores_that_there_are_steps() {
    needs_redis!();
    let scene = Scene::new().await;
    let claim = with_steps(&scene).await;
    scene.run("call('HDEL', 'meta', 'steps')");
    scene.maintain().await;
    assert_eq!(steps_of_next_claim(&scene, &claim).await, 2);
    scene.check();
}

/// Steps that failed commands have left are removed some tasks at a time.
#[tokio::test]
async fn maintenance_removes_the_steps_of_ended_tasks() {
    needs_redis!();
    let scene = Scene::new().await;
    let claim = with_steps(&scene).await;
    scene.run(
        "for n = 2, 600 do
            call('HSET', 'steps', id(n), '\\0\\0\\0\\1')
            call('HSET', 'steps:' .. id(n), 'step:a', string.rep('\\0', 10) .. 'a', '', string.rep('\\0', 8))
        end",
    );
    for _ in 0..20 {
        scene.maintain().await;
    }
    scene.check();
    assert_eq!(
        scene.run("return call('HLEN', 'steps')"),
        redis::Value::Int(1)
    );
    let dead = dead(&claim, DeadReason::Fatal, "error");
    scene.worker.turn(dead, 0).await;
    scene.maintain().await;
    assert_eq!(scene.worker.store.steps(id(1)).await.unwrap().len(), 2);
    scene
        .worker
        .store
        .delete_dead_letters(DeadFilter::all())
        .await
        .unwrap();
    scene.check();
    assert_eq!(
        scene.run("return call('EXISTS', 'steps')"),
        redis::Value::Int(0)
    );
}
