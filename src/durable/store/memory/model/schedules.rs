//! Reads schedules, changes them and hands them out.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use super::state::{Model, ScheduleState};
use crate::durable::clock::millis;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{
    DueSchedule, Enqueued, HAND_OUT_INTERVAL, HandOut, MAX_HAND_OUTS, ScheduleAnswer,
    ScheduleChange, ScheduleRow, StoredSchedule, repeated,
};

impl Model {
    pub(in super::super) fn schedule(&self, name: &ScheduleName) -> ScheduleAnswer {
        let found = self.schedules.get(name);
        ScheduleAnswer {
            now: self.wall(),
            found: found.map(|it| stored(name, &it.row)),
        }
    }

    pub(in super::super) fn schedules(
        &self,
        after: Option<&ScheduleName>,
        limit: usize,
    ) -> Vec<StoredSchedule> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.schedules.range((from, Bound::Unbounded)).take(limit);
        found.map(|(name, it)| stored(name, &it.row)).collect()
    }

    pub(in super::super) fn change_schedule(
        &mut self,
        endpoint: usize,
        change: &ScheduleChange,
    ) -> Option<Enqueued> {
        let found = self.schedules.get(&change.name).map(|it| it.row.version);
        if found == change.after.as_ref().map(|row| row.version) {
            // The request is repeated, or there is no schedule to remove.
            let row = self.schedules.get(&change.name).map(|it| &it.row);
            return Some(repeated(change, row.and_then(|row| row.last_task)));
        }
        let is_late = change.before.is_none() && self.is_due(change);
        if is_late || found != change.before.map(|(version, _)| version) {
            return None;
        }
        let earliest = self.earliest_hand_out(u8::MAX);
        let enqueued = self.store_all(endpoint, &change.tasks);
        match change.after.clone() {
            None => drop(self.schedules.remove(&change.name)),
            Some(mut row) => {
                row.count_conflicts(&enqueued.conflicts);
                let hand_out = row.time;
                let state = ScheduleState { row, hand_out };
                self.schedules.insert(change.name.clone(), state);
            }
        }
        let first = self.earliest_hand_out(u8::MAX).unwrap_or(u64::MAX);
        if first < earliest.unwrap_or(u64::MAX) {
            self.wake(1, |_| true);
        }
        self.wake_for_new_ready();
        Some(enqueued)
    }

    fn is_due(&self, change: &ScheduleChange) -> bool {
        let time = change.after.as_ref().and_then(|row| row.time);
        time.is_some_and(|time| time <= self.wall())
    }

    /// Hands out the due schedules whose ticks these builds compute, the earliest first.
    pub(in super::super) fn hand_out(&mut self, computes: u8) -> HandOut {
        HandOut {
            due: self.hand_out_due(computes),
            next: self.next_hand_out(computes),
        }
    }

    fn hand_out_due(&mut self, computes: u8) -> Vec<DueSchedule> {
        let now = self.wall();
        let due = self.schedules.iter().filter_map(|(name, it)| {
            let time = it.hand_out.filter(|&time| time <= now)?;
            (it.row.needs & computes != 0).then(|| (time, name.clone()))
        });
        let due: BTreeSet<_> = due.collect();
        let due = due.into_iter().take(MAX_HAND_OUTS);
        let mut handed_out = Vec::new();
        for (_, name) in due {
            if let Some(it) = self.schedules.get_mut(&name) {
                it.hand_out = Some(now + millis(HAND_OUT_INTERVAL));
                let schedule = stored(&name, &it.row);
                handed_out.push(DueSchedule { now, schedule });
            }
        }
        handed_out
    }

    /// Returns the time until the next schedule is handed out, among those whose ticks these builds compute.
    pub(super) fn next_hand_out(&self, computes: u8) -> Option<Duration> {
        let earliest = self.earliest_hand_out(computes)?;
        Some(Duration::from_millis(earliest.saturating_sub(self.wall())))
    }

    /// Corrects the times of schedules that were handed out while the clock was ahead.
    pub(super) fn repair_hand_outs(&mut self) {
        let latest = self.wall() + millis(HAND_OUT_INTERVAL);
        for it in self.schedules.values_mut() {
            let is_late = |at: &u64| *at > latest.max(it.row.time.unwrap_or(0));
            if it.hand_out.is_some_and(|at| is_late(&at)) {
                it.hand_out = it.row.time;
            }
        }
    }

    fn earliest_hand_out(&self, computes: u8) -> Option<u64> {
        let schedules = self.schedules.values();
        let computed = schedules.filter(|it| it.row.needs & computes != 0);
        computed.filter_map(|it| it.hand_out).min()
    }
}

pub(super) fn stored(name: &ScheduleName, row: &ScheduleRow) -> StoredSchedule {
    StoredSchedule {
        name: name.clone(),
        partition: 0,
        row: row.clone(),
    }
}
