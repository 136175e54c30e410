//! Schedules that are defined once, again or differently, and what [`Schedules`](crate::durable::Schedules) does to them.

use std::sync::Arc;
use std::time::Duration;

use super::Harness;
use super::process::*;
use super::scheduler::*;
use crate::durable::store::{HAND_OUT_INTERVAL, ScheduleChange, ScheduleRow};
use crate::durable::{Every, Missed, ScheduleOptions};

pub async fn a_definition_that_is_repeated_changes_nothing(it: &dyn Harness) {
    let schedulers: Vec<_> = (0..3).map(|_| Scheduler::of(it)).collect();
    let process = Process::of(it);
    let mut session = process.session().await;
    let names: Vec<_> = (0..10).map(|number| format!("{number}")).collect();
    let define_all = async || {
        for (scheduler, name) in schedulers
            .iter()
            .flat_map(|it| names.iter().map(move |name| (it, name)))
        {
            scheduler.define_minutely(name).await;
        }
    };
    define_all().await;
    for _ in 0..4 {
        let before = process.0.0.schedules(None, 100).await.unwrap();
        let tick = schedulers[0].pass("0", Duration::ZERO).await;
        // A due schedule is not put off, and one that has fired is not repeated.
        define_all().await;
        assert_eq!(process.0.0.schedules(None, 100).await.unwrap(), before);
        assert_eq!(process.fire_due().await, names.len());
        define_all().await;
        assert_eq!(run_all(&mut session).await, vec![tick; names.len()]);
    }
}

pub async fn a_definition_that_changes_at_a_tick_loses_no_tick(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    let moment = Duration::from_millis(100);
    let every = |minutes: u32| Every::new(minutes * MINUTE);
    scheduler
        .define("a", every(2), ScheduleOptions::new())
        .await;
    let first = scheduler.pass("a", moment).await;
    // The tick has passed, but was not handled yet.
    scheduler
        .define("a", every(1), ScheduleOptions::new())
        .await;
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [first]);
    // The tick was handled, and the new definition has the same tick.
    scheduler
        .define("a", every(2), ScheduleOptions::new())
        .await;
    assert_eq!(process.fire_due().await, 0);
    let next = scheduler.info("a").await.next_tick.map(since_1970).unwrap();
    assert_eq!(next.as_secs(), first + 120);
    // The next tick has not come yet.
    it.clock().advance(next - moment - it.clock().wall());
    scheduler
        .define("a", every(1), ScheduleOptions::new())
        .await;
    assert_eq!(process.fire_due().await, 0);
    assert_eq!(scheduler.pass("a", Duration::ZERO).await, next.as_secs());
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [next.as_secs()]);
}

pub async fn a_removed_schedule_does_not_repeat_a_tick(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    let tick = scheduler.pass("a", Duration::ZERO).await;
    let due = process.the_due().await;
    assert_eq!(process.fire(&due).await, 1);
    assert!(scheduler.client.schedules().remove("a").await.unwrap());
    scheduler.define_minutely("a").await;
    assert_eq!(process.fire_due().await, 0);
    let next = scheduler.info("a").await.next_tick.map(since_1970);
    assert_eq!(next.unwrap().as_secs(), tick + 60);
    // A request from before the removal does not repeat it either.
    assert_eq!(process.change(&process.firing(&due)).await, None);
    assert_eq!(run_all(&mut session).await, [tick]);
}

pub async fn a_new_schedule_whose_tick_has_passed_is_refused(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    let found = process.0.0.schedule(schedule_name("a")).await.unwrap();
    let found = found.found.unwrap();
    // A client that did not find the schedule has computed this request before the tick.
    let late = Arc::new(ScheduleChange {
        name: found.name,
        before: None,
        after: Some(ScheduleRow {
            version: 7,
            ..found.row
        }),
        queue: queue_name(""),
        tasks: Vec::new(),
    });
    assert_eq!(process.change(&late).await, None);
    let tick = scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    assert!(scheduler.client.schedules().remove("a").await.unwrap());
    assert_eq!(process.change(&late).await, None);
    assert_eq!(process.due().await, []);
    assert_eq!(run_all(&mut session).await, [tick]);
}

