//! Helpers for the cases of schedules: a client that defines schedules, and workers that fire them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::Harness;
use super::process::*;
use crate::durable::envelope::open_payload;
use crate::durable::schedule::step;
use crate::durable::schedule::when::{COMPUTES_CRON, COMPUTES_EVERY};
use crate::durable::store::{Claim, DueSchedule, Enqueued, HandOut, ScheduleChange, ScheduleRow};
use crate::durable::{
    DurableClient, DurableTask, Every, ScheduleInfo, ScheduleOptions, TaskId, When,
};

pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// The task that all schedules store.
#[derive(Serialize, Deserialize)]
pub(super) struct Job;

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = ();
}

/// A client of a store.
pub(super) struct Scheduler<'a> {
    it: &'a dyn Harness,
    pub(super) client: DurableClient,
}

impl<'a> Scheduler<'a> {
    pub(super) fn of(it: &'a dyn Harness) -> Self {
        Self {
            it,
            client: DurableClient::open(it.connect()),
        }
    }

    pub(super) async fn define(&self, name: &str, when: impl Into<When>, options: ScheduleOptions) {
        let defined = self.client.schedule_with(name, when, Job, options).await;
        assert!(defined.unwrap());
    }

    /// Defines a schedule that fires at every full minute, with the default options.
    pub(super) async fn define_minutely(&self, name: &str) {
        let options = ScheduleOptions::new();
        self.define(name, Every::new(MINUTE), options).await;
    }

    pub(super) async fn info(&self, name: &str) -> ScheduleInfo {
        let info = self.client.schedules().get(name).await.unwrap();
        info.expect("there is such a schedule")
    }

    /// Advances the clock to the next tick of a schedule, plus `after`. Returns the tick, in seconds since 1970.
    pub(super) async fn pass(&self, name: &str, after: Duration) -> u64 {
        let next = self.info(name).await.next_tick;
        let next = since_1970(next.expect("a tick is known"));
        self.it
            .clock()
            .advance(next + after - self.it.clock().wall());
        next.as_secs()
    }
}

pub(super) fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

pub(super) fn names(due: &[DueSchedule]) -> Vec<&str> {
    let names = due.iter().map(|due| due.schedule.name.as_str());
    names.collect()
}

impl Process {
    /// Asks for due schedules, as a build with all features.
    pub(super) async fn hand_out(&self) -> HandOut {
        let computes = COMPUTES_EVERY | COMPUTES_CRON;
        self.0.0.hand_out(computes).await.unwrap()
    }

    /// Returns the schedules that are handed out.
    pub(super) async fn due(&self) -> Vec<DueSchedule> {
        self.hand_out().await.due
    }

    /// Returns the only schedule that is handed out.
    pub(super) async fn the_due(&self) -> DueSchedule {
        let mut due = self.due().await;
        assert_eq!(due.len(), 1);
        due.remove(0)
    }

    /// Returns the change that fires a schedule.
    pub(super) fn firing(&self, due: &DueSchedule) -> Arc<ScheduleChange> {
        let can_have = |id: TaskId, queue: &_, key| self.0.0.can_have(id, queue, key);
        Arc::new(step::fire(due, &can_have).unwrap())
    }

    pub(super) async fn change(&self, change: &Arc<ScheduleChange>) -> Option<Enqueued> {
        let changed = self.0.0.change_schedule(Arc::clone(change)).await;
        changed.unwrap()
    }

    /// Replaces the row of a schedule by one that `edit` has changed, and that has a new version.
    pub(super) async fn edit_row(&self, name: &str, edit: impl FnOnce(&mut ScheduleRow)) {
        let found = self.0.0.schedule(schedule_name(name)).await.unwrap();
        let found = found.found.expect("there is such a schedule");
        let mut row = ScheduleRow {
            version: fastrand::u64(1..),
            ..found.row
        };
        edit(&mut row);
        let change = ScheduleChange {
            name: found.name,
            before: Some((found.row.version, found.partition)),
            after: Some(row),
            queue: queue_name(""),
            tasks: Vec::new(),
        };
        assert!(self.change(&Arc::new(change)).await.is_some());
    }

    /// Fires a schedule whose row nobody else has changed. Returns the number of tasks that are stored.
    pub(super) async fn fire(&self, due: &DueSchedule) -> usize {
        let change = self.firing(due);
        let enqueued = self.change(&change).await.expect("it has this version");
        change.tasks.len() - enqueued.conflicts.len()
    }

    /// Fires the schedules that are due. Returns the number of tasks that are stored.
    pub(super) async fn fire_due(&self) -> usize {
        let mut tasks = 0;
        for due in self.due().await {
            tasks += self.fire(&due).await;
        }
        tasks
    }
}

/// Claims all tasks that wait, and ends them. Returns their ticks, in seconds since 1970.
pub(super) async fn run_all(session: &mut Session<'_>) -> Vec<u64> {
    let mut ticks = Vec::new();
    while let Some(claim) = session.turn(wanting(256)).await.claim {
        ticks.extend(ticks_of(&claim));
        let verdicts = claim.tasks.iter().map(|task| (task.id, done()));
        let turn = wanting(0).verdicts(claim.epoch, verdicts.collect());
        assert_eq!(session.turn(turn).await.refused, []);
    }
    ticks
}

/// Returns the ticks of claimed tasks, in seconds since 1970.
pub(super) fn ticks_of(claim: &Claim) -> Vec<u64> {
    let payloads = claim
        .tasks
        .iter()
        .map(|task| task.payload.as_ref().unwrap());
    let ticks = payloads.map(|payload| {
        open_payload(payload)
            .and_then(|it| it.tick)
            .expect("a schedule has stored it")
    });
    ticks.map(|tick| tick / 1000).collect()
}
