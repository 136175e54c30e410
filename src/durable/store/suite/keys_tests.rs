//! Keys: which tasks are stored, when a key is free again, and what a task does to the one that holds its key.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::key::Conflict;
use crate::durable::store::{DEAD_LETTER_RETENTION, DeadReason, NewTask, TaskState, Verdict};
use crate::durable::{DeadFilter, Key};

/// Stores tasks. Returns the positions of those that were not stored, with the numbers of the holders and what happened.
pub(super) async fn store(
    session: &mut Session<'_>,
    tasks: impl IntoIterator<Item = NewTask>,
) -> Vec<(usize, u64, Conflict)> {
    session.number += 1;
    repeat(session, tasks).await
}

/// Stores tasks under the number of the last request.
async fn repeat(
    session: &Session<'_>,
    tasks: impl IntoIterator<Item = NewTask>,
) -> Vec<(usize, u64, Conflict)> {
    let enqueued = session.enqueue_again(tasks).await.unwrap();
    let conflicts = enqueued.conflicts.into_iter();
    let number = |it| u128::from_be_bytes(crate::durable::TaskId::to_bytes(it)) as u64;
    let conflicts = conflicts.map(|it| (it.position, number(it.holder), it.resolution));
    conflicts.collect()
}

/// Checks that a task joins `holder`.
pub(super) async fn assert_joins(session: &mut Session<'_>, task: NewTask, holder: u64) {
    let conflicts = store(session, [task]).await;
    assert_eq!(conflicts, [(0, holder, Conflict::Join)]);
}

/// Checks that a task is stored, so its key was free.
pub(super) async fn assert_stored(session: &mut Session<'_>, task: NewTask) {
    assert_eq!(store(session, [task]).await, []);
}

pub(super) fn key() -> Key {
    Key::new("key")
}

/// A task that replaces the payload of the one that holds its key.
pub(super) fn replacing(number: u64, delay: Duration) -> NewTask {
    with_key(key().replace(), delayed(number, delay))
}

/// A task that holds its key for at least a minute.
pub(super) fn throttled(number: u64) -> NewTask {
    with_key(key().throttle(60 * SECOND), task(number))
}

pub async fn a_repeated_enqueue_is_answered_as_the_first_time(it: &dyn Harness) {
    let process = Process::of(it);
    let mut worker = process.session().await;
    let mut session = process.session().await;
    session.enqueue([keyed(1)]).await;
    let reject = |number| with_key(key().reject(), task(number));
    let tasks = || [task(2), keyed(3), reject(4), task(5)];
    let answer = [(1, 1, Conflict::Join), (2, 1, Conflict::Reject)];
    assert_eq!(store(&mut session, tasks()).await, answer);
    let epoch = worker.claim(1).await.epoch;
    worker.report(epoch, 1, done()).await;
    assert_eq!(repeat(&session, tasks()).await, answer);
    assert_eq!(process.counts().await.stored, 3);
    assert_eq!(process.status_of(3).await, TaskState::Absent);
    // The session does not answer the next request with the answer to an earlier one.
    assert_stored(&mut session, keyed(6)).await;
    assert_eq!(repeat(&session, [keyed(6)]).await, []);
    assert_eq!(process.counts().await.stored, 4);
}

pub async fn only_one_of_many_tasks_with_the_same_key_is_stored(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut first = one.session().await;
    let mut second = two.session().await;
    let conflicts = store(&mut first, (0..100).map(keyed)).await;
    let expected: Vec<_> = (1..100).map(|at| (at, 0, Conflict::Join)).collect();
    assert_eq!(conflicts, expected);
    for number in 100..110 {
        assert_joins(&mut second, keyed(number), 0).await;
    }
    // Plain tasks, and tasks with other keys, are stored in their order.
    let other = |number| with_key(Key::new("other"), task(number));
    let tasks = [keyed(110), task(111), other(112), other(113), task(114)];
    let expected = [(0, 0, Conflict::Join), (3, 112, Conflict::Join)];
    assert_eq!(store(&mut second, tasks).await, expected);
    assert_eq!(one.counts().await.stored, 4);
    let mut claimed = claim_all(&mut first).await.0;
    claimed.sort();
    assert_eq!(claimed, [0, 111, 112, 114].map(id));
}

pub async fn a_task_that_ends_frees_its_key(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let without_retention = |number| NewTask {
        retention: Duration::ZERO,
        ..keyed(number)
    };
    let large = || Verdict::Done(vec![7; 2_000]);
    let ends = [done(), dead(), large(), done(), dead(), large()];
    for (end, number) in ends.into_iter().zip(1..) {
        let new = [keyed, without_retention][number as usize % 2];
        assert_stored(&mut session, new(number)).await;
        let epoch = session.claim(1).await.epoch;
        assert_joins(&mut session, new(99), number).await;
        session.report(epoch, number, end).await;
    }
    assert_stored(&mut session, keyed(50)).await;
    assert_eq!(process.counts().await.stored, 7);
}

