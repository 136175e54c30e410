//! [`Ordered`]: a stream in the order of submission.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};

use super::{Completed, CompletionStream};
use crate::join::Moved;
use crate::sync::Unshared;

/// The same stream, in the order in which jobs were submitted: see [`CompletionStream::ordered`].
///
/// # Cancel safety
///
/// As with the stream itself, nothing is lost in `select!`.
///
/// # Examples
///
/// ```
/// use throng::CompletionStream;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (jobs, done) = CompletionStream::builder().build();
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
pub struct Ordered<T, K = ()> {
    stream: CompletionStream<T, K>,
    /// What has finished before its turn, from the one on whose turn it is. They are outstanding until they
    /// are yielded, and so are those that they wait for: that bounds it.
    waiting: VecDeque<Option<Unshared<Moved<T, K>>>>,
    /// Whose turn it is.
    turn: u64,
}

impl<T: Send + 'static, K: Send + 'static> Ordered<T, K> {
    pub(super) fn new(mut stream: CompletionStream<T, K>) -> Self {
        stream.settle();
        stream.count_turns_anew();
        Self {
            stream,
            waiting: VecDeque::new(),
            turn: 0,
        }
    }

    /// The next completion, in the order of submission; `None` when the stream is closed and everything has
    /// been read.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Completed<T, K>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl<T: Send + 'static, K: Send + 'static> Stream for Ordered<T, K> {
    type Item = Completed<T, K>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self {
            stream,
            waiting,
            turn,
        } = &mut *self;
        if stream.ended {
            return Poll::Ready(None);
        }
        let take = |stream: &mut CompletionStream<T, K>| {
            while !matches!(waiting.front(), Some(Some(_))) {
                let moved = stream.take_out()?;
                let ahead = moved.turn - *turn;
                let index = usize::try_from(ahead).expect("there is memory for so many");
                if index >= waiting.len() {
                    waiting.resize_with(index + 1, || None);
                }
                waiting[index] = Some(Unshared::new(moved));
            }
            *turn += 1;
            Some(stream.yielded_moved(waiting.pop_front()??.into_inner()))
        };
        let item = ready!(stream.poll_take(cx, take, CompletionStream::is_over));
        stream.ended = item.is_none();
        Poll::Ready(item)
    }

    /// As that of the stream itself.
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

impl<T, K> fmt::Debug for Ordered<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ordered")
            .field("stream", &self.stream)
            .finish()
    }
}
