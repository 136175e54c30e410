//! Tasks that have both a key and a group.

use std::time::Duration;

use super::Harness;
use super::keys_tests::{assert_joins, assert_stored, key, store};
use super::process::*;
use super::queue_wakes_tests::{Idle, prepare};
use crate::durable::Key;
use crate::durable::key::Conflict;
use crate::durable::store::kind::{Kind, TypeSet};
use crate::durable::store::{Claim, NewTask, Verdict};

/// Returns a task in a group that replaces the payload of the one that holds its key.
fn replacing(group: &str, number: u64, delay: Duration) -> NewTask {
    let task = NewTask {
        delay,
        ..grouped(group, number)
    };
    with_key(key().replace(), task)
}

const NOW: Duration = Duration::ZERO;

/// The answer to a replacement of task 1 by the first task of a request.
const REPLACED: [(usize, u64, Conflict); 1] = [(0, 1, Conflict::Replace)];

/// Checks the tasks of a claim: their numbers, their groups, and the numbers in their payloads.
fn assert_claimed(claim: &Claim, expected: &[(u64, &str, u64)]) {
    let claimed = claim.tasks.iter().map(|task| {
        let group = task.group.as_ref().map(|group| group.as_str());
        (task.id, group, task.payload.clone())
    });
    let expected = expected.iter().map(|&(number, group, payload)| {
        let payload = payload.to_be_bytes().to_vec();
        (id(number), Some(group), Ok(payload))
    });
    assert_eq!(claimed.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

fn assert_sound(it: &dyn Harness) {
    assert_eq!(it.broken_invariants(), Vec::<String>::new());
}

/// The spawn that replaces it has another group, or none.
pub async fn a_replaced_task_stays_in_its_group(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    let without = |number| with_key(key().replace(), queued(number));
    for new in [replacing("c", 9, NOW), without(9)] {
        assert_stored(&mut q, replacing("a", 1, NOW)).await;
        q.enqueue([grouped("a", 2), grouped("b", 3)]).await;
        assert_eq!(store(&mut q, [new]).await, REPLACED);
        assert_sound(it);
        assert_eq!(process.queue("q").await.waiting, 3);
        let claim = q.claim(9).await;
        assert_claimed(&claim, &[(1, "a", 9), (3, "b", 3), (2, "a", 2)]);
        for number in 1..=3 {
            q.report(claim.epoch, number, done()).await;
        }
        it.age(2 * HOUR);
        while process.maintain(9).await {}
        q = process.session_in("q").await;
    }
}

pub async fn a_replaced_task_keeps_its_place_in_its_group(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue([grouped("a", 5), grouped("b", 6)]).await;
    assert_stored(&mut q, replacing("a", 1, NOW)).await;
    q.enqueue([grouped("a", 7)]).await;
    for payload in [8, 9] {
        let replaced = store(&mut q, [replacing("b", payload, NOW)]).await;
        assert_eq!(replaced, REPLACED);
        assert_sound(it);
    }
    let expected = [(5, "a", 5), (6, "b", 6), (1, "a", 9), (7, "a", 7)];
    assert_claimed(&q.claim(9).await, &expected);
}

/// The group is no longer in the ring, and goes behind the others when it gets a task.
pub async fn the_group_of_a_postponed_task_loses_its_turn(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    assert_stored(&mut q, replacing("a", 1, NOW)).await;
    q.enqueue([grouped("b", 2), grouped("b", 3)]).await;
    let postponed = store(&mut q, [replacing("b", 4, 10 * SECOND)]).await;
    assert_eq!(postponed, REPLACED);
    assert_sound(it);
    assert_eq!(process.queue("q").await.waiting, 2);
    q.enqueue([grouped("a", 5)]).await;
    assert_claimed(&q.claim(9).await, &[(2, "b", 2), (5, "a", 5), (3, "b", 3)]);
    let turned = q.turn(wanting(9)).await;
    assert_eq!((turned.claim, turned.next), (None, Some(10 * SECOND)));
    it.clock().advance(10 * SECOND);
    assert_claimed(&q.claim(9).await, &[(1, "a", 4)]);
    assert_sound(it);
}

/// Whatever the order of the tasks in the request.
pub async fn a_group_with_tasks_before_and_after_a_request_keeps_its_turn(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    for is_first in [true, false] {
        assert_stored(&mut q, replacing("a", 1, NOW)).await;
        q.enqueue([grouped("b", 2), grouped("b", 3)]).await;
        let mut tasks = [replacing("a", 4, HOUR), grouped("a", 5)];
        if !is_first {
            tasks.reverse();
        }
        let at = usize::from(!is_first);
        assert_eq!(store(&mut q, tasks).await, [(at, 1, Conflict::Replace)]);
        assert_sound(it);
        let claim = q.claim(9).await;
        assert_claimed(&claim, &[(5, "a", 5), (2, "b", 2), (3, "b", 3)]);
        for number in [5, 2, 3] {
            q.report(claim.epoch, number, done()).await;
        }
        process.cancel([1]).await;
        it.age(2 * HOUR);
        while process.maintain(9).await {}
        q = process.session_in("q").await;
    }
}

/// An earlier due time moves it to the end of its group, and its group into the ring.
pub async fn a_delayed_task_of_a_group_becomes_ready_by_a_replacement(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process
        .set_queue("q", groups(Groups::new().max_running(1)))
        .await;
    assert_stored(&mut q, replacing("a", 1, HOUR)).await;
    q.enqueue([grouped("a", 2), grouped("b", 3)]).await;
    assert_eq!(store(&mut q, [replacing("c", 4, NOW)]).await, REPLACED);
    assert_sound(it);
    let claim = q.claim(9).await;
    assert_claimed(&claim, &[(2, "a", 2), (3, "b", 3)]);
    let turn = wanting(9).verdict(claim.epoch, 2, done());
    let claim = q.turn(turn).await.claim.unwrap();
    assert_claimed(&claim, &[(1, "a", 4)]);
}

/// A spawn that stores nothing adds nothing to its group.
pub async fn a_task_that_joins_or_is_rejected_is_in_no_group(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process
        .set_queue("q", groups(Groups::new().max_running(1)))
        .await;
    let keyed = |group, number| with_key(Key::new("key"), grouped(group, number));
    let rejected = with_key(Key::new("key").reject(), grouped("b", 3));
    assert_stored(&mut q, keyed("a", 1)).await;
    assert_joins(&mut q, keyed("b", 2), 1).await;
    let answer = store(&mut q, [rejected, grouped("b", 4), keyed("c", 5)]).await;
    assert_eq!(answer, [(0, 1, Conflict::Reject), (2, 1, Conflict::Join)]);
    assert_sound(it);
    assert_eq!(process.queue("q").await.waiting, 2);
    let claim = q.claim(9).await;
    assert_claimed(&claim, &[(1, "a", 1), (4, "b", 4)]);
    // The running holder is joined, too. Its group is full, and others are not.
    assert_joins(&mut q, keyed("c", 6), 1).await;
    q.enqueue([grouped("a", 7), grouped("c", 8)]).await;
    assert_claimed(&q.claim(9).await, &[(8, "c", 8)]);
    let turn = wanting(9).verdict(claim.epoch, 1, done());
    let claim = q.turn(turn).await.claim.unwrap();
    assert_claimed(&claim, &[(7, "a", 7)]);
    assert_sound(it);
}

/// Debounced tasks of many groups are postponed again and again, claimed, and cancelled: nothing of them is left.
pub async fn nothing_is_left_of_groups_with_keys(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    let debounced = |round: u64, group: u64| {
        let name = format!("group {group}");
        let key = Key::new(&name).debounce(2 * SECOND).at_latest(5 * SECOND);
        let task = NewTask {
            retention: Duration::ZERO,
            ..grouped(&name, 100 * round + group)
        };
        with_key(key, task)
    };
    for round in 0..6 {
        store(&mut q, (0..8).map(|group| debounced(round, group))).await;
        it.clock().advance(SECOND);
        // A task that is ready is not postponed again, but its payload is replaced.
        q.turn(wanting(0)).await;
        assert_sound(it);
    }
    process.cancel([0, 3]).await;
    let claim = q.claim(9).await;
    assert_eq!(ids(&claim), [1, 2, 4, 5, 6, 7].map(id));
    for number in [1, 2, 4, 5, 6, 7] {
        q.report(claim.epoch, number, done()).await;
    }
    q.rest().await;
    q.close().await;
    while process.maintain(9).await {}
    assert_sound(it);
    // That the queue has had groups remains known.
    assert!(it.leftovers() <= 1, "{}", it.leftovers());
}

pub async fn a_task_of_a_held_group_can_be_replaced(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue([grouped("a", 2)]).await;
    assert_stored(&mut q, replacing("a", 1, NOW)).await;
    let epoch = q.claim(1).await.epoch;
    q.report(epoch, 2, hold(5 * SECOND, Verdict::Release)).await;
    // It is postponed and ready again while its group is held.
    for delay in [NOW, SECOND, NOW] {
        let replaced = store(&mut q, [replacing("a", 3, delay)]).await;
        assert_eq!(replaced, REPLACED);
        assert_sound(it);
        q.rest().await;
    }
    it.clock().advance(5 * SECOND);
    assert_claimed(&q.claim(9).await, &[(2, "a", 2), (1, "a", 3)]);
    assert_sound(it);
}

pub async fn a_replaced_task_of_a_full_group_wakes_nobody(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut producer = prepare(&one).await;
    let mut busy = one.session_in("q").await;
    one.set_queue("q", groups(Groups::new().max_running(1)))
        .await;
    producer.enqueue([grouped("a", 2)]).await;
    let epoch = busy.claim(9).await.epoch;
    assert_stored(&mut producer, replacing("a", 1, HOUR)).await;
    let mut idle = Idle::of(&two).await;
    for payload in [3, 4] {
        let replaced = store(&mut producer, [replacing("a", payload, NOW)]).await;
        assert_eq!(replaced, REPLACED);
        idle.sleeps(&one, 1_000 + payload).await;
    }
    producer.report(epoch, 2, done()).await;
    idle.events.woken().await;
    assert_claimed(&idle.session.claim(1).await, &[(1, "a", 4)]);
}

/// A task whose new payload has another envelope has another kind, and is still counted in its group.
pub async fn a_replaced_task_of_another_envelope_stays_in_its_group(it: &dyn Harness) {
    let process = Process::of(it);
    let set = TypeSet::of([1, 3].map(|envelope| Kind::in_envelope("job", envelope)));
    let both = process.session_with(set.in_queue(queue_name("q")));
    let mut both = both.await;
    process
        .set_queue("q", groups(Groups::new().max_running(1)))
        .await;
    assert_stored(&mut both, replacing("a", 1, NOW)).await;
    both.enqueue([grouped("b", 2)]).await;
    let newer = NewTask {
        envelope: 3,
        ..replacing("b", 3, NOW)
    };
    assert_eq!(store(&mut both, [newer]).await, REPLACED);
    assert_sound(it);
    both.enqueue([grouped("a", 4)]).await;
    let claim = both.claim(9).await;
    assert_claimed(&claim, &[(1, "a", 3), (2, "b", 2)]);
    let turn = wanting(9).verdict(claim.epoch, 1, done());
    let claim = both.turn(turn).await.claim.unwrap();
    assert_claimed(&claim, &[(4, "a", 4)]);
    assert_sound(it);
}
