//! A verdict counts only if the task is still held under its epoch.

use super::Harness;
use super::process::*;
use crate::durable::store::{TaskState, Verdict};

pub async fn a_verdict_after_reap_and_claim_is_refused(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut frozen = one.session().await;
    let mut other = two.session().await;
    frozen.enqueue([task(1)]).await;
    let old = frozen.claim(1).await.epoch;
    // The worker loses the task, and no other has claimed it.
    it.clock().advance(LEASE);
    other.turn(wanting(0)).await;
    it.clock().advance(LEASE);
    other.turn(wanting(0)).await;
    let turned = frozen.turn(wanting(0).verdict(old, 1, done())).await;
    assert_eq!(turned.refused, [id(1)]);
    assert_eq!(one.status_of(1).await, TaskState::Waiting);
    // It is claimed again.
    let new = other.claim(1).await.epoch;
    for verdict in [done(), dead(), retry(SECOND), Verdict::Release] {
        let turned = frozen.turn(wanting(0).verdict(old, 1, verdict)).await;
        assert_eq!(turned.refused, [id(1)]);
        assert_eq!(one.status_of(1).await, TaskState::Running);
    }
    other.report(new, 1, done()).await;
    let counts = one.counts().await;
    assert_eq!((counts.done, counts.retried, counts.died), (1, 0, 0));
}

pub async fn a_verdict_after_the_end_is_refused(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    session.report(epoch, 1, done()).await;
    let late = Verdict::Done(b"late".to_vec());
    let turned = session.turn(wanting(0).verdict(epoch, 1, late)).await;
    assert_eq!(turned.refused, [id(1)]);
    assert_eq!(process.status_of(1).await, state_done());
}

pub async fn a_verdict_from_before_a_replay_is_refused(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut frozen = one.session().await;
    let mut other = two.session().await;
    frozen.enqueue([task(1)]).await;
    let old = frozen.claim(1).await.epoch;
    it.clock().advance(LEASE);
    other.turn(wanting(0)).await;
    it.clock().advance(LEASE);
    let epoch = other.claim(1).await.epoch;
    other.report(epoch, 1, done()).await;
    // Other tasks with the same id: often enough for a counter per task to reach the same value.
    it.age(HOUR);
    two.maintain(100).await;
    assert_eq!(two.counts().await.kept, 0);
    other.enqueue([task(1)]).await;
    let new = other.claim(1).await.epoch;
    let late = Verdict::Done(b"late".to_vec());
    let turned = frozen.turn(wanting(0).verdict(old, 1, late)).await;
    assert_eq!(turned.refused, [id(1)]);
    assert_eq!(one.status_of(1).await, TaskState::Running);
    other.report(new, 1, done()).await;
    assert_eq!(one.status_of(1).await, state_done());
}

pub async fn a_verdict_for_the_task_of_another_claim_is_refused(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let first = session.claim(1).await.epoch;
    let second = session.claim(1).await.epoch;
    let turn = wanting(0)
        .verdict(first, 2, done())
        .verdict(second, 1, done());
    assert_eq!(session.turn(turn).await.refused, [id(2), id(1)]);
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Running, TaskState::Running]
    );
}

pub async fn a_verdict_for_an_unknown_task_is_refused(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), delayed(2, SECOND)]).await;
    let turn = wanting(0)
        .verdict(77, 1, done())
        .verdict(77, 2, done())
        .verdict(77, 3, done());
    assert_eq!(session.turn(turn).await.refused, [1, 2, 3].map(id));
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Waiting, TaskState::Delayed]
    );
    // Epoch zero, which no claim has, does not match tasks that are not held, either.
    let turn = wanting(0).verdict(0, 1, done()).verdict(0, 2, done());
    assert_eq!(session.turn(turn).await.refused, [1, 2].map(id));
}

pub async fn an_epoch_is_above_all_that_its_process_has_received(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let (mut session, mut other) = (one.session().await, two.session().await);
    session.enqueue((1..=4).map(task)).await;
    let first = session.claim(1).await.epoch;
    // The client has received this epoch from the store, which was then restored from an older copy.
    let floor = first + HOUR.as_micros() as u64;
    let turned = session.turn(wanting(1).floor(floor)).await;
    let claim = turned.claim.unwrap();
    assert!(claim.epoch > floor, "{} {floor}", claim.epoch);
    let next = other.claim(1).await.epoch;
    assert!(next > claim.epoch, "{next} {}", claim.epoch);
    // A floor that is lower than the last epoch changes nothing.
    let last = session.turn(wanting(1).floor(first)).await.claim.unwrap();
    assert!(last.epoch > next, "{} {next}", last.epoch);
}

pub async fn valid_and_stale_verdicts_are_distinguished(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue((1..=6).map(task)).await;
    let first = session.claim(3).await.epoch;
    session.report(first, 2, Verdict::Release).await;
    let second = session.claim(3).await.epoch;
    let turn = wanting(9)
        .verdict(first, 1, done())
        .verdict(first, 2, done())
        .verdict(first, 3, dead())
        .verdict(second, 1, done())
        .verdict(second, 2, done())
        .verdict(second, 4, retry(SECOND));
    let turned = session.turn(turn).await;
    assert_eq!(turned.refused, [id(2), id(1)]);
    assert_eq!(ids(&turned.claim.unwrap()), [id(6)]);
    let expected = [
        state_done(),
        state_done(),
        state_dead(),
        TaskState::Delayed,
        TaskState::Running,
        TaskState::Running,
    ];
    assert_eq!(process.status(1..=6).await, expected);
}
