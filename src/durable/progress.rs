//! [`RunProgress`]: the progress that a run reports.

use std::sync::Arc as StdArc;

use serde::Serialize;
use tokio::sync::mpsc;

use super::TaskId;
use super::store::{Epoch, MAX_PROGRESS_BYTES, Progress, ProgressReport};
use crate::sync::{Mutex, lock};

/// The progress that a run reports, and how much of it the store has.
///
/// Only the last report is kept. A run with a report that its executor does not know of sends this value to the executor, which takes the
/// last report when it sends its next requests.
pub(crate) struct RunProgress {
    id: TaskId,
    epoch: Epoch,
    executor: mpsc::UnboundedSender<StdArc<Self>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of reports so far.
    number: u64,
    last: Option<Vec<u8>>,
    /// The number of the last report that is stored.
    stored: u64,
    /// `true` if the executor knows that there is a report to send.
    is_queued: bool,
    /// `true` if the run has ended, so further reports are ignored.
    is_over: bool,
}

impl RunProgress {
    /// Returns the progress of a run, which has not reported any.
    pub(crate) fn new(
        id: TaskId,
        epoch: Epoch,
        executor: mpsc::UnboundedSender<StdArc<Self>>,
    ) -> StdArc<Self> {
        StdArc::new(Self {
            id,
            epoch,
            executor,
            state: Mutex::default(),
        })
    }

    pub(crate) fn id(&self) -> TaskId {
        self.id
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Replaces the last report. This never waits.
    pub(crate) fn report(self: &StdArc<Self>, bytes: Vec<u8>) {
        let mut state = lock(&self.state);
        state.number += 1;
        state.last = Some(bytes);
        // This is sent under the lock, so that it is never sent after the end of the run: the executor would not forget it.
        if state.must_queue() {
            self.executor.send(StdArc::clone(self)).ok();
        }
    }

    /// Returns the last report of this run.
    pub(crate) fn last(&self) -> Option<Vec<u8>> {
        lock(&self.state).last.clone()
    }

    /// Returns the last report, unless it is stored. For a later report, this value is sent to the executor again.
    pub(crate) fn take(&self) -> Option<ProgressReport> {
        let mut state = lock(&self.state);
        state.is_queued = false;
        self.unstored(&state).filter(|_| !state.is_over)
    }

    /// Records that the report with this number is stored.
    pub(crate) fn stored(&self, number: u64) {
        let mut state = lock(&self.state);
        state.stored = state.stored.max(number);
    }

    /// Returns `true` if the executor must queue this again, since the last report was not stored.
    pub(crate) fn must_send_again(&self) -> bool {
        lock(&self.state).must_queue()
    }

    /// Ends the run: later reports are ignored, even if the run has passed its context on to others.
    pub(crate) fn close(&self) {
        lock(&self.state).is_over = true;
    }

    /// Ends the run. Returns the last report if it is not stored.
    pub(crate) fn end(&self) -> Option<ProgressReport> {
        let mut state = lock(&self.state);
        state.is_over = true;
        self.unstored(&state)
    }

    fn unstored(&self, state: &State) -> Option<ProgressReport> {
        let bytes = state.last.as_ref().filter(|_| state.is_unstored())?;
        Some(ProgressReport {
            id: self.id,
            progress: Progress {
                epoch: self.epoch,
                number: state.number,
                bytes: bytes.clone(),
            },
        })
    }
}

impl State {
    fn is_unstored(&self) -> bool {
        self.number > self.stored
    }

    /// Returns `true` if there is a report that the executor does not know of. Also records that the executor knows of it, so the caller
    /// must queue it.
    fn must_queue(&mut self) -> bool {
        let is_news = self.is_unstored() && !self.is_queued && !self.is_over;
        self.is_queued |= is_news;
        is_news
    }
}

/// Encodes the progress of a task.
///
/// # Errors
///
/// The progress cannot be encoded, or is too large.
pub(crate) fn encode(progress: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, String> {
    let bytes = serde_json::to_vec(progress).map_err(|error| error.to_string())?;
    match bytes.len() {
        ..=MAX_PROGRESS_BYTES => Ok(bytes),
        len => Err(format!(
            "it has {len} bytes, and a store accepts at most {MAX_PROGRESS_BYTES}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_sends_itself_once_until_its_report_is_taken() {
        let (sender, mut received) = mpsc::unbounded_channel();
        let run = RunProgress::new(TaskId::new(), 7, sender);
        let reports = |number: u64| {
            (0..number).for_each(|number| run.report(vec![number as u8]));
        };
        reports(3);
        assert!(received.try_recv().is_ok() && received.try_recv().is_err());
        let taken = run.take().map(|report| report.progress);
        assert_eq!(taken.map(|it| (it.number, it.bytes)), Some((3, vec![2])));
        reports(2);
        assert!(received.try_recv().is_ok() && received.try_recv().is_err());
        // The first request is answered.
        run.stored(3);
        assert_eq!(run.take().map(|report| report.progress.number), Some(5));
        // The second request has failed.
        assert!(run.must_send_again());
        assert!(!run.must_send_again());
        assert_eq!(run.end().map(|report| report.progress.number), Some(5));
        reports(1);
        assert!(received.try_recv().is_err() && run.take().is_none());
    }

    #[test]
    fn a_stored_report_is_not_sent_again() {
        let (sender, _received) = mpsc::unbounded_channel();
        let run = RunProgress::new(TaskId::new(), 7, sender);
        run.report(b"1".to_vec());
        run.take().unwrap();
        run.stored(1);
        assert!(!run.must_send_again());
        assert_eq!((run.take(), run.end()), (None, None));
        assert_eq!(run.last(), Some(b"1".to_vec()));
    }

    #[test]
    fn progress_has_at_most_four_kib() {
        let text = |len| "x".repeat(len);
        assert!(encode(&text(4094)).is_ok());
        let error = encode(&text(4095)).unwrap_err();
        assert_eq!(error, "it has 4097 bytes, and a store accepts at most 4096");
    }
}
