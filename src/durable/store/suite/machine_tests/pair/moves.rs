//! Moves of all waiting tasks that match.

use std::collections::{BTreeMap, BTreeSet};

use super::lists;
use super::{Outcome, Pair, equal, refusal, requests};
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::machine_tests::MoveStep;
use crate::durable::store::{ChangeAnswer, CheckedFilter, MoveWaiting, Store};
use crate::durable::{Status, TaskId, TaskInfo};

/// The number of parts after which a move must be finished.
const MANY_PARTS: usize = 1_000;

impl<H: Harness> Pair<H> {
    /// Moves tasks in both stores, and compares the sums of the answers and the waiting tasks. If several tasks have moved, they are then
    /// cancelled, since the order in which they wait depends on the store.
    pub(super) async fn move_waiting(&mut self, step: &MoveStep) -> Outcome {
        let request = step.request(self.has_queues);
        let before = self.waiting_in_model().await?;
        let [model, tested] = self.stores(0);
        let expected = run(model, &request).await?;
        let answered = run(tested, &request).await?;
        equal("a move", &expected, &answered)?;
        self.list_waiting().await?;
        let moved = moved(&before, &self.waiting_in_model().await?);
        equal("the number of tasks", &moved.len(), &expected.0)?;
        match moved.len() {
            0 | 1 => Ok(()),
            _ => self.cancel(moved).await,
        }
    }

    /// Cancels the waiting tasks of the groups of which a task no longer waits that has waited before. While a list drains, the stores
    /// may have two turns for a group, and lose the first of them with such a task. The model has one.
    pub(super) async fn cancel_rest_of_groups(
        &mut self,
        before: &BTreeMap<TaskId, TaskInfo>,
    ) -> Outcome {
        let after = self.waiting_in_model().await?;
        let is_gone =
            |id: &TaskId, task: &TaskInfo| after.get(id).is_none_or(|it| it.queue != task.queue);
        let gone = before.iter().filter(|(id, task)| is_gone(id, task));
        let groups: BTreeSet<_> = gone.filter_map(|(_, task)| group_of(task)).collect();
        let is_left = |task: &TaskInfo| group_of(task).is_some_and(|it| groups.contains(&it));
        let left = after.iter().filter(|(_, task)| is_left(task));
        self.cancel(left.map(|(&id, _)| id).collect()).await
    }

    pub(super) async fn waiting_in_model(&mut self) -> Result<BTreeMap<TaskId, TaskInfo>, String> {
        let [model, _] = self.stores(0);
        lists::read(model, &CheckedFilter::new(Status::Waiting), 100).await
    }
}

/// Returns the queue and the group of a task that has a group.
fn group_of(task: &TaskInfo) -> Option<(Option<String>, String)> {
    Some((task.queue.clone(), task.group.clone()?))
}

impl MoveStep {
    fn request(&self, has_queues: bool) -> MoveWaiting {
        let name = self.other_name.map(requests::name);
        MoveWaiting {
            filter: CheckedFilter {
                name: name.map(str::to_owned),
                queue: self.in_named_queue.map(requests::queue),
                ..CheckedFilter::new(Status::Waiting)
            },
            until: self.has_time.then_some(u64::MAX >> 16),
            queue: requests::queue(self.to_queued && has_queues),
            after: None,
            limit: self.limit,
        }
    }
}

/// Moves all parts. Returns the number of tasks that have moved, and the number of those that were refused.
async fn run(store: &Store, request: &MoveWaiting) -> Result<(usize, usize), String> {
    let (mut request, mut changed, mut refused) = (request.clone(), 0, 0);
    for _ in 0..MANY_PARTS {
        let part = store.0.move_waiting(request.clone()).await;
        let part = part.map_err(refusal)?.ok_or("a position is refused")?;
        let number =
            |of: fn(&ChangeAnswer) -> bool| part.answers.iter().filter(|it| of(it)).count();
        changed += part.changed as usize + number(|it| *it == ChangeAnswer::Changed);
        refused += number(|it| matches!(it, ChangeAnswer::Refused(_)));
        request.after = part.next;
        if request.after.is_none() {
            return Ok((changed, refused));
        }
    }
    Err("a move comes to no end".to_owned())
}

/// Returns the tasks that are in another queue than before.
fn moved(before: &BTreeMap<TaskId, TaskInfo>, after: &BTreeMap<TaskId, TaskInfo>) -> Vec<TaskId> {
    let is_elsewhere = |id: &TaskId, task: &TaskInfo| before[id].queue != task.queue;
    let after = after.iter().filter(|(id, task)| is_elsewhere(id, task));
    after.map(|(&id, _)| id).collect()
}
