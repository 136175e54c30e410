//! [`ServerTime`]: the source of a store's time. [`Now`]: the times of one request.

use std::time::Duration;

use tokio::sync::mpsc;

#[cfg(test)]
use crate::durable::clock::Clock;
use crate::durable::store::Event;

/// The source of a store's time: the clock of the server, or that of a test.
#[derive(Clone, Debug)]
pub(crate) struct ServerTime {
    #[cfg(test)]
    clock: Option<Clock>,
}

/// The current time, read once per transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Milliseconds since 1970. Delayed tasks become due by this time.
    pub(super) wall: i64,
    /// The time by which leases and store time are measured, in milliseconds. It is that of the same clock. In tests, it has another
    /// origin, and goes on while the clock is set.
    pub(super) boot: i64,
    wall_micros: i64,
}

impl ServerTime {
    /// Returns the time of the server.
    pub(crate) fn server() -> Self {
        Self {
            #[cfg(test)]
            clock: None,
        }
    }

    /// Returns the time, given that of the server in microseconds since 1970.
    #[cfg(not(test))]
    pub(super) fn now(&self, server: i64) -> Now {
        Now::of_server(server)
    }

    #[cfg(not(test))]
    pub(super) fn watch(&self, _: &mpsc::UnboundedSender<Event>) {}
}

#[cfg(test)]
impl ServerTime {
    /// Returns the time of a test's clock.
    pub(crate) fn manual(clock: Clock) -> Self {
        Self { clock: Some(clock) }
    }

    /// Returns the time, given that of the server in microseconds since 1970.
    pub(super) fn now(&self, server: i64) -> Now {
        let Some(clock) = &self.clock else {
            return Now::of_server(server);
        };
        Now {
            wall: clock.wall().as_millis() as i64,
            boot: clock.boot().as_millis() as i64,
            wall_micros: clock.wall().as_micros() as i64,
        }
    }

    /// Wakes the engine whenever a test advances its clock.
    pub(super) fn watch(&self, events: &mpsc::UnboundedSender<Event>) {
        if let Some(clock) = &self.clock {
            let events = events.clone();
            clock.watch(move || events.send(Event::Wake(None)).is_ok());
        }
    }
}

impl Now {
    fn of_server(micros: i64) -> Self {
        Self {
            wall: micros / 1000,
            boot: micros / 1000,
            wall_micros: micros,
        }
    }

    /// Returns the time since `at`, in milliseconds since 1970, or zero if `at` is in the future.
    pub(super) fn since(self, at: i64) -> Duration {
        let millis = u64::try_from(self.wall.saturating_sub(at));
        Duration::from_millis(millis.unwrap_or_default())
    }

    /// Returns the time from a time of the same clock until another one, or zero if that is over.
    pub(super) fn left(now: i64, until: i64) -> Duration {
        let millis = u64::try_from(until.saturating_sub(now));
        Duration::from_millis(millis.unwrap_or_default())
    }

    /// Microseconds since 1970.
    pub(super) fn micros(self) -> i64 {
        self.wall_micros
    }
}
