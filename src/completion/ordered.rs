//! `ordered`: a stream in the order of submission.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};

use super::spill::Spilled;
use super::stream::{Completed, CompletionStream};
use crate::sync::Unshared;

impl<T: Send + 'static, K: Send + 'static> CompletionStream<T, K> {
    /// Returns a stream of the same jobs in the order in which they were submitted. Jobs that are submitted at the
    /// same time come in either order.
    ///
    /// A completion that waits for an earlier job counts as unread. So behind one job that takes long, at most
    /// `max_outstanding` others finish before the submitters wait. Jobs that were read before this is called are not
    /// waited for.
    ///
    /// # Cancel safety
    ///
    /// As with the stream itself, nothing is lost in `select!`.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::StreamExt;
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, done) = CompletionStream::builder().build()?;
    /// let slots = [jobs.slot(1).await?, jobs.slot(2).await?];
    /// drop(jobs);
    /// for slot in slots.into_iter().rev() {
    ///     slot.complete("done");
    /// }
    ///
    /// let mut done = done.ordered();
    /// let mut tags = Vec::new();
    /// while let Some(completed) = done.next().await {
    ///     tags.push(completed.tag);
    /// }
    /// assert_eq!(tags, [1, 2]);
    /// # Ok(()) }
    /// ```
    #[must_use = "streams do nothing unless polled, and dropping this one aborts its jobs"]
    pub fn ordered(self) -> impl FusedStream<Item = Completed<T, K>> + Unpin {
        Ordered::new(self)
    }
}

/// A stream of completions in the order in which the jobs were submitted.
struct Ordered<T, K> {
    stream: CompletionStream<T, K>,
    /// Completions that finished before an earlier job, from `next_seq` on. They are outstanding, and so are the jobs
    /// that they wait for, which bounds the length.
    waiting: VecDeque<Option<Unshared<Spilled<T, K>>>>,
    /// The `seq` of the next completion.
    next_seq: u64,
}

impl<T: Send + 'static, K: Send + 'static> Ordered<T, K> {
    fn new(mut stream: CompletionStream<T, K>) -> Self {
        stream.renumber();
        Self {
            stream,
            waiting: VecDeque::new(),
            next_seq: 0,
        }
    }
}

impl<T: Send + 'static, K: Send + 'static> Stream for Ordered<T, K> {
    type Item = Completed<T, K>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self {
            stream,
            waiting,
            next_seq,
        } = &mut *self;
        if stream.ended {
            return Poll::Ready(None);
        }
        let take = |stream: &mut CompletionStream<T, K>| {
            while !matches!(waiting.front(), Some(Some(_))) {
                let spilled = stream.take_out()?;
                let ahead = spilled.seq - *next_seq;
                let index = usize::try_from(ahead).expect("the jobs between are in memory");
                if index >= waiting.len() {
                    waiting.resize_with(index + 1, || None);
                }
                waiting[index] = Some(Unshared::new(spilled));
            }
            *next_seq += 1;
            Some(stream.read_spilled(waiting.pop_front()??.into_inner()))
        };
        let item = ready!(stream.poll_take(cx, take, CompletionStream::is_over));
        stream.ended = item.is_none();
        Poll::Ready(item)
    }

    /// As that of the unordered stream.
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

impl<T: Send + 'static, K: Send + 'static> FusedStream for Ordered<T, K> {
    fn is_terminated(&self) -> bool {
        self.stream.ended
    }
}

// Completions are moved, never pinned.
impl<T, K> Unpin for Ordered<T, K> {}
