//! The time for which ended tasks are kept, and their number.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::store::{CheckedFilter, ListTasks, NewTask, TaskState, Verdict};
use crate::durable::{DeadFilter, Key, Retention, Status, TaskInfo};

const MINUTE: Duration = Duration::from_secs(60);

async fn set(process: &Process, retention: Retention) {
    process.0.0.set_retention(retention).await.unwrap();
}

async fn get(process: &Process) -> Retention {
    process.0.0.retention().await.unwrap()
}

fn dead_for(time: Duration) -> Retention {
    Retention::default().dead_for(time)
}

/// Returns the list of dead letters.
async fn listed(process: &Process) -> Vec<TaskInfo> {
    let filter = CheckedFilter::new(Status::Dead);
    let request = ListTasks {
        filter,
        after: None,
        limit: 100,
    };
    let page = process.0.0.list(request).await.unwrap();
    page.expect("it is the first page").tasks
}

async fn maintain_all(process: &Process, budget: usize) {
    while process.maintain(budget).await {}
}

fn kept(number: u64, retention: Duration) -> NewTask {
    NewTask {
        retention,
        ..task(number)
    }
}

/// Returns which of these tasks the store keeps.
async fn which_are_kept(process: &Process, numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let numbers: Vec<_> = numbers.into_iter().collect();
    let seen = process.status(numbers.clone()).await;
    let kept = numbers.into_iter().zip(seen);
    let kept = kept.filter(|(_, seen)| *seen != TaskState::Absent);
    kept.map(|(number, _)| number).collect()
}

pub async fn a_retention_applies_to_all_processes(it: &dyn Harness) {
    let process = Process::of(it);
    let other = Process::of(it);
    assert_eq!(get(&other).await, Retention::default());
    let all = [
        dead_for(SECOND).dead_most(0).kept_most(0),
        dead_for(100 * 365 * 24 * HOUR)
            .dead_most(1_000_000_000_000)
            .kept_most(1_000_000_000_000),
        dead_for(Duration::from_millis(1_001)).dead_most(7),
        Retention::default(),
        dead_for(HOUR).kept_most(1),
    ];
    for retention in all {
        set(&process, retention).await;
        for seen in [&process, &other, &Process::of(it)] {
            assert_eq!(get(seen).await, retention);
        }
    }
    while process.maintain(9).await {}
    assert_eq!(get(&Process(it.observe())).await, all[4]);
}

pub async fn a_shorter_time_hides_dead_letters_at_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), retry(Duration::ZERO)).await;
    let epoch = session.claim(1).await.epoch;
    session.report(epoch, 1, dead()).await;
    it.clock().advance(3 * SECOND);
    session.run(task(2), dead()).await;
    it.clock().advance(2 * SECOND);
    set(&process, dead_for(5 * SECOND)).await;
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Absent, state_dead()]
    );
    assert_eq!(process.dead_ids(DeadFilter::all(), 9).await, [id(2)]);
    let first = || DeadFilter::ids([id(1)]);
    assert_eq!(process.dead_ids(first(), 9).await, []);
    let listed = listed(&process).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].id, listed[0].kept_for, listed[0].age),
        (id(2), Some(3 * SECOND), Some(2 * SECOND))
    );
    assert!(process.dead_letter_payload(1).await.is_none());
    assert!(process.0.0.find(id(1)).await.unwrap().is_none());
    let found = process.0.0.find(id(2)).await.unwrap().unwrap();
    assert_eq!(found.detail.task.age, Some(2 * SECOND));
    assert_eq!(process.0.0.errors(id(1)).await.unwrap(), []);
    assert_eq!(process.replay_dead_letters(first()).await, 0);
    assert_eq!(process.delete_dead_letters(first()).await, 0);
    assert_eq!(process.counts().await.dead, 2);
    maintain_all(&process, 1).await;
    assert_eq!(process.counts().await.dead, 1);
    it.clock().advance(3 * SECOND - Duration::from_millis(1));
    assert_eq!(process.status_of(2).await, state_dead());
    it.clock().advance(Duration::from_millis(1));
    assert_eq!(process.status_of(2).await, TaskState::Absent);
    maintain_all(&process, 1).await;
    assert_eq!(process.counts().await.dead, 0);
}

pub async fn a_shorter_time_frees_keys_and_ids_at_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let keyed = |number| with_key(Key::new("key").throttle(HOUR), task(number));
    session.run(keyed(1), dead()).await;
    it.clock().advance(10 * SECOND);
    session.enqueue([keyed(2)]).await;
    assert_eq!(process.status_of(2).await, TaskState::Absent);
    set(&process, dead_for(10 * SECOND)).await;
    session.enqueue([keyed(3)]).await;
    assert_eq!(process.status_of(3).await, TaskState::Waiting);
    session.enqueue([task(1)]).await;
    assert_eq!(process.status_of(1).await, TaskState::Waiting);
    assert_eq!(process.counts().await.dead, 0);
}

pub async fn a_longer_time_keeps_what_has_not_expired(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    set(&process, dead_for(10 * SECOND)).await;
    session.run(task(1), dead()).await;
    it.clock().advance(9 * SECOND);
    set(&process, dead_for(30 * SECOND)).await;
    it.clock().advance(20 * SECOND);
    maintain_all(&process, 9).await;
    assert_eq!(listed(&process).await[0].kept_for, Some(SECOND));
    assert_eq!(process.status_of(1).await, state_dead());
    it.clock().advance(SECOND);
    assert_eq!(process.status_of(1).await, TaskState::Absent);
}