pub async fn a_task_that_is_tried_again_keeps_its_key(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session().await;
    assert_stored(&mut session, keyed(1)).await;
    let snooze = Verdict::Snooze { after: SECOND };
    for verdict in [retry(SECOND), snooze, Verdict::Release] {
        let epoch = session.claim(1).await.epoch;
        session.report(epoch, 1, verdict).await;
        assert_joins(&mut session, keyed(2), 1).await;
        it.clock().advance(SECOND);
    }
    session.claim(1).await;
    session.close().await;
    assert_joins(&mut other, keyed(2), 1).await;
    other.run_first(id(1), done()).await;
    assert_stored(&mut other, keyed(2)).await;
}

pub async fn a_task_that_dies_of_crashes_frees_its_key(it: &dyn Harness) {
    let process = Process::of(it);
    let mut spawner = process.session().await;
    assert_stored(&mut spawner, keyed(1)).await;
    for _ in 0..3 {
        assert_joins(&mut spawner, keyed(2), 1).await;
        let worker = Process::of(it);
        let mut session = worker.session().await;
        let epoch = session.claim(1).await.epoch;
        worker.renew([epoch]).await;
        worker.kill(it);
        // Opening a session detects the dead worker.
        process.session().await.close().await;
    }
    let dead = TaskState::Dead {
        reason: DeadReason::Crashes,
        error: String::new(),
    };
    assert_eq!(process.status_of(1).await, dead);
    assert_stored(&mut spawner, keyed(2)).await;
    assert_joins(&mut spawner, keyed(3), 2).await;
}

pub async fn a_dead_letter_is_not_replayed_while_its_key_is_held(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(keyed(1), dead()).await;
    session.run(task(2), dead()).await;
    assert_stored(&mut session, keyed(3)).await;
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 1);
    assert_eq!(process.status_of(1).await, state_dead());
    assert_eq!(process.status_of(2).await, TaskState::Waiting);
    assert_eq!(process.counts().await.dead, 1);
    session.run_first(id(3), done()).await;
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 1);
    assert_joins(&mut session, keyed(4), 1).await;
    // Nor is it replayed while an ended task holds the key in its window.
    session.run_first(id(2), done()).await;
    session.run_first(id(1), dead()).await;
    session.run(throttled(5), done()).await;
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 0);
    it.clock().advance(60 * SECOND);
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 1);
    // Its own window does not prevent its replay.
    session.run_first(id(1), done()).await;
    session.run(throttled(6), dead()).await;
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 1);
    assert_joins(&mut session, keyed(7), 6).await;
}

pub async fn the_first_of_two_dead_letters_with_a_key_is_replayed(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for number in [2, 1] {
        session.run(keyed(number), dead()).await;
    }
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 1);
    assert_eq!(process.status_of(1).await, TaskState::Waiting);
    assert_eq!(process.status_of(2).await, state_dead());
    assert_joins(&mut session, keyed(3), 1).await;
    session.run_first(id(1), done()).await;
    assert_eq!(
        process.replay_dead_letters(DeadFilter::ids([id(2)])).await,
        1
    );
}

pub async fn a_cancelled_task_frees_its_key_at_its_end(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    assert_stored(&mut session, keyed(1)).await;
    assert_eq!(process.cancel([1]).await, 1);
    let later = with_key(key(), delayed(2, HOUR));
    assert_stored(&mut session, later).await;
    assert_eq!(process.cancel([2]).await, 1);
    assert_stored(&mut session, keyed(3)).await;
    let epoch = session.claim(1).await.epoch;
    assert_eq!(process.cancel([3]).await, 1);
    assert_joins(&mut session, keyed(4), 3).await;
    session.report(epoch, 3, retry(SECOND)).await;
    assert_eq!(process.status_of(3).await, TaskState::Cancelled);
    assert_stored(&mut session, keyed(4)).await;
    // A cancelled task whose worker dies frees its key, too.
    session.claim(1).await;
    assert_eq!(process.cancel([4]).await, 1);
    session.close().await;
    let mut session = process.session().await;
    assert_stored(&mut session, keyed(5)).await;
    assert_eq!(claim_all(&mut session).await.0, [id(5)]);
}

pub async fn a_deleted_dead_letter_frees_its_key(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(throttled(1), dead()).await;
    assert_joins(&mut session, keyed(2), 1).await;
    assert_eq!(process.delete_dead_letters(DeadFilter::all()).await, 1);
    assert_stored(&mut session, keyed(2)).await;
    session.run_first(id(2), dead()).await;
    assert_stored(&mut session, keyed(3)).await;
    // The key of the deleted dead letter is now held by another task, and stays held.
    assert_eq!(process.delete_dead_letters(DeadFilter::all()).await, 1);
    assert_joins(&mut session, keyed(4), 3).await;
}

