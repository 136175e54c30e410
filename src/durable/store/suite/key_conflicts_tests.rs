//! A task replaces the payload of the one that holds its key, postpones that task, or is rejected.

use std::time::Duration;

use super::Harness;
use super::keys_tests::{assert_joins, assert_stored, key, replacing, store, throttled};
use super::process::*;
use crate::durable::key::Conflict;
use crate::durable::store::kind::{Kind, TypeSet};
use crate::durable::store::{Claimed, NewTask, TaskState, Verdict};

/// A task that starts 10 s after the last one with its key, and 25 s after the first one at the latest.
fn debounced(number: u64) -> NewTask {
    let key = key().debounce(10 * SECOND).at_latest(25 * SECOND);
    with_key(key, task(number))
}

/// Claims one task. Returns the number in its payload.
async fn claimed_payload(session: &mut Session<'_>) -> u64 {
    let claim = session.claim(1).await;
    let payload = claim.tasks[0].payload.as_ref().unwrap();
    u64::from_be_bytes(payload[..].try_into().unwrap())
}

pub async fn a_debounced_task_runs_once_with_the_last_payload(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    assert_stored(&mut session, debounced(1)).await;
    let replaced = [(0, 1, Conflict::Replace)];
    it.clock().advance(6 * SECOND);
    assert_eq!(store(&mut session, [debounced(2)]).await, replaced);
    it.clock().advance(6 * SECOND);
    let both = store(&mut session, [debounced(3), debounced(4)]).await;
    assert_eq!(both, [(0, 1, Conflict::Replace), (1, 1, Conflict::Replace)]);
    it.clock().advance(9 * SECOND);
    let turned = session.turn(wanting(9)).await;
    assert_eq!((turned.claim, turned.next), (None, Some(SECOND)));
    it.clock().advance(SECOND);
    assert_eq!(claimed_payload(&mut session).await, 4);
    assert_eq!(process.status_of(1).await, TaskState::Running);
    assert_eq!(process.status_of(4).await, TaskState::Absent);
    // The run has started, so the next spawn stores another task.
    assert_stored(&mut session, debounced(5)).await;
    assert_eq!(process.counts().await.stored, 2);
}

pub async fn tasks_of_a_batch_with_the_same_key_run_once_with_the_last_payload(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let large = |number: u64, delay| NewTask {
        payload: vec![number as u8; 3_000],
        ..replacing(number, delay)
    };
    let now = Duration::ZERO;
    for (first, delays) in [
        (10, [now, now]),
        (20, [SECOND, SECOND]),
        (30, [now, SECOND]),
        (40, [SECOND, now]),
    ] {
        let tasks = [
            large(first, delays[0]),
            task(first + 1),
            large(first + 2, delays[1]),
        ];
        let replaced = [(2, first, Conflict::Replace)];
        assert_eq!(store(&mut session, tasks).await, replaced);
        it.clock().advance(SECOND);
        let claim = session.claim(9).await;
        let payload = |it: &Claimed| (it.id, it.payload.clone());
        let mut claimed: Vec<_> = claim.tasks.iter().map(payload).collect();
        claimed.sort_by_key(|it| it.0);
        let plain = (first + 1).to_be_bytes().to_vec();
        let expected = [
            (id(first), Ok(vec![first as u8 + 2; 3_000])),
            (id(first + 1), Ok(plain)),
        ];
        assert_eq!(claimed, expected);
    }
    assert_eq!(process.counts().await.stored, 8);
}

pub async fn a_debounced_task_starts_at_the_latest_time(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    assert_stored(&mut session, debounced(1)).await;
    for number in 2..=4 {
        it.clock().advance(8 * SECOND);
        let replaced = store(&mut session, [debounced(number)]).await;
        assert_eq!(replaced, [(0, 1, Conflict::Replace)]);
    }
    let turned = session.turn(wanting(9)).await;
    assert_eq!((turned.claim, turned.next), (None, Some(SECOND)));
    it.clock().advance(SECOND);
    // It is due. Its payload can still be replaced, but it is not delayed again.
    let replaced = store(&mut session, [debounced(5)]).await;
    assert_eq!(replaced, [(0, 1, Conflict::Replace)]);
    assert_eq!(claimed_payload(&mut session).await, 5);
}

