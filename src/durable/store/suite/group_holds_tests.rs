//! Holds of groups, and the wake-ups of sessions for groups.

use std::time::Duration;

use super::Harness;
use super::process::*;
use super::queue_wakes_tests::{Idle, prepare, woken_first};
use crate::durable::store::Verdict;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Claims the next task, and reports that its group is to be held.
async fn hold_next(q: &mut Session<'_>, number: u64, wait: Duration) {
    q.run_first(id(number), hold(wait, dead())).await;
}

pub async fn a_held_group_starts_nothing_until_its_hold_is_over(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue((1..=3).map(|number| grouped("a", number))).await;
    hold_next(&mut q, 1, 5 * SECOND).await;
    q.enqueue([grouped("a", 4), grouped("b", 5), queued(6)])
        .await;
    let claim = q.claim(9).await;
    assert_eq!(ids(&claim), [5, 6].map(id));
    q.report(claim.epoch, 5, done()).await;
    q.report(claim.epoch, 6, done()).await;
    it.clock().advance(5 * SECOND - MILLISECOND);
    let turned = q.turn(wanting(9).go_idle()).await;
    assert_eq!((turned.claim, turned.more), (None, false));
    assert_eq!(turned.next, Some(MILLISECOND));
    it.clock().advance(MILLISECOND);
    assert_eq!(ids(&q.claim(9).await), [2, 3, 4].map(id));
    assert_eq!(q.turn(wanting(9)).await.next, Some(LEASE));
}

/// Even if the hold is over at once.
pub async fn a_group_that_is_held_goes_behind_the_others(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue([grouped("b", 1)]).await;
    let epoch = q.claim(1).await.epoch;
    q.enqueue([grouped("b", 2)]).await;
    q.enqueue([grouped("a", 3)]).await;
    let held = wanting(9).verdict(epoch, 1, hold(Duration::ZERO, dead()));
    let claim = q.turn(held).await.claim.expect("tasks wait");
    assert_eq!(ids(&claim), [3, 2].map(id));
}

pub async fn a_verdict_of_any_kind_can_hold_its_group(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    let mut default = process.session().await;
    let snooze = Verdict::Snooze { after: HOUR };
    for (number, verdict) in (10..)
        .step_by(10)
        .zip([retry(HOUR), snooze, dead(), Verdict::Release])
    {
        let is_release = verdict == Verdict::Release;
        q.enqueue([grouped("a", number), grouped("a", number + 1)])
            .await;
        let epoch = q.claim(1).await.epoch;
        // A session of another queue may report it.
        default.report(epoch, number, hold(SECOND, verdict)).await;
        q.rest().await;
        it.clock().advance(SECOND);
        let claim = q.claim(1).await;
        let next = number + u64::from(!is_release);
        assert_eq!(ids(&claim), [id(next)]);
        q.report(claim.epoch, next, done()).await;
        process.cancel([number, number + 1]).await;
    }
}

pub async fn a_hold_may_be_over_while_its_group_is_empty(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue([grouped("a", 1)]).await;
    hold_next(&mut q, 1, SECOND).await;
    assert_eq!(q.turn(wanting(9).go_idle()).await.next, Some(SECOND));
    it.clock().advance(SECOND);
    q.rest().await;
    assert_eq!(q.turn(wanting(9)).await.next, None);
    q.enqueue([grouped("a", 2), grouped("a", 3)]).await;
    hold_next(&mut q, 2, SECOND).await;
    it.clock().advance(SECOND);
    assert_eq!(ids(&q.claim(9).await), [id(3)]);
}

pub async fn a_hold_may_be_over_while_its_group_is_full(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process
        .set_queue("q", groups(Groups::new().max_running(2)))
        .await;
    q.enqueue((1..=4).map(|number| grouped("a", number))).await;
    let epoch = q.claim(2).await.epoch;
    q.report(epoch, 1, hold(SECOND, Verdict::Release)).await;
    process
        .set_queue("q", groups(Groups::new().max_running(1)))
        .await;
    q.rest().await;
    it.clock().advance(SECOND);
    q.rest().await;
    let turned = q.turn(wanting(9).verdict(epoch, 2, done())).await;
    assert_eq!(ids(&turned.claim.unwrap()), [id(1)]);
}

pub async fn a_later_hold_replaces_an_earlier_one(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue((1..=9).map(|number| grouped("a", number))).await;
    let epoch = q.claim(4).await.epoch;
    q.report(epoch, 1, hold(HOUR, dead())).await;
    assert_eq!(q.turn(wanting(9)).await.next, Some(LEASE));
    q.report(epoch, 2, hold(SECOND, dead())).await;
    assert_eq!(q.turn(wanting(9)).await.next, Some(SECOND));
    q.report(epoch, 3, hold(2 * SECOND, dead())).await;
    it.clock().advance(SECOND);
    q.rest().await;
    // A verdict that is refused holds nothing, and ends no hold.
    let late = wanting(9).verdict(epoch, 1, hold(Duration::ZERO, dead()));
    assert_eq!(q.turn(late).await.claim, None);
    let ends = wanting(9).verdict(epoch, 4, hold(Duration::ZERO, dead()));
    assert_eq!(q.turn(ends).await.claim.unwrap().tasks.len(), 5);
}

