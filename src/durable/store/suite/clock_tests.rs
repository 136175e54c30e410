//! Steps of the clock: they delay or hasten a start, and never remove a result or a dead letter.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::DeadFilter;
use crate::durable::store::{DEAD_LETTER_RETENTION, NewTask, TaskState};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// A time that is longer than any retention.
const STEP: Duration = Duration::from_secs(40 * 24 * 3600);

pub async fn a_clock_that_runs_ahead_for_a_while_removes_nothing(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    end_three(&one, &mut session, 1).await;
    it.clock().set_wall(it.clock().wall() + STEP);
    end_three(&one, &mut session, 4).await;
    for _ in 0..5 {
        it.clock().advance(10 * SECOND);
        one.maintain(100).await;
        two.maintain(100).await;
    }
    end_three(&one, &mut session, 7).await;
    assert_retained(&one, 1..10).await;
    // The ids are still occupied, so none of these tasks runs a second time.
    session.enqueue((1..10).map(task)).await;
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    it.clock().set_wall(it.clock().wall() - STEP);
    for process in [&one, &two] {
        process.maintain(100).await;
        assert_retained(process, 1..10).await;
    }
    it.age(DEAD_LETTER_RETENTION);
    while one.maintain(100).await {}
    let counts = one.counts().await;
    assert_eq!((counts.kept, counts.dead), (0, 0));
}

pub async fn a_clock_that_was_behind_removes_nothing(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let right = it.clock().wall();
    it.clock().set_wall(right - STEP);
    end_three(&process, &mut session, 1).await;
    process.maintain(100).await;
    end_three(&process, &mut session, 4).await;
    it.clock().set_wall(right);
    assert_retained(&process, 1..7).await;
    process.maintain(100).await;
    process.maintain(100).await;
    assert_retained(&process, 1..7).await;
}

pub async fn a_store_that_is_made_in_1970_removes_nothing(it: &dyn Harness) {
    let right = it.clock().wall();
    it.clock().set_wall(Duration::ZERO);
    let process = Process::of(it);
    let mut session = process.session().await;
    end_three(&process, &mut session, 1).await;
    it.clock().set_wall(right);
    process.maintain(100).await;
    end_three(&process, &mut session, 4).await;
    assert_retained(&process, 1..7).await;
    // Now store time advances as in any other store.
    it.age(HOUR);
    assert_eq!(process.status([4, 5, 6]).await[0], TaskState::Absent);
    while process.maintain(100).await {}
    let counts = process.counts().await;
    assert_eq!((counts.kept, counts.dead), (0, 2));
}

pub async fn a_clock_step_moves_a_start_and_loses_no_task(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session
        .enqueue([delayed(1, DAY), delayed(2, 3 * DAY)])
        .await;
    it.clock().set_wall(it.clock().wall() + DAY);
    assert_eq!(ids(&session.claim(9).await), [id(1)]);
    it.clock().set_wall(it.clock().wall() - 2 * DAY);
    it.clock().advance(3 * DAY);
    assert!(!claims(&mut session, 2).await);
    it.clock().advance(DAY);
    assert!(claims(&mut session, 2).await);
}

pub async fn maintenance_removes_expired_tasks(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    // The time without ended tasks does not count.
    it.clock().advance(DAY);
    process.maintain(9).await;
    it.clock().advance(SECOND);
    session.run(retained(1, 100 * SECOND), done()).await;
    for _ in 0..3 {
        it.clock().advance(30 * SECOND);
        process.maintain(9).await;
    }
    it.clock().advance(10 * SECOND - Duration::from_millis(1));
    assert_eq!(process.status_of(1).await, state_done());
    it.clock().advance(Duration::from_millis(1));
    assert_eq!(process.status_of(1).await, TaskState::Absent);
    process.maintain(9).await;
    assert_eq!(process.counts().await.kept, 0);
}

pub async fn a_clock_that_is_set_back_keeps_nothing_for_longer(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(retained(1, 600 * SECOND), done()).await;
    it.clock().set_wall(it.clock().wall() - STEP);
    process.maintain(9).await;
    it.age(599 * SECOND);
    assert_eq!(process.status_of(1).await, state_done());
    it.clock().advance(SECOND);
    assert_eq!(process.status_of(1).await, TaskState::Absent);
}

/// This holds for stores that count their own time.
pub async fn maintenance_advances_store_time_by_a_minute_at_most(it: &dyn Harness) {
    if !it.outlives_clock() {
        return;
    }
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(retained(1, 600 * SECOND), done()).await;
    it.clock().advance(HOUR);
    assert_eq!(process.status_of(1).await, state_done());
    process.maintain(9).await;
    it.age(539 * SECOND);
    assert_eq!(process.status_of(1).await, state_done());
    it.clock().advance(SECOND);
    assert_eq!(process.status_of(1).await, TaskState::Absent);
}

fn retained(number: u64, retention: Duration) -> NewTask {
    NewTask {
        retention,
        ..task(number)
    }
}

/// Ends three tasks, each with another verdict.
async fn end_three(process: &Process, session: &mut Session<'_>, first: u64) {
    session.run(task(first), done()).await;
    session.run(task(first + 1), dead()).await;
    session.enqueue([task(first + 2)]).await;
    process.cancel([first + 2]).await;
}

async fn assert_retained(process: &Process, numbers: std::ops::Range<u64>) {
    let expected = [state_done(), state_dead(), TaskState::Cancelled];
    let expected: Vec<_> = expected
        .into_iter()
        .cycle()
        .take(numbers.clone().count())
        .collect();
    assert_eq!(process.status(numbers.clone()).await, expected);
    let mut dead_letters = process.dead_ids(DeadFilter::all(), 100).await;
    dead_letters.reverse();
    let dead: Vec<_> = numbers.skip(1).step_by(3).map(id).collect();
    assert_eq!(dead_letters, dead);
}

/// Returns `true` if the task with this number can be claimed.
async fn claims(session: &mut Session<'_>, number: u64) -> bool {
    let claim = session.turn(wanting(9)).await.claim;
    claim.is_some_and(|claim| ids(&claim).contains(&id(number)))
}
