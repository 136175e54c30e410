//! Lists of tasks, which are compared as sets.

use std::collections::BTreeMap;

use super::{Outcome, Pair, equal, refusal};
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::process::queue_name;
use crate::durable::store::{CheckedFilter, ListTasks, Store};
use crate::durable::{Status, TaskId, TaskInfo};

impl<H: Harness> Pair<H> {
    pub(super) async fn list(
        &mut self,
        process: u8,
        status: Status,
        is_queued: bool,
        limit: usize,
    ) -> Outcome {
        let knows_queue = !matches!(status, Status::Done | Status::Cancelled);
        let filter = CheckedFilter {
            queue: (is_queued && knows_queue).then(|| queue_name("q")),
            ..CheckedFilter::new(status)
        };
        let [model, tested] = self.stores(process);
        let mut expected = read(model, &filter, limit).await?;
        let mut answered = read(tested, &filter, limit).await?;
        for (id, info) in &mut expected {
            if let Some(other) = answered.get_mut(id) {
                leave_out(info, other);
            }
        }
        equal(
            &format!("the list of {status:?} tasks"),
            &expected,
            &answered,
        )
    }
}

/// Reads a list to its end, in pages of this size.
async fn read(
    store: &Store,
    filter: &CheckedFilter,
    limit: usize,
) -> Result<BTreeMap<TaskId, TaskInfo>, String> {
    let (mut found, mut after) = (BTreeMap::new(), None);
    loop {
        let request = ListTasks {
            filter: filter.clone(),
            after,
            limit,
        };
        let page = store.0.list(request).await.map_err(refusal)?;
        let page = page.ok_or("a position is refused")?;
        for info in page.tasks {
            if let Some(twice) = found.insert(info.id, info) {
                return Err(format!("{twice:?} is listed twice"));
            }
        }
        match page.next {
            Some(next) => after = Some(next.position_in(filter.status)?),
            None => return Ok(found),
        }
    }
}

/// Removes the fields that depend on the store, or that a store does not keep.
pub(super) fn leave_out(expected: &mut TaskInfo, answered: &mut TaskInfo) {
    // Each store issues its own epochs.
    let tokens = [expected.fencing_token, answered.fencing_token];
    if tokens.iter().all(Option::is_some) {
        (expected.fencing_token, answered.fencing_token) = (None, None);
    }
    // The outputs of these tests do not contain the names of their tasks.
    if answered.name.is_none() && answered.status == Status::Done {
        expected.name = None;
    }
    if answered.ready_for.is_none() {
        expected.ready_for = None;
    }
    if answered.crashes.is_none() {
        expected.crashes = None;
    }
}
