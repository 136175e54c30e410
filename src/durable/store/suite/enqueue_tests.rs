//! Enqueue: tasks are stored once, as they were spawned.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::store::{MAX_BATCH_TASKS, NewTask, TaskState, Verdict};

pub async fn a_claimed_task_is_as_it_was_stored(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let claim = session.claim(9).await;
    assert_eq!(claim.tasks, [fresh(1), fresh(2)]);
    let counts = process.counts().await;
    assert_eq!((counts.stored, counts.claimed, counts.running), (2, 2, 2));
}

pub async fn a_repeated_enqueue_stores_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    // The second repetition comes after the tasks have ended and were removed, so their ids are free.
    let mut worker = process.session().await;
    let claim = worker.claim(1).await;
    session.enqueue_again([task(1), task(2)]).await.unwrap();
    worker.report(claim.epoch, 1, done()).await;
    it.age(HOUR);
    session.enqueue_again([task(1), task(2)]).await.unwrap();
    let counts = process.counts().await;
    assert_eq!((counts.stored, counts.waiting), (2, 1));
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Absent, TaskState::Waiting]
    );
}

pub async fn a_number_with_other_tasks_is_refused(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    assert_refused(session.enqueue_again([task(2)]).await);
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Waiting, TaskState::Absent]
    );
    session.enqueue([task(2)]).await;
    assert_eq!(process.status_of(2).await, TaskState::Waiting);
}

pub async fn an_older_number_is_refused(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    session.enqueue([task(2)]).await;
    session.number -= 1;
    assert_refused(session.enqueue_again([task(1)]).await);
    assert_refused(session.enqueue_again([task(3)]).await);
    assert_eq!(process.status_of(3).await, TaskState::Absent);
}

pub async fn an_empty_enqueue_does_not_use_its_number(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([]).await;
    session.enqueue_again([task(1)]).await.unwrap();
    assert_eq!(process.status_of(1).await, TaskState::Waiting);
    // It does not affect the repetition of a claim, either.
    let claim = session.claim(1).await;
    session.enqueue([]).await;
    session.number -= 1;
    let again = session.turn_again(wanting(1)).await.unwrap();
    assert_eq!(again.claim, Some(claim));
    // But an older number is refused, and so is one that had tasks.
    session.number -= 1;
    assert_refused(session.enqueue_again([]).await);
    session.number += 2;
    session.enqueue_again([task(2)]).await.unwrap();
    assert_refused(session.enqueue_again([]).await);
}

pub async fn an_unknown_session_is_refused(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.id += 1;
    session.number = 1;
    assert_refused(session.enqueue_again([task(1)]).await);
    assert_eq!(process.status_of(1).await, TaskState::Absent);
}

pub async fn an_id_twice_in_one_batch_is_stored_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), other(1), task(2)]).await;
    let claim = session.claim(9).await;
    assert_eq!(claim.tasks, [fresh(1), fresh(2)]);
    assert_eq!(process.counts().await.stored, 2);
}

pub async fn a_stored_id_changes_nothing_while_it_waits(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    session.enqueue([other(1)]).await;
    assert_eq!(process.counts().await.stored, 2);
    assert_eq!(session.claim(9).await.tasks, [fresh(1), fresh(2)]);
}

pub async fn a_stored_id_changes_nothing_while_it_is_delayed(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([delayed(1, SECOND)]).await;
    session.enqueue([other(1)]).await;
    assert_eq!(process.status_of(1).await, TaskState::Delayed);
    it.clock().advance(SECOND);
    let expected = fresh(1);
    assert_eq!(session.claim(9).await.tasks, [expected]);
}

pub async fn a_stored_id_changes_nothing_while_it_runs(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let claim = session.claim(1).await;
    session.enqueue([other(1)]).await;
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    session.report(claim.epoch, 1, done()).await;
    assert_eq!(process.status_of(1).await, state_done());
}

pub async fn a_stored_id_changes_nothing_when_it_is_done(it: &dyn Harness) {
    ended(it, done(), state_done()).await;
}

