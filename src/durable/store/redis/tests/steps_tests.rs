//! Steps that are lost, and rows of steps that belong to no task.

use serde::{Deserialize, Serialize};

use super::pushes_tests::rest;
use super::scene::Scene;
use super::*;
use crate::Retry;
use crate::durable::store::{
    Change, ChangeAnswer, ClaimPushes, NewStep, StepAnswer, StepKind, StepName, StepReplay,
};
use crate::durable::{
    DurableClient, DurableExecutor, DurableTask, Refusal, Run, TaskChange, TaskContext, TaskError,
};

/// Claims task 1, and stores two of its steps. Returns the claim.
async fn with_steps(worker: &Worker) -> Claim {
    worker.enqueue([task(1)]).await;
    let claim = worker.claim(1).await;
    let steps = ["a", "b"].map(|name| step(1, &claim, name));
    let answers = worker.store.store_steps(steps.to_vec()).await.unwrap();
    assert_eq!(answers, [StepAnswer::Stored, StepAnswer::Stored]);
    claim
}

fn step(number: u64, claim: &Claim, name: &str) -> NewStep {
    NewStep {
        id: id(number),
        epoch: claim.epoch,
        name: StepName::new(StepKind::Step, name).unwrap(),
        value: name.as_bytes().to_vec(),
    }
}

/// Gives the task back, and claims it again. Returns the number of its steps.
async fn steps_of_next_claim(scene: &Scene, claim: &Claim) -> u32 {
    let verdicts = verdicts(claim, || Verdict::Release);
    scene.worker.turn(verdicts, 0).await;
    scene.worker.claim(1).await.tasks[0].steps
}

/// Returns the names of the steps of the task.
async fn names_of(scene: &Scene) -> Vec<String> {
    let steps = scene.worker.store.steps(id(1)).await.unwrap();
    steps.into_iter().map(|step| step.name).collect()
}

/// Asserts that a run that reads the steps of the task fails.
async fn assert_unreadable(scene: &Scene, what: &str) {
    let failure = scene.worker.store.steps(id(1)).await.unwrap_err();
    assert_eq!(failure.cause, Cause::Corrupt, "{what}");
}

fn is_there(scene: &Scene, script: &str) -> bool {
    scene.run(script) == redis::Value::Int(1)
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
        let claim = with_steps(&scene.worker).await;
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
        "call('HSET', 'steps', id(1), string.rep('?', 5))",
        "call('HDEL', 'steps:' .. id(1), '')",
        "call('HSET', 'steps:' .. id(1), '', '?')",
    ] {
        let scene = Scene::new().await;
        let claim = with_steps(&scene.worker).await;
        scene.run(damage);
        scene
            .worker
            .turn(verdicts(&claim, || Verdict::Release), 0)
            .await;
        let claim = scene.worker.claim(1).await;
        assert_eq!(claim.tasks[0].steps, 2, "{damage}");
        assert_eq!(names_of(&scene).await, ["step:a", "step:b"], "{damage}");
        let steps = vec![step(1, &claim, "c")];
        let answers = scene.worker.store.store_steps(steps).await.unwrap();
        assert_eq!(answers, [StepAnswer::Stored], "{damage}");
        let expected = ["step:a", "step:b", "step:c"];
        assert_eq!(names_of(&scene).await, expected, "{damage}");
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
        let claim = with_steps(&scene.worker).await;
        let third = step(1, &claim, "c");
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
            let change = Change::ReplayFrom(StepReplay::new(name, 7));
            let answers = scene.worker.store.change(vec![id(1)], change).await;
            assert_eq!(answers.unwrap(), [expected], "{damage}: {step}");
        }
        assert_eq!(names_of(&scene).await, ["replay:1"], "{damage}");
        assert_eq!(scene.worker.claim(1).await.tasks[0].steps, 1, "{damage}");
    }
}

/// This does not wait for a census, during which runs would repeat their steps.
#[tokio::test]
async fn maintenance_restores_at_once_that_there_are_steps() {
    needs_redis!();
    let scene = Scene::new().await;
    let claim = with_steps(&scene.worker).await;
    scene.orphan(100..3_000);
    scene.run("call('HDEL', 'meta', 'steps')");
    assert!(scene.worker.store.maintain(1).await.unwrap());
    assert_eq!(steps_of_next_claim(&scene, &claim).await, 2);
    scene.maintain().await;
    scene.check();
}