/// A turn ends a limited number of holds. The worker asks again at once.
pub async fn holds_of_many_groups_end_at_the_same_time(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    for first in [0, 150, 300, 450] {
        let tasks = (first..first + 150).map(|number| grouped(&number.to_string(), number));
        q.enqueue(tasks).await;
        let claim = q.claim(150).await;
        let held = ids(&claim).into_iter();
        let held = held.map(|id| (id, hold(SECOND, Verdict::Release)));
        let turn = wanting(0).verdicts(claim.epoch, held.collect());
        q.turn(turn).await;
    }
    q.rest().await;
    it.clock().advance(SECOND);
    let mut started = 0;
    while started < 600 {
        let turned = q.turn(wanting(256)).await;
        assert!(turned.claim.is_some() || turned.more || turned.next == Some(Duration::ZERO));
        started += turned.claim.map_or(0, |claim| claim.tasks.len());
    }
}

pub async fn a_shorter_hold_wakes_a_session(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut producer = prepare(&one).await;
    let mut busy = one.session_in("q").await;
    producer
        .enqueue((1..=4).map(|number| grouped("a", number)))
        .await;
    let epoch = busy.claim(3).await.epoch;
    producer.report(epoch, 1, hold(20 * SECOND, dead())).await;
    let mut idle = Idle::of(&two).await;
    // The store may have a worker check earlier whether others have died.
    let next = idle.session.turn(wanting(9).go_idle()).await.next;
    assert!(next <= Some(20 * SECOND), "{next:?}");
    // Its worker has no permit, and the reporter serves another queue.
    producer.report(epoch, 2, hold(SECOND, dead())).await;
    idle.events.woken().await;
    let turned = idle.session.turn(wanting(9).go_idle()).await;
    assert!(
        turned.claim.is_none() && turned.next <= Some(SECOND),
        "{turned:?}"
    );
    it.clock().advance(SECOND);
    assert_eq!(ids(&idle.session.claim(1).await), [id(4)]);
}

/// A worker that has got as many tasks as it wanted may have no free permit when the hold is over.
pub async fn a_full_worker_has_another_one_wait_for_a_hold(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut producer = prepare(&one).await;
    let mut busy = one.session_in("q").await;
    let mut idle = Idle::of(&two).await;
    one.set_queue("q", max_running(2)).await;
    producer.enqueue([grouped("a", 1), grouped("c", 2)]).await;
    let epoch = busy.claim(2).await.epoch;
    producer.enqueue([grouped("a", 3), grouped("b", 4)]).await;
    idle.rest(&one).await;
    let turn = wanting(1)
        .verdict(epoch, 1, hold(SECOND, dead()))
        .verdict(epoch, 2, done());
    let turned = busy.turn(turn).await;
    assert_eq!(ids(&turned.claim.unwrap()), [id(4)]);
    idle.events.woken().await;
    let turned = idle.session.turn(wanting(1).go_idle()).await;
    assert!(
        turned.claim.is_none() && turned.next <= Some(SECOND),
        "{turned:?}"
    );
}

pub async fn a_freed_permit_of_a_group_wakes_a_session(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut default = prepare(&one).await;
    let mut busy = one.session_in("q").await;
    one.set_queue("q", groups(Groups::new().max_running(1)))
        .await;
    let mut idle = Idle::of(&two).await;
    default.enqueue([grouped("a", 1)]).await;
    let epoch = busy.claim(9).await.epoch;
    idle.rest(&one).await;
    // Their group is full, so they cannot start.
    default.enqueue([grouped("a", 2), grouped("a", 3)]).await;
    idle.sleeps(&one, 1_000).await;
    default.report(epoch, 1, done()).await;
    idle.starts(2).await;
    idle.rest(&one).await;
    default.enqueue([grouped("b", 4)]).await;
    idle.starts(4).await;
}

pub async fn a_raised_limit_of_groups_wakes_a_session(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut producer = prepare(&one).await;
    let mut busy = one.session_in("q").await;
    one.set_queue("q", groups(Groups::new().max_running(1)))
        .await;
    producer
        .enqueue((1..=3).map(|number| grouped("a", number)))
        .await;
    busy.claim(9).await;
    let mut idle = Idle::of(&two).await;
    one.set_queue("q", groups(Groups::new().max_running(2)))
        .await;
    idle.starts(2).await;
}

/// A worker without a free permit may go idle, too.
pub async fn a_worker_that_wants_nothing_waits_for_a_hold(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue([grouped("a", 1), grouped("a", 2)]).await;
    hold_next(&mut q, 1, 3 * SECOND).await;
    for want in [0, 1] {
        let turned = q.turn(wanting(want).go_idle()).await;
        assert_eq!((turned.claim, turned.next), (None, Some(3 * SECOND)));
    }
}

/// The end of a hold is handed on, also by a worker that ends no task itself.
pub async fn a_worker_that_a_claim_fills_hands_a_hold_on(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let mut producer = prepare(&one).await;
    let mut busy = one.session_in("q").await;
    one.set_queue("q", max_running(3)).await;
    producer
        .enqueue([grouped("a", 1), grouped("c", 2), grouped("d", 3)])
        .await;
    let epoch = busy.claim(3).await.epoch;
    let mut first = Idle::of(&two).await;
    let mut second = Idle::of(&three).await;
    first.rest(&one).await;
    // The queue is full, so these wake nobody.
    producer.enqueue([grouped("a", 5), grouped("b", 4)]).await;
    let turn = wanting(0)
        .verdict(epoch, 1, hold(SECOND, dead()))
        .verdict(epoch, 2, done());
    producer.turn(turn).await;
    let (woken, other) = woken_first(&mut first, &mut second).await;
    assert_eq!(ids(&woken.session.claim(1).await), [id(4)]);
    other.events.woken().await;
    let turned = other.session.turn(wanting(1).go_idle()).await;
    assert!(
        turned.claim.is_none() && turned.next <= Some(SECOND),
        "{turned:?}"
    );
}
