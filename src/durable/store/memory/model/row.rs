//! [`Row`]: a task, and its state.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::durable::store::kind::Kind;
use crate::durable::store::{
    Claimed, DeadReason, Epoch, MAX_ERRORS, NewTask, Progress, StepName, StepWait, TaskState,
    is_dead_letter, is_quarantined,
};
use crate::durable::{AttemptError, DeadLetter};

/// A task, and its state.
pub(super) struct Row {
    pub(super) task: NewTask,
    pub(super) kind: Kind,
    pub(super) state: State,
    pub(super) failures: u32,
    /// When the first attempt failed, in milliseconds since 1970.
    pub(super) failing_since: Option<u64>,
    pub(super) crashes: u32,
    pub(super) lost: u32,
    pub(super) cancel: bool,
    /// When the task was stored, in milliseconds since 1970.
    pub(super) stored_at: u64,
    /// The time at which the task became ready, or is due, in milliseconds since 1970.
    pub(super) ready_at: u64,
    /// The errors of the last attempts after which the task was to run again.
    pub(super) errors: VecDeque<FailedAttempt>,
    /// The last progress that a run has reported.
    pub(super) progress: Option<Progress>,
    /// The steps, in the order in which they were stored.
    pub(super) steps: Vec<StepRow>,
    /// The number of steps that makes the task ready while it is delayed. It is `None` if no number does.
    pub(super) until: Option<u32>,
    /// A description of these steps.
    pub(super) waits_for: String,
    /// The endpoints that are notified when the task ends.
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
        took: Option<Duration>,
    },
}

/// A step of a task.
pub(super) struct StepRow {
    pub(super) name: StepName,
    pub(super) value: Vec<u8>,
    /// When it was stored, in milliseconds since 1970.
    pub(super) at: u64,
}

/// An attempt that has failed.
pub(super) struct FailedAttempt {
    attempt: u32,
    /// The time at which it failed, in milliseconds since 1970.
    at: u64,
    error: String,
    took: Option<Duration>,
}

/// The times up to which ended tasks have expired, in store time.
#[derive(Clone, Copy)]
pub(super) struct Expiry {
    /// The end of the retention of those that are not dead letters.
    pub(super) time: u64,
    /// The time of death of dead letters.
    pub(super) dead_until: Option<u64>,
}

impl Row {
    pub(super) fn is_delayed_until(&self, due: u64) -> bool {
        self.state == State::Delayed { due }
    }

    /// Returns the kind of version 1 of the type of the task, whatever its queue and its priority.
    pub(super) fn of(&self) -> Kind {
        self.task.type_kind().with_version(1)
    }

    pub(super) fn is_held(&self, epoch: Epoch) -> bool {
        self.state == State::Running { epoch }
    }

    /// Returns `true` if the task, which has just crashed or was lost, is a dead letter from now on.
    pub(super) fn is_dead_letter(&self) -> bool {
        is_dead_letter(self.crashes, self.lost, self.task.max_crashes)
    }

    pub(super) fn is_quarantined(&self) -> bool {
        is_quarantined(self.crashes, self.lost, self.task.max_crashes)
    }

    /// Returns `true` if the retention of the ended task is over.
    pub(super) fn is_expired(&self, expiry: Expiry) -> bool {
        match self.state {
            State::Done { until, .. } | State::Cancelled { until } => until <= expiry.time,
            State::Dead { since, .. } => Some(since) <= expiry.dead_until,
            State::Waiting | State::Delayed { .. } | State::Running { .. } => false,
        }
    }

    pub(super) fn claimed(&self, now: u64) -> Claimed {
        let failing_for = self.failing_since.map(|since| now.saturating_sub(since));
        let since_ready = Duration::from_millis(now.saturating_sub(self.ready_at));
        let mut claimed = Claimed {
            id: self.task.id,
            name: (*self.task.name).into(),
            group: self.task.group.clone(),
            payload: Ok(self.task.payload.clone()),
            failures: self.failures,
            failing_for: failing_for.map(Duration::from_millis),
            waited: None,
            crashes: self.crashes,
            lost: self.lost,
            quarantined: self.is_quarantined(),
            steps: self.number_of_steps(),
            wait: StepWait::of(self.number_of_steps(), self.until),
        };
        claimed.set_waited(Some(since_ready));
        claimed
    }

    pub(super) fn status(&self) -> TaskState {
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

    /// Adds the error of the attempt that has failed.
    pub(super) fn push_error(&mut self, now: u64, error: &str, took: Option<Duration>) {
        self.failing_since.get_or_insert(now);
        self.errors.push_back(FailedAttempt {
            attempt: self.failures + 1,
            at: now,
            error: error.to_owned(),
            took,
        });
        if self.errors.len() > MAX_ERRORS {
            self.errors.pop_front();
        }
    }

    pub(super) fn errors(&self, now: u64) -> Vec<AttemptError> {
        let errors = self.errors.iter().map(|it| AttemptError {
            attempt: it.attempt,
            error: it.error.clone(),
            age: Duration::from_millis(now.saturating_sub(it.at)),
            took: it.took,
        });
        errors.collect()
    }

    pub(super) fn dead_letter(&self, now: u64, time: u64) -> Option<DeadLetter> {
        let State::Dead {
            reason,
            error,
            since,
            ..
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
