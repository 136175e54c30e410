//! The schedules of the torture: each of their ticks stores one task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use throng::durable::{
    Cron, DurableClient, Every, Missed, Overlap, ScheduleInfo, ScheduleOptions, TaskId, When,
};

use super::chore::{Act, Chore, Lane, Origin};
use super::runs::History;
use crate::job::{Job, now};
use crate::process::until;

/// A schedule: its name, its queue, the time that its tasks take, and what happens if they overlap.
struct Plan {
    name: &'static str,
    lane: Lane,
    millis: u64,
    overlap: Overlap,
}

/// The time from one tick to the next, in milliseconds.
const PERIOD: u64 = 1000;

const PLANS: [Plan; 5] = [
    plan("every", Lane::Plain, 10, Overlap::Allow),
    plan("cron", Lane::Limited, 10, Overlap::Allow),
    plan("grouped", Lane::Grouped, 10, Overlap::Allow),
    // Some tasks take longer than the time to the next tick.
    plan("skip", Lane::Default, 1500, Overlap::Skip),
    plan("replace", Lane::Rated, 10, Overlap::Replace),
];

const fn plan(name: &'static str, lane: Lane, millis: u64, overlap: Overlap) -> Plan {
    Plan {
        name,
        lane,
        millis,
        overlap,
    }
}

impl Plan {
    fn when(&self) -> When {
        match self.name {
            "cron" => Cron::parse("* * * * * *", "UTC").expect("times").into(),
            _ => Every::new(Duration::from_millis(PERIOD)).into(),
        }
    }

    fn options(&self) -> ScheduleOptions {
        let mut spawn = self.lane.options();
        if self.lane == Lane::Grouped {
            spawn = spawn.group("ticks");
        }
        let options = ScheduleOptions::new().overlap(self.overlap).spawn(spawn);
        match self.overlap {
            // No process is without a worker for as long as 64 periods.
            Overlap::Allow => options
                .missed(Missed::All(64))
                .jitter(Duration::from_millis(200)),
            _ => options,
        }
    }

    fn chore(&self) -> Chore {
        Chore {
            lane: self.lane,
            origin: Origin::Schedule(self.name.into()),
            serial: 0,
            act: Act::Do(Job::Work(self.millis)),
        }
    }
}

/// Defines the schedules. Returns the time at which they are defined, in milliseconds since 1970.
pub(super) async fn define(client: &DurableClient) -> u64 {
    for plan in &PLANS {
        let defined = client.schedule_with(plan.name, plan.when(), plan.chore(), plan.options());
        assert!(defined.await.expect("the store answers"));
    }
    now() / 1000
}

/// Ends the schedules once all ticks until now were handled, and returns their states.
pub(super) async fn end(client: &DurableClient) -> Vec<ScheduleInfo> {
    let (schedules, until_now) = (client.schedules(), now() / 1000 - PERIOD);
    let mut infos = Vec::new();
    for plan in &PLANS {
        let look = async || {
            let info = schedules.get(plan.name).await.expect("it answers");
            let last = info.expect("it is there").last_tick.map(millis);
            last.filter(|&last| last >= until_now)
        };
        until(&format!("{} is up to date", plan.name), look).await;
        assert!(schedules.pause(plan.name).await.expect("it answers"));
        let info = schedules.get(plan.name).await.expect("it answers");
        infos.push(info.expect("it is there"));
        assert!(schedules.remove(plan.name).await.expect("it answers"));
    }
    infos
}

/// Asserts that each tick since `defined` has stored one task, and returns the number of ticks.
pub(super) fn assert_once_each(history: &History, infos: &[ScheduleInfo], defined: u64) -> usize {
    let mut count = 0;
    for (plan, info) in PLANS.iter().zip(infos) {
        let ticks = ticks_of(history, plan.name);
        for (tick, ids) in &ticks {
            let name = plan.name;
            assert_eq!(ids.len(), 1, "the tick {tick} of {name}: {ids:?}");
        }
        assert_eq!(ticks.len() as u64, info.started, "{info:?}");
        match plan.overlap {
            Overlap::Allow => assert_complete(&ticks, info, defined),
            _ => assert_possible(&ticks, info, defined),
        }
        count += ticks.len();
    }
    count
}

/// The tasks that have come to an end, by their ticks.
type Ticks = BTreeMap<u64, BTreeSet<TaskId>>;

fn ticks_of(history: &History, name: &str) -> Ticks {
    let (mut ticks, ended) = (Ticks::new(), history.ended("end"));
    for run in &history.runs {
        if run.note.chore.origin == Origin::Schedule(name.into()) {
            assert!(ended.contains(&run.id), "it has ended: {run:?}");
            let tick = run.note.tick.expect("a schedule has stored it");
            ticks.entry(tick).or_default().insert(run.id);
        }
    }
    ticks
}

/// Asserts that all ticks have fired, up to the last one that was handled.
fn assert_complete(ticks: &Ticks, info: &ScheduleInfo, defined: u64) {
    let (first, last) = (ticks.keys().next(), last_tick(info));
    let &first = first.unwrap_or_else(|| panic!("it has fired: {info:?}"));
    assert!(first <= defined + PERIOD, "{first} is late: {info:?}");
    let expected = (first..=last).step_by(PERIOD as usize);
    assert!(ticks.keys().copied().eq(expected), "{ticks:?} of {info:?}");
    assert!(first.is_multiple_of(PERIOD) && ticks.contains_key(&last));
    assert_eq!(info.skipped, 0, "{info:?}");
}

/// Asserts that no more ticks have fired than there were.
fn assert_possible(ticks: &Ticks, info: &ScheduleInfo, defined: u64) {
    let last = last_tick(info);
    // A definition takes less than ten periods.
    let first = defined - defined % PERIOD - 10 * PERIOD;
    let is_tick = |&tick: &u64| (first..=last).contains(&tick) && tick.is_multiple_of(PERIOD);
    assert!(ticks.keys().all(is_tick), "{ticks:?} of {info:?}");
    let most = (last - first) / PERIOD + 1;
    assert!(info.started + info.skipped <= most, "{info:?}");
    assert!(!ticks.is_empty(), "it has fired: {info:?}");
}

fn last_tick(info: &ScheduleInfo) -> u64 {
    millis(info.last_tick.expect("it has fired"))
}

fn millis(tick: SystemTime) -> u64 {
    let since_1970 = tick.duration_since(SystemTime::UNIX_EPOCH);
    since_1970.expect("it is after 1970").as_millis() as u64
}
