//! Ticks fire once, late, or not at all, as the options of their schedule say.

use std::time::Duration;

use super::Harness;
use super::process::*;
use super::scheduler::*;
use crate::durable::schedule::body::Body;
use crate::durable::store::{HandOut, ScheduleRow};
use crate::durable::{Every, Missed, Overlap, ScheduleOptions};

const TEN_MINUTES: Duration = Duration::from_secs(600);

pub(super) fn missed(missed: Missed) -> ScheduleOptions {
    ScheduleOptions::new()
        .missed(missed)
        .overlap(Overlap::Allow)
}

fn overlap(overlap: Overlap) -> ScheduleOptions {
    ScheduleOptions::new().overlap(overlap)
}

/// Lets a schedule miss its ticks for the time of an outage, with each kind of [`Missed`]. Returns the ticks of the tasks,
/// counted from the first missed one, and that tick.
async fn ticks_after_outage(it: &dyn Harness, outage: Duration) -> (Vec<Vec<u64>>, u64) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    let (mut ticks, mut first) = (Vec::new(), 0);
    for policy in [Missed::Once, Missed::Skip, Missed::All(5)] {
        scheduler
            .define("a", Every::new(TEN_MINUTES), missed(policy))
            .await;
        first = scheduler.pass("a", outage).await;
        process.fire_due().await;
        ticks.push(
            run_all(&mut session)
                .await
                .iter()
                .map(|tick| (tick - first) / 600)
                .collect(),
        );
        // The next tick fires as usual.
        let next = scheduler.pass("a", Duration::ZERO).await;
        assert_eq!(process.fire_due().await, 1);
        assert_eq!(run_all(&mut session).await, [next]);
        assert!(scheduler.client.schedules().remove("a").await.unwrap());
    }
    (ticks, first)
}

pub async fn missed_ticks_are_handled_as_the_option_says(it: &dyn Harness) {
    // There was no worker for three hours, in which 19 ticks have passed.
    let (ticks, _) = ticks_after_outage(it, 3 * HOUR).await;
    assert_eq!(ticks, [vec![18], vec![18], vec![14, 15, 16, 17, 18]]);
    // The last of them is missed, too.
    let (ticks, _) = ticks_after_outage(it, 3 * HOUR + 2 * MINUTE).await;
    assert_eq!(ticks, [vec![18], vec![], vec![14, 15, 16, 17, 18]]);
    // A tick that is at most a minute late is not missed.
    let (ticks, _) = ticks_after_outage(it, MINUTE).await;
    assert_eq!(ticks, [[0], [0], [0]]);
    let (ticks, _) = ticks_after_outage(it, MINUTE + Duration::from_millis(1)).await;
    assert_eq!(ticks, [vec![0], vec![], vec![0]]);
}

pub async fn a_tick_is_not_repeated_if_the_clock_is_put_back(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    let tick = scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    it.clock().set_wall(it.clock().wall() - HOUR);
    for policy in [None, Some(Missed::Skip), Some(Missed::Once)] {
        if let Some(policy) = policy {
            scheduler
                .define("a", Every::new(MINUTE), missed(policy))
                .await;
        }
        for _ in 0..3 {
            it.clock().advance(MINUTE);
            assert_eq!(process.fire_due().await, 0);
        }
    }
    assert_eq!(scheduler.pass("a", Duration::ZERO).await, tick + 60);
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [tick, tick + 60]);
}

/// No next tick was known, as after a change of the rules of a time zone. Meanwhile, the clock was put back.
pub async fn a_schedule_that_is_computed_again_repeats_no_tick(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    let tick = scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [tick]);
    it.clock().set_wall(it.clock().wall() - HOUR);
    let now = it.clock().wall().as_millis() as u64;
    let forget_tick = |row: &mut ScheduleRow| {
        let mut body = Body::decode(&row.body).unwrap();
        body.next = None;
        (row.body, row.time) = (body.encode(), Some(now));
    };
    process.edit_row("a", forget_tick).await;
    assert_eq!(process.fire_due().await, 0);
    assert_eq!(scheduler.pass("a", Duration::ZERO).await, tick + 60);
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [tick + 60]);
}

