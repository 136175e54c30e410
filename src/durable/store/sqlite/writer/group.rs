//! [`Group`]: the requests that are written together.

use std::mem;
use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::durable::failure::Failure;
use crate::durable::store::sqlite::error::Fault;
use crate::durable::store::sqlite::work::Work;
use crate::unwind::contain;

/// How many requests are written together, and how many bytes.
const MAX_GROUP: usize = 64;
const MAX_GROUP_BYTES: usize = 8 << 20;

/// Something that is done in a transaction.
pub(super) trait Request: Send {
    fn bytes(&self) -> usize;

    /// Does it; an error takes the transaction along.
    fn run(&mut self, work: &mut Work<'_>) -> Result<(), rusqlite::Error>;

    fn fail(&mut self, failure: Failure);

    fn reply(self: Box<Self>);
}

pub(super) struct Call<T, F, G> {
    pub(super) bytes: usize,
    pub(super) work: F,
    pub(super) answer: Result<T, Failure>,
    pub(super) then: G,
    pub(super) reply: oneshot::Sender<Result<T, Failure>>,
}

impl<T, F, G> Request for Call<T, F, G>
where
    T: Send,
    F: FnMut(&mut Work<'_>) -> Result<T, Fault> + Send,
    G: FnOnce(&Result<T, Failure>) + Send,
{
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn run(&mut self, work: &mut Work<'_>) -> Result<(), rusqlite::Error> {
        self.answer = match (self.work)(work) {
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
            then,
            reply,
            ..
        } = *self;
        then(&answer);
        // Answering wakes the caller, which runs code of the user.
        contain(|| drop(reply.send(answer)));
    }
}

/// Requests that are written in one transaction.
pub(super) struct Group<'a> {
    pub(super) requests: Vec<Box<dyn Request>>,
    pub(super) bytes: usize,
    /// Whence more come, until the group is written.
    pub(super) asked: Option<&'a mpsc::Receiver<Box<dyn Request>>>,
    pub(super) mended: Mended,
}

/// The repair of stored data that the requests could not read.
#[derive(Clone, Copy)]
pub(super) enum Mended {
    Nothing,
    /// The requests get a second connection, with which they find out which tasks have lost their data.
    Probed,
    /// The store was repaired this many times.
    Repaired(u32),
}

impl<'a> Group<'a> {
    pub(super) fn of(
        first: Box<dyn Request>,
        asked: Option<&'a mpsc::Receiver<Box<dyn Request>>>,
    ) -> Self {
        let mut group = Self {
            bytes: first.bytes(),
            requests: vec![first],
            asked,
            mended: Mended::Nothing,
        };
        group.gather();
        group
    }

    /// Takes what is asked now, up to the limits.
    pub(super) fn gather(&mut self) {
        while self.requests.len() < MAX_GROUP
            && self.bytes < MAX_GROUP_BYTES
            && let Some(asked) = self.asked
            && let Ok(next) = asked.try_recv()
        {
            self.bytes += next.bytes();
            self.requests.push(next);
        }
    }

    /// Takes the first requests, which are written. The others remain.
    pub(super) fn take(&mut self, written: usize) -> Vec<Box<dyn Request>> {
        let rest = self.requests.split_off(written);
        self.bytes = rest.iter().map(|request| request.bytes()).sum();
        mem::replace(&mut self.requests, rest)
    }
}
