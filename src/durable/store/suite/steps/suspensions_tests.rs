//! Suspended tasks, and the signals that wake them.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::Status;
use crate::durable::store::{
    ChangeAnswer, Epoch, NewTask, SignalAnswer, StepWait, TaskState, Verdict,
};

/// A time that is over in no test, except by a signal.
const LONG: Duration = HOUR;

fn suspend(after: Duration, until: Option<u32>) -> Verdict {
    Verdict::Suspend {
        after,
        until,
        waits_for: String::from("a"),
    }
}

impl Session<'_> {
    /// Claims a task, which is the only one that waits, and suspends it. Returns the epoch of the run.
    async fn suspend(&mut self, number: u64, until: Option<u32>) -> Epoch {
        let claim = self.claim(1).await;
        assert_eq!(ids(&claim), [id(number)]);
        self.report(claim.epoch, number, suspend(LONG, until)).await;
        claim.epoch
    }

    /// Claims task 1. Returns the epoch of the run, and how the wait of the task has ended.
    async fn claimed_wait(&mut self) -> (Epoch, StepWait) {
        let claim = self.claim(1).await;
        (claim.epoch, claim.tasks[0].wait)
    }

    /// Reports a verdict on task 1, and claims it again, if it can be claimed.
    async fn released(&mut self, epoch: Epoch, verdict: Verdict) -> Option<(Epoch, StepWait)> {
        self.report(epoch, 1, verdict).await;
        let claim = self.turn(wanting(1)).await.claim?;
        Some((claim.epoch, claim.tasks[0].wait))
    }

    /// Asserts that nothing can be claimed.
    async fn finds_nothing(&mut self) {
        assert_eq!(self.turn(wanting(9)).await.claim, None);
    }
}

async fn status(process: &Process, number: u64) -> Status {
    process.status_of(number).await.status()
}

pub async fn a_suspended_task_is_due_after_its_time(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let epoch = session.claim(2).await.epoch;
    let turn = wanting(0)
        .verdict(epoch, 1, suspend(2 * SECOND, None))
        .verdict(epoch, 2, suspend(SECOND, Some(1)));
    let turned = session.turn(turn).await;
    assert_eq!((turned.refused, turned.next), (vec![], Some(SECOND)));
    assert_eq!(process.status_of(1).await, TaskState::Delayed);
    it.clock().advance(SECOND);
    assert_eq!(ids(&session.claim(9).await), [id(2)]);
    it.clock().advance(SECOND);
    assert_eq!(ids(&session.claim(9).await), [id(1)]);
    assert_eq!(process.counts().await.snoozed, 2);
}

pub async fn a_signal_makes_a_suspended_task_ready(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    session.suspend(1, Some(1)).await;
    session.finds_nothing().await;
    it.clock().advance(SECOND);
    assert_eq!(process.signal(1, "a").await, SignalAnswer::Stored);
    assert_eq!(process.status_of(1).await, TaskState::Delayed);
    it.clock().advance(3 * SECOND);
    // It has waited since the signal.
    assert_eq!(session.waits(9).await, [(id(1), Some(3 * SECOND))]);
    // It does not become due once more.
    it.clock().advance(LONG);
    session.finds_nothing().await;
}

pub async fn a_signal_before_the_suspension_makes_the_task_ready_at_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    assert_eq!(process.signal(1, "a").await, SignalAnswer::Stored);
    session.enqueue([task(2)]).await;
    it.clock().advance(SECOND);
    session.report(epoch, 1, suspend(LONG, Some(1))).await;
    assert_eq!(process.status_of(1).await, TaskState::Waiting);
    let claim = session.claim(9).await;
    // It goes behind the tasks that waited before.
    assert_eq!(ids(&claim), [2, 1].map(id));
    assert_eq!(claim.tasks[1].steps, 1);
    // A target that was reached long ago has the same effect.
    session.report(claim.epoch, 1, suspend(LONG, Some(0))).await;
    assert_eq!(ids(&session.claim(9).await), [id(1)]);
}

