//! [`BatchCallers`]: the callers whose tasks are in a batch, and what the parts of the store have answered about these tasks.

use std::mem;
use std::ops::Range;

use tokio::sync::oneshot;

use crate::durable::failure::{Effect, Failure};
use crate::durable::key::{Enqueued, KeyConflict};
use crate::durable::resend::{may_succeed, may_succeed_in_another_session};

pub(super) type Reply = oneshot::Sender<Result<Enqueued, Failure>>;

/// Callers, each with the outcome of its tasks.
pub(super) type Outcomes = Vec<(Reply, Result<Enqueued, Failure>)>;

/// The callers whose tasks are in a batch.
///
/// Some stores have parts that can fail separately. Such a store tells the outcome of each part, and a caller gets the outcome of the parts
/// that have its tasks. A task is *settled* if its outcome does not change any more, and is then not sent again.
#[derive(Default)]
pub(super) struct BatchCallers {
    /// Those that have got no outcome yet.
    waiting: Vec<BatchCaller>,
    /// The number of tasks.
    count: usize,
    /// The state of each task. It is empty until a part of the store has answered.
    tasks: Vec<BatchedTask>,
    /// The failure of an attempt that ended before all parts of the store had an outcome. Each of the others may have stored its tasks.
    interrupted: Option<Failure>,
    /// The conflicts of the tasks that are stored.
    stored: Enqueued,
}

struct BatchCaller {
    reply: Reply,
    /// The positions of its tasks.
    tasks: Range<usize>,
}

/// The state of a task of a batch.
#[derive(Clone, Debug)]
enum BatchedTask {
    /// Its part of the store has not answered.
    Unsettled,
    /// Its part of the store has failed, but may store it when it is sent again. The failure says whether it may already be stored.
    Failed(Box<Failure>),
    /// Its part of the store has failed, and it is not sent again. The failure says whether it may be stored.
    Refused(Box<Failure>),
    Stored,
}

impl BatchCallers {
    /// Takes callers with the numbers of their tasks, in the order of the batch.
    pub(super) fn new(callers: impl IntoIterator<Item = (Reply, usize)>) -> Self {
        let (mut waiting, mut count) = (Vec::new(), 0);
        for (reply, tasks) in callers {
            let tasks = count..count + tasks;
            count = tasks.end;
            waiting.push(BatchCaller { reply, tasks });
        }
        Self {
            waiting,
            count,
            ..Self::default()
        }
    }

    /// Records the outcome of a part of the store that has the tasks at these positions. Returns the callers all of whose tasks are
    /// settled. For a batch without callers, this does nothing.
    pub(super) fn end_part(
        &mut self,
        positions: &[usize],
        stored: &Result<Vec<KeyConflict>, Failure>,
    ) -> Outcomes {
        let before = match &self.interrupted {
            Some(failure) => BatchedTask::Failed(Box::new(failure.clone())),
            None => BatchedTask::Unsettled,
        };
        self.tasks.resize(self.count, before);
        for &position in positions {
            if let Some(task) = self.tasks.get_mut(position) {
                task.end(stored.as_ref().err());
            }
        }
        self.stored.conflicts.extend(stored.iter().flatten());
        self.stored.conflicts.sort_by_key(|it| it.position);
        let is_settled = |it: &mut BatchCaller| {
            let tasks = &self.tasks[it.tasks.clone()];
            tasks.iter().all(BatchedTask::is_settled)
        };
        let settled: Vec<_> = self.waiting.extract_if(.., is_settled).collect();
        self.with_outcomes(settled)
    }

    /// Records the outcome of the whole request, which is not sent again. Returns the callers that have no outcome yet, each with its own.
    pub(super) fn end(&mut self, stored: &Result<Enqueued, Failure>) -> Outcomes {
        let waiting = mem::take(&mut self.waiting);
        if !self.has_parts() {
            let part = |it: BatchCaller| {
                let part = stored
                    .as_ref()
                    .map(|all| all.part(it.tasks.start, it.tasks.len()));
                (it.reply, part.map_err(Clone::clone))
            };
            return waiting.into_iter().map(part).collect();
        }
        for task in &mut self.tasks {
            task.end_with_request(stored.as_ref().err());
        }
        self.with_outcomes(waiting)
    }