pub async fn a_replaced_task_keeps_its_place(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for task in [task(1), replacing(2, Duration::ZERO), task(3)] {
        assert_stored(&mut session, task).await;
    }
    let replaced = store(&mut session, [replacing(4, Duration::ZERO)]).await;
    assert_eq!(replaced, [(0, 2, Conflict::Replace)]);
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [1, 2, 3].map(id));
    assert_eq!(claim.tasks[1].payload, Ok(4_u64.to_be_bytes().to_vec()));
    assert_eq!(process.counts().await.stored, 3);
}

pub async fn a_replaced_task_gets_a_new_delay(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let replaced = [(0, 1, Conflict::Replace)];
    // The task goes from waiting to delayed, is due later, then earlier, and waits again.
    assert_stored(&mut session, replacing(1, Duration::ZERO)).await;
    assert_eq!(store(&mut session, [task(2)]).await, []);
    for delay in [20 * SECOND, 40 * SECOND, 10 * SECOND] {
        let answer = store(&mut session, [replacing(3, delay)]).await;
        assert_eq!(answer, replaced);
        assert_eq!(process.status_of(1).await, TaskState::Delayed);
        let counts = process.counts().await;
        assert_eq!((counts.waiting, counts.delayed), (1, 1));
    }
    let turned = session.turn(wanting(0)).await;
    assert_eq!(turned.next, Some(10 * SECOND));
    let answer = store(&mut session, [replacing(4, Duration::ZERO)]).await;
    assert_eq!(answer, replaced);
    assert_eq!(process.status_of(1).await, TaskState::Waiting);
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [2, 1].map(id));
    assert_eq!(claim.tasks[1].payload, Ok(4_u64.to_be_bytes().to_vec()));
    let counts = process.counts().await;
    assert_eq!((counts.waiting, counts.delayed, counts.running), (0, 0, 2));
}

pub async fn a_replaced_task_that_becomes_ready_overtakes_no_other(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    assert_stored(&mut session, replacing(1, HOUR)).await;
    let tasks = [task(2), task(3), replacing(4, Duration::ZERO), task(5)];
    let replaced = [(2, 1, Conflict::Replace)];
    assert_eq!(store(&mut session, tasks).await, replaced);
    assert_eq!(ids(&session.claim(9).await), [2, 3, 1, 5].map(id));
}

pub async fn a_task_that_holds_its_key_until_it_ends_is_joined_instead_of_replaced(
    it: &dyn Harness,
) {
    let process = Process::of(it);
    let mut session = process.session().await;
    assert_stored(&mut session, keyed(1)).await;
    assert_joins(&mut session, replacing(2, SECOND), 1).await;
    let epoch = session.claim(1).await.epoch;
    assert_joins(&mut session, replacing(3, SECOND), 1).await;
    session.report(epoch, 1, Verdict::Release).await;
    assert_joins(&mut session, replacing(4, SECOND), 1).await;
    assert_eq!(claimed_payload(&mut session).await, 1);
}

pub async fn an_ended_task_is_joined_instead_of_replaced(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    assert_stored(&mut session, throttled(1)).await;
    assert_eq!(process.cancel([1]).await, 1);
    assert_joins(&mut session, replacing(2, Duration::ZERO), 1).await;
    assert_eq!(process.status_of(1).await, TaskState::Cancelled);
    session.rest().await;
}

pub async fn a_large_payload_is_replaced(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let of = |number: u64, len| NewTask {
        payload: vec![number as u8; len],
        retention: Duration::ZERO,
        ..replacing(number, Duration::ZERO)
    };
    for (len, next) in [(9, 3_000), (3_000, 2_000), (3_000, 9)] {
        session.enqueue([of(1, len)]).await;
        let replaced = store(&mut session, [of(2, next)]).await;
        assert_eq!(replaced, [(0, 1, Conflict::Replace)]);
        let claim = session.claim(1).await;
        assert_eq!(claim.tasks[0].payload, Ok(vec![2; next]));
        session.report(claim.epoch, 1, done()).await;
    }
    session.close().await;
    while process.maintain(100).await {}
    assert_eq!(it.leftovers(), 0);
}

