//! Examines what an overview does not show.

use std::collections::BTreeMap;
use std::time::Duration;

use super::row::{Row, State};
use super::schedules::stored;
use super::state::{Lease, Model};
use crate::durable::schedule::when::{COMPUTES_CRON, COMPUTES_EVERY};
use crate::durable::store::{
    Diagnosis, MAX_DIAGNOSED, MAX_EXAMINED_SCHEDULES, MAX_EXAMINED_WORKERS, RunType,
    StoredSchedule, UnclaimedType,
};
use crate::durable::{WorkerInfo, WorkerState};

impl Model {
    pub(in super::super) fn diagnose(&self) -> Diagnosis {
        let is_overdue =
            |lease: &&Lease| self.boot().saturating_sub(lease.until) > 2 * lease.length;
        let overdue = self.claims.values().filter(is_overdue).take(MAX_DIAGNOSED);
        Diagnosis {
            now: self.wall(),
            dead: self.counts().dead,
            dead_most: self.retention.dead_most,
            overdue_claims: overdue.count() as u64,
            workers: self.workers_in_trouble(),
            schedules: [COMPUTES_EVERY, COMPUTES_CRON]
                .into_iter()
                .flat_map(|needs| self.next_schedules(needs))
                .collect(),
            unclaimed: self.unclaimed_types(),
        }
    }

    fn workers_in_trouble(&self) -> Vec<WorkerInfo> {
        let page = self.workers(None, MAX_EXAMINED_WORKERS);
        let mut workers = page.map_or_else(Vec::new, |page| page.workers);
        workers.retain(|worker| worker.state != WorkerState::Live);
        workers
    }

    /// Returns the schedules that need this build and are handed out next.
    fn next_schedules(&self, needs: u8) -> Vec<StoredSchedule> {
        let schedules = self.schedules.iter();
        let mut found: Vec<_> = schedules
            .filter(|(_, it)| it.row.needs == needs)
            .filter_map(|(name, it)| it.hand_out.map(|at| (at, stored(name, &it.row))))
            .collect();
        found.sort_by_key(|(at, _)| *at);
        let found = found.into_iter().map(|(_, schedule)| schedule);
        found.take(MAX_EXAMINED_SCHEDULES).collect()
    }

    /// Returns the types of waiting tasks that no live worker claims.
    fn unclaimed_types(&self) -> Vec<UnclaimedType> {
        let mut found = BTreeMap::new();
        let waiting = self
            .tasks
            .values()
            .filter(|row| row.state == State::Waiting);
        for row in waiting.filter(|row| self.is_unclaimed(row)) {
            let run_type = RunType::new(&(*row.task.name).into(), &row.task.queue);
            let ready_for = self.wall().saturating_sub(row.ready_at);
            let key = (run_type, !self.is_unserved(row));
            let longest: &mut u64 = found.entry(key).or_default();
            *longest = ready_for.max(*longest);
        }
        let found = found.into_iter().take(MAX_DIAGNOSED);
        let found = found.map(|((run_type, is_known), ready_for)| UnclaimedType {
            run_type,
            is_known,
            ready_for: Some(Duration::from_millis(ready_for)),
        });
        found.collect()
    }

    fn is_unclaimed(&self, row: &Row) -> bool {
        self.is_unserved(row) || self.is_paused(row)
    }
}