pub async fn a_task_waits_for_several_signals(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    process.store_step(epoch, 1, "before").await;
    process.signal(1, "a").await;
    session.report(epoch, 1, suspend(LONG, Some(4))).await;
    process.signal(1, "b").await;
    session.finds_nothing().await;
    process.signal(1, "c").await;
    assert_eq!(session.claim(9).await.tasks[0].steps, 4);
    assert_eq!(process.steps(1).await, ["before", "a", "b", "c"]);
}

pub async fn a_repeated_signal_wakes_nobody(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    assert_eq!(process.signal(1, "a").await, SignalAnswer::Stored);
    session.suspend(1, Some(2)).await;
    assert_eq!(process.signal(1, "a").await, SignalAnswer::Found);
    session.finds_nothing().await;
    assert_eq!(process.steps(1).await, ["a"]);
    assert_eq!(process.signal(1, "b").await, SignalAnswer::Stored);
    session.claim(1).await;
}

pub async fn a_signal_is_for_a_task_that_has_not_ended(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let unkept = NewTask {
        retention: Duration::ZERO,
        ..task(4)
    };
    session.enqueue([task(1), task(2), task(3), unkept]).await;
    let epoch = session.claim(4).await.epoch;
    process.cancel([3]).await;
    for (number, verdict) in [(1, done()), (2, dead()), (3, Verdict::Release), (4, done())] {
        session.report(epoch, number, verdict).await;
    }
    for number in 1..=5 {
        assert_eq!(
            process.signal(number, "a").await,
            SignalAnswer::Absent,
            "{number}"
        );
        assert_eq!(process.steps(number).await, [""; 0]);
    }
}

pub async fn a_signal_hastens_no_other_delay(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), delayed(2, LONG)]).await;
    assert_eq!(process.signal(2, "a").await, SignalAnswer::Stored);
    for (until, verdict) in [
        (1, retry(SECOND)),
        (2, Verdict::Snooze { after: SECOND }),
        (3, suspend(SECOND, None)),
    ] {
        // A wait that has timed out is over.
        let epoch = session.claim(1).await.epoch;
        let wait = suspend(SECOND, Some(until));
        session.report(epoch, 1, wait).await;
        it.clock().advance(SECOND);
        let epoch = session.claim(1).await.epoch;
        session.report(epoch, 1, verdict).await;
        let signal = process.signal(1, &until.to_string()).await;
        assert_eq!(signal, SignalAnswer::Stored);
        session.finds_nothing().await;
        it.clock().advance(SECOND);
    }
    session.claim(1).await;
}

pub async fn a_signal_waits_for_a_task_that_waits_or_runs(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    assert_eq!(process.signal(1, "a").await, SignalAnswer::Stored);
    assert_eq!(process.status_of(1).await, TaskState::Waiting);
    let claim = session.claim(1).await;
    assert_eq!(claim.tasks[0].steps, 1);
    assert_eq!(process.signal(1, "b").await, SignalAnswer::Stored);
    assert_eq!(process.status_of(1).await, TaskState::Running);
    session.finds_nothing().await;
    assert_eq!(process.steps(1).await, ["a", "b"]);
}

pub async fn a_suspension_forgets_failures(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    for until in [None, Some(0)] {
        let epoch = session.claim(1).await.epoch;
        session.report(epoch, 1, retry(SECOND)).await;
        it.clock().advance(SECOND);
        let claim = session.claim(1).await;
        assert_eq!(claim.tasks[0].failures, 1);
        session.report(claim.epoch, 1, suspend(SECOND, until)).await;
        assert_eq!(process.0.0.errors(id(1)).await.unwrap(), []);
        it.clock().advance(SECOND);
        let claim = session.claim(1).await;
        assert_eq!(
            (claim.tasks[0].failures, claim.tasks[0].failing_for),
            (0, None)
        );
        session.report(claim.epoch, 1, Verdict::Release).await;
    }
    let epoch = session.claim(1).await.epoch;
    session.report(epoch, 1, retry(SECOND)).await;
    let errors = process.0.0.errors(id(1)).await.unwrap();
    assert_eq!(errors.iter().map(|it| it.attempt).collect::<Vec<_>>(), [1]);
}

