//! [`Row`]: what the model knows of a task.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::durable::clock::millis;
use crate::durable::store::kind::Kind;
use crate::durable::store::{
    Claimed, DEAD_LETTER_RETENTION, DeadReason, Epoch, MAX_ERRORS, NewTask, TaskState,
    is_quarantined,
};
use crate::durable::{AttemptError, DeadLetter};

/// A task, and what has become of it.
pub(super) struct Row {
    pub(super) task: NewTask,
    pub(super) kind: Kind,
    pub(super) state: State,
    pub(super) failures: u32,
    pub(super) crashes: u32,
    pub(super) lost: u32,
    pub(super) cancel: bool,
    /// The last errors after which it was to run again: the attempt, when it failed, and with what.
    pub(super) errors: VecDeque<(u32, u64, String)>,
    /// The endpoints to be told of its end.
    pub(super) watchers: BTreeSet<usize>,
}

/// The state of a task. Times are in milliseconds: `due` since 1970, the others in store time.
#[derive(PartialEq)]
pub(super) enum State {
    Waiting,
    Delayed {
        due: u64,
    },
    Running {
        epoch: Epoch,
    },
    Done {
        output: Vec<u8>,
        until: u64,
    },
    Cancelled {
        until: u64,
    },
    Dead {
        reason: DeadReason,
        error: String,
        since: u64,
    },
}

impl Row {
    pub(super) fn is_held(&self, epoch: Epoch) -> bool {
        self.state == State::Running { epoch }
    }

    pub(super) fn is_quarantined(&self) -> bool {
        is_quarantined(self.crashes, self.lost, self.task.max_crashes)
    }

    /// Whether its end is kept no longer.
    pub(super) fn is_over(&self, time: u64) -> bool {
        match self.state {
            State::Done { until, .. } | State::Cancelled { until } => until <= time,
            State::Dead { since, .. } => since + millis(DEAD_LETTER_RETENTION) <= time,
            State::Waiting | State::Delayed { .. } | State::Running { .. } => false,
        }
    }

    pub(super) fn claimed(&self) -> Claimed {
        Claimed {
            id: self.task.id,
            name: (*self.task.name).into(),
            payload: Ok(self.task.payload.clone()),
            failures: self.failures,
            crashes: self.crashes,
            lost: self.lost,
            quarantined: self.is_quarantined(),
        }
    }

    pub(super) fn seen(&self) -> TaskState {
        match &self.state {
            State::Waiting => TaskState::Waiting,
            State::Delayed { .. } => TaskState::Delayed,
            State::Running { .. } => TaskState::Running,
            State::Done { output, .. } => TaskState::Done(output.clone()),
            State::Cancelled { .. } => TaskState::Cancelled,
            State::Dead { reason, error, .. } => TaskState::Dead {
                reason: *reason,
                error: error.clone(),
            },
        }
    }

    /// Keeps the error of the attempt that has failed.
    pub(super) fn keep_error(&mut self, now: u64, error: &str) {
        self.errors
            .push_back((self.failures + 1, now, error.to_owned()));
        if self.errors.len() > MAX_ERRORS {
            self.errors.pop_front();
        }
    }

    pub(super) fn errors(&self, now: u64) -> Vec<AttemptError> {
        let errors = self.errors.iter().map(|(attempt, at, error)| AttemptError {
            attempt: *attempt,
            error: error.clone(),
            age: Duration::from_millis(now.saturating_sub(*at)),
        });
        errors.collect()
    }

    pub(super) fn letter(&self, now: u64, time: u64) -> Option<DeadLetter> {
        let State::Dead {
            reason,
            error,
            since,
        } = &self.state
        else {
            return None;
        };
        Some(DeadLetter {
            id: self.task.id,
            name: self.task.name.to_string(),
            reason: *reason,
            error: error.clone(),
            errors: self.errors(now),
            failures: self.failures,
            crashes: self.crashes,
            age: Duration::from_millis(time.saturating_sub(*since)),
        })
    }
}
