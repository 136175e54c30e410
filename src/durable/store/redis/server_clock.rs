//! [`ServerClock`]: converts times of the server into local times.

use std::time::Duration;

use crate::durable::clock::since_boot;
use crate::sync::{Mutex, lock};

/// The last known reading of the server's clock: the time at which a request was sent, since this machine was started, and the server's
/// time of the answer, in milliseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Option<(Duration, i64)>>);

impl ServerClock {
    pub(super) fn record(&self, sent: Duration, now: i64) {
        *lock(&self.0) = Some((sent, now));
    }

    /// Converts a time of the server into a time since this machine was started. Returns `None` if no time of the server was recorded.
    ///
    /// The request was sent before the server answered it, so the result may be early, by at most the time that the request took. It is not
    /// late unless the server's clock was set forward since then.
    pub(super) fn date(&self, time: i64) -> Option<Duration> {
        let (sent, now) = (*lock(&self.0))?;
        let since = Duration::from_millis(time.abs_diff(now));
        let date = match time < now {
            true => sent.saturating_sub(since),
            false => sent.saturating_add(since),
        };
        // If the server's clock was set forward, the result would be in the future.
        Some(date.min(since_boot()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_not_late() {
        let clock = ServerClock::default();
        assert_eq!(clock.date(5_000), None);
        let sent = since_boot().saturating_sub(Duration::from_secs(60));
        clock.record(sent, 5_000);
        assert_eq!(clock.date(5_000), Some(sent));
        assert_eq!(clock.date(6_000), Some(sent + Duration::from_secs(1)));
        assert_eq!(
            clock.date(4_000),
            Some(sent.saturating_sub(Duration::from_secs(1)))
        );
    }

    #[test]
    fn no_date_is_in_the_future() {
        let clock = ServerClock::default();
        clock.record(since_boot(), 5_000);
        let date = clock.date(3_600_000).unwrap();
        assert!(date <= since_boot());
    }
}
