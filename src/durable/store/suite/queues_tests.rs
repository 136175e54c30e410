//! Named queues: which sessions claim their tasks, the order, pauses, and what a store says about them.

use super::Harness;
use super::process::*;
use crate::durable::DeadFilter;
use crate::durable::queue::{Priority, QueueInfo, QueueSettings, Rate};
use crate::durable::store::{DEAD_LETTER_RETENTION, NewTask, RenewAnswer, TaskState, Verdict};

pub async fn a_session_claims_only_tasks_of_its_queue(it: &dyn Harness) {
    let process = Process::of(it);
    let mut default = process.session().await;
    let mut q = process.session_in("q").await;
    let mut other = process.session_in("Q").await;
    let tasks = (0..30).map(|number| match number % 3 {
        0 => task(number),
        1 => queued(number),
        _ => in_queue("Q", task(number)),
    });
    q.enqueue(tasks).await;
    for (first, session) in [&mut default, &mut q, &mut other].into_iter().enumerate() {
        let expected: Vec<_> = (first as u64..30).step_by(3).map(id).collect();
        assert_eq!(claim_all(session).await.0, expected);
    }
}

pub async fn a_task_of_a_queue_that_nobody_serves_waits(it: &dyn Harness) {
    let process = Process::of(it);
    let counts = async || {
        let counts = process.counts().await;
        (counts.waiting, counts.unserved)
    };
    let mut default = process.session().await;
    default.enqueue([queued(1), task(2), queued(3)]).await;
    assert_eq!(counts().await, (3, 2));
    assert_eq!(claim_all(&mut default).await.0, [id(2)]);
    it.clock().advance(1_000 * HOUR);
    default.rest().await;
    assert_eq!(process.status_of(1).await, TaskState::Waiting);
    assert_eq!(counts().await, (2, 2));
    let mut q = process.session_in("q").await;
    assert_eq!(counts().await, (2, 0));
    assert_eq!(claim_all(&mut q).await.0, [id(1), id(3)]);
    // The last worker of the queue leaves, and its tasks return.
    q.close().await;
    assert_eq!(counts().await, (2, 2));
}

pub async fn tasks_of_a_queue_start_in_the_order_of_storing(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut default = one.session().await;
    let mut first = one.session_in("q").await;
    let mut second = two.session_in("q").await;
    default.enqueue([queued(5), task(9), queued(3)]).await;
    second.enqueue([task(8), queued(4)]).await;
    first.enqueue([queued(1)]).await;
    assert_eq!(ids(&second.claim(3).await), [5, 3, 4].map(id));
    assert_eq!(ids(&first.claim(3).await), [id(1)]);
    assert_eq!(ids(&default.claim(3).await), [9, 8].map(id));
}

pub async fn a_released_task_is_first_in_its_queue(it: &dyn Harness) {
    let process = Process::of(it);
    let mut default = process.session().await;
    let mut q = process.session_in("q").await;
    default
        .enqueue([queued(1), queued(2), task(3), queued(4)])
        .await;
    let claim = q.claim(2).await;
    let turn = wanting(0)
        .verdict(claim.epoch, 2, Verdict::Release)
        .verdict(claim.epoch, 1, Verdict::Release);
    default.turn(turn).await;
    assert_eq!(claim_all(&mut default).await.0, [id(3)]);
    assert_eq!(claim_all(&mut q).await.0, [1, 2, 4].map(id));
}

/// Delayed, retried, snoozed and replayed tasks.
pub async fn a_task_returns_to_its_queue_and_priority(it: &dyn Harness) {
    for (first, queue) in [(0, "q"), (10, "")] {
        let process = Process::of(it);
        let mut session = process.session_in(queue).await;
        let mut other = process.session_in("other").await;
        let new = |priority, number, delay| {
            let delayed = delayed(first + number, delay);
            in_queue(queue, at_priority(priority, delayed))
        };
        let now = std::time::Duration::ZERO;
        session.run(new(Priority::High, 3, now), dead()).await;
        let tasks = [new(Priority::High, 1, now), new(Priority::Low, 2, now)];
        session.enqueue(tasks).await;
        let (high, low) = (session.claim(2).await.epoch, session.claim(2).await.epoch);
        let snooze = Verdict::Snooze { after: SECOND };
        session.report(high, first + 1, retry(SECOND)).await;
        session.report(low, first + 2, snooze).await;
        let tasks = [
            new(Priority::Low, 4, SECOND),
            new(Priority::High, 5, SECOND),
            new(Priority::Normal, 6, now),
        ];
        other.enqueue(tasks).await;
        assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 1);
        it.clock().advance(SECOND);
        // The session that makes them due is of another queue.
        other.rest().await;
        let expected = [3, 1, 5, 6, 2, 4].map(|number| id(first + number));
        assert_eq!(claim_all(&mut session).await.0, expected);
    }
}