#[tokio::test]
async fn maintenance_restores_that_there_are_notes() {
    needs_redis!();
    let scene = Scene::new().await;
    for before in [
        "call('HDEL', 'meta', 'steps')",
        "call('HSET', 'meta', 'steps', 1)",
    ] {
        scene.run(&format!("call('HSET', 'notes', id(2), 'x') {before}"));
        scene.orphan(100..3_000);
        assert!(scene.worker.store.maintain(1).await.unwrap());
        let found = scene.run("return call('HGET', 'meta', 'steps')");
        assert_eq!(found, redis::Value::BulkString(b"2".to_vec()), "{before}");
        scene.maintain().await;
    }
}

/// Steps that failed commands have left are removed some tasks at a time.
#[tokio::test]
async fn maintenance_removes_the_steps_of_ended_tasks() {
    needs_redis!();
    let scene = Scene::new().await;
    let claim = with_steps(&scene.worker).await;
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

/// A dead letter without a time of death is still one. There are so many that maintenance finds the steps first.
#[tokio::test]
async fn maintenance_keeps_the_steps_of_a_dead_letter_without_a_time() {
    needs_redis!();
    let scene = Scene::new().await;
    let claim = with_steps(&scene.worker).await;
    let dead = dead(&claim, DeadReason::Fatal, "error");
    scene.worker.turn(dead, 0).await;
    scene.run(
        "for n = 2, 20000 do call('HSET', 'dead', id(n), 'x') end
        call('ZREM', 'died', id(1))",
    );
    assert!(!scene.worker.store.maintain(1_000).await.unwrap());
    assert_eq!(names_of(&scene).await, ["step:a", "step:b"]);
}

// ===== Values of other types =====

const OTHER_TYPE: &str = "call('DEL', 'steps:' .. id(1)) call('SET', 'steps:' .. id(1), 'x')";

/// The worker would repeat such a turn until the damage is repaired.
#[tokio::test]
async fn a_turn_that_claims_succeeds_although_steps_cannot_be_read() {
    needs_redis!();
    let lost_row = format!("{OTHER_TYPE} call('HDEL', 'steps', id(1))");
    let lost_rows = "call('DEL', 'steps') call('SET', 'steps', 'x')";
    for (damage, steps) in [(OTHER_TYPE, 2), (&lost_row, 1), (lost_rows, 2)] {
        let scene = Scene::new().await;
        let claim = with_steps(&scene.worker).await;
        scene.worker.enqueue([task(2)]).await;
        scene.run(damage);
        let found = steps_of_next_claim(&scene, &claim).await;
        assert_eq!(found, steps, "{damage}");
        // The run fails when it reads them.
        assert_unreadable(&scene, damage).await;
        let other = scene.worker.claim(1).await.tasks.remove(0);
        assert_eq!((other.id, other.steps), (id(2), 0), "{damage}");
    }
}

#[tokio::test]
async fn maintenance_removes_a_value_in_place_of_steps() {
    needs_redis!();
    let scene = Scene::new().await;
    let claim = with_steps(&scene.worker).await;
    scene.run(OTHER_TYPE);
    scene.maintain().await;
    assert!(scene.worker.store.damage().is_some());
    assert!(!is_there(
        &scene,
        "return call('EXISTS', 'steps:' .. id(1))"
    ));
    // The steps are lost, and no run repeats them.
    assert_eq!(steps_of_next_claim(&scene, &claim).await, 2);
    assert_unreadable(&scene, "removed").await;
}

#[tokio::test]
async fn a_task_whose_steps_cannot_be_read_holds_up_no_other_verdict() {
    needs_redis!();
    let suspend = |until| Verdict::Suspend {
        after: Duration::from_secs(3600),
        until,
        waits_for: String::new(),
    };
    let retry = Verdict::Retry {
        after: Duration::ZERO,
        error: "error".into(),
        took: None,
    };
    for (verdict, is_due) in [
        (suspend(Some(9)), true),
        (suspend(None), false),
        (retry, true),
    ] {
        let scene = Scene::new().await;
        scene.worker.enqueue([task(1), task(2)]).await;
        let claim = scene.worker.claim(2).await;
        let steps = [1, 2].map(|number| step(number, &claim, "a"));
        scene
            .worker
            .store
            .store_steps(steps.to_vec())
            .await
            .unwrap();
        scene.run(OTHER_TYPE);
        let tasks = vec![(id(1), verdict), (id(2), suspend(Some(9)))];
        let epoch = claim.epoch;
        let turned = scene.worker.turn(vec![Verdicts { epoch, tasks }], 0).await;
        assert_eq!(turned.refused, []);
        assert_eq!(scene.status_of(2).await, TaskState::Delayed);
        // A run that waits for steps which it cannot read does not wait for hours.
        let turned = scene.worker.turn(Vec::new(), 1).await;
        assert_eq!(turned.claim.is_some(), is_due);
    }
}

#[tokio::test]
async fn a_step_that_cannot_be_stored_holds_up_no_other() {
    needs_redis!();
    let lost_row = format!("{OTHER_TYPE} call('HDEL', 'steps', id(1))");
    for damage in [OTHER_TYPE, &lost_row] {
        let scene = Scene::new().await;
        scene.worker.enqueue([task(1), task(2)]).await;
        let claim = scene.worker.claim(2).await;
        let first = vec![step(1, &claim, "a")];
        scene.worker.store.store_steps(first).await.unwrap();
        scene.run(damage);
        let steps = [(1, "b"), (2, "a"), (1, "c"), (2, "b")];
        let steps = steps.map(|(number, name)| step(number, &claim, name));
        let answers = scene.worker.store.store_steps(steps.to_vec()).await;
        let (bad, good) = (StepAnswer::Corrupt, StepAnswer::Stored);
        assert_eq!(answers.unwrap(), [bad.clone(), good.clone(), bad, good]);
        assert_eq!(scene.worker.store.steps(id(2)).await.unwrap().len(), 2);
        // Maintenance finds the damage.
        scene.maintain().await;
        assert!(!is_there(
            &scene,
            "return call('EXISTS', 'steps:' .. id(1))"
        ));
        assert_unreadable(&scene, damage).await;
    }
}

// ===== Lost steps =====

/// Further steps do not make up for lost ones.
#[tokio::test]
async fn a_task_that_has_lost_steps_never_seems_to_have_all() {
    needs_redis!();
    let scene = Scene::new().await;
    let claim = with_steps(&scene.worker).await;
    scene.run("call('DEL', 'steps:' .. id(1))");
    let store = &scene.worker.store;
    for name in ["x", "y"] {
        let name = StepName::new(StepKind::Signal, name).unwrap();
        store.signal(id(1), name, Vec::new()).await.unwrap();
        assert_unreadable(&scene, "a signal").await;
    }
    let steps = ["c", "d", "c"].map(|name| step(1, &claim, name));
    store.store_steps(steps.to_vec()).await.unwrap();
    assert_unreadable(&scene, "steps").await;
    assert_eq!(steps_of_next_claim(&scene, &claim).await, 6);
}

#[tokio::test]
async fn a_replay_repeats_lost_steps() {
    needs_redis!();
    let scene = Scene::new().await;
    let claim = with_steps(&scene.worker).await;
    scene.worker.enqueue([task(2)]).await;
    let other = scene.worker.claim(1).await;
    let steps = vec![step(2, &other, "a")];
    scene.worker.store.store_steps(steps).await.unwrap();
    for claim in [&claim, &other] {
        let dead = dead(claim, DeadReason::Fatal, "error");
        scene.worker.turn(dead, 0).await;
    }
    scene.run("call('HDEL', 'steps:' .. id(1), 'step:b')");
    assert_unreadable(&scene, "lost").await;
    let replayed = scene.worker.store.replay_dead_letters(DeadFilter::all());
    assert_eq!(replayed.await.unwrap(), 2);
    assert_eq!(names_of(&scene).await, ["step:a"]);
    for task in scene.worker.claim(2).await.tasks {
        assert_eq!(task.steps, 1);
    }
    scene.check();
}

// ===== A full server =====

#[tokio::test]
async fn a_full_server_refuses_new_tasks_after_it_has_had_steps() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let claim = with_steps(&worker).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let later = NewTask {
        delay: LEASE,
        ..task(3)
    };
    let spawner = Worker::of(&worker.store).await;
    let request = spawner.new_enqueue([task(2), later]);
    let answer = worker.store.enqueue(Arc::clone(&request)).await;
    assert_fails(answer, &Cause::Full, Effect::None);
    // A request whose answer was lost is answered nevertheless.
    let again = vec![step(1, &claim, "a")];
    let answers = worker.store.store_steps(again).await.unwrap();
    assert_eq!(answers, [StepAnswer::Found(b"a".to_vec())]);
    let new = vec![step(1, &claim, "c")];
    let answer = worker.store.store_steps(new).await;
    assert_fails(answer, &Cause::Full, Effect::None);
    worker.turn(done(&claim), 0).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    worker.store.enqueue(request).await.unwrap();
}

