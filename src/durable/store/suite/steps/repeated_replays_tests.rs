//! Replays from a step that are sent again, or that name the same step again.

use super::Harness;
use super::process::*;
use super::replay_from_tests::{NO_SUCH_STEP, run_with_steps, suspend};
use super::steps_tests::step_name;
use crate::durable::Status;
use crate::durable::store::{
    Change, ChangeAnswer, Epoch, SignalAnswer, StepName, StepReplay, Verdict,
};

/// The rows of a task that was replayed from `b`.
const REPLAYED: [&str; 2] = ["step:a=a", "replay:2=step:b"];

impl Process {
    /// Replays a task from the step `b`, by the request with this nonce.
    async fn send_replay(&self, number: u64, nonce: u64) -> ChangeAnswer {
        let replay = StepReplay::new(step_name("b"), nonce);
        self.change_task(number, Change::ReplayFrom(replay)).await
    }

    async fn values(&self, number: u64) -> Vec<Vec<u8>> {
        let steps = self.0.0.steps(id(number)).await.unwrap();
        steps.into_iter().map(|step| step.value).collect()
    }
}

/// Returns the verdicts that delay a task.
fn delays() -> [Verdict; 4] {
    let snooze = Verdict::Snooze { after: HOUR };
    [suspend(None), suspend(Some(9)), retry(HOUR), snooze]
}

/// Returns the verdicts after which a task can be replayed from a step.
fn all_verdicts() -> impl Iterator<Item = Verdict> {
    delays().into_iter().chain([dead(), Verdict::Release])
}

/// Replays a task, which then runs. Returns the epoch of that run.
async fn replay_and_run(
    process: &Process,
    session: &mut Session<'_>,
    number: u64,
    nonce: u64,
) -> Epoch {
    let epoch = run_with_steps(process, session, number, &["a", "b", "c"]).await;
    session.report(epoch, number, dead()).await;
    let answer = process.send_replay(number, nonce).await;
    assert_eq!(answer, ChangeAnswer::Changed);
    let claim = session.claim(1).await;
    assert_eq!((ids(&claim), claim.tasks[0].steps), (vec![id(number)], 2));
    claim.epoch
}

pub async fn a_replay_that_is_sent_again_has_one_effect(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for (number, verdict) in (1..).zip(all_verdicts()) {
        let epoch = run_with_steps(&process, &mut session, number, &["a", "b", "c"]).await;
        session.report(epoch, number, verdict).await;
        for _ in 0..3 {
            assert_eq!(process.send_replay(number, 7).await, ChangeAnswer::Changed);
            assert_eq!(process.status_is(number).await, Status::Waiting);
            assert_eq!(process.rows(number).await, REPLAYED);
        }
        session.run_first(id(number), done()).await;
        assert_eq!(session.turn(wanting(9)).await.claim, None);
    }
}

pub async fn a_replay_is_known_after_the_task_has_run_again(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for (number, verdict) in (1..).zip(all_verdicts()) {
        let epoch = replay_and_run(&process, &mut session, number, 7).await;
        process.store_step(epoch, number, "b").await;
        process.store_step(epoch, number, "c").await;
        let rows = process.rows(number).await;
        assert_eq!(rows.len(), 4);
        assert_eq!(process.send_replay(number, 7).await, ChangeAnswer::Changed);
        let other = process.send_replay(number, 8).await;
        assert_eq!(other, ChangeAnswer::OtherStatus);
        session.report(epoch, number, verdict).await;
        let status = process.status_is(number).await;
        assert_eq!(process.send_replay(number, 7).await, ChangeAnswer::Changed);
        assert_eq!(process.status_is(number).await, status);
        assert_eq!(process.rows(number).await, rows);
        process.send_replay(number, 8).await;
        session.run_first(id(number), done()).await;
    }
}

