//! Priorities: which tasks of a queue start first, and the shares of the lower priorities.

use super::Harness;
use super::process::*;
use crate::durable::TaskId;
use crate::durable::queue::Priority;
use crate::durable::store::{NewTask, Verdict};

use Priority::{High, Low, Normal};

/// The default queue, and a named one.
const QUEUES: [&str; 2] = ["", "q"];

fn new(queue: &str, priority: Priority, number: u64) -> NewTask {
    in_queue(queue, at_priority(priority, task(number)))
}

pub async fn a_higher_priority_starts_first(it: &dyn Harness) {
    for queue in QUEUES {
        let process = Process::of(it);
        let mut session = process.session_in(queue).await;
        let first = if queue.is_empty() { 0 } else { 100 };
        let priorities = [Low, Normal, High, Normal, Low, High, Low];
        let tasks = (first..).zip(priorities);
        let tasks = tasks.map(|(number, priority)| new(queue, priority, number));
        session.enqueue(tasks).await;
        let expected = [2, 5, 1, 3, 0, 4, 6].map(|number| id(first + number));
        // A claim has tasks of one priority.
        assert_eq!(ids(&session.claim(9).await), expected[..2]);
        assert_eq!(ids(&session.claim(1).await), expected[2..3]);
        assert_eq!(ids(&session.claim(9).await), expected[3..4]);
        assert_eq!(ids(&session.claim(9).await), expected[4..]);
    }
}

/// A claim whose lease is over, of one priority, does not keep tasks with another priority from starting.
pub async fn a_late_claim_delays_no_other_priority(it: &dyn Harness) {
    let process = Process::of(it);
    let mut first = process.session_of(&["job"]).await;
    first.enqueue([new("", Normal, 1)]).await;
    first.enqueue([new("", Low, 2)]).await;
    let mut session = process.session_of(&["job", "other"]).await;
    assert_eq!(ids(&session.claim(9).await), [id(1)]);
    process.maintain(0).await;
    it.clock().advance(2 * LEASE);
    assert_eq!(ids(&session.claim(9).await), [id(2)]);
}

pub async fn a_higher_priority_starts_first_within_a_limit(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process.set_queue("q", max_running(2)).await;
    q.enqueue([new("q", Low, 1), new("q", Low, 2), new("q", Low, 3)])
        .await;
    let epoch = q.claim(9).await.epoch;
    q.enqueue([new("q", Normal, 4), new("q", High, 5)]).await;
    q.rest().await;
    for (ended, expected) in [(2, 5), (1, 4)] {
        let turned = q.turn(wanting(9).verdict(epoch, ended, done())).await;
        assert_eq!(ids(&turned.claim.unwrap()), [id(expected)]);
    }
}

/// The first payload that does not fit ends the claim, although a later one would fit.
pub async fn a_claim_of_some_bytes_keeps_the_order_of_priorities(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let sized = |priority, number, len| NewTask {
        payload: vec![0; len],
        ..new("", priority, number)
    };
    let tasks = [
        sized(Low, 1, 1),
        sized(Normal, 2, 40),
        sized(High, 3, 50),
        sized(High, 4, 60),
    ];
    session.enqueue(tasks).await;
    let mut next = async |bytes| {
        let claim = session.turn(wanting(9).bytes(bytes)).await.claim;
        claim.map(|claim| ids(&claim)).unwrap_or_default()
    };
    assert_eq!(next(90).await, [id(3)]);
    assert_eq!(next(100).await, [id(4)]);
    assert_eq!(next(0).await, [id(2)]);
    assert_eq!(next(0).await, [id(1)]);
}

pub async fn a_task_keeps_its_place_in_its_priority(it: &dyn Harness) {
    for queue in QUEUES {
        let process = Process::of(it);
        let mut session = process.session_in(queue).await;
        let first = if queue.is_empty() { 0 } else { 100 };
        let new = |priority, number| new(queue, priority, first + number);
        let tasks = [new(High, 1), new(High, 2), new(Normal, 3), new(Low, 4)];
        session.enqueue(tasks).await;
        let epoch = session.claim(4).await.epoch;
        let tasks = [new(Low, 5), new(Normal, 6), new(High, 7)];
        session.enqueue(tasks).await;
        let turn = wanting(0)
            .verdict(epoch, first + 4, Verdict::Release)
            .verdict(epoch, first + 3, Verdict::Release)
            .verdict(epoch, first + 2, retry(std::time::Duration::ZERO))
            .verdict(epoch, first + 1, Verdict::Release);
        session.turn(turn).await;
        // The first of a priority is cancelled.
        assert_eq!(process.cancel([first + 4]).await, 1);
        let (claimed, _) = claim_all(&mut session).await;
        assert_eq!(claimed, [1, 7, 2, 3, 6, 5].map(|number| id(first + number)));
    }
}

/// While tasks of a higher priority always wait.
pub async fn lower_priorities_get_their_share(it: &dyn Harness) {
    for queue in QUEUES {
        for want in [1, 7, 64] {
            let first = if queue.is_empty() { 0 } else { 10_000 } + 1_000 * want;
            let started = flooded(it, queue, first, want as usize).await;
            let of = |from: u64, most: u64| {
                let lies_in = move |it: &TaskId| (id(from)..id(from + most)).contains(it);
                started.iter().copied().filter(lies_in)
            };
            let (normal, low) = (first + 800, first + 900);
            assert_spaced(&started, of(normal, 100).collect(), 65 + want as usize);
            assert_spaced(&started, of(low, 100).collect(), 257 + want as usize);
            // The order within a priority, and no more than its share before the flood is over.
            let flood = started.iter().rposition(|&it| it < id(normal)).unwrap();
            for (from, most) in [(normal, 9), (low, 3)] {
                let of_priority: Vec<_> = of(from, 100).collect();
                assert!(of_priority.is_sorted());
                let in_flood = |it: &&TaskId| of_priority.contains(*it);
                let shared = started[..flood].iter().filter(in_flood).count();
                assert!(shared <= most + want as usize, "{shared}");
            }
            assert!(of(first, 600).is_sorted());
        }
    }
}

