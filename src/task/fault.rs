//! [`Fault`]: the reason why a task has no output.

use std::any::Any;
use std::io;

use crate::sync::Unshared;
use crate::unwind::message;

/// The contents of a finished cell.
pub(crate) type Outcome<T> = Result<T, Fault>;

/// The reason why a task has no output. It is one pointer wide, so that cells stay small.
#[derive(Debug)]
pub(crate) struct Fault(Box<FaultKind>);

#[derive(Debug)]
pub(crate) enum FaultKind {
    /// It was aborted, or dropped by the party that should have run it.
    Cancelled,
    /// Its code panicked.
    Panicked(Payload),
    /// It was not accepted, or there was no thread to run it.
    Rejected(io::Error),
    /// Its executor had been closed.
    Closed,
    /// A panic had poisoned the state that it needed.
    Poisoned,
    /// The slot that promised the outcome was dropped.
    Lost,
    /// The party that waited for it held what it needed.
    WouldDeadlock(Held),
}

/// The resource that a task needs and that the party waiting for the task holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    /// A thread of its pool, whose other threads are held too.
    Thread,
    /// The state of its executor.
    State,
}

impl Fault {
    pub(crate) fn cancelled() -> Self {
        Self(Box::new(FaultKind::Cancelled))
    }

    pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> Self {
        Self(Box::new(FaultKind::Panicked(Payload::new(payload))))
    }

    pub(crate) fn rejected(why: io::Error) -> Self {
        Self(Box::new(FaultKind::Rejected(why)))
    }

    pub(crate) fn closed() -> Self {
        Self(Box::new(FaultKind::Closed))
    }

    pub(crate) fn poisoned() -> Self {
        Self(Box::new(FaultKind::Poisoned))
    }

    pub(crate) fn lost() -> Self {
        Self(Box::new(FaultKind::Lost))
    }

    pub(crate) fn would_deadlock(held: Held) -> Self {
        Self(Box::new(FaultKind::WouldDeadlock(held)))
    }

    pub(crate) fn kind(&self) -> &FaultKind {
        &self.0
    }

    pub(crate) fn into_kind(self) -> FaultKind {
        *self.0
    }
}

/// The payload of a panic.
pub(crate) struct Payload {
    payload: Unshared<Box<dyn Any + Send>>,
    /// Copied from the payload, which is not `Sync` and so cannot be read later.
    pub(crate) message: Option<Box<str>>,
}

impl Payload {
    fn new(payload: Box<dyn Any + Send>) -> Self {
        Self {
            message: message(&*payload).map(Box::from),
            payload: Unshared::new(payload),
        }
    }

    pub(crate) fn into_inner(self) -> Box<dyn Any + Send> {
        self.payload.into_inner()
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.message.fmt(f)
    }
}
