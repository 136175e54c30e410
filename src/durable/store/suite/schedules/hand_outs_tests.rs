//! Schedules are handed out to workers, and each tick fires once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Harness;
use super::process::*;
use super::scheduler::*;
use crate::durable::schedule::when::{COMPUTES_CRON, COMPUTES_EVERY};
use crate::durable::store::{
    HAND_OUT_INTERVAL, HandOut, MAX_HAND_OUTS, ScheduleChange, ScheduleRow,
};
use crate::durable::{Every, ScheduleOptions, SpawnOptions};

pub async fn a_due_schedule_is_handed_out_to_one_worker(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    assert_eq!(one.hand_out().await, HandOut::default());
    assert_eq!(session.turn(wanting(0)).await.next_tick, None);
    scheduler.define_minutely("a").await;
    let left = Duration::from_secs(60 - it.clock().wall().as_secs() % 60);
    let none_yet = HandOut {
        due: vec![],
        next: Some(left),
    };
    assert_eq!(one.hand_out().await, none_yet);
    assert_eq!(session.turn(wanting(0)).await.next_tick, Some(left));
    it.clock().advance(left - Duration::from_millis(1));
    assert_eq!(one.due().await, []);
    it.clock().advance(Duration::from_millis(1));
    // A turn only says that a schedule is due.
    assert_eq!(
        session.turn(wanting(0)).await.next_tick,
        Some(Duration::ZERO)
    );
    let handed_out = one.hand_out().await;
    assert_eq!(names(&handed_out.due), ["a"]);
    assert_eq!(handed_out.next, Some(HAND_OUT_INTERVAL));
    assert_eq!(
        session.turn(wanting(0)).await.next_tick,
        Some(HAND_OUT_INTERVAL)
    );
    assert_eq!(two.due().await, []);
    // If no worker fires it, it is handed out again.
    it.clock().advance(HAND_OUT_INTERVAL);
    assert_eq!(names(&two.due().await), ["a"]);
    assert_eq!(one.due().await, []);
}

pub async fn a_schedule_is_handed_out_only_to_builds_that_compute_it(it: &dyn Harness) {
    let process = Process::of(it);
    for (name, needs) in [("a", COMPUTES_EVERY), ("b", COMPUTES_CRON)] {
        store_row(it, &process, name, needs, SECOND).await;
    }
    it.clock().advance(SECOND);
    for (computes, handed_out) in [
        (0, vec![]),
        (COMPUTES_CRON, vec!["b"]),
        (COMPUTES_EVERY, vec!["a"]),
    ] {
        let answer = process.0.0.hand_out(computes).await.unwrap();
        assert_eq!(names(&answer.due), handed_out);
        let next = (computes != 0).then_some(HAND_OUT_INTERVAL);
        assert_eq!(answer.next, next);
    }
}

/// Stores the row of a schedule that is handed out after a given time.
async fn store_row(
    it: &dyn Harness,
    process: &Process,
    name: &str,
    needs: u8,
    after: Duration,
) -> Arc<ScheduleChange> {
    let time = (it.clock().wall() + after).as_millis() as u64;
    let change = Arc::new(ScheduleChange {
        name: schedule_name(name),
        before: None,
        after: Some(ScheduleRow {
            version: fastrand::u64(1..),
            needs,
            time: Some(time),
            started: 0,
            skipped: 0,
            last_task: None,
            body: b"body".to_vec(),
        }),
        queue: queue_name(""),
        tasks: Vec::new(),
    });
    assert!(process.change(&change).await.is_some());
    change
}

pub async fn many_due_schedules_are_handed_out_in_several_steps(it: &dyn Harness) {
    let process = Process::of(it);
    let count = 3 * MAX_HAND_OUTS + 1;
    for number in 0..count {
        let needs = 1 + (number % 2) as u8;
        store_row(it, &process, &format!("{number:04}"), needs, SECOND).await;
    }
    it.clock().advance(SECOND);
    let mut all = BTreeSet::new();
    for nth in 0..4 {
        let answer = process.hand_out().await;
        assert!(answer.due.len() <= MAX_HAND_OUTS);
        all.extend(names(&answer.due).into_iter().map(str::to_owned));
        let next = if nth < 3 {
            Duration::ZERO
        } else {
            HAND_OUT_INTERVAL
        };
        assert_eq!(answer.next, Some(next));
    }
    assert_eq!(all.len(), count);
}

pub async fn an_earlier_schedule_wakes_a_worker(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut events = process.events();
    session.rest().await;
    store_row(it, &process, "a", COMPUTES_EVERY, HOUR).await;
    events.woken().await;
    session.rest().await;
    store_row(it, &process, "b", COMPUTES_EVERY, 2 * HOUR).await;
    store_row(it, &process, "c", COMPUTES_EVERY, SECOND).await;
    events.woken().await;
    let next = session.turn(wanting(0)).await.next_tick;
    assert_eq!(next, Some(SECOND));
}

