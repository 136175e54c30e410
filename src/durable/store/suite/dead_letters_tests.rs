//! Dead letters, and maintenance.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::DeadFilter;
use crate::durable::store::{
    DEAD_LETTER_RETENTION, DeadPayload, MAX_BATCH_TASKS, MAX_DEAD_LETTERS, MAX_PAYLOAD_BYTES,
    NewTask, TaskState, Verdict,
};

pub async fn the_newest_dead_letter_is_first(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(5), retry(Duration::ZERO)).await;
    let epoch = session.claim(1).await.epoch;
    session.report(epoch, 5, dead()).await;
    it.clock().advance(SECOND);
    session.run(task(1), dead()).await;
    session.run(task(2), dead()).await;
    it.clock().advance(SECOND);
    session.run(task(3), dead()).await;
    it.clock().advance(SECOND);
    let dead_letters = process.dead_letters(DeadFilter::all(), 9).await;
    let listed: Vec<_> = dead_letters
        .iter()
        .map(|it| (it.id, it.age, it.failures))
        .collect();
    let expected = [
        (id(3), SECOND, 1),
        (id(2), 2 * SECOND, 1),
        (id(1), 2 * SECOND, 1),
        (id(5), 3 * SECOND, 2),
    ];
    assert_eq!(listed, expected);
}

pub async fn a_list_of_dead_letters_has_at_most_its_limit(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    assert_eq!(process.dead_letters(DeadFilter::all(), 9).await, []);
    for number in 1..=3 {
        session.run(task(number), dead()).await;
        it.clock().advance(SECOND);
    }
    assert_eq!(process.dead_ids(DeadFilter::all(), 2).await, [id(3), id(2)]);
    assert_eq!(process.dead_letters(DeadFilter::all(), 0).await, []);
    assert_eq!(
        process
            .dead_letters(DeadFilter::all(), usize::MAX)
            .await
            .len(),
        3
    );
}

pub async fn filters_select_dead_letters(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for number in 1..=6 {
        let name = if number % 2 == 0 { "even" } else { "odd" };
        let new = NewTask {
            name: name.into(),
            ..task(number)
        };
        session.run(new, dead()).await;
        it.clock().advance(SECOND);
    }
    session.run(task(7), done()).await;
    let even = DeadFilter::name("even");
    assert_eq!(process.dead_ids(even.clone(), 9).await, [6, 4, 2].map(id));
    assert_eq!(process.dead_ids(DeadFilter::name("job"), 9).await, []);
    let some = DeadFilter::ids([7, 1, 8, 4].map(id));
    assert_eq!(process.dead_ids(some.clone(), 9).await, [4, 1].map(id));
    let mut both = even.clone();
    both.ids.clone_from(&some.ids);
    assert_eq!(process.dead_ids(both.clone(), 9).await, [id(4)]);
    assert_eq!(process.dead_ids(DeadFilter::ids([]), 9).await, []);
    // The same filters select what is replayed and deleted.
    assert_eq!(process.replay_dead_letters(both.clone()).await, 1);
    assert_eq!(process.replay_dead_letters(both).await, 0);
    assert_eq!(process.delete_dead_letters(even).await, 2);
    assert_eq!(process.delete_dead_letters(DeadFilter::ids([])).await, 0);
    assert_eq!(
        process.dead_ids(DeadFilter::all(), 9).await,
        [5, 3, 1].map(id)
    );
}

pub async fn a_dead_letter_has_its_payload(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let lens = [0, 1, 512, 513, 100_000, MAX_PAYLOAD_BYTES];
    let news = (1..).zip(lens).map(|(number, len)| NewTask {
        name: STRANGE_NAMES[len % 2].into(),
        payload: (0..len).map(|at| (at % 251) as u8).collect(),
        ..task(number)
    });
    let news: Vec<_> = news.collect();
    for new in &news {
        session.run(new.clone(), dead()).await;
    }
    for (number, new) in (1..).zip(&news) {
        let found = process.dead_letter_payload(number).await;
        let expected = DeadPayload {
            name: (*new.name).into(),
            payload: Ok(new.payload.clone()),
        };
        assert!(found == Some(expected), "{} bytes", new.payload.len());
    }
}

pub async fn only_a_dead_letter_has_a_payload(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), done()).await;
    session.run(task(2), retry(SECOND)).await;
    session.enqueue([task(3)]).await;
    session.claim(1).await;
    session.enqueue([task(4), task(5)]).await;
    process.cancel([5]).await;
    for number in 0..=5 {
        let found = process.dead_letter_payload(number).await;
        assert_eq!(found, None, "{:?}", process.status_of(number).await);
    }
}