/// Otherwise, a key could be held by two tasks, and a task could end twice.
pub async fn dead_letters_that_have_expired_do_not_come_back(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), dead()).await;
    it.clock().advance(SECOND);
    session.run(task(2), dead()).await;
    it.clock().advance(SECOND);
    set(&process, dead_for(2 * SECOND)).await;
    for _ in 0..2 {
        set(&process, Retention::default()).await;
        assert_eq!(which_are_kept(&process, [1, 2]).await, [2]);
        assert_eq!(process.dead_ids(DeadFilter::all(), 9).await, [id(2)]);
        assert_eq!(listed(&process).await.len(), 1);
    }
    maintain_all(&process, 9).await;
    assert_eq!(process.counts().await.dead, 1);
    it.age(Retention::default().dead_for - SECOND);
    assert_eq!(process.status_of(2).await, TaskState::Absent);
}

pub async fn the_oldest_dead_letters_in_excess_are_removed(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for number in [3, 1, 4, 2, 5] {
        session.run(task(number), dead()).await;
        it.clock().advance(SECOND);
    }
    session.run(task(6), done()).await;
    set(&process, Retention::default().dead_most(2)).await;
    assert_eq!(which_are_kept(&process, 1..=6).await, [1, 2, 3, 4, 5, 6]);
    assert!(process.maintain(1).await);
    assert_eq!(process.counts().await.dead, 4);
    maintain_all(&process, 1).await;
    assert_eq!(which_are_kept(&process, 1..=6).await, [2, 5, 6]);
    session.run(task(1), dead()).await;
    maintain_all(&process, 9).await;
    assert_eq!(which_are_kept(&process, 1..=6).await, [1, 5, 6]);
}

pub async fn all_dead_letters_can_be_in_excess(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for number in 1..=3 {
        session.run(task(number), dead()).await;
    }
    set(&process, Retention::default().dead_most(0)).await;
    maintain_all(&process, 2).await;
    assert_eq!(which_are_kept(&process, 1..=3).await, [0; 0]);
    assert_eq!(process.counts().await.dead, 0);
    // A dead letter is there until the next pass, so those who wait for the task learn how it ended.
    session.run(task(4), dead()).await;
    assert_eq!(process.status_of(4).await, state_dead());
    maintain_all(&process, 2).await;
    assert_eq!(process.status_of(4).await, TaskState::Absent);
    session.close().await;
    assert_eq!(it.leftovers(), 0);
}

pub async fn the_ends_in_excess_that_expire_first_are_removed(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for (number, minutes) in [(1, 50), (2, 20), (3, 40), (4, 30)] {
        session.run(kept(number, minutes * MINUTE), done()).await;
    }
    for (number, minutes) in [(5, 10), (6, 45)] {
        session.enqueue([kept(number, minutes * MINUTE)]).await;
        assert_eq!(process.cancel([number]).await, 1);
    }
    session.run(task(7), dead()).await;
    session.enqueue([task(8)]).await;
    set(&process, Retention::default().kept_most(3)).await;
    assert_eq!(process.counts().await.kept, 6);
    assert!(process.maintain(2).await);
    assert_eq!(which_are_kept(&process, 1..=8).await, [1, 3, 4, 6, 7, 8]);
    maintain_all(&process, 2).await;
    assert_eq!(which_are_kept(&process, 1..=8).await, [1, 3, 6, 7, 8]);
    assert_eq!(process.counts().await.kept, 3);
    // A task that expires later than all others makes the first of them leave.
    session.run_first(id(8), done()).await;
    maintain_all(&process, 9).await;
    assert_eq!(which_are_kept(&process, 1..=8).await, [1, 6, 7, 8]);
    it.age(45 * MINUTE);
    maintain_all(&process, 9).await;
    assert_eq!(which_are_kept(&process, 1..=8).await, [1, 7, 8]);
}

pub async fn all_ends_can_be_in_excess(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let keyed = |number| with_key(Key::new("key").throttle(HOUR), task(number));
    session.run(keyed(1), done()).await;
    for number in 2..=5 {
        session.run(task(number), done()).await;
    }
    set(&process, Retention::default().kept_most(0)).await;
    session.enqueue([keyed(6)]).await;
    assert_eq!(process.status_of(6).await, TaskState::Absent);
    maintain_all(&process, 2).await;
    assert_eq!(process.counts().await.kept, 0);
    assert_eq!(which_are_kept(&process, 1..=5).await, [0; 0]);
    session.run(keyed(6), done()).await;
    session.run(task(1), Verdict::Done(b"again".to_vec())).await;
    assert_eq!(
        process.status_of(1).await,
        TaskState::Done(b"again".to_vec())
    );
    maintain_all(&process, 9).await;
    session.close().await;
    assert_eq!(it.leftovers(), 0);
}

pub async fn a_higher_maximum_keeps_what_is_left(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for number in 1..=4 {
        session
            .run(kept(number, number as u32 * MINUTE), done())
            .await;
        session.run(task(10 + number), dead()).await;
        it.clock().advance(SECOND);
    }
    set(&process, Retention::default().dead_most(1).kept_most(1)).await;
    // Each pass removes one.
    process.maintain(1).await;
    process.maintain(1).await;
    let counts = process.counts().await;
    assert_eq!(counts.dead + counts.kept, 6);
    set(&process, Retention::default().dead_most(4)).await;
    maintain_all(&process, 9).await;
    let after = process.counts().await;
    assert_eq!((after.dead, after.kept), (counts.dead, counts.kept));
}
