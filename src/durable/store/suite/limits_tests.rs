//! The limit of the running tasks of a queue: it is never exceeded, and each task that ends frees one permit.

use super::Harness;
use super::process::*;
use crate::durable::store::{DeadReason, NewTask, TaskState, Verdict};

pub async fn no_more_tasks_run_than_the_limit(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut first = one.session_in("q").await;
    let mut second = two.session_in("q").await;
    two.set_queue("q", max_running(3)).await;
    first.enqueue((1..=9).map(queued)).await;
    assert_eq!(ids(&first.claim(2).await), [1, 2].map(id));
    let turned = second.turn(wanting(64)).await;
    assert_eq!(ids(&turned.claim.unwrap()), [id(3)]);
    assert!(!turned.more);
    first.rest().await;
    second.rest().await;
    let info = one.queue("q").await;
    assert_eq!((info.waiting, info.running), (6, 3));
    assert_eq!(one.status_of(4).await, TaskState::Waiting);
}

pub async fn each_queue_has_a_limit_of_its_own(it: &dyn Harness) {
    let process = Process::of(it);
    let mut default = process.session().await;
    let mut q = process.session_in("q").await;
    let mut r = process.session_in("r").await;
    process.set_queue("q", max_running(1)).await;
    process.set_queue("r", max_running(2)).await;
    default.enqueue((1..=4).map(queued)).await;
    let tasks = (5..=8).map(|number| in_queue("r", task(number)));
    default.enqueue(tasks.chain((9..=12).map(task))).await;
    assert_eq!(claim_all(&mut default).await.0, [9, 10, 11, 12].map(id));
    assert_eq!(claim_all(&mut r).await.0, [5, 6].map(id));
    assert_eq!(claim_all(&mut q).await.0, [id(1)]);
}

pub async fn a_verdict_of_any_kind_frees_one_permit(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut first = one.session_in("q").await;
    let mut second = two.session_in("q").await;
    one.set_queue("q", max_running(1)).await;
    let snooze = Verdict::Snooze { after: HOUR };
    let verdicts = [done(), retry(HOUR), snooze, dead(), Verdict::Release];
    for (number, verdict) in (10..).step_by(10).zip(verdicts) {
        let is_release = verdict == Verdict::Release;
        first.enqueue((number..number + 3).map(queued)).await;
        let claim = first.claim(9).await;
        assert_eq!(ids(&claim), [id(number)]);
        second.rest().await;
        first.report(claim.epoch, number, verdict).await;
        assert_eq!(one.queue("q").await.running, 0);
        let next = number + u64::from(!is_release);
        let claim = second.claim(9).await;
        assert_eq!(ids(&claim), [id(next)]);
        assert_eq!(one.queue("q").await.running, 1);
        second.report(claim.epoch, next, done()).await;
        one.cancel(number..number + 3).await;
    }
}

pub async fn a_verdict_that_is_sent_twice_frees_one_permit(it: &dyn Harness) {
    let process = Process::of(it);
    let mut first = process.session_in("q").await;
    let mut second = process.session_in("q").await;
    let mut default = process.session().await;
    process.set_queue("q", max_running(3)).await;
    first.enqueue((1..=9).map(queued)).await;
    let epoch = first.claim(3).await.epoch;
    let turn = wanting(0).verdict(epoch, 2, done());
    first.turn(turn.clone()).await;
    for _ in 0..3 {
        first.turn_again(turn.clone()).await.unwrap();
        // In another session, it is not a repetition, but late.
        assert_eq!(default.turn(turn.clone()).await.refused, [id(2)]);
    }
    assert_eq!(process.queue("q").await.running, 2);
    assert_eq!(ids(&second.claim(9).await), [id(4)]);
    assert_eq!(process.queue("q").await.running, 3);
    second.rest().await;
}

pub async fn a_repeated_claim_takes_its_permits_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut first = process.session_in("q").await;
    let mut second = process.session_in("q").await;
    process.set_queue("q", max_running(3)).await;
    first.enqueue((1..=9).map(queued)).await;
    let claim = first.claim(2).await;
    for _ in 0..3 {
        let again = first.turn_again(wanting(2)).await.unwrap();
        assert_eq!(again.claim, Some(claim.clone()));
        assert!(again.more);
    }
    assert_eq!(process.queue("q").await.running, 2);
    assert_eq!(ids(&second.claim(9).await), [id(3)]);
    let again = first.turn_again(wanting(2)).await.unwrap();
    assert_eq!((again.claim, again.more), (Some(claim), false));
    second.rest().await;
}

/// A turn may end a task, and start another one under its permit.
pub async fn a_turn_reuses_the_permits_that_it_frees(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process.set_queue("q", max_running(2)).await;
    q.enqueue((1..=9).map(queued)).await;
    let epoch = q.claim(9).await.epoch;
    let turned = q.turn(wanting(9).verdict(epoch, 1, done())).await;
    let claim = turned.claim.unwrap();
    assert_eq!((ids(&claim), turned.more), (vec![id(3)], false));
    let turn = wanting(9)
        .verdict(epoch, 2, done())
        .verdict(claim.epoch, 3, Verdict::Release);
    let turned = q.turn(turn).await;
    assert_eq!(ids(&turned.claim.unwrap()), [id(3), id(4)]);
    assert_eq!(process.queue("q").await.running, 2);
}

