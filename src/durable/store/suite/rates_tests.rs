//! The rate of a queue: a burst, and then one task per interval.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::queue::{QueueSettings, Rate};

const MILLISECOND: Duration = Duration::from_millis(1);

/// One start per second, and up to three at once.
fn limited() -> QueueSettings {
    let rate = Rate::every(SECOND).burst(3);
    QueueSettings::new().rate(rate)
}

pub async fn a_burst_starts_and_then_one_task_per_interval(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process.set_queue("q", limited()).await;
    q.enqueue((1..=12).map(queued)).await;
    let turned = q.turn(wanting(64)).await;
    assert_eq!(ids(&turned.claim.unwrap()), [1, 2, 3].map(id));
    assert_eq!((turned.more, turned.next), (false, Some(SECOND)));
    for number in 4..=6 {
        it.clock().advance(SECOND - MILLISECOND);
        let turned = q.turn(wanting(64).go_idle()).await;
        assert_eq!((turned.claim, turned.more), (None, false));
        assert_eq!(turned.next, Some(MILLISECOND));
        it.clock().advance(MILLISECOND);
        let turned = q.turn(wanting(64)).await;
        assert_eq!(ids(&turned.claim.unwrap()), [id(number)]);
        assert_eq!((turned.more, turned.next), (false, Some(SECOND)));
    }
    // The part that was not used is kept, up to the burst.
    it.clock().advance(2 * SECOND);
    assert_eq!(ids(&q.claim(64).await), [7, 8].map(id));
    it.clock().advance(20 * SECOND);
    assert_eq!(ids(&q.claim(2).await), [9, 10].map(id));
    let turned = q.turn(wanting(0)).await;
    assert!(turned.more, "one more may start at once");
    assert_eq!(ids(&q.claim(64).await), [id(11)]);
    q.rest().await;
}

pub async fn a_rate_is_shared_by_all_workers(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut first = one.session_in("q").await;
    let mut second = two.session_in("q").await;
    let mut default = two.session().await;
    one.set_queue("q", limited()).await;
    first.enqueue((1..=9).map(queued)).await;
    first.enqueue((10..=14).map(task)).await;
    assert_eq!(first.claim(2).await.tasks.len(), 2);
    assert_eq!(second.claim(9).await.tasks.len(), 1);
    first.rest().await;
    assert_eq!(default.claim(9).await.tasks.len(), 5);
    it.clock().advance(SECOND);
    assert_eq!(second.claim(9).await.tasks.len(), 1);
    first.rest().await;
}

pub async fn a_repeated_turn_uses_the_rate_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process.set_queue("q", limited()).await;
    q.enqueue((1..=9).map(queued)).await;
    let claim = q.claim(2).await;
    for _ in 0..3 {
        let again = q.turn_again(wanting(2)).await.unwrap();
        assert_eq!((again.claim, again.more), (Some(claim.clone()), true));
    }
    assert_eq!(ids(&q.claim(9).await), [id(3)]);
    let again = q.turn_again(wanting(9)).await.unwrap();
    assert_eq!((again.more, again.next), (false, Some(SECOND)));
    it.clock().advance(SECOND);
    assert_eq!(ids(&q.claim(9).await), [id(4)]);
}

/// A turn that claims nothing uses nothing.
pub async fn only_a_start_uses_the_rate(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process.set_queue("q", limited()).await;
    q.enqueue([queued(1), queued(2)]).await;
    for _ in 0..9 {
        q.turn(wanting(0)).await;
        process.pause_queue("q").await;
        q.rest().await;
        process.resume_queue("q").await;
    }
    let epoch = q.claim(9).await.epoch;
    q.enqueue([queued(3), queued(4), queued(5)]).await;
    assert_eq!(ids(&q.claim(9).await), [id(3)]);
    // A task that is tried again starts again, and its end frees nothing.
    let turn = wanting(9).verdict(epoch, 1, retry(SECOND));
    assert_eq!(q.turn(turn).await.claim, None);
    for (number, seconds) in [(4, 1), (5, 1), (1, 1)] {
        it.clock().advance(seconds * SECOND);
        assert_eq!(ids(&q.claim(9).await), [id(number)]);
    }
    q.rest().await;
}