    /// Returns the outcome of those tasks that are not settled, given that of the whole request.
    pub(super) fn rest(&mut self, stored: Result<Enqueued, Failure>) -> Result<Enqueued, Failure> {
        let Err(failure) = stored else { return stored };
        if failure.effect == Effect::Unknown {
            self.interrupt(&failure);
        }
        if !self.has_parts() {
            return Err(failure);
        }
        if self.tasks.iter().all(BatchedTask::is_settled) {
            return Ok(Enqueued::default());
        }
        let failures = || {
            self.tasks
                .iter()
                .filter_map(BatchedTask::failure_of_unsettled)
        };
        let is_unknown = failures().any(|it| it.effect == Effect::Unknown);
        // As long as one of the parts may succeed, the request is sent again.
        let shown = failures()
            .find(|it| may_succeed(it))
            .or_else(|| failures().next());
        let effect = if is_unknown {
            Effect::Unknown
        } else {
            Effect::None
        };
        Err(Failure {
            effect,
            ..shown.cloned().unwrap_or(failure)
        })
    }

    /// Records that an attempt may have stored the tasks of the parts that have no outcome.
    fn interrupt(&mut self, failure: &Failure) {
        for task in &mut self.tasks {
            if matches!(task, BatchedTask::Unsettled) {
                *task = BatchedTask::Failed(Box::new(failure.clone()));
            }
        }
        self.interrupted.get_or_insert_with(|| failure.clone());
    }

    pub(super) fn is_settled(&self, position: usize) -> bool {
        self.tasks
            .get(position)
            .is_some_and(BatchedTask::is_settled)
    }

    /// Returns `true` if a part of the store has stored its tasks.
    pub(super) fn has_stored(&self) -> bool {
        let is_stored = |it: &BatchedTask| matches!(it, BatchedTask::Stored);
        self.tasks.iter().any(is_stored)
    }

    fn has_parts(&self) -> bool {
        !self.tasks.is_empty()
    }

    fn with_outcomes(&self, callers: Vec<BatchCaller>) -> Outcomes {
        let outcome = |it: BatchCaller| (it.reply, self.outcome(it.tasks));
        callers.into_iter().map(outcome).collect()
    }

    /// Returns the outcome of the tasks of a caller, which is a failure if one of them has failed.
    fn outcome(&self, tasks: Range<usize>) -> Result<Enqueued, Failure> {
        let own = &self.tasks[tasks.clone()];
        let Some(failure) = own.iter().find_map(BatchedTask::failure) else {
            return Ok(self.stored.part(tasks.start, tasks.len()));
        };
        let effect = match own.iter().any(BatchedTask::may_be_stored) {
            true => Effect::Unknown,
            false => Effect::None,
        };
        Err(Failure {
            effect,
            ..failure.clone()
        })
    }
}

impl BatchedTask {
    /// Records that its part of the store has stored it, or has failed.
    fn end(&mut self, failure: Option<&Failure>) {
        *self = match failure {
            None => Self::Stored,
            Some(failure) => {
                let all = Box::new(self.after(failure));
                match may_succeed(failure) || may_succeed_in_another_session(&all) {
                    true => Self::Failed(all),
                    false => Self::Refused(all),
                }
            }
        };
    }

    /// Records the outcome of the request, after which nothing is sent again.
    fn end_with_request(&mut self, failure: Option<&Failure>) {
        *self = match (&*self, failure) {
            (Self::Stored | Self::Refused(_), _) => return,
            (_, None) => Self::Stored,
            // The caller learns why its task could not be sent in another session, rather than that a session has ended.
            (Self::Failed(own), Some(failure)) if may_succeed_in_another_session(own) => {
                Self::Refused(Box::new(failure.clone().without_effect()))
            }
            (Self::Failed(own), Some(_)) => Self::Refused(own.clone()),
            (Self::Unsettled, Some(failure)) => Self::Refused(Box::new(failure.clone())),
        };
    }

    /// Returns this failure, with the effect that this attempt or an earlier one may have had.
    fn after(&self, failure: &Failure) -> Failure {
        let effect = match self.may_be_stored() {
            true => Effect::Unknown,
            false => failure.effect,
        };
        Failure {
            effect,
            ..failure.clone()
        }
    }

    fn is_settled(&self) -> bool {
        matches!(self, Self::Stored | Self::Refused(_))
    }

    fn may_be_stored(&self) -> bool {
        let is_unknown = |it: &Failure| it.effect == Effect::Unknown;
        matches!(self, Self::Stored) || self.failure().is_some_and(is_unknown)
    }

    fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) | Self::Refused(failure) => Some(failure),
            Self::Stored | Self::Unsettled => None,
        }
    }

    fn failure_of_unsettled(&self) -> Option<&Failure> {
        self.failure().filter(|_| !self.is_settled())
    }
}
