//! The tasks at the heads of the lists of a queue.

use std::time::Duration;

use crate::durable::queue::Priority;
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::process::*;
use crate::durable::store::{NewTask, Verdict};
use crate::durable::{DeadFilter, Key, QueueHead, TaskInfo};

impl Process {
    async fn head(&self, queue: &str, limit: usize) -> Vec<TaskInfo> {
        let QueueHead { tasks, .. } = self.0.0.head(queue_name(queue), limit).await.unwrap();
        assert!(tasks.len() <= limit);
        let times: Vec<_> = tasks.iter().map(|task| task.ready_for).collect();
        assert!(times.is_sorted_by(|one, next| one >= next), "{times:?}");
        tasks
    }

    /// Returns the numbers of the tasks at the head of a queue, and the seconds for which they have been ready.
    async fn ready(&self, queue: &str, limit: usize) -> Vec<(u64, u64)> {
        let head = self.head(queue, limit).await.into_iter();
        let ready = head.map(|task| {
            let number = u128::from_be_bytes(task.id.to_bytes());
            let ready_for = task.ready_for.expect("the store knows the time");
            (number as u64, ready_for.as_secs())
        });
        ready.collect()
    }
}

pub async fn an_empty_queue_has_no_head(it: &dyn Harness) {
    let process = Process::of(it);
    for queue in ["", "q"] {
        let head = process.0.0.head(queue_name(queue), 5).await.unwrap();
        let now = crate::durable::clock::millis(it.clock().wall());
        assert_eq!(head, QueueHead::at(now, Vec::new()));
    }
}

/// The types have different workers, so their tasks are in different lists.
pub async fn the_head_has_what_became_ready_first(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_of(&["even"]).await;
    let _odd = process.session_of(&["odd"]).await;
    for number in 1..=9 {
        let priority = Priority::ALL[number as usize % 3];
        session
            .enqueue([at_priority(priority, typed(number)), delayed(100, HOUR)])
            .await;
        it.clock().advance(SECOND);
    }
    let all: Vec<_> = (1..=9).map(|number| (number, 10 - number)).collect();
    for limit in [1, 4, 9, 50] {
        let expected = &all[..limit.min(9)];
        assert_eq!(process.ready("", limit).await, expected);
    }
    let first = process.head("", 1).await.remove(0);
    assert_eq!(first.name.as_deref(), Some("odd"));
}

pub async fn a_head_has_the_tasks_of_one_queue(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_in("q").await;
    let _default = process.session().await;
    session.enqueue([task(1), queued(2), queued(3)]).await;
    session.enqueue([in_queue("other", task(4))]).await;
    assert_eq!(process.ready("q", 9).await, [(2, 0), (3, 0)]);
    assert_eq!(process.ready("", 9).await, [(1, 0)]);
    assert_eq!(process.ready("other", 9).await, [(4, 0)]);
    let info = process.head("q", 1).await.remove(0);
    assert_eq!(info.queue.as_deref(), Some("q"));
}

pub async fn a_head_has_tasks_that_no_worker_knows(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_of(&["even"]).await;
    let unknown = NewTask {
        version: 7,
        ..typed(1)
    };
    session.enqueue([unknown]).await;
    session.enqueue([in_queue("unserved", task(2))]).await;
    it.clock().advance(SECOND);
    session.enqueue([typed(4)]).await;
    assert_eq!(process.ready("", 9).await, [(1, 1), (4, 0)]);
    assert_eq!(process.ready("unserved", 9).await, [(2, 1)]);
}

/// Each group waits in a sublist of its own.
pub async fn each_group_is_in_the_head(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_in("q").await;
    for (number, group) in [(1, "a"), (2, "a"), (3, "b"), (4, "c"), (5, "a")] {
        session.enqueue([grouped(group, number)]).await;
        it.clock().advance(SECOND);
    }
    session.enqueue([queued(6)]).await;
    let all = [(1, 5), (2, 4), (3, 3), (4, 2), (5, 1), (6, 0)];
    assert_eq!(process.ready("q", 9).await, all);
    let info = process.head("q", 1).await.remove(0);
    assert_eq!(info.group.as_deref(), Some("a"));
    // The first groups of a list are examined, and those are not the ones that have waited longest.
    session.claim(1).await;
    assert_eq!(process.ready("q", 9).await, all[1..]);
}