pub async fn a_rate_and_a_limit_hold_together(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process.set_queue("q", limited().max_running(2)).await;
    q.enqueue((1..=9).map(queued)).await;
    let turned = q.turn(wanting(9)).await;
    let epoch = turned.claim.unwrap().epoch;
    // The queue is full, so nothing depends on time before the lease.
    assert_eq!((turned.more, turned.next), (false, Some(LEASE)));
    let turn = wanting(9)
        .verdict(epoch, 1, done())
        .verdict(epoch, 2, done());
    let turned = q.turn(turn).await;
    let claim = turned.claim.unwrap();
    assert_eq!(ids(&claim), [id(3)]);
    assert_eq!((turned.more, turned.next), (false, Some(SECOND)));
    it.clock().advance(9 * SECOND);
    assert_eq!(ids(&q.claim(9).await), [id(4)]);
    q.rest().await;
}

pub async fn a_rate_outlasts_maintenance(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process.set_queue("q", limited()).await;
    q.enqueue((1..=9).map(queued)).await;
    assert_eq!(q.claim(9).await.tasks.len(), 3);
    while process.maintain(9).await {}
    let turned = q.turn(wanting(9)).await;
    assert_eq!((turned.claim, turned.more), (None, false));
    assert_eq!(process.damage(), None);
    // A rate that is not used needs no row.
    it.clock().advance(10 * SECOND);
    while process.maintain(9).await {}
    assert_eq!(q.claim(9).await.tasks.len(), 3);
}

pub async fn a_changed_rate_holds_at_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    let hourly = QueueSettings::new().rate(Rate::per_hour(1));
    process.set_queue("q", hourly).await;
    q.enqueue((1..=9).map(queued)).await;
    let turned = q.turn(wanting(9)).await;
    assert_eq!(ids(&turned.claim.unwrap()), [id(1)]);
    assert_eq!(turned.next, Some(LEASE));
    process.set_queue("q", limited()).await;
    let turned = q.turn(wanting(9).go_idle()).await;
    assert_eq!(turned.claim, None);
    assert_eq!(turned.next, Some(SECOND));
    it.clock().advance(SECOND);
    assert_eq!(ids(&q.claim(9).await), [id(2)]);
    process.set_queue("q", QueueSettings::new()).await;
    assert_eq!(q.claim(9).await.tasks.len(), 7);
}

/// No more tasks start than the rate allows, either.
pub async fn a_clock_that_is_put_back_stops_no_queue(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process.set_queue("q", limited()).await;
    q.enqueue((1..=20).map(queued)).await;
    assert_eq!(q.claim(64).await.tasks.len(), 3);
    it.clock().set_wall(it.clock().wall() - HOUR);
    for number in 4..=6 {
        let turned = q.turn(wanting(64).go_idle()).await;
        assert_eq!((turned.claim, turned.next), (None, Some(SECOND)));
        it.clock().advance(SECOND);
        assert_eq!(ids(&q.claim(64).await), [id(number)]);
    }
    // Ahead and back again: a burst, and then as usual.
    it.clock().set_wall(it.clock().wall() + HOUR);
    assert_eq!(ids(&q.claim(64).await), [7, 8, 9].map(id));
    it.clock().set_wall(it.clock().wall() - HOUR);
    let turned = q.turn(wanting(64).go_idle()).await;
    assert_eq!((turned.claim, turned.next), (None, Some(SECOND)));
    it.clock().advance(SECOND);
    assert_eq!(ids(&q.claim(64).await), [id(10)]);
    q.rest().await;
}
