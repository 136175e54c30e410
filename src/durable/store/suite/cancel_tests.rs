//! Cancellation.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::store::{NewTask, RenewAnswer, TaskState, Verdict};

pub async fn a_waiting_task_is_cancelled_at_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([1, 2, 3].map(task)).await;
    assert_eq!(process.cancel([2, 77]).await, 1);
    assert_eq!(process.status_of(2).await, TaskState::Cancelled);
    assert_eq!(ids(&session.claim(9).await), [id(1), id(3)]);
    // It was not running, so it is not in the totals.
    let counts = process.counts().await;
    assert_eq!((counts.cancelled, counts.kept), (0, 1));
}

pub async fn a_delayed_task_is_cancelled_at_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([delayed(1, SECOND)]).await;
    session.run(task(2), retry(SECOND)).await;
    assert_eq!(process.cancel([1, 2]).await, 2);
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Cancelled, TaskState::Cancelled]
    );
    it.clock().advance(SECOND);
    let turned = session.turn(wanting(9)).await;
    assert_eq!((turned.claim, turned.next), (None, None));
}

pub async fn an_ended_task_is_not_cancelled(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), done()).await;
    session.run(task(2), dead()).await;
    session.enqueue([task(3)]).await;
    assert_eq!(process.cancel([3]).await, 1);
    assert_eq!(process.cancel([1, 2, 3, 4]).await, 0);
    let expected = [
        state_done(),
        state_dead(),
        TaskState::Cancelled,
        TaskState::Absent,
    ];
    assert_eq!(process.status(1..=4).await, expected);
}

pub async fn a_cancelled_task_without_retention_is_gone(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let unkept = |number| NewTask {
        retention: Duration::ZERO,
        ..task(number)
    };
    session.enqueue([unkept(1), unkept(2)]).await;
    let epoch = session.claim(1).await.epoch;
    assert_eq!(process.cancel([1, 2]).await, 2);
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Running, TaskState::Absent]
    );
    session.report(epoch, 1, Verdict::Release).await;
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Absent, TaskState::Absent]
    );
    assert_eq!(process.counts().await.kept, 0);
}

pub async fn a_running_task_is_cancelled_by_its_worker(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue((1..=4).map(task)).await;
    let epoch = session.claim(4).await.epoch;
    assert_eq!(process.cancel([1, 2, 3]).await, 3);
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Running, TaskState::Running]
    );
    let snooze = Verdict::Snooze { after: SECOND };
    let turn = wanting(9)
        .verdict(epoch, 1, retry(SECOND))
        .verdict(epoch, 2, snooze)
        .verdict(epoch, 3, Verdict::Release)
        .verdict(epoch, 4, retry(SECOND));
    let turned = session.turn(turn).await;
    assert_eq!((turned.refused, turned.claim), (vec![], None));
    let mut expected = vec![TaskState::Cancelled; 3];
    expected.push(TaskState::Delayed);
    assert_eq!(process.status(1..=4).await, expected);
    let counts = process.counts().await;
    assert_eq!((counts.cancelled, counts.kept), (3, 3));
    assert_eq!((counts.retried, counts.snoozed, counts.released), (1, 0, 0));
}

pub async fn a_cancelled_run_that_is_done_is_done(it: &dyn Harness) {
    ends_as(it, done(), state_done(), 0).await;
}

pub async fn a_cancelled_run_that_is_dead_is_cancelled(it: &dyn Harness) {
    ends_as(it, dead(), TaskState::Cancelled, 1).await;
}

/// A run that is to be cancelled ends with this verdict.
async fn ends_as(it: &dyn Harness, verdict: Verdict, seen: TaskState, cancelled: u64) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    assert_eq!(process.cancel([1]).await, 1);
    session.report(epoch, 1, verdict).await;
    assert_eq!(process.status_of(1).await, seen);
    assert_eq!(process.counts().await.cancelled, cancelled);
}

pub async fn a_cancelled_task_does_not_survive_its_worker(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    let mut other = two.session().await;
    session.enqueue([1, 2, 3].map(task)).await;
    // One claim is taken back when its lease has expired, the other when its process has died.
    let late = wanting(1).lease(SECOND);
    assert!(session.turn(late).await.claim.is_some());
    assert_eq!(ids(&session.claim(1).await), [id(2)]);
    assert_eq!(two.cancel([1, 2]).await, 2);
    it.clock().advance(SECOND);
    other.turn(wanting(0)).await;
    it.clock().advance(SECOND);
    other.turn(wanting(0)).await;
    assert_eq!(
        two.status([1, 2]).await,
        [TaskState::Cancelled, TaskState::Running]
    );
    one.kill(it);
    assert_eq!(ids(&other.claim(9).await), [id(3)]);
    assert_eq!(
        two.status([1, 2]).await,
        [TaskState::Cancelled, TaskState::Cancelled]
    );
    let counts = two.counts().await;
    assert_eq!((counts.cancelled, counts.lost, counts.crashed), (2, 0, 0));
}

pub async fn a_renewal_reports_tasks_to_cancel(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue((1..=4).map(task)).await;
    let first = session.claim(2).await.epoch;
    let second = session.claim(2).await.epoch;
    assert_eq!(process.renew([first, second]).await, RenewAnswer::default());
    process.cancel([2, 3]).await;
    // Every renewal reports them, as long as they run.
    for _ in 0..2 {
        assert_eq!(process.renew([first]).await.cancelled, [id(2)]);
        assert_eq!(process.renew([second]).await.cancelled, [id(3)]);
    }
    session.report(first, 2, Verdict::Release).await;
    assert_eq!(process.renew([first]).await, RenewAnswer::default());
}

pub async fn a_cancel_request_ends_with_its_task(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let epoch = session.claim(2).await.epoch;
    process.cancel([1, 2]).await;
    session.report(epoch, 1, dead()).await;
    session.report(epoch, 2, done()).await;
    // New tasks of the same ids.
    it.age(HOUR);
    session.enqueue([task(1), task(2)]).await;
    let claim = session.claim(2).await;
    assert_eq!(ids(&claim), [id(1), id(2)]);
    assert_eq!(process.renew([claim.epoch]).await, RenewAnswer::default());
    session.report(claim.epoch, 1, retry(SECOND)).await;
    session.report(claim.epoch, 2, Verdict::Release).await;
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Delayed, TaskState::Waiting]
    );
}
