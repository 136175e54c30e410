//! Keys of tasks that are sent again, are replayed, or have expired.

use std::time::Duration;

use super::Harness;
use super::keys_tests::{assert_joins, assert_stored, key, replacing, store, throttled};
use super::process::*;
use crate::durable::DeadFilter;
use crate::durable::key::Conflict;
use crate::durable::store::{DEAD_LETTER_RETENTION, NewTask, TaskState};

/// If a session ends before a request is answered, its client sends the same tasks in another session.
pub async fn tasks_that_are_sent_again_do_not_conflict_with_themselves(it: &dyn Harness) {
    let process = Process::of(it);
    let mut first = process.session().await;
    let mut second = process.session().await;
    let until_started = |number| with_key(key().until_started(), task(number));
    let reject = |number| with_key(key().reject(), task(number));
    let replace = |number| replacing(number, Duration::ZERO);
    let kinds: [&dyn Fn(u64) -> NewTask; 4] = [&keyed, &until_started, &reject, &replace];
    for (new, at) in kinds.into_iter().zip([10, 20, 30, 40]) {
        let tasks = || [task(at + 1), new(at + 2), task(at + 3), new(at + 4)];
        let answer = store(&mut first, tasks()).await;
        assert_eq!(answer.len(), 1);
        assert_eq!((answer[0].0, answer[0].1), (3, at + 2));
        let stored = process.counts().await.stored;
        assert_eq!(store(&mut second, tasks()).await, answer);
        assert_eq!(process.counts().await.stored, stored);
        assert_eq!(process.status_of(at + 4).await, TaskState::Absent);
        let claim = first.claim(9).await;
        assert_eq!(ids(&claim), [at + 1, at + 2, at + 3].map(id));
        for number in at + 1..=at + 3 {
            first.report(claim.epoch, number, done()).await;
        }
    }
}

pub async fn a_task_that_is_sent_again_after_its_claim_does_not_hold_its_key_again(
    it: &dyn Harness,
) {
    let process = Process::of(it);
    let mut first = process.session().await;
    let mut second = process.session().await;
    let until_started = |number| with_key(key().until_started(), task(number));
    assert_stored(&mut first, until_started(1)).await;
    first.claim(1).await;
    assert_stored(&mut second, until_started(1)).await;
    assert_eq!(process.counts().await.stored, 1);
    assert_stored(&mut second, until_started(2)).await;
    assert_eq!(process.status_of(2).await, TaskState::Waiting);
}

pub async fn a_replayed_dead_letter_keeps_its_window(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(throttled(1), dead()).await;
    it.clock().advance(10 * SECOND);
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 1);
    session.run_first(id(1), done()).await;
    it.clock().advance(49 * SECOND);
    assert_joins(&mut session, keyed(2), 1).await;
    it.clock().advance(SECOND);
    assert_stored(&mut session, keyed(2)).await;
}

/// Maintenance may come later: a window that is longer than the retention of dead letters must not keep the key held until then.
pub async fn a_dead_letter_that_has_expired_holds_no_key(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let throttled = |number| with_key(key().throttle(2 * DEAD_LETTER_RETENTION), task(number));
    session.run(throttled(1), dead()).await;
    it.age(DEAD_LETTER_RETENTION - SECOND);
    let mut session = process.session().await;
    let joins = [(0, 1, Conflict::Join)];
    assert_eq!(store(&mut session, [throttled(2)]).await, joins);
    it.age(SECOND);
    let mut session = process.session().await;
    assert_stored(&mut session, throttled(2)).await;
}
