//! Tasks that are replayed from one of their steps, and what suspended tasks wait for.

use super::Harness;
use super::process::*;
use super::steps_tests::step_name;
use crate::durable::store::{
    Change, ChangeAnswer, Epoch, MAX_BATCH_TASKS, MAX_STEP_BYTES, MAX_STEPS, MAX_TOTAL_STEP_BYTES,
    NewStep, SignalAnswer, StepAnswer, StepReplay, StoredStep, TaskState, Verdict,
};
use crate::durable::{Key, Refusal, Status};

pub(super) const NO_SUCH_STEP: ChangeAnswer = ChangeAnswer::Refused(Refusal::NoSuchStep);

pub(super) fn suspend(until: Option<u32>) -> Verdict {
    Verdict::Suspend {
        after: HOUR,
        until,
        waits_for: String::from("text"),
    }
}

impl Process {
    /// Replays a task from a step, by a request that is sent once.
    pub(super) async fn replay_from(&self, number: u64, step: &str) -> ChangeAnswer {
        let replay = StepReplay::new(step_name(step), fastrand::u64(..));
        self.change_task(number, Change::ReplayFrom(replay)).await
    }

    /// Returns the steps of a task, as their names and values. The value of a replay is shown without its nonce.
    pub(super) async fn rows(&self, number: u64) -> Vec<String> {
        let steps = self.0.0.steps(id(number)).await.unwrap();
        let text = |step: StoredStep| {
            let value = match step.name.starts_with("replay:") {
                true => StepReplay::step_of(&step.value),
                false => &step.value,
            };
            format!("{}={}", step.name, str::from_utf8(value).unwrap())
        };
        steps.into_iter().map(text).collect()
    }

    pub(super) async fn status_is(&self, number: u64) -> Status {
        self.status_of(number).await.status()
    }

    async fn waits_for(&self, number: u64) -> Option<String> {
        let found = self.0.0.find(id(number)).await.unwrap();
        found.expect("there is such a task").waits_for
    }
}

/// Stores a task, claims it, and stores steps with these names. Returns the epoch.
pub(super) async fn run_with_steps(
    process: &Process,
    session: &mut Session<'_>,
    number: u64,
    names: &[&str],
) -> Epoch {
    session.enqueue([task(number)]).await;
    let claim = session.claim(1).await;
    assert_eq!(ids(&claim), [id(number)]);
    for name in names {
        process.store_step(claim.epoch, number, name).await;
    }
    claim.epoch
}

pub async fn a_dead_letter_is_replayed_from_a_step(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = run_with_steps(&process, &mut session, 1, &["a", "b", "c"]).await;
    session.report(epoch, 1, retry(SECOND)).await;
    it.clock().advance(SECOND);
    session.run_first(id(1), dead()).await;
    assert_eq!(process.replay_from(1, "b").await, ChangeAnswer::Changed);
    assert_eq!(process.status_of(1).await, TaskState::Waiting);
    let rows = process.rows(1).await;
    assert_eq!(rows, ["step:a=a", "replay:2=step:b"]);
    let claim = session.claim(9).await;
    assert_eq!((ids(&claim), claim.tasks[0].steps), (vec![id(1)], 2));
    // Nothing counts against it.
    assert_eq!(claim.tasks[0].failures, 0);
    process.store_step(claim.epoch, 1, "b").await;
    process.store_step(claim.epoch, 1, "c").await;
    let rows = process.rows(1).await;
    assert_eq!(
        rows,
        ["step:a=a", "replay:2=step:b", "step:b=b", "step:c=c"]
    );
    // A replay from an earlier step removes what records the first one.
    session.report(claim.epoch, 1, dead()).await;
    assert_eq!(process.replay_from(1, "a").await, ChangeAnswer::Changed);
    assert_eq!(process.rows(1).await, ["replay:1=step:a"]);
}

pub async fn a_suspended_task_is_replayed_from_a_step(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = run_with_steps(&process, &mut session, 1, &["a", "b"]).await;
    session.report(epoch, 1, suspend(Some(4))).await;
    assert_eq!(process.signal(1, "x").await, SignalAnswer::Stored);
    assert_eq!(process.replay_from(1, "b").await, ChangeAnswer::Changed);
    assert_eq!(process.status_of(1).await, TaskState::Waiting);
    // The signal came later than the step.
    assert_eq!(process.rows(1).await, ["step:a=a", "replay:2=step:b"]);
    let claim = session.claim(9).await;
    assert_eq!((ids(&claim), claim.tasks[0].steps), (vec![id(1)], 2));
    // The task no longer waits for four steps.
    session.report(claim.epoch, 1, suspend(None)).await;
    assert_eq!(process.signal(1, "x").await, SignalAnswer::Stored);
    assert_eq!(process.signal(1, "y").await, SignalAnswer::Stored);
    assert_eq!(process.status_is(1).await, Status::Delayed);
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    // It is not due once more at its former time.
    it.clock().advance(HOUR);
    assert_eq!(ids(&session.claim(9).await), [id(1)]);
    assert_eq!(session.turn(wanting(9)).await.claim, None);
}

