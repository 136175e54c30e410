//! [`Group`]: the requests that are written in one transaction.

use std::mem;
use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::durable::failure::Failure;
use crate::durable::store::sqlite::error::Fault;
use crate::durable::store::sqlite::transaction::Transaction;
use crate::unwind::contain;

/// The requests in a group, and their bytes, at most.
const MAX_GROUP: usize = 64;
const MAX_GROUP_BYTES: usize = 8 << 20;

/// A request of the writer.
pub(super) trait Request: Send {
    /// Returns the bytes that the request brings, at most.
    fn bytes(&self) -> usize;

    /// Runs the request in a transaction. After an error, the transaction must be rolled back.
    fn run(&mut self, tx: &mut Transaction<'_>) -> Result<(), rusqlite::Error>;

    /// Replaces the answer by a failure.
    fn fail(&mut self, failure: Failure);

    /// Sends the answer.
    fn reply(self: Box<Self>);
}

/// A request that consists of closures.
pub(super) struct Call<T, F, G> {
    pub(super) bytes: usize,
    pub(super) run: F,
    pub(super) answer: Result<T, Failure>,
    pub(super) before_reply: G,
    pub(super) reply: oneshot::Sender<Result<T, Failure>>,
}

impl<T, F, G> Request for Call<T, F, G>
where
    T: Send,
    F: FnMut(&mut Transaction<'_>) -> Result<T, Fault> + Send,
    G: FnOnce(&Result<T, Failure>) + Send,
{
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn run(&mut self, tx: &mut Transaction<'_>) -> Result<(), rusqlite::Error> {
        tx.next_turn = None;
        tx.emptied.clear();
        self.answer = match (self.run)(tx) {
            Err(Fault::Sqlite(error)) => return Err(error),
            answer => answer.map_err(Fault::without_effect),
        };
        Ok(())
    }

    fn fail(&mut self, failure: Failure) {
        self.answer = Err(failure);
    }

    fn reply(self: Box<Self>) {
        let Self {
            answer,
            before_reply,
            reply,
            ..
        } = *self;
        before_reply(&answer);
        // The reply wakes the caller, which runs code of the user.
        contain(|| drop(reply.send(answer)));
    }
}

/// Requests that are written in one transaction.
pub(super) struct Group<'a> {
    pub(super) requests: Vec<Box<dyn Request>>,
    pub(super) bytes: usize,
    /// The channel from which further requests join the group until it is written.
    pub(super) received: Option<&'a mpsc::Receiver<Box<dyn Request>>>,
    pub(super) recovery: Recovery,
}

/// The measures taken so far because the requests could not read stored data.
#[derive(Clone, Copy)]
pub(super) enum Recovery {
    Nothing,
    /// The requests use a second connection to find out which tasks have lost their data.
    Probing,
    /// The store was repaired this many times.
    Repaired(u32),
}

impl<'a> Group<'a> {
    pub(super) fn of(
        first: Box<dyn Request>,
        received: Option<&'a mpsc::Receiver<Box<dyn Request>>>,
    ) -> Self {
        let mut group = Self {
            bytes: first.bytes(),
            requests: vec![first],
            received,
            recovery: Recovery::Nothing,
        };
        group.gather();
        group
    }

    /// Adds the requests that have arrived, up to the limits.
    pub(super) fn gather(&mut self) {
        while self.requests.len() < MAX_GROUP
            && self.bytes < MAX_GROUP_BYTES
            && let Some(received) = self.received
            && let Ok(next) = received.try_recv()
        {
            self.bytes += next.bytes();
            self.requests.push(next);
        }
    }

    /// Removes and returns the first requests, which are written.
    pub(super) fn take(&mut self, written: usize) -> Vec<Box<dyn Request>> {
        let rest = self.requests.split_off(written);
        self.bytes = rest.iter().map(|request| request.bytes()).sum();
        mem::replace(&mut self.requests, rest)
    }
}
