//! Schedules with cron expressions.

use std::sync::Arc;
use std::time::Duration;

use super::Harness;
use super::process::*;
use super::scheduler::*;
use super::ticks_tests::missed;
use crate::durable::schedule::body::Body;
use crate::durable::schedule::when::{COMPUTES_CRON, Spec};
use crate::durable::store::{HAND_OUT_INTERVAL, ScheduleChange, ScheduleRow};
use crate::durable::{Cron, Missed};

pub async fn ticks_that_were_missed_at_night_are_made_up_for(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    let cron = |expression| Cron::parse(expression, "Europe/Berlin").unwrap();
    scheduler
        .define("once", cron("0 3 * * *"), missed(Missed::Once))
        .await;
    scheduler
        .define("skip", cron("0 3 * * *"), missed(Missed::Skip))
        .await;
    scheduler
        .define("all", cron("*/10 * * * *"), missed(Missed::All(5)))
        .await;
    let three = scheduler
        .info("once")
        .await
        .next_tick
        .map(since_1970)
        .unwrap();
    // All workers are down from two o'clock to five o'clock.
    it.clock().set_wall(three - HOUR);
    process.fire_due().await;
    run_all(&mut session).await;
    it.clock().advance(3 * HOUR - MINUTE);
    process.fire_due().await;
    let mut ticks: Vec<_> = run_all(&mut session).await;
    ticks.sort_unstable();
    let at = |minute: u64| three.as_secs() + 60 * minute;
    assert_eq!(ticks, [at(0), at(70), at(80), at(90), at(100), at(110)]);
    let next = scheduler.info("skip").await.next_tick.map(since_1970);
    assert_eq!(next.unwrap(), three + 24 * HOUR);
}

/// Stores a schedule that never fires.
async fn store_without_tick(it: &dyn Harness, process: &Process, name: &str) {
    let found = process.0.0.schedule(schedule_name("a")).await.unwrap();
    let row = found.found.unwrap().row;
    let mut body = Body::decode(&row.body).unwrap();
    body.next = None;
    body.definition.spec = Spec::Cron {
        expression: "0 0 30 2 *".into(),
        zone: "UTC".into(),
    };
    let day_later = it.clock().wall() + 24 * HOUR;
    let change = ScheduleChange {
        name: schedule_name(name),
        before: None,
        after: Some(ScheduleRow {
            needs: COMPUTES_CRON,
            time: Some(day_later.as_millis() as u64),
            body: body.encode(),
            ..row
        }),
        queue: queue_name(""),
        tasks: Vec::new(),
    };
    assert!(process.change(&Arc::new(change)).await.is_some());
}

pub async fn a_schedule_without_a_tick_is_stuck(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    let never = Cron::parse("0 0 30 2 *", "UTC").unwrap();
    let error = scheduler.client.schedule("never", never, Job).await;
    let error = error.unwrap_err();
    assert!(
        error.is_invalid() && error.to_string().contains("0 0 30 2 * UTC"),
        "{error}"
    );
    // The rules of a time zone may change, so a schedule may have no tick later.
    scheduler.define_minutely("a").await;
    store_without_tick(it, &process, "never").await;
    let info = scheduler.info("never").await;
    assert_eq!(info.next_tick, None);
    assert!(info.stuck.unwrap().contains("0 0 30 2 * UTC"));
    // Other schedules are not affected.
    let tick = scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [tick]);
    // It is computed again after a day.
    it.clock().advance(24 * HOUR);
    let due = process.due().await;
    assert_eq!(names(&due), ["a", "never"]);
    for due in &due {
        process.fire(due).await;
    }
    it.clock().advance(HAND_OUT_INTERVAL);
    assert_eq!(process.fire_due().await, 0);
    assert_eq!(scheduler.info("never").await.started, 0);
    // A task that is stored meanwhile does not put that off.
    it.clock().advance(12 * HOUR);
    let fired = scheduler.client.schedules().fire_now("never").await;
    assert!(fired.unwrap().is_some());
    it.clock().advance(12 * HOUR);
    assert_eq!(names(&process.due().await), ["a", "never"]);
}