pub async fn the_highest_revision_wins(it: &dyn Harness) {
    let (old, new) = (Scheduler::of(it), Scheduler::of(it));
    let define = async |scheduler: &Scheduler<'_>, revision| {
        let options = ScheduleOptions::new().revision(revision);
        let every = Every::new(revision.max(1) * MINUTE);
        let defined = scheduler
            .client
            .schedule_with("a", every, Job, options)
            .await;
        defined.unwrap()
    };
    assert!(define(&old, 1).await);
    for _ in 0..3 {
        assert!(define(&new, 2).await);
        assert!(!define(&old, 1).await);
    }
    let info = new.info("a").await;
    assert_eq!((info.revision, &*info.when), (2, "every 2 minutes"));
    // Of definitions with the same revision, the last one wins.
    let options = ScheduleOptions::new().revision(2).missed(Missed::Skip);
    old.define("a", Every::new(MINUTE), options).await;
    assert_eq!(new.info("a").await.when, "every minute");
    // The same definition may get a later revision.
    let options = ScheduleOptions::new().revision(5).missed(Missed::Skip);
    let before = new.info("a").await.next_tick;
    old.define("a", Every::new(MINUTE), options).await;
    let info = new.info("a").await;
    assert_eq!((info.revision, info.next_tick), (5, before));
}

pub async fn schedules_are_listed_in_pages(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let schedules = scheduler.client.schedules();
    let names: Vec<_> = (0..7).map(|number| format!("s{number}")).collect();
    for name in names.iter().rev() {
        scheduler.define_minutely(name).await;
    }
    let list = async |after: Option<&str>, limit| {
        let page = schedules.list(after, limit).await.unwrap();
        page.into_iter().map(|info| info.name).collect::<Vec<_>>()
    };
    assert_eq!(list(None, 100).await, names);
    assert_eq!(list(None, 3).await, names[..3]);
    assert_eq!(list(Some("s2"), 3).await, names[3..6]);
    assert_eq!(list(Some("s5"), 3).await, names[6..]);
    assert_eq!(list(Some("s1x"), 1).await, names[2..3]);
    assert_eq!(list(Some("s6"), 3).await, names[7..]);
    assert_eq!(list(None, 0).await, names[..0]);
    let all = schedules.list(None, 1).await.unwrap();
    assert_eq!(all[0], scheduler.info("s0").await);
}

pub async fn an_unknown_schedule_cannot_be_changed(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let schedules = scheduler.client.schedules();
    assert_eq!(schedules.get("a").await.unwrap(), None);
    assert!(!schedules.pause("a").await.unwrap());
    assert!(!schedules.resume("a").await.unwrap());
    assert!(!schedules.remove("a").await.unwrap());
    assert_eq!(schedules.fire_now("a").await.unwrap(), None);
    assert!(schedules.get("a b").await.unwrap_err().is_invalid());
}

pub async fn fire_now_stores_a_task_and_keeps_the_ticks(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let schedules = scheduler.client.schedules();
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    let before = scheduler.info("a").await;
    schedules.pause("a").await.unwrap();
    let first = schedules.fire_now("a").await.unwrap();
    assert_eq!(scheduler.info("a").await.last_task, first);
    // The first task has not ended, so no other one is stored.
    assert_eq!(schedules.fire_now("a").await.unwrap(), first);
    let now = it.clock().wall().as_secs();
    assert_eq!(run_all(&mut session).await, [now]);
    let second = schedules.fire_now("a").await.unwrap();
    assert_ne!(second, first);
    assert_eq!(run_all(&mut session).await, [now]);
    schedules.resume("a").await.unwrap();
    let after = scheduler.info("a").await;
    assert_eq!((after.started, after.skipped), (2, 1));
    assert_eq!(after.next_tick, before.next_tick);
    let tick = scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [tick]);
}

/// Replaces the body of a schedule.
async fn replace_body(process: &Process, name: &str, body: &[u8]) {
    let edit = |row: &mut ScheduleRow| row.body = body.to_vec();
    process.edit_row(name, edit).await;
}

