//! The status of tasks.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::store::TaskState;

pub async fn status_reports_every_state(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(4), done()).await;
    session.run(task(5), dead()).await;
    session.enqueue([task(6)]).await;
    process.cancel([6]).await;
    session.enqueue([task(3)]).await;
    session.claim(1).await;
    session.enqueue([task(1), delayed(2, SECOND)]).await;
    let expected = [
        TaskState::Waiting,
        TaskState::Delayed,
        TaskState::Running,
        state_done(),
        state_dead(),
        TaskState::Cancelled,
        TaskState::Absent,
    ];
    assert_eq!(process.status(1..=7).await, expected);
    // A due task stays delayed until a turn makes it wait.
    it.clock().advance(SECOND);
    assert_eq!(process.status_of(2).await, TaskState::Delayed);
    session.turn(wanting(0)).await;
    assert_eq!(process.status_of(2).await, TaskState::Waiting);
}

pub async fn status_is_in_the_order_of_the_ids(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([delayed(1, SECOND), task(3)]).await;
    let seen = process.status([3, 2, 1, 3]).await;
    let expected = [
        TaskState::Waiting,
        TaskState::Absent,
        TaskState::Delayed,
        TaskState::Waiting,
    ];
    assert_eq!(seen, expected);
    assert_eq!(process.status([]).await, []);
}

pub async fn status_writes_nothing(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    session.run(task(1), done()).await;
    session.enqueue([task(2), delayed(3, SECOND)]).await;
    session.claim(1).await;
    it.age(HOUR);
    let (counts, held) = (two.counts().await, it.leftovers());
    let seen = two.status([1, 2, 3, 4]).await;
    assert_eq!(
        seen,
        [
            TaskState::Absent,
            TaskState::Running,
            TaskState::Delayed,
            TaskState::Absent
        ]
    );
    assert_eq!((two.counts().await, it.leftovers()), (counts, held));
}

pub async fn a_result_is_retained_to_the_millisecond(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), done()).await;
    session.enqueue([task(2)]).await;
    process.cancel([2]).await;
    let millisecond = Duration::from_millis(1);
    it.age(HOUR - millisecond);
    assert_eq!(
        process.status([1, 2]).await,
        [state_done(), TaskState::Cancelled]
    );
    it.clock().advance(millisecond);
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Absent, TaskState::Absent]
    );
}