pub async fn a_stored_id_changes_nothing_when_it_is_dead(it: &dyn Harness) {
    ended(it, dead(), state_dead()).await;
}

/// Checks that a task that has ended is not stored again.
async fn ended(it: &dyn Harness, verdict: Verdict, seen: TaskState) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), verdict).await;
    session.enqueue([other(1)]).await;
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    assert_eq!(process.status_of(1).await, seen);
    assert_eq!(process.counts().await.stored, 1);
}

pub async fn a_stored_id_changes_nothing_when_it_is_cancelled(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    assert_eq!(process.cancel([1]).await, 1);
    session.enqueue([other(1)]).await;
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    assert_eq!(process.status_of(1).await, TaskState::Cancelled);
}

pub async fn an_id_is_free_when_its_task_has_expired(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), done()).await;
    it.age(HOUR);
    session.enqueue([task(1)]).await;
    assert_eq!(process.status_of(1).await, TaskState::Waiting);
    let counts = process.counts().await;
    assert_eq!((counts.stored, counts.waiting, counts.kept), (2, 1, 0));
    assert_eq!(session.claim(1).await.tasks, [fresh(1)]);
}

pub async fn a_full_batch_is_stored_in_its_order(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    // This is not the order of the ids.
    let numbers: Vec<u64> = (0..MAX_BATCH_TASKS as u64)
        .map(|n| (n * 101) % 256)
        .collect();
    session.enqueue(numbers.iter().map(|&n| task(n))).await;
    let claim = session.claim(MAX_BATCH_TASKS).await;
    let expected: Vec<_> = numbers.iter().map(|&n| id(n)).collect();
    assert_eq!(ids(&claim), expected);
}

pub async fn names_and_payloads_may_be_anything(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let named = |number, name: &'static str, payload: &[u8]| NewTask {
        name: name.into(),
        payload: payload.to_vec(),
        ..task(number)
    };
    let every_byte: Vec<u8> = (0..=255).collect();
    let tasks = [
        named(1, "", b""),
        named(2, STRANGE_NAMES[0], &every_byte),
        named(3, STRANGE_NAMES[1], b"\0"),
        named(u64::MAX, "job", b"'"),
    ];
    session.enqueue(tasks.clone()).await;
    let claim = session.claim(9).await;
    let claimed: Vec<_> = claim
        .tasks
        .into_iter()
        .map(|task| (task.name, task.payload))
        .collect();
    let stored: Vec<_> = tasks
        .into_iter()
        .map(|task| ((*task.name).into(), Ok(task.payload)))
        .collect();
    assert_eq!(claimed, stored);
    let verdict = Verdict::Done(every_byte.clone());
    session.report(claim.epoch, 2, verdict).await;
    session
        .report(claim.epoch, 1, Verdict::Done(Vec::new()))
        .await;
    let expected = [TaskState::Done(Vec::new()), TaskState::Done(every_byte)];
    assert_eq!(process.status([1, 2]).await, expected);
}

pub async fn large_payloads_and_outputs_are_stored(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for (number, len) in [(1, 100 << 10), (2, 1 << 20)] {
        let payload: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        let new = NewTask {
            payload: payload.clone(),
            ..task(number)
        };
        session.enqueue([new]).await;
        let claim = session.claim(1).await;
        // The failure message would be a megabyte long.
        assert!(
            claim.tasks[0].payload == Ok(payload.clone()),
            "a payload of {len} bytes"
        );
        let output: Vec<u8> = payload.iter().rev().copied().collect();
        session
            .report(claim.epoch, number, Verdict::Done(output.clone()))
            .await;
        let seen = process.status_of(number).await;
        assert!(seen == TaskState::Done(output), "an output of {len} bytes");
    }
}

/// A different task with the same id.
fn other(number: u64) -> NewTask {
    NewTask {
        name: "other".into(),
        payload: b"other".to_vec(),
        delay: Duration::ZERO,
        ..task(number)
    }
}