pub async fn a_tick_is_skipped_while_an_earlier_task_has_not_ended(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    let claim = session.claim(1).await;
    let id = claim.tasks[0].id;
    for _ in 0..3 {
        scheduler.pass("a", Duration::ZERO).await;
        process.renew([claim.epoch]).await;
        assert_eq!(process.fire_due().await, 0);
    }
    let info = scheduler.info("a").await;
    assert_eq!((info.started, info.skipped), (1, 3));
    assert_eq!(info.last_task, Some(id));
    let end = wanting(0).verdicts(claim.epoch, vec![(id, done())]);
    assert_eq!(session.turn(end).await.refused, []);
    let tick = scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [tick]);
    let info = scheduler.info("a").await;
    assert_eq!((info.started, info.skipped), (2, 3));
    assert_ne!(info.last_task, Some(id));
}

pub async fn a_dead_letter_does_not_block_the_next_tick(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler.define_minutely("a").await;
    scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    let claim = session.claim(1).await;
    let end = wanting(0).verdicts(claim.epoch, vec![(claim.tasks[0].id, dead())]);
    assert_eq!(session.turn(end).await.refused, []);
    let tick = scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    assert_eq!(run_all(&mut session).await, [tick]);
}

pub async fn a_waiting_task_takes_over_the_next_tick(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler
        .define("a", Every::new(MINUTE), overlap(Overlap::Replace))
        .await;
    scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    let second = scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 0);
    let claim = session.claim(9).await;
    assert_eq!(ticks_of(&claim), [second]);
    // A task that has started keeps its tick, and another one is stored.
    let third = scheduler.pass("a", Duration::ZERO).await;
    assert_eq!(process.fire_due().await, 1);
    process.renew([claim.epoch]).await;
    assert_eq!(run_all(&mut session).await, [third]);
    let info = scheduler.info("a").await;
    assert_eq!((info.started, info.skipped), (2, 1));
}

pub async fn overlapping_tasks_are_allowed(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    scheduler
        .define("a", Every::new(MINUTE), overlap(Overlap::Allow))
        .await;
    let mut ticks = Vec::new();
    for _ in 0..3 {
        ticks.push(scheduler.pass("a", Duration::ZERO).await);
        assert_eq!(process.fire_due().await, 1);
    }
    assert_eq!(run_all(&mut session).await, ticks);
    let info = scheduler.info("a").await;
    assert_eq!((info.started, info.skipped), (3, 0));
}

pub async fn a_schedule_that_is_resumed_makes_up_for_missed_ticks(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let schedules = scheduler.client.schedules();
    let process = Process::of(it);
    let mut session = process.session().await;
    for (policy, expected) in [(Missed::Once, vec![1]), (Missed::Skip, vec![])] {
        scheduler
            .define("a", Every::new(TEN_MINUTES), missed(policy))
            .await;
        assert!(schedules.pause("a").await.unwrap());
        let first = scheduler.pass("a", 15 * MINUTE).await;
        // It stays paused, even if it is defined again.
        scheduler
            .define("a", Every::new(TEN_MINUTES), missed(policy))
            .await;
        assert_eq!(process.hand_out().await, HandOut::default());
        assert!(scheduler.info("a").await.is_paused);
        assert!(schedules.resume("a").await.unwrap());
        process.fire_due().await;
        let ticks = run_all(&mut session).await;
        let ticks: Vec<_> = ticks.iter().map(|tick| (tick - first) / 600).collect();
        assert_eq!(ticks, expected);
        let next = scheduler.pass("a", Duration::ZERO).await;
        assert_eq!(next, first + 2 * 600);
        assert_eq!(process.fire_due().await, 1);
        assert_eq!(run_all(&mut session).await, [next]);
    }
}

pub async fn jitter_delays_a_tick(it: &dyn Harness) {
    let scheduler = Scheduler::of(it);
    let process = Process::of(it);
    let mut session = process.session().await;
    // A tick that is delayed by its jitter is not missed.
    let jitter = 10 * MINUTE;
    let options = missed(Missed::Skip).jitter(jitter);
    scheduler.define("a", Every::new(HOUR), options).await;
    for _ in 0..3 {
        let tick = scheduler.pass("a", Duration::ZERO).await;
        let wait = process.hand_out().await.next.unwrap();
        assert!(wait <= jitter);
        it.clock().advance(wait - Duration::from_millis(1));
        assert_eq!(process.fire_due().await, 0);
        it.clock().advance(Duration::from_millis(1));
        assert_eq!(process.fire_due().await, 1);
        assert_eq!(run_all(&mut session).await, [tick]);
    }
}
