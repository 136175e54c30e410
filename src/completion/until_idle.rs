//! [`UntilIdle`]: a stream that ends when nothing is outstanding.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};

use super::stream::{Completed, CompletionStream};

impl<T: Send + 'static, K: Send + 'static> CompletionStream<T, K> {
    /// Returns a stream that ends as soon as no job is outstanding, even if jobs could still be submitted, as
    /// [`JoinSet`](tokio::task::JoinSet) does.
    ///
    /// # Examples
    ///
    /// See [`UntilIdle`].
    pub fn until_idle(self) -> UntilIdle<T, K> {
        UntilIdle {
            stream: self,
            ended: false,
        }
    }
}

/// A stream that ends as soon as no job is outstanding: see [`CompletionStream::until_idle`].
///
/// The end is final, even if jobs are submitted later. [`into_inner`](Self::into_inner) returns the stream with
/// everything that was not read, for instance for the next phase of work whose jobs submit other jobs.
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
/// let (jobs, mut done) = CompletionStream::builder().build()?;
/// for phase in 0..2 {
///     for n in 0..10 {
///         jobs.submit(n, async move { n + phase }).await?;
///     }
///     let mut phase = done.until_idle();
///     let mut items = 0;
///     while phase.next().await.is_some() {
///         items += 1;
///     }
///     assert_eq!(items, 10);
///     done = phase.into_inner();
/// }
/// # Ok(()) }
/// ```
#[must_use = "streams do nothing unless polled, and dropping this one aborts its jobs"]
pub struct UntilIdle<T, K = ()> {
    stream: CompletionStream<T, K>,
    ended: bool,
}

impl<T: Send + 'static, K: Send + 'static> UntilIdle<T, K> {
    /// Waits for the next completion. Returns `None` once no job is outstanding.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Completed<T, K>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Returns the stream, which remains usable.
    pub fn into_inner(self) -> CompletionStream<T, K> {
        self.stream
    }
}

impl<T: Send + 'static, K: Send + 'static> Stream for UntilIdle<T, K> {
    type Item = Completed<T, K>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let is_idle = |stream: &CompletionStream<T, K>| stream.shared.len().0 == 0;
        let item = ready!(self.stream.poll_take(cx, CompletionStream::take, is_idle));
        self.ended = item.is_none();
        Poll::Ready(item)
    }

    /// At least the outstanding jobs.
    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.ended {
            return (0, Some(0));
        }
        self.stream.size_hint()
    }
}

impl<T: Send + 'static, K: Send + 'static> FusedStream for UntilIdle<T, K> {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl<T, K> fmt::Debug for UntilIdle<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntilIdle")
            .field("stream", &self.stream)
            .field("ended", &self.ended)
            .finish()
    }
}
