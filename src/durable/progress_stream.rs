//! [`ProgressStream`]: a stream of the progress of a task.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::engine::Engine;
use super::engine::progress_waiters::{News, ReportOrder};
use super::store::{Progress, ProgressState};
use super::{DurableError, TaskId};

/// A stream of the progress of a durable task: see [`DurableHandle::progress`](super::DurableHandle::progress).
///
/// The stream yields the last progress that a run of the task has [reported](super::TaskContext::progress), and then later reports.
/// It may skip reports, but never yields an earlier report after a later one. It waits while the task has not started, and while no run
/// has reported progress. It ends when the task has ended, so it may skip the last reports of the task.
///
/// The executor of the task stores the progress about once a second, and a client requests it about twice a second while one of its
/// streams is awaited. So a value is at most two seconds old when the stream yields it, if the store answers quickly. While the store
/// cannot be reached, the stream waits.
///
/// # Errors
///
/// - A report is not a `P` ([`is_decode`](DurableError::is_decode)), for instance because another version of the program has made it.
///   The stream continues with the next report.
/// - The handle was [not attached](DurableError::is_detached), the client is [closed](DurableError::is_closed), or the store has failed
///   permanently. The stream then ends.
///
/// # In a run of another task
///
/// A run that awaits a stream keeps its permit, unlike a run that awaits a [handle](super::DurableHandle).
///
/// # Cancel safety
///
/// [`next`](Self::next) is cancel safe: nothing that the stream would yield is lost if the future is dropped. Dropping the stream does
/// not affect the task.
#[must_use = "a stream does nothing unless it is polled"]
pub struct ProgressStream<P> {
    /// `None` if the handle was not attached.
    engine: Option<StdArc<Engine>>,
    id: TaskId,
    /// The last report that was yielded.
    seen: Option<ReportOrder>,
    news: Option<oneshot::Receiver<News>>,
    has_ended: bool,
    progress: PhantomData<fn() -> P>,
}

impl<P> ProgressStream<P> {
    pub(crate) fn new(engine: Option<&StdArc<Engine>>, id: TaskId) -> Self {
        Self {
            engine: engine.map(StdArc::clone),
            id,
            seen: None,
            news: None,
            has_ended: false,
            progress: PhantomData,
        }
    }
}

impl<P: DeserializeOwned> ProgressStream<P> {
    /// Waits for the next report of progress. Returns `None` if the task has ended.
    ///
    /// # Errors
    ///
    /// See [the type](Self#errors).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// See [`DurableHandle::progress`](super::DurableHandle::progress).
    pub async fn next(&mut self) -> Option<Result<P, DurableError>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    fn decode(&mut self, engine: &Engine, progress: &Progress) -> Result<P, DurableError> {
        self.seen = Some(progress.order());
        let decoded = serde_json::from_slice(&progress.bytes);
        decoded.map_err(|error| DurableError::decode_progress(&engine.store_name, self.id, error))
    }

    /// Ends the stream, with a last item if there is one.
    fn end(&mut self, item: Option<DurableError>) -> Poll<Option<Result<P, DurableError>>> {
        self.has_ended = true;
        Poll::Ready(item.map(Err))
    }
}

impl<P: DeserializeOwned> Stream for ProgressStream<P> {
    type Item = Result<P, DurableError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.has_ended {
            return Poll::Ready(None);
        }
        let Some(engine) = this.engine.clone() else {
            return this.end(Some(DurableError::detached(this.id)));
        };
        let (id, seen) = (this.id, this.seen);
        let news = this
            .news
            .get_or_insert_with(|| engine.progress.wait(id, seen));
        let news = ready!(Pin::new(news).poll(cx));
        this.news = None;
        match news {
            Ok(Ok(ProgressState::Alive(Some(progress)))) => {
                Poll::Ready(Some(this.decode(&engine, &progress)))
            }
            Ok(Ok(ProgressState::Alive(None) | ProgressState::Ended)) => this.end(None),
            Ok(Err(failure)) => this.end(Some(DurableError::store(
                &engine.store_name,
                Some(id),
                failure,
            ))),
            Err(_) => this.end(Some(DurableError::closed(&engine.store_name, Some(id)))),
        }
    }
}

impl<P: DeserializeOwned> FusedStream for ProgressStream<P> {
    fn is_terminated(&self) -> bool {
        self.has_ended
    }
}

impl<P> fmt::Debug for ProgressStream<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressStream")
            .field("id", &self.id)
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}
