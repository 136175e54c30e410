//! [`Gate`]: limits the requests that a dashboard sends to a store at once.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The number of requests that a store gets at once.
const MAX_RUNNING: usize = 4;
/// The number of requests that wait.
const MAX_WAITING: usize = 16;

/// Limits the requests to a store, so that many viewers cannot take its time from the workers.
#[derive(Debug)]
pub(crate) struct Gate {
    accepted: Semaphore,
    running: Semaphore,
    /// The number of requests that have begun.
    #[cfg(test)]
    begun: std::sync::atomic::AtomicUsize,
}

/// The reason why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateError {
    /// Too many requests run and wait.
    Full,
    /// The request has taken too long.
    TimedOut,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            accepted: Semaphore::new(MAX_RUNNING + MAX_WAITING),
            running: Semaphore::new(MAX_RUNNING),
            #[cfg(test)]
            begun: 0.into(),
        }
    }

    /// Runs a request, possibly after others. The time that it waits for them does not count.
    pub(crate) async fn run<T>(
        &self,
        max: Duration,
        request: impl Future<Output = T>,
    ) -> Result<T, GateError> {
        let _accepted = self.accepted.try_acquire().map_err(|_| GateError::Full)?;
        // The semaphore is never closed.
        let _running = self.running.acquire().await.map_err(|_| GateError::Full)?;
        #[cfg(test)]
        self.begun
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        timeout(max, request).await.map_err(|_| GateError::TimedOut)
    }
}

#[cfg(test)]
impl Gate {
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns `true` if another request may run or wait.
    pub(crate) fn has_capacity(&self) -> bool {
        self.accepted.available_permits() > 0
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::yield_now;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn four_requests_run_sixteen_wait_and_others_are_refused() {
        let gate = Arc::new(Gate::new());
        let begun = Arc::new(AtomicUsize::new(0));
        let mut requests = Vec::new();
        for _ in 0..MAX_RUNNING + MAX_WAITING {
            let (gate, begun) = (Arc::clone(&gate), Arc::clone(&begun));
            requests.push(tokio::spawn(async move {
                let request = async {
                    begun.fetch_add(1, Ordering::Relaxed);
                    pending::<()>().await
                };
                gate.run(LONG, request).await
            }));
            yield_now().await;
        }
        assert_eq!(begun.load(Ordering::Relaxed), MAX_RUNNING);
        assert_eq!(gate.run(LONG, ready(())).await, Err(GateError::Full));

        requests[0].abort();
        while begun.load(Ordering::Relaxed) == MAX_RUNNING {
            yield_now().await;
        }
        assert_eq!(begun.load(Ordering::Relaxed), MAX_RUNNING + 1);
        requests.iter().for_each(|request| request.abort());
    }

    #[tokio::test]
    async fn a_request_that_takes_too_long_ends() {
        let gate = Gate::new();
        for _ in 0..=MAX_RUNNING {
            let ended = gate.run(Duration::from_millis(1), pending::<()>()).await;
            assert_eq!(ended, Err(GateError::TimedOut));
        }
        assert_eq!(gate.run(LONG, ready(7)).await, Ok(7));
    }
}