pub async fn a_schedule_that_is_not_the_first_wakes_no_worker(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    store_row(it, &one, "a", COMPUTES_EVERY, HOUR).await;
    // The end of this task shows that no wake-up came before.
    let sentinel = delayed(1, 1_000 * HOUR);
    one.session().await.enqueue([sentinel]).await;
    let mut session = two.session().await;
    let mut events = two.events();
    two.status([1]).await;
    session.rest().await;
    events.drain();
    store_row(it, &one, "b", COMPUTES_EVERY, 2 * HOUR).await;
    store_row(it, &one, "c", COMPUTES_CRON, 3 * HOUR).await;
    one.edit_row("b", |row| row.started = 1).await;
    one.edit_row("c", |row| row.time = None).await;
    assert_eq!(one.cancel([1]).await, 1);
    events.ended_without_wake(1).await;
    store_row(it, &one, "d", COMPUTES_CRON, SECOND).await;
    events.woken().await;
}

/// The worker that was handed the schedule dies before it fires the schedule, or afterwards.
pub async fn each_tick_is_stored_once_if_workers_die(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let last = Process::of(it);
    let mut session = last.session().await;
    scheduler.define_minutely("a").await;
    let mut ticks = Vec::new();
    for round in 0..6 {
        ticks.push(scheduler.pass("a", Duration::ZERO).await);
        let dying = Process::of(it);
        let due = dying.the_due().await;
        let fires = round % 2 == 0;
        if fires {
            assert_eq!(dying.fire(&due).await, 1);
        }
        dying.kill(it);
        assert_eq!(last.fire_due().await, 0);
        it.clock().advance(HAND_OUT_INTERVAL);
        assert_eq!(last.fire_due().await, usize::from(!fires));
        assert_eq!(run_all(&mut session).await, ticks[round..]);
    }
    assert_eq!(scheduler.info("a").await.started, 6);
    assert_eq!(last.counts().await.done, 6);
}

pub async fn a_change_that_is_sent_again_fires_once(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    for _ in 0..20 {
        let tick = scheduler.pass("a", Duration::ZERO).await;
        let change = process.firing(&process.the_due().await);
        for _ in 0..3 {
            let changed = process.change(&change).await;
            assert_eq!(changed, Some(Default::default()));
        }
        assert_eq!(run_all(&mut session).await, [tick]);
        // A repeated request stores nothing after the task has ended either.
        assert!(process.change(&change).await.is_some());
        assert!(run_all(&mut session).await.is_empty());
    }
    assert_eq!(scheduler.info("a").await.started, 20);
}

pub async fn only_one_of_two_workers_with_a_schedule_fires_it(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    let tick = scheduler.pass("a", Duration::ZERO).await;
    let slow = process.firing(&process.the_due().await);
    it.clock().advance(HAND_OUT_INTERVAL);
    let fast = process.firing(&process.the_due().await);
    assert!(process.change(&fast).await.is_some());
    assert_eq!(process.change(&slow).await, None);
    assert_eq!(run_all(&mut session).await, [tick]);
    // The changes are also refused after the next tick.
    scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(process.change(&slow).await, None);
    assert_eq!(process.change(&fast).await, None);
    assert_eq!(scheduler.info("a").await.started, 2);
}

/// The store's time for handing the schedule out is damaged. The worker that is handed the schedule writes the time again.
pub async fn a_schedule_that_is_handed_out_early_does_not_fire(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    hand_out_early(it, &process, "a").await;
    it.clock().advance(Duration::from_millis(1));
    assert_eq!(process.fire_due().await, 0);
    assert_eq!(process.due().await, []);
    it.clock().advance(HAND_OUT_INTERVAL);
    assert_eq!(process.due().await, []);
    let tick = scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [tick]);
}

pub async fn a_paused_schedule_that_is_handed_out_does_not_fire(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let schedules = scheduler.client.schedules();
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    assert!(schedules.pause("a").await.unwrap());
    let tick = scheduler.pass("a", Duration::ZERO).await;
    hand_out_early(it, &process, "a").await;
    it.clock().advance(Duration::from_millis(1));
    assert_eq!(process.fire_due().await, 0);
    assert_eq!(process.hand_out().await, HandOut::default());
    assert!(schedules.resume("a").await.unwrap());
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [tick]);
}

async fn hand_out_early(it: &dyn Harness, process: &Process, name: &str) {
    let now = it.clock().wall().as_millis() as u64;
    let edit = |row: &mut ScheduleRow| row.time = Some(now);
    process.edit_row(name, edit).await;
}

pub async fn a_task_is_in_the_queue_of_its_schedule(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut queued = process.session_in("q").await;
    let options = ScheduleOptions::new().spawn(SpawnOptions::new().queue("q").group("g"));
    scheduler.define("a", Every::new(MINUTE), options).await;
    let tick = scheduler.pass("a", Duration::ZERO).await;
    // A session of another queue may fire the schedule.
    assert_eq!(process.fire_due().await, 1);
    assert!(run_all(&mut session).await.is_empty());
    assert_eq!(run_all(&mut queued).await, [tick]);
    assert_eq!(scheduler.info("a").await.queue.as_deref(), Some("q"));
}

pub async fn nothing_is_left_of_a_removed_schedule(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    let before = it.leftovers();
    for name in ["a", "b"] {
        scheduler.define_minutely(name).await;
    }
    scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 2);
    run_all(&mut session).await;
    for name in ["a", "b"] {
        assert!(scheduler.client.schedules().remove(name).await.unwrap());
        assert!(!scheduler.client.schedules().remove(name).await.unwrap());
    }
    assert_eq!(process.hand_out().await, HandOut::default());
    assert_eq!(session.turn(wanting(0)).await.next_tick, None);
    it.age(24 * HOUR);
    while process.maintain(100).await {}
    assert_eq!(it.leftovers(), before);
}