pub async fn a_task_is_rejected(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let rejecting = |number| with_key(key().reject(), task(number));
    assert_stored(&mut session, rejecting(1)).await;
    let rejected = [(0, 1, Conflict::Reject)];
    assert_eq!(store(&mut session, [rejecting(2)]).await, rejected);
    // The other tasks of the request are stored.
    let tasks = [task(3), rejecting(4), task(5)];
    let expected = [(1, 1, Conflict::Reject)];
    assert_eq!(store(&mut session, tasks).await, expected);
    assert_eq!(claim_all(&mut session).await.0, [1, 3, 5].map(id));
    assert_eq!(process.status_of(4).await, TaskState::Absent);
}

pub async fn a_replaced_task_that_is_due_earlier_wakes_a_worker(it: &dyn Harness) {
    let process = Process::of(it);
    let mut events = process.events();
    let mut spawner = process.session().await;
    let mut worker = process.session().await;
    assert_stored(&mut spawner, replacing(1, HOUR)).await;
    worker.rest().await;
    events.drain();
    store(&mut spawner, [replacing(2, SECOND)]).await;
    events.woken().await;
    let turned = worker.turn(wanting(1).go_idle()).await;
    assert_eq!((turned.claim, turned.next), (None, Some(SECOND)));
    events.drain();
    store(&mut spawner, [replacing(3, Duration::ZERO)]).await;
    events.woken().await;
    assert_eq!(claimed_payload(&mut worker).await, 3);
}

/// `at_latest` makes a task due before its new delay is over.
pub async fn a_task_that_at_latest_makes_due_earlier_wakes_a_worker(it: &dyn Harness) {
    let process = Process::of(it);
    let mut events = process.events();
    let mut spawner = process.session().await;
    let mut worker = process.session().await;
    assert_stored(&mut spawner, replacing(1, HOUR)).await;
    it.clock().advance(10 * SECOND);
    assert_stored(&mut spawner, delayed(2, 15 * SECOND)).await;
    worker.rest().await;
    events.drain();
    let key = key().debounce(30 * SECOND).at_latest(20 * SECOND);
    store(&mut spawner, [with_key(key, task(3))]).await;
    events.woken().await;
    let turned = worker.turn(wanting(1).go_idle()).await;
    assert_eq!((turned.claim, turned.next), (None, Some(10 * SECOND)));
}

/// A later version of the crate may seal payloads in another envelope.
pub async fn a_payload_in_a_newer_envelope_waits_for_a_newer_worker(it: &dyn Harness) {
    let process = Process::of(it);
    let mut events = process.events();
    let mut old = process.session_of(&["job"]).await;
    let set = TypeSet::of([Kind::in_envelope("job", 3)]);
    let mut new = process.session_with(set).await;
    let newer = |number| NewTask {
        envelope: 3,
        ..replacing(number, Duration::ZERO)
    };
    assert_stored(&mut old, replacing(1, Duration::ZERO)).await;
    assert_stored(&mut old, task(2)).await;
    new.rest().await;
    events.drain();
    let replaced = [(0, 1, Conflict::Replace)];
    assert_eq!(store(&mut old, [newer(3)]).await, replaced);
    events.woken().await;
    assert_eq!(claim_all(&mut old).await.0, [id(2)]);
    let claim = new.claim(9).await;
    assert_eq!(claim.tasks[0].payload, Ok(3_u64.to_be_bytes().to_vec()));
    assert_eq!(ids(&claim), [id(1)]);
    // The same holds while the task is delayed.
    assert_stored(&mut old, replacing(4, SECOND)).await;
    let delayed = NewTask {
        delay: SECOND,
        ..newer(5)
    };
    assert_eq!(
        store(&mut old, [delayed]).await,
        [(0, 4, Conflict::Replace)]
    );
    it.clock().advance(SECOND);
    old.rest().await;
    assert_eq!(ids(&new.claim(9).await), [id(4)]);
}
