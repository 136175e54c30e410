//! Events. A store may send more events than it must, so each case waits for the one that it needs.

use super::Harness;
use super::process::*;
use crate::durable::DeadFilter;
use crate::durable::store::{Event, Verdict};

pub async fn the_first_event_is_ready(it: &dyn Harness) {
    let process = Process::of(it);
    let mut events = process.events();
    assert_eq!(events.next().await, Event::Ready);
}

pub async fn an_end_is_reported_to_a_producer_that_awaits_it(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut events = one.events();
    let mut spawner = one.session().await;
    let mut worker = two.session().await;
    spawner.enqueue([task(1), task(2)]).await;
    one.status([1, 2]).await;
    let epoch = worker.claim(2).await.epoch;
    for number in [1, 2] {
        worker.report(epoch, number, done()).await;
        events.ended(number).await;
        assert_eq!(one.status_of(number).await, state_done());
    }
}

pub async fn an_end_is_reported_to_any_process_that_awaits_it(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let (mut first, mut second) = (one.events(), three.events());
    let mut worker = two.session().await;
    worker.enqueue([task(1), task(2)]).await;
    // Once while the task waits, and once while it runs.
    one.status([1]).await;
    let epoch = worker.claim(2).await.epoch;
    one.status([2]).await;
    three.status([1, 2]).await;
    for number in [1, 2] {
        worker.report(epoch, number, done()).await;
        first.ended(number).await;
        second.ended(number).await;
    }
}

pub async fn every_kind_of_end_is_reported(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut events = one.events();
    let mut spawner = one.session().await;
    let mut worker = two.session().await;
    spawner.enqueue((1..=4).map(task)).await;
    spawner.enqueue([delayed(5, SECOND), task(6)]).await;
    one.status([1, 2, 3, 4, 5, 6]).await;
    let epoch = worker.claim(4).await.epoch;
    worker.report(epoch, 1, dead()).await;
    events.ended(1).await;
    two.cancel([2, 3, 4, 5, 6]).await;
    events.ended(5).await;
    events.drain();
    worker.report(epoch, 2, retry(SECOND)).await;
    events.ended(2).await;
    worker.report(epoch, 3, Verdict::Release).await;
    events.ended(3).await;
    // The last task ends by the death of its worker.
    two.kill(it);
    spawner.turn(wanting(0)).await;
    events.ended(4).await;
}

pub async fn a_cancellation_is_reported_to_the_worker(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut events = two.events();
    let mut spawner = one.session().await;
    let mut worker = two.session().await;
    spawner.enqueue([task(1), task(2)]).await;
    worker.claim(2).await;
    for number in [2, 1] {
        assert_eq!(one.cancel([number]).await, 1);
        events.cancelled(number).await;
    }
}

pub async fn a_stored_task_wakes_a_worker(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let (mut worker, mut events) = idle_session(&two).await;
    one.session().await.enqueue([task(1)]).await;
    events.woken().await;
    assert_eq!(ids(&worker.claim(1).await), [id(1)]);
}

pub async fn a_delayed_task_wakes_a_worker_in_time(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let (mut worker, mut events) = idle_session(&two).await;
    let mut spawner = one.session().await;
    // The first, and then one that is due before it.
    for (number, delay) in [(1, 9 * SECOND), (2, 2 * SECOND)] {
        spawner.enqueue([delayed(number, delay)]).await;
        // Like a worker, it makes a turn whenever it is woken.
        loop {
            events.woken().await;
            let turned = worker.turn(wanting(1).go_idle()).await;
            assert_eq!(turned.claim, None);
            if turned.next.is_some_and(|next| next <= delay) {
                break;
            }
        }
    }
}

pub async fn the_clock_wakes_workers(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    one.session().await.enqueue([delayed(1, SECOND)]).await;
    let mut events = two.events();
    let mut worker = two.session().await;
    let turned = worker.turn(wanting(1).go_idle()).await;
    assert_eq!(turned.claim, None);
    assert!(turned.next.is_some_and(|next| next <= SECOND), "{turned:?}");
    events.drain();
    it.clock().advance(SECOND);
    events.woken().await;
    assert_eq!(ids(&worker.claim(1).await), [id(1)]);
}

pub async fn a_replayed_dead_letter_wakes_a_worker(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    one.session().await.run(task(1), dead()).await;
    let (mut worker, mut events) = idle_session(&two).await;
    assert_eq!(one.replay_dead_letters(DeadFilter::all()).await, 1);
    events.woken().await;
    assert_eq!(ids(&worker.claim(1).await), [id(1)]);
}

pub async fn a_released_task_wakes_a_worker(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut busy = one.session().await;
    busy.enqueue([task(1)]).await;
    let epoch = busy.claim(1).await.epoch;
    let mut events = two.events();
    let mut worker = two.session().await;
    assert_eq!(worker.turn(wanting(1).go_idle()).await.claim, None);
    events.drain();
    busy.report(epoch, 1, Verdict::Release).await;
    events.woken().await;
    assert_eq!(ids(&worker.claim(1).await), [id(1)]);
}

pub async fn a_dead_process_wakes_a_worker(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut busy = one.session().await;
    busy.enqueue([task(1)]).await;
    busy.claim(1).await;
    let mut events = two.events();
    let mut worker = two.session().await;
    let mut turned = worker.turn(wanting(1).go_idle()).await;
    assert_eq!(turned.claim, None);
    events.drain();
    one.kill(it);
    // If the store does not report a death, `next` is short, in real time.
    in_time("what the dead had", async {
        while turned.claim.is_none() {
            let next = turned.next.expect("it looks again while others run");
            tokio::time::timeout(next, events.woken()).await.ok();
            turned = worker.turn(wanting(1).go_idle()).await;
        }
    })
    .await;
    assert_eq!(ids(&turned.claim.unwrap()), [id(1)]);
}

/// Two producers and a worker run as fast as they can. An idle worker waits for a wake-up, so it needs one for every
/// task that is stored between its turn and its wait.
pub async fn no_wake_up_is_lost(it: &dyn Harness) {
    const TASKS_OF_EACH: u64 = 50;
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let store = async |process: &Process, first| {
        let mut session = process.session().await;
        for number in first..first + TASKS_OF_EACH {
            session.enqueue([task(number)]).await;
            // Yields often enough that the others are sometimes idle.
            for _ in 0..number % 4 {
                tokio::task::yield_now().await;
            }
        }
    };
    let work = async {
        let mut events = three.events();
        let mut session = three.session().await;
        let mut claimed = 0;
        while claimed < 2 * TASKS_OF_EACH {
            let turned = session.turn(wanting(3).go_idle()).await;
            match turned.claim {
                Some(claim) => claimed += claim.tasks.len() as u64,
                None if turned.more || turned.next == Some(std::time::Duration::ZERO) => {}
                None => events.woken().await,
            }
        }
    };
    tokio::join!(store(&one, 0), store(&two, TASKS_OF_EACH), work);
}

/// Returns a session that has found no task and is idle.
async fn idle_session(process: &Process) -> (Session<'_>, Events) {
    let mut events = process.events();
    let mut session = process.session().await;
    let turned = session.turn(wanting(1).go_idle()).await;
    assert_eq!((turned.claim, turned.more), (None, false));
    // Earlier events must not wake it.
    events.drain();
    (session, events)
}
