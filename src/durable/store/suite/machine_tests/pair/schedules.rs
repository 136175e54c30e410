//! Sends requests about schedules to both stores, and compares the answers.

use std::sync::Arc;

use super::{Outcome, Pair, requests, same};
use crate::durable::failure::Failure;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::machine_tests::ScheduleStep;
use crate::durable::store::{DueSchedule, HandOut, ScheduleChange, ScheduleRow};

impl<H: Harness> Pair<H> {
    pub(super) async fn change_schedule(&mut self, step: &ScheduleStep) -> Outcome {
        let name = requests::schedule(step.schedule);
        let before = self.version(&name).await;
        // Each version is used once.
        self.marks += 1;
        let version = self.marks;
        let now = self.model.clock().wall();
        let row = step.row.as_ref().map(|row| ScheduleRow {
            version,
            needs: row.needs,
            time: row.after.map(|after| (now + after).as_millis() as u64),
            started: 9,
            skipped: 3,
            last_task: None,
            body: version.to_be_bytes().to_vec(),
        });
        let (has_types, has_queues) = (self.tested.knows_types(), self.has_queues);
        let ids = &mut self.ids;
        let tasks = step.tasks.iter();
        let tasks = tasks.map(|new| new.task(ids, has_types, has_queues, true));
        self.schedule_change = Some(Arc::new(ScheduleChange {
            name,
            before: match step.is_current {
                true => before,
                false => Some((version, 0)),
            },
            tasks: match row {
                Some(_) => tasks.collect(),
                None => Vec::new(),
            },
            after: row,
            queue: requests::queue(false),
        }));
        self.send_schedule_change().await
    }

    /// Returns the version and the partition of the row that the model has.
    async fn version(&mut self, name: &ScheduleName) -> Option<(u64, usize)> {
        let [model, _] = self.stores(0);
        let found = model.0.schedule(name.clone()).await.unwrap().found;
        found.map(|found| (found.row.version, found.partition))
    }

    /// Sends the last change, which may have been sent before, and compares the rows afterwards.
    pub(super) async fn send_schedule_change(&mut self) -> Outcome {
        let Some(change) = self.schedule_change.clone() else {
            return Ok(());
        };
        let [model, tested] = self.stores(0);
        let changed = model.0.change_schedule(Arc::clone(&change)).await;
        same((changed, tested.0.change_schedule(Arc::clone(&change)).await))?;
        let found = model.0.schedule(change.name.clone()).await;
        same((found, tested.0.schedule(change.name.clone()).await))
    }

    pub(super) async fn hand_out(&mut self, computes: u8) -> Outcome {
        let [model, tested] = self.stores(0);
        let [expected, answered] = [
            model.0.hand_out(computes).await,
            tested.0.hand_out(computes).await,
        ];
        // Stores return schedules that need different builds in different orders.
        let sorted = |answer: Result<HandOut, Failure>| {
            answer.map(|mut handed_out| {
                let by_name = |due: &DueSchedule| due.schedule.name.clone();
                handed_out.due.sort_by_key(by_name);
                handed_out
            })
        };
        same((sorted(expected), sorted(answered)))
    }

    pub(super) async fn list_schedules(&mut self, after: Option<u8>, limit: usize) -> Outcome {
        let after = after.map(requests::schedule);
        let [model, tested] = self.stores(0);
        let listed = model.0.schedules(after.clone(), limit).await;
        same((listed, tested.0.schedules(after, limit).await))
    }
}
