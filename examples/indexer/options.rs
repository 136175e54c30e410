//! [`Options`]: how the index is built.

use std::fmt;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::watch;

use super::source::{Disk, Source};

/// The options of a build.
#[derive(Clone)]
pub(crate) struct Options {
    /// The number of threads that read files.
    pub(crate) threads: usize,
    /// The number of threads that tokenise them.
    pub(crate) cores: usize,
    /// For each thread that reads, the maximum number of texts in memory.
    pub(crate) texts: usize,
    /// For each thread that reads, the maximum number of files that are in memory or wait to be read.
    pub(crate) running: usize,
    /// For each thread that reads, the maximum number of files that are submitted and not yet read from
    /// the stream.
    pub(crate) outstanding: usize,
    /// The reaction to a file that cannot be read at the moment.
    pub(crate) backoff: Backoff,
    /// Where the files come from.
    pub(crate) source: Arc<dyn Source>,
    /// Ends the build early.
    pub(crate) stop: Stop,
}

impl Default for Options {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self {
            // The disk is faster with several requests at once.
            threads: 2 * cores,
            cores,
            texts: 4,
            running: 16,
            outstanding: 64,
            backoff: Backoff::default(),
            source: Arc::new(Disk),
            stop: Stop::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("threads", &self.threads)
            .field("cores", &self.cores)
            .field("texts", &self.texts)
            .field("running", &self.running)
            .field("outstanding", &self.outstanding)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

/// The number of attempts, and the delays between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// The number of attempts.
    pub(crate) attempts: u32,
    /// The wait after the first attempt; each later one is twice as long as the one before.
    pub(crate) first: Duration,
}

impl Backoff {
    /// Returns the delay after this number of failures, or `None` if there is no further attempt.
    pub(crate) fn delay(&self, failures: u32) -> Option<Duration> {
        let doublings = failures.saturating_sub(1).min(16);
        (failures < self.attempts).then(|| self.first * (1 << doublings))
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            attempts: 6,
            first: Duration::from_millis(20),
        }
    }
}

/// Tells the pipeline to submit no more files, and to finish those that it has submitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(watch::Sender<bool>);

impl Stop {
    /// Says so.
    pub(crate) fn set(&self) {
        self.0.send_replace(true);
    }

    /// Returns `true` if it was given.
    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is said.
    #[allow(
        dead_code,
        reason = "only the durable build waits, and it needs a feature"
    )]
    pub(crate) async fn wait(&self) {
        // It cannot fail: this is one of the senders.
        self.0.subscribe().wait_for(|&said| said).await.ok();
    }
}