pub async fn a_task_that_waits_keeps_its_place(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([1, 2, 3].map(task)).await;
    let epoch = session.claim(3).await.epoch;
    for number in [1, 2, 3] {
        process.store_step(epoch, number, "a").await;
    }
    for number in [1, 2, 3] {
        session.report(epoch, number, Verdict::Release).await;
    }
    assert_eq!(process.replay_from(2, "a").await, ChangeAnswer::Changed);
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [3, 2, 1].map(id));
    assert!(claim.tasks.iter().all(|task| task.steps == 1));
    assert_eq!(process.rows(1).await, ["step:a=a"]);
    assert_eq!(process.rows(2).await, ["replay:1=step:a"]);
    assert_eq!(process.counts().await.waiting, 0);
}

pub async fn a_replay_has_an_effect_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = run_with_steps(&process, &mut session, 1, &["a", "b"]).await;
    session.report(epoch, 1, dead()).await;
    assert_eq!(process.replay_from(1, "c").await, NO_SUCH_STEP);
    assert_eq!(process.replay_from(1, "b").await, ChangeAnswer::Changed);
    let rows = process.rows(1).await;
    for _ in 0..2 {
        assert_eq!(process.replay_from(1, "b").await, ChangeAnswer::Same);
    }
    assert_eq!(process.replay_from(1, "c").await, NO_SUCH_STEP);
    assert_eq!(process.rows(1).await, rows);
    // Once the task is a dead letter again, the change would not be the same.
    session.run_first(id(1), dead()).await;
    assert_eq!(process.replay_from(1, "b").await, NO_SUCH_STEP);
    assert!(matches!(process.status_of(1).await, TaskState::Dead { .. }));
    assert_eq!(process.counts().await.dead, 1);
}

pub async fn only_tasks_that_do_not_run_are_replayed_from_a_step(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = run_with_steps(&process, &mut session, 1, &["a"]).await;
    assert_eq!(process.replay_from(1, "a").await, ChangeAnswer::OtherStatus);
    assert_eq!(process.rows(1).await, ["step:a=a"]);
    session.report(epoch, 1, done()).await;
    session.enqueue([task(2)]).await;
    process.cancel([2]).await;
    for number in [1, 2, 3] {
        let answer = process.replay_from(number, "a").await;
        assert_eq!(answer, ChangeAnswer::OtherStatus, "{number}");
    }
    let epoch = run_with_steps(&process, &mut session, 4, &["a"]).await;
    session.report(epoch, 4, dead()).await;
    it.age(31 * 24 * HOUR);
    assert_eq!(process.replay_from(4, "a").await, ChangeAnswer::OtherStatus);
}

pub async fn no_wake_up_is_lost_after_a_replay(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = run_with_steps(&process, &mut session, 1, &["a", "b", "c"]).await;
    session.report(epoch, 1, suspend(Some(4))).await;
    assert_eq!(process.replay_from(1, "b").await, ChangeAnswer::Changed);
    // A verdict of the run before counts no more, nor do its steps.
    let late = session
        .turn(wanting(0).verdict(epoch, 1, suspend(Some(1))))
        .await;
    assert_eq!(late.refused, [id(1)]);
    let stale = NewStep {
        id: id(1),
        epoch,
        name: step_name("b"),
        value: Vec::new(),
    };
    assert_eq!(
        process.store_steps(vec![stale]).await,
        [StepAnswer::Refused]
    );
    let claim = session.claim(9).await;
    let known = claim.tasks[0].steps;
    // The signal arrives after the run has read its steps.
    assert_eq!(process.signal(1, "x").await, SignalAnswer::Stored);
    session
        .report(claim.epoch, 1, suspend(Some(known + 1)))
        .await;
    let claim = session.claim(9).await;
    assert_eq!(
        (ids(&claim), claim.tasks[0].steps),
        (vec![id(1)], known + 1)
    );
    // The next one arrives when the task is suspended.
    session
        .report(claim.epoch, 1, suspend(Some(known + 2)))
        .await;
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    assert_eq!(process.signal(1, "y").await, SignalAnswer::Stored);
    assert_eq!(ids(&session.claim(9).await), [id(1)]);
}

pub async fn a_replay_from_a_step_needs_the_key(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([with_key(Key::new("key"), task(1))]).await;
    let epoch = session.claim(1).await.epoch;
    process.store_step(epoch, 1, "a").await;
    session.report(epoch, 1, dead()).await;
    session.enqueue([with_key(Key::new("key"), task(2))]).await;
    let answer = process.replay_from(1, "a").await;
    assert_eq!(answer, ChangeAnswer::Refused(Refusal::KeyHeld));
    assert_eq!(process.rows(1).await, ["step:a=a"]);
    session.run_first(id(2), done()).await;
    assert_eq!(process.replay_from(1, "a").await, ChangeAnswer::Changed);
}