pub async fn a_definition_that_cannot_be_read_is_listed_as_stuck(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let schedules = scheduler.client.schedules();
    let process = Process::of(it);
    for name in ["a", "b", "c"] {
        scheduler.define_minutely(name).await;
    }
    for name in ["a", "b"] {
        replace_body(&process, name, b"garbled").await;
    }
    let listed = schedules.list(None, 9).await.unwrap();
    let stuck: Vec<_> = listed.iter().map(|info| info.stuck.is_some()).collect();
    assert_eq!(stuck, [true, true, false]);
    assert!(schedules.pause("a").await.unwrap_err().is_invalid());
    // Such a schedule can be removed, and can be defined again.
    assert!(schedules.remove("a").await.unwrap());
    scheduler.define_minutely("b").await;
    let infos = (scheduler.info("b").await, scheduler.info("c").await);
    assert_eq!(
        (infos.0.stuck, infos.0.next_tick),
        (None, infos.1.next_tick)
    );
}

/// The body is that of a later version of the crate, of which this version can read only the head.
pub async fn a_definition_of_a_later_release_is_kept(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let schedules = scheduler.client.schedules();
    let process = Process::of(it);
    scheduler.define_minutely("a").await;
    replace_body(&process, "a", b"\0\0\0\x09\x01later").await;
    let define = async |revision| {
        let options = ScheduleOptions::new().revision(revision);
        let every = Every::new(MINUTE);
        let defined = scheduler
            .client
            .schedule_with("a", every, Job, options)
            .await;
        defined.unwrap()
    };
    assert!(!define(8).await);
    let info = scheduler.info("a").await;
    assert_eq!((info.revision, info.is_paused), (9, true));
    assert!(info.stuck.unwrap().contains("update this program"));
    // A release with the same revision or a later one replaces it, and the schedule stays paused.
    assert!(define(10).await);
    let info = scheduler.info("a").await;
    assert_eq!(
        (info.revision, info.is_paused, info.stuck),
        (10, true, None)
    );
    assert!(schedules.resume("a").await.unwrap());
    let tick = scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut process.session().await).await, [tick]);
}

/// A definition repairs the schedule, even if it has not changed.
pub async fn a_clock_that_was_far_ahead_does_not_silence_a_schedule(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    let year = 365 * 24 * HOUR;
    scheduler.define_minutely("a").await;
    let before = it.clock().wall();
    it.clock().set_wall(before + 30 * year);
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await.len(), 1);
    it.clock().set_wall(before);
    assert_eq!(process.fire_due().await, 0);
    scheduler.define_minutely("a").await;
    let tick = scheduler.pass("a", Duration::ZERO).await;
    assert!(tick < (before + 2 * MINUTE).as_secs());
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [tick]);
}

/// The first definition was made while the clock was ahead, so its tick is far away.
pub async fn a_definition_of_a_clock_that_was_ahead_is_replaced(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let before = it.clock().wall();
    it.clock().set_wall(before + 365 * 24 * HOUR);
    scheduler.define_minutely("a").await;
    it.clock().set_wall(before);
    scheduler.define_minutely("a").await;
    let tick = scheduler.pass("a", Duration::ZERO).await;
    assert!(tick < (before + 2 * MINUTE).as_secs());
    assert_eq!(process.fire_due().await, 1);
}

/// The clock is ahead when the schedule is handed out, and the worker dies.
pub async fn maintenance_corrects_a_hand_out_of_a_clock_that_was_ahead(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    let before = it.clock().wall();
    it.clock().set_wall(before + 24 * HOUR);
    assert_eq!(process.due().await.len(), 1);
    it.clock().set_wall(before);
    // One that was handed out in time is handed out again after the usual interval.
    scheduler.define_minutely("b").await;
    scheduler.pass("b", Duration::ZERO).await;
    assert_eq!(names(&process.due().await), ["b"]);
    while process.maintain(100).await {}
    assert_eq!(names(&process.due().await), ["a"]);
    let left = Some(HAND_OUT_INTERVAL);
    assert_eq!(session.turn(wanting(0)).await.next_tick, left);
    it.clock().advance(HAND_OUT_INTERVAL);
    assert_eq!(process.due().await.len(), 2);
}

/// The answer is lost, and the client sends the request again.
pub async fn a_repeated_change_tells_which_task_holds_the_key(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    scheduler.define_minutely("a").await;
    let first = scheduler.client.schedules().fire_now("a").await.unwrap();
    scheduler.pass("a", Duration::ZERO).await;
    let change = process.firing(&process.the_due().await);
    for _ in 0..2 {
        let changed = process.change(&change).await.unwrap();
        let holders: Vec<_> = changed.conflicts.iter().map(|it| it.holder).collect();
        assert_eq!(Some(&*holders), first.as_ref().map(std::slice::from_ref));
    }
}