/// Starts 600 tasks of the priority `High`, 10 of the priority `Normal` and 4 of the priority `Low`.
async fn flooded(it: &dyn Harness, queue: &str, first: u64, want: usize) -> Vec<TaskId> {
    let process = Process::of(it);
    let mut session = process.session_in(queue).await;
    let low = (900..904).map(|number| new(queue, Low, first + number));
    session.enqueue(low).await;
    let normal = (800..810).map(|number| new(queue, Normal, first + number));
    session.enqueue(normal).await;
    for chunk in 0..3 {
        let high = (200 * chunk..200 * (chunk + 1)).map(|number| new(queue, High, first + number));
        session.enqueue(high).await;
    }
    let mut started = Vec::new();
    while let Some(claim) = session.turn(wanting(want)).await.claim {
        started.extend(ids(&claim));
        let ended = ids(&claim).into_iter().map(|id| (id, done()));
        let turn = wanting(0).verdicts(claim.epoch, ended.collect());
        session.turn(turn).await;
    }
    assert_eq!(started.len(), 614);
    started
}

/// Checks that one of these tasks is among each `most` tasks that start.
#[track_caller]
fn assert_spaced(started: &[TaskId], chosen: Vec<TaskId>, most: usize) {
    let at = |id: &TaskId| started.iter().position(|it| it == id).unwrap() + 1;
    let mut last = 0;
    for at in chosen.iter().map(at) {
        assert!(at - last <= most, "{last} and {at} in claims of {most}");
        last = at;
    }
}

pub async fn priorities_wait_while_their_type_is_paused(it: &dyn Harness) {
    for queue in QUEUES {
        let process = Process::of(it);
        let mut session = process.session_of_in(&["even", "odd"], queue).await;
        let first = if queue.is_empty() { 0 } else { 100 };
        let of_priority = |priority, number| NewTask {
            priority,
            ..in_queue(queue, typed(first + number))
        };
        process.pause("odd").await;
        // These are the first tasks of the store with priorities.
        let tasks = [
            of_priority(Low, 1),
            of_priority(High, 2),
            of_priority(High, 3),
            of_priority(Low, 4),
            of_priority(Normal, 5),
        ];
        session.enqueue(tasks).await;
        assert_eq!(
            claim_all(&mut session).await.0,
            [2, 4].map(|number| id(first + number))
        );
        assert_eq!(process.cancel([first + 3]).await, 1);
        session.enqueue([of_priority(High, 7)]).await;
        process.resume("odd").await;
        assert_eq!(
            claim_all(&mut session).await.0,
            [7, 5, 1].map(|number| id(first + number))
        );
    }
}

/// Tasks that waited before the first one with a priority was stored.
pub async fn the_first_priority_keeps_the_order_of_a_backlog(it: &dyn Harness) {
    for queue in QUEUES {
        let process = Process::of(it);
        let mut both = process.session_of_in(&["even", "odd"], queue).await;
        let first = if queue.is_empty() { 0 } else { 100 };
        let typed = |number| in_queue(queue, typed(first + number));
        both.enqueue((0..10).map(typed)).await;
        both.enqueue([at_priority(Low, typed(10)), at_priority(High, typed(11))])
            .await;
        both.enqueue([typed(12)]).await;
        // A worker that knows one of the types joins.
        let mut odd = process.session_of_in(&["odd"], queue).await;
        assert_eq!(
            claim_all(&mut odd).await.0,
            [11, 1, 3, 5, 7, 9].map(|number| id(first + number))
        );
        assert_eq!(
            claim_all(&mut both).await.0,
            [0, 2, 4, 6, 8, 12, 10].map(|number| id(first + number))
        );
    }
}

/// A worker starts after tasks of priorities that it does not know yet were stored.
pub async fn priorities_of_an_unknown_type_wait_for_a_worker(it: &dyn Harness) {
    let process = Process::of(it);
    let mut producer = process.session_of(&["job"]).await;
    for queue in QUEUES {
        let first = if queue.is_empty() { 0 } else { 100 };
        let odd = |priority, number: u64| NewTask {
            name: "odd".into(),
            ..new(queue, priority, first + number)
        };
        let tasks = [odd(Low, 1), odd(Normal, 2), odd(High, 3), odd(High, 4)];
        producer.enqueue(tasks).await;
        producer.rest().await;
        assert_eq!(process.counts().await.unserved, 4);
        let mut session = process.session_of_in(&["odd"], queue).await;
        assert_eq!(process.counts().await.unserved, 0);
        assert_eq!(
            claim_all(&mut session).await.0,
            [3, 4, 2, 1].map(|number| id(first + number))
        );
    }
}

pub async fn the_first_task_of_a_priority_wakes_a_worker(it: &dyn Harness) {
    for priority in [High, Low] {
        for queue in QUEUES {
            let (one, two) = (Process::of(it), Process::of(it));
            let mut producer = one.session_of(&["other"]).await;
            let mut events = two.events();
            let mut session = two.session_in(queue).await;
            session.rest().await;
            events.drain();
            let number = 10 * priority as u64 + queue.len() as u64;
            producer.enqueue([new(queue, priority, number)]).await;
            events.woken().await;
            assert_eq!(ids(&session.claim(9).await), [id(number)]);
            let claimed = session.turn(wanting(9)).await;
            assert_eq!(claimed.claim, None);
            one.cancel([number]).await;
        }
    }
}