pub async fn groups_that_are_held_or_full_are_in_the_head(it: &dyn Harness) {
    let process = Process::of(it);
    let settings = groups(Groups::new().max_running(1));
    assert!(process.set_queue("q", settings).await);
    let mut session = process.session_in("q").await;
    session
        .enqueue([grouped("full", 1), grouped("full", 2)])
        .await;
    session
        .enqueue([grouped("held", 3), grouped("held", 4)])
        .await;
    let claim = session.claim(2).await;
    session
        .report(claim.epoch, 3, hold(HOUR, retry(HOUR)))
        .await;
    let mut ready = process.ready("q", 9).await;
    ready.sort_unstable();
    assert_eq!(ready, [(2, 0), (4, 0)]);
}

pub async fn cancelled_and_claimed_tasks_are_not_in_the_head(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_in("q").await;
    session.enqueue((1..=6).map(queued)).await;
    session.enqueue((7..=9).map(|it| grouped("g", it))).await;
    process.cancel([1, 2, 4, 7]).await;
    let left = [(3, 0), (5, 0), (6, 0), (8, 0), (9, 0)];
    let sorted = async || {
        let mut ready = process.ready("q", 9).await;
        ready.sort_unstable();
        ready
    };
    assert_eq!(sorted().await, left);
    // The groups come first.
    session.claim(3).await;
    assert_eq!(sorted().await, left[1..3]);
}

pub async fn a_task_that_is_due_again_has_been_ready_since_then(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), retry(5 * SECOND)).await;
    session.enqueue([delayed(2, 3 * SECOND)]).await;
    assert_eq!(process.head("", 9).await, []);
    it.clock().advance(10 * SECOND);
    session.turn(wanting(0)).await;
    assert_eq!(process.ready("", 9).await, [(2, 7), (1, 5)]);
}

/// So a task that no worker keeps is not shown as new.
pub async fn a_task_that_is_given_back_has_waited_since_it_was_stored(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let epoch = session.claim(2).await.epoch;
    it.clock().advance(SECOND);
    session.report(epoch, 1, Verdict::Release).await;
    assert_eq!(process.ready("", 9).await, [(1, 1)]);
    session.close().await;
    let mut ready = process.ready("", 9).await;
    ready.sort_unstable();
    assert_eq!(ready, [(1, 1), (2, 1)]);
}

pub async fn a_replayed_task_has_been_ready_since_the_replay(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), dead()).await;
    it.clock().advance(HOUR);
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 1);
    it.clock().advance(SECOND);
    assert_eq!(process.ready("", 9).await, [(1, 1)]);
}

/// The task keeps its time if it stays ready.
pub async fn a_replaced_task_is_in_the_head_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let key = || Key::new("key").until_started().replace();
    session.enqueue([with_key(key(), task(1))]).await;
    it.clock().advance(SECOND);
    session.enqueue([with_key(key(), task(2))]).await;
    assert_eq!(process.ready("", 9).await, [(1, 1)]);
    let newer = NewTask {
        version: 2,
        ..task(3)
    };
    session.enqueue([with_key(key(), newer)]).await;
    assert_eq!(process.ready("", 9).await, [(1, 1)]);
    // It is delayed, and then becomes ready again.
    let later = NewTask {
        delay: Duration::from_secs(9),
        ..task(4)
    };
    session.enqueue([with_key(key(), later)]).await;
    assert_eq!(process.head("", 9).await, []);
    session.enqueue([with_key(key(), task(5))]).await;
    it.clock().advance(SECOND);
    assert_eq!(process.ready("", 9).await, [(1, 1)]);
}