pub async fn a_replayed_or_deleted_dead_letter_has_no_payload(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let large = |number| NewTask {
        payload: vec![number as u8; 2000],
        ..task(number)
    };
    session.run(large(1), dead()).await;
    session.run(large(2), dead()).await;
    let payload_of = async |number| {
        let found = process.dead_letter_payload(number).await;
        found.map(|found| found.payload)
    };
    assert_eq!(payload_of(1).await, Some(Ok(vec![1; 2000])));
    assert_eq!(
        process.replay_dead_letters(DeadFilter::ids([id(1)])).await,
        1
    );
    assert_eq!(
        process.delete_dead_letters(DeadFilter::ids([id(2)])).await,
        1
    );
    assert_eq!((payload_of(1).await, payload_of(2).await), (None, None));
    // The payload is still there when the task has failed again.
    let epoch = session.claim(1).await.epoch;
    assert_eq!(payload_of(1).await, None);
    session.report(epoch, 1, dead()).await;
    assert_eq!(payload_of(1).await, Some(Ok(vec![1; 2000])));
}

pub async fn a_replayed_dead_letter_starts_afresh(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), retry(Duration::ZERO)).await;
    let epoch = session.claim(1).await.epoch;
    session.report(epoch, 1, dead()).await;
    it.clock().advance(SECOND);
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 1);
    assert_eq!(process.status_of(1).await, TaskState::Waiting);
    assert_eq!(process.dead_letters(DeadFilter::all(), 9).await, []);
    let expected = fresh(1);
    let claim = session.claim(9).await;
    assert_eq!(claim.tasks, [expected]);
    session.report(claim.epoch, 1, done()).await;
    let counts = process.counts().await;
    assert_eq!((counts.stored, counts.dead, counts.died), (1, 0, 1));
}

pub async fn replayed_dead_letters_wait_in_the_order_of_their_ids(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for number in [3, 1, 2] {
        session.run(task(number), dead()).await;
        it.clock().advance(SECOND);
    }
    session.enqueue([task(9)]).await;
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 3);
    assert_eq!(ids(&session.claim(9).await), [9, 1, 2, 3].map(id));
}

pub async fn a_deleted_dead_letter_is_gone(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), dead()).await;
    session.run(task(2), done()).await;
    assert_eq!(process.delete_dead_letters(DeadFilter::all()).await, 1);
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Absent, state_done()]
    );
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 0);
    // Its id is free.
    session.run(task(1), done()).await;
    assert_eq!(process.counts().await.stored, 3);
}

pub async fn a_dead_letter_expires(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), dead()).await;
    let millisecond = Duration::from_millis(1);
    it.age(DEAD_LETTER_RETENTION - millisecond);
    assert_eq!(process.dead_ids(DeadFilter::all(), 9).await, [id(1)]);
    assert!(process.dead_letter_payload(1).await.is_some());
    assert!(!process.maintain(9).await);
    it.clock().advance(millisecond);
    // Maintenance need not have removed it.
    assert_eq!(process.status_of(1).await, TaskState::Absent);
    assert_eq!(process.dead_letters(DeadFilter::all(), 9).await, []);
    assert_eq!(process.dead_letter_payload(1).await, None);
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 0);
    assert_eq!(process.delete_dead_letters(DeadFilter::all()).await, 0);
    process.maintain(9).await;
    assert_eq!(process.counts().await.dead, 0);
}

pub async fn maintenance_keeps_to_its_budget(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let kept = |number, retention| NewTask {
        retention,
        ..task(number)
    };
    for number in 0..5 {
        session.run(kept(number, SECOND), done()).await;
    }
    session.run(kept(5, HOUR), done()).await;
    session.run(kept(6, SECOND), dead()).await;
    it.clock().advance(SECOND);
    let left = async || process.counts().await.kept;
    assert_eq!(left().await, 6);
    for removed in [2, 4] {
        assert!(process.maintain(2).await);
        assert_eq!(left().await, 6 - removed);
    }
    while process.maintain(2).await {}
    assert_eq!((left().await, process.counts().await.dead), (1, 1));
    assert_eq!(process.status([5, 6]).await, [state_done(), state_dead()]);
}

pub async fn maintenance_keeps_the_newest_dead_letters(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let batch = MAX_BATCH_TASKS as u64;
    let batches = MAX_DEAD_LETTERS / batch + 1;
    for first in (0..batches).map(|number| number * batch) {
        let numbers = first..first + batch;
        session.enqueue(numbers.clone().map(task)).await;
        let epoch = session.claim(MAX_BATCH_TASKS).await.epoch;
        let verdicts = numbers.map(|number| (id(number), dead())).collect();
        session.turn(wanting(0).verdicts(epoch, verdicts)).await;
        it.clock().advance(SECOND);
    }
    let stored = batches * batch;
    assert_eq!(process.counts().await.dead, stored);
    assert!(process.maintain(100).await);
    assert_eq!(process.counts().await.dead, stored - 100);
    while process.maintain(100).await {}
    assert_eq!(process.counts().await.dead, MAX_DEAD_LETTERS);
    let excess = stored - MAX_DEAD_LETTERS;
    let seen = process.status([0, excess - 1, excess, stored - 1]).await;
    let expected = [
        TaskState::Absent,
        TaskState::Absent,
        state_dead(),
        state_dead(),
    ];
    assert_eq!(seen, expected);
    // Only the dead letters in excess were removed.
    session.run(task(stored), Verdict::Release).await;
    assert!(!process.maintain(100).await);
    assert_eq!(process.status_of(stored).await, TaskState::Waiting);
}