#[derive(Serialize, Deserialize)]
struct OneStep;

impl DurableTask for OneStep {
    const NAME: &'static str = "one-step";
    const RETRY: Option<Retry> = Some(Retry::exponential().attempts(1));
    type Output = u32;
}

impl Run<()> for OneStep {
    async fn run(self, cx: TaskContext<()>) -> Result<u32, TaskError> {
        cx.step("a", async || Ok(7)).await
    }
}

/// The task has one attempt.
#[tokio::test]
async fn a_run_whose_step_does_not_fit_into_a_full_server_has_not_failed() {
    needs_redis!();
    let server = Server::start();
    let client = DurableClient::open(open(&server.url()).await);
    let handle = client.spawn(OneStep).await.unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let mut executor = DurableExecutor::builder(client.clone());
    executor.register::<OneStep>();
    let executor = executor.start(()).await.unwrap();
    let has_run = async {
        while executor.metrics().snoozed == 0 {
            assert_eq!(executor.metrics().died, 0);
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, has_run).await.expect("it has run");
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let admin = client.admin();
    let id = handle.id();
    admin.change(id, TaskChange::RunNow).await.unwrap();
    assert_eq!(handle.await.unwrap(), 7);
}

// ===== Wake-ups =====

/// A child has ended, and its parent is due. Another verdict of the same turn fails.
#[tokio::test]
async fn a_turn_that_fails_wakes_a_worker_for_a_parent() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([task(1), task(2)]).await;
    let claim = scene.worker.claim(2).await;
    let child = NewTask {
        parent: Some(id(1)),
        ..task(3)
    };
    scene.worker.enqueue([child]).await;
    let child = scene.worker.claim(1).await;
    let verdict = Verdict::Suspend {
        after: Duration::from_secs(3600),
        until: Some(1),
        waits_for: String::new(),
    };
    let verdicts_of = |tasks| Verdicts {
        epoch: claim.epoch,
        tasks,
    };
    let suspended = verdicts_of(vec![(id(1), verdict)]);
    scene.worker.turn(vec![suspended], 0).await;
    let idle = scene.worker_of(&["other"]).await;
    let mut events = idle.store.events();
    until(&mut events, &Event::Ready).await;
    assert_eq!(idle.turn(Vec::new(), 1).await.claim, None);
    scene.run("call('DEL', 'dead') call('SET', 'dead', 'x')");
    let mut verdicts = done(&child);
    let dead = Verdict::Dead {
        reason: DeadReason::Fatal,
        error: "error".into(),
        took: None,
    };
    verdicts.push(verdicts_of(vec![(id(2), dead)]));
    let turn = scene.worker.new_turn(verdicts, 0);
    scene.worker.store.turn(turn).await.unwrap_err();
    until(&mut events, &Event::Wake(None)).await;
    idle.turn(Vec::new(), 0).await;
    assert_eq!(scene.status_of(1).await, TaskState::Waiting);
}

/// One of two new tasks is pushed to an idle session, which fails. The other task is due soon, so another session is woken for it.
#[tokio::test]
async fn a_push_that_fails_leaves_the_wake_up_for_a_due_time() {
    needs_redis!();
    let scene = Scene::new().await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let worker = Worker::new(scene.open().await).await;
        let mut events = worker.store.events();
        until(&mut events, &Event::Ready).await;
        rest(&worker, 1, ClaimPushes::default()).await;
        idle.push((worker, events));
    }
    scene.run("call('SET', 'running', 'x')");
    let later = NewTask {
        delay: LEASE,
        ..task(2)
    };
    scene.worker.enqueue([task(1), later]).await;
    for (_, events) in &mut idle {
        until(events, &Event::Wake(None)).await;
    }
}