pub async fn a_waiting_task_of_a_queue_is_cancelled(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process.set_queue("q", max_running(1)).await;
    q.enqueue((1..=9).map(queued)).await;
    let epoch = q.claim(1).await.epoch;
    // The first in line, the last, and some between, while the queue is at its limit.
    assert_eq!(process.cancel([2, 3, 5, 9]).await, 4);
    assert_eq!(process.status_of(2).await, TaskState::Cancelled);
    assert_eq!(process.queue("q").await.waiting, 4);
    q.report(epoch, 1, done()).await;
    assert_eq!(ids(&q.claim(9).await), [id(4)]);
    process.set_queue("q", max_running(9)).await;
    assert_eq!(claim_all(&mut q).await.0, [6, 7, 8].map(id));
}

pub async fn a_stored_id_stays_in_its_queue(it: &dyn Harness) {
    let process = Process::of(it);
    let mut default = process.session().await;
    let mut q = process.session_in("q").await;
    q.enqueue([queued(1), task(2)]).await;
    q.enqueue([task(1), queued(2), at_priority(Priority::High, queued(1))])
        .await;
    assert_eq!(claim_all(&mut default).await.0, [id(2)]);
    assert_eq!(claim_all(&mut q).await.0, [id(1)]);
}

pub async fn a_paused_queue_starts_nothing(it: &dyn Harness) {
    let process = Process::of(it);
    let mut default = process.session().await;
    let mut q = process.session_in("q").await;
    default.enqueue((1..=4).map(queued)).await;
    let claim = q.claim(2).await;
    process.pause_queue("q").await;
    process.pause_queue("q").await;
    default
        .enqueue([queued(5), task(6), in_queue("r", task(7))])
        .await;
    let turned = q.turn(wanting(9).go_idle()).await;
    assert_eq!((turned.claim, turned.more), (None, false));
    // Other queues, and what runs, go on.
    assert_eq!(claim_all(&mut default).await.0, [id(6)]);
    let mut r = process.session_in("r").await;
    assert_eq!(claim_all(&mut r).await.0, [id(7)]);
    assert_eq!(process.renew([claim.epoch]).await, RenewAnswer::default());
    q.report(claim.epoch, 1, done()).await;
    q.report(claim.epoch, 2, retry(SECOND)).await;
    it.clock().advance(SECOND);
    q.rest().await;
    assert_eq!(process.status([1, 2]).await[0], state_done());
    process.resume_queue("q").await;
    process.resume_queue("q").await;
    assert_eq!(claim_all(&mut q).await.0, [3, 4, 5, 2].map(id));
}

pub async fn a_queue_keeps_its_pause_and_its_limits(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue((1..=4).map(queued)).await;
    process.pause_queue("q").await;
    process.set_queue("q", max_running(2)).await;
    q.close().await;
    while process.maintain(100).await {}
    process.kill(it);
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.rest().await;
    let info = process.queue("q").await;
    assert_eq!((info.is_paused, info.settings), (true, max_running(2)));
    process.resume_queue("q").await;
    assert_eq!(ids(&q.claim(9).await), [1, 2].map(id));
}

pub async fn a_store_describes_a_queue(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    assert_eq!(two.queue("q").await, QueueInfo::default());
    let mut default = one.session_of(&["job"]).await;
    let mut q = one.session_of_in(&["job"], "q").await;
    let odd = NewTask {
        name: "odd".into(),
        ..queued(9)
    };
    let later = NewTask {
        delay: HOUR,
        ..queued(8)
    };
    let high = at_priority(Priority::High, queued(7));
    let foreign = [task(10), in_queue("r", task(11))];
    default.enqueue((1..=5).map(queued)).await;
    default.enqueue([odd, later, high]).await;
    default.enqueue(foreign).await;
    // The type of one of the waiting tasks is unknown, and another task is delayed.
    let mut expected = QueueInfo {
        waiting: 7,
        ..QueueInfo::default()
    };
    assert_eq!(two.queue("q").await, expected);
    let rate = Rate::per_minute(7).burst(5);
    let settings = max_running(3).rate(rate).revision(2);
    assert!(two.set_queue("q", settings).await);
    two.pause_queue("q").await;
    (expected.settings, expected.is_paused) = (settings, true);
    assert_eq!(one.queue("q").await, expected);
    two.resume_queue("q").await;
    q.claim(1).await;
    q.claim(1).await;
    default.claim(1).await;
    (expected.is_paused, expected.waiting, expected.running) = (false, 5, 2);
    assert_eq!(two.queue("q").await, expected);
    assert_eq!(two.queue("r").await.settings, QueueSettings::new());
    // Nobody knows the types of its tasks any more, and all of them wait.
    q.close().await;
    (expected.waiting, expected.running) = (7, 0);
    assert_eq!(two.queue("q").await, expected);
    assert_eq!(two.counts().await.unserved, 8);
}