pub async fn a_key_that_a_claim_has_freed_is_never_held_again(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let until_started = |number| with_key(key().until_started(), task(number));
    assert_stored(&mut session, until_started(1)).await;
    assert_joins(&mut session, until_started(2), 1).await;
    let epoch = session.claim(1).await.epoch;
    assert_stored(&mut session, until_started(2)).await;
    // The first task waits again beside the second. Each keeps its own state of the key.
    session.report(epoch, 1, Verdict::Release).await;
    assert_joins(&mut session, until_started(3), 2).await;
    assert_eq!(process.cancel([2]).await, 1);
    assert_stored(&mut session, until_started(3)).await;
    assert_eq!(process.cancel([3]).await, 1);
    let epoch = session.claim(1).await.epoch;
    session.report(epoch, 1, retry(SECOND)).await;
    assert_stored(&mut session, until_started(4)).await;
    assert_eq!(process.cancel([4]).await, 1);
    it.clock().advance(SECOND);
    session.claim(1).await;
    session.close().await;
    let mut session = process.session().await;
    assert_stored(&mut session, until_started(5)).await;
    // This dead letter is replayed although another task holds its key.
    session.run_first(id(1), dead()).await;
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 1);
    assert_joins(&mut session, until_started(6), 5).await;
    assert_eq!(ids(&session.claim(9).await), [5, 1].map(id));
    assert_stored(&mut session, until_started(6)).await;
}

pub async fn a_throttled_task_is_joined_after_its_end(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for (end, first) in [(done(), 10), (dead(), 20)] {
        assert_stored(&mut session, throttled(first)).await;
        it.clock().advance(10 * SECOND);
        session.run_first(id(first), end).await;
        let kept = process.status_of(first).await;
        assert_joins(&mut session, throttled(first + 1), first).await;
        it.clock().advance(50 * SECOND - Duration::from_millis(1));
        // A task without a window joins, too, and joining does not extend the window.
        assert_joins(&mut session, keyed(first + 2), first).await;
        assert_eq!(process.status_of(first).await, kept);
        it.clock().advance(Duration::from_millis(1));
    }
    assert_stored(&mut session, throttled(30)).await;
    assert_eq!(process.cancel([30]).await, 1);
    assert_joins(&mut session, throttled(31), 30).await;
}

pub async fn a_window_that_is_over_does_not_free_the_key_of_a_running_task(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    assert_stored(&mut session, throttled(1)).await;
    let epoch = session.claim(1).await.epoch;
    it.clock().advance(20 * SECOND);
    process.renew([epoch]).await;
    it.clock().advance(20 * SECOND);
    process.renew([epoch]).await;
    it.clock().advance(20 * SECOND);
    assert_joins(&mut session, throttled(2), 1).await;
    session.report(epoch, 1, done()).await;
    assert_stored(&mut session, throttled(2)).await;
}

pub async fn setting_the_clock_back_extends_a_window_by_as_much(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(throttled(1), done()).await;
    it.clock().set_wall(it.clock().wall() - HOUR / 2);
    it.clock().advance(HOUR / 2);
    assert_joins(&mut session, throttled(2), 1).await;
    it.clock().advance(59 * SECOND);
    assert_joins(&mut session, throttled(2), 1).await;
    it.clock().advance(SECOND);
    assert_stored(&mut session, throttled(2)).await;
    // The retention does not become longer, and a key is not held beyond it.
    session.run_first(id(2), done()).await;
    it.clock().set_wall(it.clock().wall() - 10 * HOUR);
    process.maintain(100).await;
    it.age(HOUR + 60 * SECOND);
    assert_stored(&mut session, throttled(3)).await;
}

pub async fn a_live_task_takes_precedence_over_an_ended_task_in_its_window(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(throttled(1), dead()).await;
    it.clock().advance(61 * SECOND);
    assert_stored(&mut session, replacing(2, Duration::ZERO)).await;
    it.clock().set_wall(it.clock().wall() - 30 * SECOND);
    let replaced = [(0, 2, Conflict::Replace)];
    let answer = store(&mut session, [replacing(3, Duration::ZERO)]).await;
    assert_eq!(answer, replaced);
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 0);
}

pub async fn a_key_belongs_to_a_type_and_a_queue(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let other = |number| {
        let name = "other".into();
        with_key(
            key(),
            NewTask {
                name,
                ..task(number)
            },
        )
    };
    let queued = |number| with_key(key(), queued(number));
    let tasks = [keyed(1), other(2), queued(3), keyed(4), other(5), queued(6)];
    let expected = [1, 2, 3].map(|holder| (holder as usize + 2, holder, Conflict::Join));
    assert_eq!(store(&mut session, tasks).await, expected);
    let mut q = process.session_in("q").await;
    q.run_first(id(3), done()).await;
    assert_joins(&mut session, keyed(4), 1).await;
    assert_stored(&mut session, queued(6)).await;
}

pub async fn maintenance_removes_all_data_about_keys(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(throttled(1), done()).await;
    it.clock().advance(60 * SECOND);
    session.run(keyed(2), dead()).await;
    session.run(replacing(3, Duration::ZERO), done()).await;
    assert_stored(&mut session, with_key(key(), delayed(4, HOUR))).await;
    assert_joins(&mut session, keyed(5), 4).await;
    assert_eq!(process.cancel([4]).await, 1);
    session.close().await;
    it.age(DEAD_LETTER_RETENTION);
    while process.maintain(3).await {}
    assert_eq!(it.leftovers(), 0);
}