/// A workflow that takes months outlives many workers.
pub async fn a_suspension_forgets_crashes_and_lost_claims(it: &dyn Harness) {
    let survivor = Process::of(it);
    let mut session = survivor.session().await;
    let fragile = NewTask {
        max_crashes: 2,
        ..task(1)
    };
    session.enqueue([fragile]).await;
    for (crashes, lost) in [(1, 0), (0, 1), (1, 0)] {
        let process = Process::of(it);
        let epoch = process.session().await.claim(1).await.epoch;
        if crashes == 1 {
            process.renew([epoch]).await;
        }
        process.kill(it);
        let mut session = survivor.session().await;
        session.turn(wanting(0)).await;
        let claim = session.claim(1).await;
        assert_eq!(
            (claim.tasks[0].crashes, claim.tasks[0].lost),
            (crashes, lost)
        );
        session.report(claim.epoch, 1, suspend(SECOND, None)).await;
        it.clock().advance(SECOND);
        let claim = session.claim(1).await;
        assert_eq!((claim.tasks[0].crashes, claim.tasks[0].lost), (0, 0));
        assert!(!claim.tasks[0].quarantined);
        session.report(claim.epoch, 1, Verdict::Release).await;
    }
}

pub async fn a_suspended_task_is_cancelled_at_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    session.suspend(1, Some(1)).await;
    assert_eq!(process.cancel([1]).await, 1);
    assert_eq!(process.status_of(1).await, TaskState::Cancelled);
    assert_eq!(process.signal(1, "a").await, SignalAnswer::Absent);
    session.finds_nothing().await;
}

pub async fn a_cancelled_run_that_is_suspended_is_cancelled(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let epoch = session.claim(2).await.epoch;
    process.signal(2, "a").await;
    process.cancel([1, 2]).await;
    for number in [1, 2] {
        session.report(epoch, number, suspend(LONG, Some(1))).await;
        assert_eq!(process.status_of(number).await, TaskState::Cancelled);
    }
}

pub async fn a_repeated_suspension_takes_effect_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    let turn = wanting(0).verdict(epoch, 1, suspend(LONG, Some(1)));
    session.turn(turn.clone()).await;
    process.signal(1, "a").await;
    session.turn_again(turn.clone()).await.unwrap();
    assert_eq!(process.status_of(1).await, TaskState::Delayed);
    let claim = session.claim(1).await;
    // Under another number, the verdict is that of a run that holds nothing.
    assert_eq!(session.turn(turn).await.refused, [id(1)]);
    assert_eq!(process.status_of(1).await, TaskState::Running);
    session.report(claim.epoch, 1, done()).await;
    assert_eq!(process.counts().await.snoozed, 1);
}

pub async fn a_suspended_task_frees_its_permit(it: &dyn Harness) {
    let process = Process::of(it);
    process.set_queue("q", max_running(1)).await;
    let mut session = process.session_in("q").await;
    session.enqueue([queued(1), queued(2)]).await;
    session.suspend(1, Some(1)).await;
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [id(2)]);
    // The signal does not exceed the limit.
    process.signal(1, "a").await;
    session.finds_nothing().await;
    session.report(claim.epoch, 2, suspend(LONG, Some(1))).await;
    assert_eq!(ids(&session.claim(9).await), [id(1)]);
    assert_eq!(process.queue("q").await.running, 1);
}

