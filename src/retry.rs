//! [`Retry`]: the policy for attempts that fail.

mod run;

use std::time::Duration;

/// A policy for attempts that fail: the number of attempts, the delay before each, and the total time.
///
/// The limit of the delay grows exponentially, and the delay is chosen at random between zero and that limit ("full
/// jitter"), so that clients that failed together do not retry together. See M. Brooker, "Exponential Backoff And Jitter",
/// AWS Architecture Blog, 2015.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use throng::Retry;
///
/// # #[tokio::main] async fn main() {
/// let retry = Retry::exponential()
///     .attempts(3)
///     .base(Duration::from_millis(1))
///     .cap(Duration::from_secs(60));
/// let mut attempts = 0;
/// let fetched = retry.run(|attempt| {
///     attempts = attempt;
///     async { Err::<(), _>("timed out") }
/// });
/// assert_eq!(fetched.await, Err("timed out"));
/// assert_eq!(attempts, 3);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub(crate) attempts: u32,
    pub(crate) base: Duration,
    pub(crate) cap: Duration,
    pub(crate) max_elapsed: Option<Duration>,
}

impl Retry {
    /// At most 8 attempts, with delays of up to 1 s after the first failure, and twice as long after each further one, up to
    /// an hour. The total time is not limited.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::Retry;
    ///
    /// assert_eq!(Retry::exponential(), Retry::default());
    /// ```
    pub const fn exponential() -> Self {
        Self {
            attempts: 8,
            base: Duration::from_secs(1),
            cap: Duration::from_secs(3600),
            max_elapsed: None,
        }
    }

    /// Sets the number of attempts, including the first one: with one attempt, nothing is retried. Zero counts as one.
    ///
    /// # Examples
    ///
    /// See [`Retry`].
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the longest delay after the first failure.
    ///
    /// # Examples
    ///
    /// See [`Retry`].
    #[must_use]
    pub const fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Sets the longest delay after any failure.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::Retry;
    ///
    /// let retry = Retry::exponential()
    ///     .attempts(100)
    ///     .base(Duration::from_millis(10))
    ///     .cap(Duration::from_secs(60));
    /// # let _ = retry;
    /// ```
    #[must_use]
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Sets the maximum time from the first failure to the beginning of the last attempt. If the delay before the next attempt would end
    /// later, there is no further attempt, and the last error counts at once. By default, this time is not limited.
    ///
    /// The limit does not end an attempt that is running. A durable task that waits for a worker or a permit after its delay may begin
    /// its last attempt later. The store keeps the time of its first failure until the task ends or is replayed, so the limit also
    /// applies after a restart.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::Retry;
    ///
    /// let retry = Retry::exponential()
    ///     .attempts(u32::MAX)
    ///     .max_elapsed(Duration::from_secs(24 * 3600)); // a day
    /// # let _ = retry;
    /// ```
    #[must_use]
    pub const fn max_elapsed(mut self, max_elapsed: Duration) -> Self {
        self.max_elapsed = Some(max_elapsed);
        self
    }

    /// Returns the delay after this number of failures: a random time up to the limit, or `None` if no attempt is left. It does not
    /// consider the total time: see [`allows`](Self::allows).
    pub(crate) fn delay(&self, failures: u32) -> Option<Duration> {
        let limit = self.limit(failures)?;
        Some(limit.mul_f64(fastrand::f64()))
    }

    /// Returns `true` if an attempt may begin after this delay, given the time since the first failure.
    pub(crate) fn allows(&self, delay: Duration, elapsed: Duration) -> bool {
        let begins = elapsed.saturating_add(delay);
        self.max_elapsed
            .is_none_or(|max_elapsed| begins <= max_elapsed)
    }

    /// Returns the longest delay after this number of failures.
    fn limit(&self, failures: u32) -> Option<Duration> {
        if failures >= self.attempts {
            return None;
        }
        let doublings = failures.saturating_sub(1);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        Some(self.base.saturating_mul(factor).min(self.cap))
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::exponential()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_the_cap() {
        let retry = Retry::exponential().attempts(u32::MAX).cap(60 * SECOND);
        let limits = [1, 2, 3, 6, 7, 32, 33, 34, 4_000_000].map(|failures| retry.limit(failures));
        let expected = [1, 2, 4, 32, 60, 60, 60, 60, 60].map(|wait| Some(wait * SECOND));
        assert_eq!(limits, expected);
    }

    #[test]
    fn attempts_end() {
        let retry = Retry::exponential().attempts(2);
        assert!(retry.delay(1).is_some());
        assert_eq!(
            [2, 3, u32::MAX].map(|failures| retry.delay(failures)),
            [None; 3]
        );
        assert_eq!(Retry::exponential().attempts(1).delay(1), None);
        assert_eq!(Retry::exponential().attempts(0).delay(1), None);
    }

    #[test]
    fn no_attempt_begins_after_the_total_time() {
        let unlimited = Retry::exponential();
        assert!(unlimited.allows(Duration::MAX, Duration::MAX));
        let retry = unlimited.max_elapsed(10 * SECOND);
        assert!(retry.allows(10 * SECOND, Duration::ZERO) && retry.allows(3 * SECOND, 7 * SECOND));
        assert!(!retry.allows(3 * SECOND, 7 * SECOND + Duration::from_nanos(1)));
        assert!(!retry.allows(Duration::MAX, SECOND) && !retry.allows(Duration::ZERO, 11 * SECOND));
    }

    #[test]
    fn delays_are_spread_over_the_whole_range() {
        let retry = Retry::exponential();
        let waits: Vec<_> = (0..200).filter_map(|_| retry.delay(1)).collect();
        assert!(waits.iter().all(|&wait| wait <= SECOND), "{waits:?}");
        assert!(waits.iter().any(|&wait| wait < SECOND / 4), "{waits:?}");
        assert!(waits.iter().any(|&wait| wait > SECOND * 3 / 4), "{waits:?}");
    }
}