pub async fn a_lowered_limit_lets_tasks_end(it: &dyn Harness) {
    let process = Process::of(it);
    let mut first = process.session_in("q").await;
    let mut second = process.session_in("q").await;
    first.enqueue((1..=9).map(queued)).await;
    // Without a limit, tasks are counted, too.
    let epoch = first.claim(4).await.epoch;
    process.set_queue("q", max_running(2)).await;
    for number in 1..=2 {
        second.rest().await;
        first.report(epoch, number, done()).await;
        assert_eq!(process.queue("q").await.running, 4 - number);
    }
    second.rest().await;
    first.report(epoch, 3, done()).await;
    assert_eq!(ids(&second.claim(9).await), [id(5)]);
    process.set_queue("q", Default::default()).await;
    assert_eq!(ids(&second.claim(9).await), [6, 7, 8, 9].map(id));
}

pub async fn the_tasks_of_a_dead_worker_keep_to_the_limit(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut dead = one.session_in("q").await;
    let mut first = two.session_in("q").await;
    let mut second = two.session_in("q").await;
    two.set_queue("q", max_running(2)).await;
    first.enqueue((1..=9).map(queued)).await;
    dead.claim(2).await;
    first.rest().await;
    one.kill(it);
    // The first turn takes the tasks back, and one of them starts again.
    assert_eq!(ids(&first.claim(1).await), [id(1)]);
    assert_eq!(ids(&second.claim(9).await), [id(2)]);
    assert_eq!(two.queue("q").await.running, 2);
    first.rest().await;
}

pub async fn a_late_verdict_frees_no_permit(it: &dyn Harness) {
    let process = Process::of(it);
    let mut zombie = process.session_in("q").await;
    let mut default = process.session().await;
    let mut q = process.session_in("q").await;
    process.set_queue("q", max_running(2)).await;
    default.enqueue((1..=9).map(queued)).await;
    let epoch = zombie.claim(2).await.epoch;
    // A session of another queue takes the claim back.
    for _ in 0..2 {
        q.rest().await;
        it.clock().advance(LEASE);
        default.rest().await;
    }
    assert_eq!(process.queue("q").await.running, 0);
    assert_eq!(ids(&q.claim(1).await), [id(1)]);
    for verdict in [done(), retry(HOUR), dead(), Verdict::Release] {
        let turn = wanting(0)
            .verdict(epoch, 1, verdict.clone())
            .verdict(epoch, 2, verdict);
        assert_eq!(zombie.turn(turn).await.refused, [id(1), id(2)]);
    }
    assert_eq!(process.queue("q").await.running, 1);
    assert_eq!(ids(&q.claim(9).await), [id(2)]);
    q.rest().await;
    zombie.rest().await;
}

pub async fn a_dead_letter_of_a_crash_frees_its_permit(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut dying = one.session_in("q").await;
    let mut q = two.session_in("q").await;
    two.set_queue("q", max_running(1)).await;
    let fragile = NewTask {
        max_crashes: 0,
        ..queued(1)
    };
    q.enqueue([fragile, queued(2)]).await;
    let claim = dying.claim(1).await;
    one.renew([claim.epoch]).await;
    q.rest().await;
    one.kill(it);
    assert_eq!(ids(&q.claim(9).await), [id(2)]);
    let expected = TaskState::Dead {
        reason: DeadReason::Crashes,
        error: String::new(),
    };
    assert_eq!(two.status_of(1).await, expected);
    assert_eq!(two.queue("q").await.running, 1);
}

pub async fn a_closed_session_frees_its_permits(it: &dyn Harness) {
    let process = Process::of(it);
    let mut first = process.session_in("q").await;
    let mut second = process.session_in("q").await;
    process.set_queue("q", max_running(3)).await;
    first.enqueue((1..=9).map(queued)).await;
    first.claim(2).await;
    let epoch = second.claim(9).await.epoch;
    first.close().await;
    assert_eq!(process.queue("q").await.running, 1);
    assert_eq!(ids(&second.claim(9).await), [1, 2].map(id));
    second.rest().await;
    second.report(epoch, 3, done()).await;
    assert_eq!(ids(&second.claim(9).await), [id(4)]);
}

pub async fn a_cancelled_run_frees_its_permit_when_it_ends(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut first = one.session_in("q").await;
    let mut second = two.session_in("q").await;
    one.set_queue("q", max_running(1)).await;
    second.enqueue((1..=4).map(queued)).await;
    let epoch = first.claim(9).await.epoch;
    assert_eq!(two.cancel([1]).await, 1);
    assert_eq!(two.cancel([1]).await, 1);
    second.rest().await;
    assert_eq!(two.queue("q").await.running, 1);
    first.report(epoch, 1, retry(SECOND)).await;
    assert_eq!(two.status_of(1).await, TaskState::Cancelled);
    // The next one does not survive its worker.
    assert_eq!(ids(&first.claim(9).await), [id(2)]);
    assert_eq!(two.cancel([2]).await, 1);
    second.rest().await;
    one.kill(it);
    assert_eq!(ids(&second.claim(9).await), [id(3)]);
    assert_eq!(two.status_of(2).await, TaskState::Cancelled);
    second.rest().await;
}

pub async fn a_paused_type_does_not_count_as_running(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_of_in(&["even", "odd"], "q").await;
    process.set_queue("q", max_running(1)).await;
    let tasks = (1..=6).map(|number| in_queue("q", typed(number)));
    q.enqueue(tasks).await;
    process.pause("odd").await;
    let (claimed, _) = claim_all(&mut q).await;
    assert_eq!(claimed, [id(2)]);
    process.resume("odd").await;
    q.rest().await;
    process.set_queue("q", max_running(3)).await;
    let (claimed, _) = claim_all(&mut q).await;
    assert_eq!(claimed.len(), 2);
    q.rest().await;
}