pub async fn a_replay_from_a_step_wakes_a_worker(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    let mut events = process.events();
    let mut session = process.session().await;
    for (number, verdict) in (1..).zip([dead(), suspend(Some(9)), retry(HOUR)]) {
        let epoch = run_with_steps(&process, &mut session, number, &["a"]).await;
        session.report(epoch, number, verdict).await;
        session.rest().await;
        events.drain();
        let answer = other.replay_from(number, "a").await;
        assert_eq!(answer, ChangeAnswer::Changed);
        events.woken().await;
        session.run_first(id(number), done()).await;
    }
}

pub async fn a_replay_makes_room_for_steps(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut epoch = run_with_steps(&process, &mut session, 1, &["a"]).await;
    let count = MAX_TOTAL_STEP_BYTES / MAX_STEP_BYTES - 1;
    for round in 0..3 {
        for number in 0..count {
            let step = NewStep {
                id: id(1),
                epoch,
                name: step_name(&number.to_string()),
                value: vec![b'x'; MAX_STEP_BYTES],
            };
            let answers = process.store_steps(vec![step]).await;
            assert_eq!(answers, [StepAnswer::Stored], "{number}");
        }
        let step = NewStep {
            id: id(1),
            epoch,
            name: step_name("more"),
            value: vec![b'x'; MAX_STEP_BYTES],
        };
        assert_eq!(process.store_steps(vec![step]).await, [StepAnswer::Full]);
        session.report(epoch, 1, dead()).await;
        assert_eq!(process.replay_from(1, "0").await, ChangeAnswer::Changed);
        // The second replay of each earlier round has left a step before `a`.
        assert_eq!(process.rows(1).await.len(), 2 + round);
        epoch = session.claim(1).await.epoch;
        // So the next replay keeps only those steps.
        session.report(epoch, 1, dead()).await;
        assert_eq!(process.replay_from(1, "a").await, ChangeAnswer::Changed);
        epoch = session.claim(1).await.epoch;
        process.store_step(epoch, 1, "a").await;
    }
}

pub async fn many_steps_are_removed_at_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = run_with_steps(&process, &mut session, 1, &["a"]).await;
    for first in (1..MAX_STEPS).step_by(MAX_BATCH_TASKS) {
        let steps =
            (first..(first + MAX_BATCH_TASKS as u32).min(MAX_STEPS)).map(|number| NewStep {
                id: id(1),
                epoch,
                name: step_name(&number.to_string()),
                value: Vec::new(),
            });
        let answers = process.store_steps(steps.collect()).await;
        assert!(answers.iter().all(|it| *it == StepAnswer::Stored));
    }
    session.report(epoch, 1, suspend(Some(MAX_STEPS + 1))).await;
    assert_eq!(process.replay_from(1, "a").await, ChangeAnswer::Changed);
    assert_eq!(process.rows(1).await, ["replay:1=step:a"]);
    let claim = session.claim(1).await;
    assert_eq!(claim.tasks[0].steps, 1);
    process.store_step(claim.epoch, 1, "a").await;
}

pub async fn nothing_is_left_of_replayed_tasks(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let ends = [done(), dead(), suspend(Some(9))];
    for (number, end) in (1..).zip(ends) {
        let epoch = run_with_steps(&process, &mut session, number, &["a", "b"]).await;
        session.report(epoch, number, dead()).await;
        assert_eq!(
            process.replay_from(number, "b").await,
            ChangeAnswer::Changed
        );
        session.run_first(id(number), end).await;
    }
    process.cancel([3]).await;
    session.close().await;
    it.age(31 * 24 * HOUR);
    while process.maintain(9).await {}
    assert_eq!(it.leftovers(), 0);
}

pub async fn what_a_task_waits_for_is_found(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let epoch = run_with_steps(&process, &mut session, 1, &["a"]).await;
    assert_eq!(process.waits_for(1).await, None);
    session.report(epoch, 1, suspend(Some(3))).await;
    let text = Some(String::from("text"));
    assert_eq!(process.waits_for(1).await, text);
    // It waits for one more step.
    process.signal(1, "x").await;
    assert_eq!(process.waits_for(1).await, text);
    process.signal(1, "y").await;
    assert_eq!(process.waits_for(1).await, None);
    // The same number, and another text.
    let claim = session.claim(1).await;
    session.report(claim.epoch, 1, suspend(Some(4))).await;
    process.run_now(1).await;
    let claim = session.claim(1).await;
    let other = Verdict::Suspend {
        after: HOUR,
        until: Some(4),
        waits_for: String::from("other"),
    };
    session.report(claim.epoch, 1, other).await;
    assert_eq!(process.waits_for(1).await.as_deref(), Some("other"));
    process.run_now(1).await;
    assert_eq!(process.waits_for(1).await, None);
    for verdict in [retry(HOUR), suspend(None), Verdict::Snooze { after: HOUR }] {
        let claim = session.claim(1).await;
        session.report(claim.epoch, 1, verdict).await;
        assert_eq!(process.status_is(1).await, Status::Delayed);
        assert_eq!(process.waits_for(1).await, None);
        process.run_now(1).await;
    }
}