pub async fn a_suspended_task_of_a_group_returns_to_its_group(it: &dyn Harness) {
    let process = Process::of(it);
    let one = Groups::new().max_running(1);
    process.set_queue("q", groups(one)).await;
    let mut session = process.session_in("q").await;
    session.enqueue([grouped("a", 1), grouped("a", 2)]).await;
    session.suspend(1, Some(1)).await;
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [id(2)]);
    process.signal(1, "x").await;
    session.finds_nothing().await;
    session.report(claim.epoch, 2, done()).await;
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [id(1)]);
    // It also returns if the signal was there before.
    session.enqueue([grouped("a", 3)]).await;
    session.report(claim.epoch, 1, suspend(LONG, Some(1))).await;
    assert_eq!(ids(&session.claim(9).await), [id(3)]);
}

pub async fn a_signal_wakes_a_worker(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    let mut events = process.events();
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    session.suspend(1, Some(1)).await;
    session.rest().await;
    events.drain();
    other.signal(1, "a").await;
    events.woken().await;
    let claim = session.claim(1).await;
    // So does a suspension that ends at once.
    let mut idle = process.session().await;
    idle.rest().await;
    events.drain();
    session.report(claim.epoch, 1, suspend(LONG, Some(1))).await;
    events.woken().await;
    assert_eq!(ids(&idle.claim(1).await), [id(1)]);
}

pub async fn a_suspended_task_can_be_moved(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let epoch = session.claim(2).await.epoch;
    for number in [1, 2] {
        session.report(epoch, number, suspend(LONG, Some(1))).await;
    }
    assert_eq!(process.run_now(1).await, ChangeAnswer::Changed);
    assert_eq!(process.move_to("q", 2).await, ChangeAnswer::Changed);
    assert_eq!(status(&process, 2).await, Status::Delayed);
    process.signal(2, "a").await;
    assert_eq!(ids(&session.claim(9).await), [id(1)]);
    let mut queued = process.session_in("q").await;
    assert_eq!(ids(&queued.claim(9).await), [id(2)]);
}

pub async fn nothing_is_left_of_suspended_tasks(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2), task(3)]).await;
    let epoch = session.claim(3).await.epoch;
    for number in 1..=3 {
        session.report(epoch, number, suspend(LONG, Some(1))).await;
    }
    process.cancel([1]).await;
    process.signal(2, "a").await;
    session.run_first(id(2), done()).await;
    it.age(LONG);
    session.run_first(id(3), dead()).await;
    session.close().await;
    it.age(31 * 24 * HOUR);
    while process.maintain(9).await {}
    assert_eq!(it.leftovers(), 0);
}

pub async fn a_claim_says_how_the_wait_has_ended(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let claim = session.claim(1).await;
    assert_eq!(claim.tasks[0].wait, StepWait::Over);
    let released = session.released(claim.epoch, suspend(LONG, Some(1)));
    assert_eq!(released.await, None);
    it.clock().advance(LONG);
    let (epoch, wait) = session.claimed_wait().await;
    assert_eq!(wait, StepWait::TimedOut);
    // A signal that arrives while it runs comes in time for the next wait.
    process.signal(1, "a").await;
    let (epoch, wait) = session.released(epoch, Verdict::Release).await.unwrap();
    assert_eq!(wait, StepWait::Over);
    assert_eq!(session.released(epoch, suspend(LONG, Some(2))).await, None);
    process.signal(1, "b").await;
    let (epoch, wait) = session.claimed_wait().await;
    assert_eq!(wait, StepWait::Over);
    // So does a signal after the time, before the task is claimed.
    assert_eq!(session.released(epoch, suspend(LONG, Some(3))).await, None);
    it.clock().advance(LONG);
    process.signal(1, "c").await;
    let (epoch, wait) = session.claimed_wait().await;
    assert_eq!(wait, StepWait::Over);
    // The steps of the run itself are none that it was waiting for.
    assert_eq!(session.released(epoch, suspend(LONG, Some(4))).await, None);
    it.clock().advance(LONG);
    let (epoch, wait) = session.claimed_wait().await;
    assert_eq!(wait, StepWait::TimedOut);
    process.store_step(epoch, 1, "d").await;
    let (_, wait) = session.released(epoch, Verdict::Release).await.unwrap();
    assert_eq!(wait, StepWait::Over);
}