pub async fn settings_of_an_earlier_revision_are_ignored(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut q = one.session_in("q").await;
    q.enqueue((1..=9).map(queued)).await;
    let set = async |max, revision| {
        one.set_queue("q", max_running(max).revision(revision))
            .await
    };
    assert!(set(9, 0).await);
    assert!(set(1, 3).await);
    assert!(!set(8, 2).await);
    assert_eq!(q.claim(9).await.tasks.len(), 1);
    assert!(set(2, 3).await);
    assert_eq!(q.claim(9).await.tasks.len(), 1);
    assert!(!set(8, 0).await);
    q.rest().await;
    assert_eq!(two.queue("q").await.settings, max_running(2).revision(3));
    // A pause has no revision.
    two.pause_queue("q").await;
    assert!(two.queue("q").await.is_paused);
    assert!(set(9, 4).await);
    assert!(two.queue("q").await.is_paused);
    two.resume_queue("q").await;
    assert_eq!(q.claim(9).await.tasks.len(), 7);
}

/// One worker knows both types of a queue, another one only one of them.
pub async fn workers_of_a_queue_may_know_different_types(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut both = one.session_of_in(&["even", "odd"], "q").await;
    let mut default = one.session_of(&["even", "odd"]).await;
    let queued = |number| in_queue("q", typed(number));
    both.enqueue((0..10).map(queued)).await;
    default.enqueue((10..14).map(typed)).await;
    // It joins when tasks of both types wait.
    let mut odd = two.session_of_in(&["odd"], "q").await;
    assert_eq!(claim_all(&mut odd).await.0, [1, 3, 5, 7, 9].map(id));
    both.enqueue((20..24).map(queued)).await;
    // The types have lists of their own, and each is in order.
    let claimed = claim_all(&mut both).await.0;
    let (odds, evens): (Vec<_>, Vec<_>) = claimed
        .into_iter()
        .partition(|&it| [21, 23].map(id).contains(&it));
    assert_eq!(odds, [21, 23].map(id));
    assert_eq!(evens, [0, 2, 4, 6, 8, 20, 22].map(id));
    both.close().await;
    assert_eq!(
        claim_all(&mut odd).await.0,
        [21, 23].map(id),
        "returned by the closed session"
    );
    assert_eq!(
        claim_all(&mut default).await.0,
        [10, 11, 12, 13].map(id),
        "of the default queue"
    );
}

pub async fn a_paused_type_waits_in_every_queue_and_priority(it: &dyn Harness) {
    let process = Process::of(it);
    let mut default = process.session_of(&["even", "odd"]).await;
    let mut q = process.session_of_in(&["even", "odd"], "q").await;
    let priorities = [Priority::Low, Priority::Normal, Priority::High];
    let tasks = (0..12).map(|number| {
        let queue = if number < 6 { "" } else { "q" };
        let priority = priorities[number as usize / 2 % 3];
        in_queue(queue, at_priority(priority, typed(number)))
    });
    default.enqueue(tasks).await;
    process.pause("odd").await;
    assert_eq!(claim_all(&mut default).await.0, [4, 2, 0].map(id));
    assert_eq!(claim_all(&mut q).await.0, [10, 8, 6].map(id));
    // Also those that are stored during the pause.
    let late = in_queue("q", at_priority(Priority::High, typed(13)));
    default.enqueue([late, typed(15)]).await;
    default.rest().await;
    q.rest().await;
    assert_eq!(process.counts().await.unserved, 0);
    process.resume("odd").await;
    assert_eq!(claim_all(&mut default).await.0, [5, 3, 15, 1].map(id));
    assert_eq!(claim_all(&mut q).await.0, [11, 13, 9, 7].map(id));
}

/// No limits were set, and no queue was paused.
pub async fn nothing_is_left_of_a_queue(it: &dyn Harness) {
    let process = Process::of(it);
    let mut default = process.session().await;
    let mut q = process.session_in("q").await;
    let priorities = Priority::ALL.into_iter().zip(1..);
    let tasks = priorities
        .clone()
        .map(|(priority, number)| at_priority(priority, queued(number)));
    default.enqueue(tasks).await;
    let tasks = priorities.map(|(priority, number)| at_priority(priority, task(10 + number)));
    q.enqueue(tasks).await;
    for (session, numbers) in [(&mut q, 1..=3), (&mut default, 11..=13)] {
        for number in numbers {
            session.run_first(id(number), done()).await;
        }
    }
    default.enqueue([queued(4), in_queue("r", task(5))]).await;
    q.run_first(id(4), dead()).await;
    assert_eq!(process.cancel([5]).await, 1);
    // Redis removes the entry of a cancelled task when a worker comes across it.
    let mut r = process.session_in("r").await;
    r.rest().await;
    r.close().await;
    q.close().await;
    default.close().await;
    it.age(DEAD_LETTER_RETENTION);
    while process.maintain(3).await {}
    assert_eq!(process.queue("q").await, QueueInfo::default());
    assert_eq!(it.leftovers(), 0);
}
