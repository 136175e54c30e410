//! Lists of tasks, which are compared as sets.

use std::collections::BTreeMap;

use super::{Outcome, Pair, equal, refusal, requests};
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::machine_tests::ListStep;
use crate::durable::store::{CheckedFilter, ListTasks, SessionId, Store};
use crate::durable::{Status, TaskId, TaskInfo};

impl<H: Harness> Pair<H> {
    pub(super) async fn list(&mut self, step: &ListStep) -> Outcome {
        let filters = self.filters(step);
        self.compare_lists(step.process, filters, step.limit).await
    }

    /// Compares all waiting tasks.
    pub(super) async fn list_waiting(&mut self) -> Outcome {
        let filters = [(); 2].map(|()| CheckedFilter::new(Status::Waiting));
        self.compare_lists(0, filters, 9).await
    }

    async fn compare_lists(
        &mut self,
        process: u8,
        [for_model, for_tested]: [CheckedFilter; 2],
        limit: usize,
    ) -> Outcome {
        let [model, tested] = self.stores(process);
        let mut expected = read(model, &for_model, limit).await?;
        let mut answered = read(tested, &for_tested, limit).await?;
        for (id, info) in &mut expected {
            if let Some(other) = answered.get_mut(id) {
                leave_out(info, other);
            }
        }
        let what = format!("the list of {:?} tasks", for_model.status);
        equal(&what, &expected, &answered)
    }

    /// Returns the filters for both stores, which differ in the id of the session.
    fn filters(&self, step: &ListStep) -> [CheckedFilter; 2] {
        let in_named_queue = step.in_named_queue;
        let knows_type = !matches!(step.status, Status::Done | Status::Cancelled);
        let name = step.other_name.filter(|_| knows_type);
        let session = step.session.filter(|_| step.status == Status::Running);
        let session = session.and_then(|choice| self.listed_session(choice));
        [0, 1].map(|side| CheckedFilter {
            name: name.map(|other| requests::name(other).to_owned()),
            queue: in_named_queue.filter(|_| knows_type).map(requests::queue),
            has_failed: step.has_failed && step.status == Status::Delayed,
            session: session.map(|ids| ids[side]),
            ..CheckedFilter::new(step.status)
        })
    }

    /// Chooses a session, possibly a closed one. Returns its ids.
    fn listed_session(&self, choice: u8) -> Option<[SessionId; 2]> {
        let at = usize::from(choice).checked_rem(self.sessions.len())?;
        Some(self.sessions[at].ids)
    }
}

/// Reads a list to its end, in pages of this size.
pub(super) async fn read(
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
