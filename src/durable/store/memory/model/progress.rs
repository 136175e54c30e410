//! The progress of tasks.

use super::row::{Row, State};
use super::state::Model;
use crate::durable::TaskId;
use crate::durable::store::{ProgressReport, ProgressState};

impl Model {
    /// Stores the progress of running tasks. Returns the tasks that are not held under the epochs of their reports.
    pub(in super::super) fn report_progress(&mut self, reports: &[ProgressReport]) -> Vec<TaskId> {
        let refused = reports.iter().filter(|report| !self.report(report));
        refused.map(|report| report.id).collect()
    }

    /// Stores a report, unless a later one of the same run is stored. Returns `false` if the task is not held under this epoch.
    fn report(&mut self, ProgressReport { id, progress }: &ProgressReport) -> bool {
        let row = self.tasks.get_mut(id);
        let Some(row) = row.filter(|row| row.is_held(progress.epoch)) else {
            return false;
        };
        let before = row.progress.as_ref();
        if before.is_none_or(|before| before.order() < progress.order()) {
            row.progress = Some(progress.clone());
        }
        true
    }

    pub(in super::super) fn progress(&self, ids: &[TaskId]) -> Vec<ProgressState> {
        let rows = ids.iter().map(|id| self.tasks.get(id));
        let states = rows.map(|row| row.map_or(ProgressState::Ended, Row::progress_state));
        states.collect()
    }
}

impl Row {
    fn progress_state(&self) -> ProgressState {
        match self.state {
            State::Waiting | State::Delayed { .. } | State::Running { .. } => {
                ProgressState::Alive(self.progress.clone())
            }
            State::Done { .. } | State::Cancelled { .. } | State::Dead { .. } => {
                ProgressState::Ended
            }
        }
    }
}