pub async fn each_replay_from_the_same_step_removes_it(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut epoch = replay_and_run(&process, &mut session, 1, 1).await;
    for round in 2..5 {
        process.store_step(epoch, 1, "b").await;
        process.store_step(epoch, 1, "c").await;
        session.report(epoch, 1, retry(HOUR)).await;
        assert_eq!(process.send_replay(1, round).await, ChangeAnswer::Changed);
        let rows = process.rows(1).await;
        assert_eq!(rows.len() as u64, 1 + round);
        assert_eq!(
            rows.last().unwrap(),
            &format!("replay:{}=step:b", 1 + round)
        );
        // Earlier requests are recognized as long as their records are kept.
        epoch = session.claim(1).await.epoch;
        for nonce in 1..=round {
            assert_eq!(process.send_replay(1, nonce).await, ChangeAnswer::Changed);
        }
        assert_eq!(process.rows(1).await, rows);
    }
}

pub async fn the_same_step_again_makes_a_delayed_task_due(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    let mut events = process.events();
    let mut session = process.session().await;
    for (number, verdict) in (1..).zip(delays()) {
        let epoch = replay_and_run(&process, &mut session, number, 7).await;
        session.report(epoch, number, verdict.clone()).await;
        session.rest().await;
        events.drain();
        assert_eq!(other.send_replay(number, 8).await, ChangeAnswer::Changed);
        events.woken().await;
        assert_eq!(process.status_is(number).await, Status::Waiting);
        assert_eq!(process.rows(number).await, REPLAYED);
        let claim = session.claim(9).await;
        assert_eq!((ids(&claim), claim.tasks[0].steps), (vec![id(number)], 2));
        // The new request is known from now on, so it has no second effect.
        session.report(claim.epoch, number, verdict).await;
        assert_eq!(process.send_replay(number, 8).await, ChangeAnswer::Changed);
        assert_eq!(process.status_is(number).await, Status::Delayed);
        assert_eq!(process.send_replay(number, 9).await, ChangeAnswer::Changed);
        session.run_first(id(number), done()).await;
    }
    // No task is due once more at its former time.
    it.clock().advance(HOUR);
    assert_eq!(session.turn(wanting(9)).await.claim, None);
}

pub async fn the_last_replay_decides_which_step_is_the_same(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = run_with_steps(&process, &mut session, 1, &["a", "b"]).await;
    session.report(epoch, 1, dead()).await;
    assert_eq!(process.replay_from(1, "a").await, ChangeAnswer::Changed);
    let epoch = session.claim(1).await.epoch;
    process.store_step(epoch, 1, "a").await;
    process.store_step(epoch, 1, "b").await;
    session.report(epoch, 1, dead()).await;
    assert_eq!(process.replay_from(1, "b").await, ChangeAnswer::Changed);
    let rows = process.rows(1).await;
    assert_eq!(rows, ["replay:1=step:a", "step:a=a", "replay:3=step:b"]);
    session.run_first(id(1), retry(HOUR)).await;
    assert_eq!(process.send_replay(1, 7).await, ChangeAnswer::Changed);
    assert_eq!(process.status_is(1).await, Status::Waiting);
    assert_eq!(process.rows(1).await, rows);
    // The new nonce is that of the last record, and not of the first one.
    assert_eq!(process.replay_from(1, "a").await, ChangeAnswer::Changed);
    let rows = process.rows(1).await;
    assert_eq!(rows, ["replay:1=step:a", "replay:2=step:a"]);
    assert_eq!(process.send_replay(1, 7).await, NO_SUCH_STEP);
}

pub async fn the_replay_of_an_expired_dead_letter_is_not_known(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = replay_and_run(&process, &mut session, 1, 7).await;
    session.report(epoch, 1, dead()).await;
    assert_eq!(process.send_replay(1, 7).await, ChangeAnswer::Changed);
    it.age(31 * 24 * HOUR);
    let answer = process.send_replay(1, 7).await;
    assert_eq!(answer, ChangeAnswer::OtherStatus);
}

pub async fn the_same_step_again_keeps_later_signals(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = replay_and_run(&process, &mut session, 1, 7).await;
    session.report(epoch, 1, retry(HOUR)).await;
    assert_eq!(process.signal(1, "x").await, SignalAnswer::Stored);
    let rows = process.rows(1).await;
    assert_eq!(process.replay_from(1, "c").await, NO_SUCH_STEP);
    assert_eq!(process.send_replay(1, 8).await, ChangeAnswer::Changed);
    assert_eq!(process.status_is(1).await, Status::Waiting);
    assert_eq!(process.rows(1).await, rows);
    // The task waits for a worker now, so another request changes nothing.
    assert_eq!(process.send_replay(1, 9).await, ChangeAnswer::Same);
    assert_eq!(process.rows(1).await, rows);
}

pub async fn the_same_step_again_changes_no_task_that_waits(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = replay_and_run(&process, &mut session, 1, 7).await;
    session.report(epoch, 1, Verdict::Release).await;
    let values = process.values(1).await;
    assert_eq!(process.send_replay(1, 8).await, ChangeAnswer::Same);
    assert_eq!(process.values(1).await, values);
    // A replay from an earlier step is the last one from then on.
    assert_eq!(process.replay_from(1, "a").await, ChangeAnswer::Changed);
    assert_eq!(process.rows(1).await, ["replay:1=step:a"]);
    assert_eq!(process.send_replay(1, 9).await, NO_SUCH_STEP);
}

/// The end of a child may come before the step that has spawned it.
pub async fn a_replay_may_begin_before_the_step_that_it_names(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = run_with_steps(&process, &mut session, 1, &["a", "first", "b"]).await;
    session.report(epoch, 1, dead()).await;
    let replay = |first: &str, nonce| {
        let first = step_name(first);
        let replay = StepReplay::new(step_name("b"), nonce);
        process.change_task(1, Change::ReplayFrom(StepReplay { first, ..replay }))
    };
    assert_eq!(replay("first", 7).await, ChangeAnswer::Changed);
    assert_eq!(process.rows(1).await, REPLAYED);
    session.run_first(id(1), retry(HOUR)).await;
    assert_eq!(replay("b", 8).await, ChangeAnswer::Changed);
    assert_eq!(process.status_is(1).await, Status::Waiting);
}

/// The answer to the first request is lost. Another operator replays the task meanwhile.
pub async fn the_first_request_is_known_after_another_one(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = replay_and_run(&process, &mut session, 1, 7).await;
    session.report(epoch, 1, retry(HOUR)).await;
    assert_eq!(process.send_replay(1, 8).await, ChangeAnswer::Changed);
    let epoch = session.claim(1).await.epoch;
    process.store_step(epoch, 1, "b").await;
    session.report(epoch, 1, retry(HOUR)).await;
    let rows = process.rows(1).await;
    assert_eq!(rows.len(), 3);
    for nonce in [7, 8] {
        assert_eq!(process.send_replay(1, nonce).await, ChangeAnswer::Changed);
        assert_eq!(process.status_is(1).await, Status::Delayed);
        assert_eq!(process.rows(1).await, rows);
    }
}

/// The new record has the name of the one from which the task was replayed.
pub async fn the_same_record_again_keeps_later_signals(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = replay_and_run(&process, &mut session, 1, 7).await;
    session.report(epoch, 1, retry(HOUR)).await;
    let replay = |nonce| {
        let step = StepName::parse("replay:2").unwrap();
        process.change_task(1, Change::ReplayFrom(StepReplay::new(step, nonce)))
    };
    let replayed = ["step:a=a", "replay:2=replay:2"];
    assert_eq!(replay(8).await, ChangeAnswer::Changed);
    assert_eq!(process.rows(1).await, replayed);
    assert_eq!(process.signal(1, "x").await, SignalAnswer::Stored);
    let rows = process.rows(1).await;
    assert_eq!(replay(9).await, ChangeAnswer::Same);
    assert_eq!(process.rows(1).await, rows);
    session.run_first(id(1), retry(HOUR)).await;
    assert_eq!(replay(10).await, ChangeAnswer::Changed);
    assert_eq!(process.status_is(1).await, Status::Waiting);
    assert_eq!(process.rows(1).await, rows);
    // A dead letter has run since, so what it has stored is removed.
    session.run_first(id(1), dead()).await;
    assert_eq!(replay(11).await, ChangeAnswer::Changed);
    assert_eq!(process.rows(1).await, replayed);
}
