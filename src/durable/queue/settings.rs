//! [`QueueSettings`] and [`Rate`]: the limits of a queue.

use std::time::Duration;

use serde::Serialize;

use super::Groups;

/// The limits of a queue, which hold for all workers together: see [`Queue::set`](super::super::Queue::set).
///
/// # Examples
///
/// ```
/// use throng::durable::{QueueSettings, Rate};
///
/// // At most 4 tasks run at once, and 100 start per minute, evenly spaced.
/// let settings = QueueSettings::new().max_running(4).rate(Rate::per_minute(100));
/// assert_eq!(settings.running_limit(), Some(4));
/// assert_eq!(settings.rate_limit(), Some(Rate::per_minute(100)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct QueueSettings {
    pub(crate) max_running: Option<u32>,
    pub(crate) rate: Option<Rate>,
    pub(crate) groups: Groups,
    pub(crate) revision: u32,
}

impl QueueSettings {
    /// Returns settings without limits, with the revision 0.
    ///
    /// # Examples
    ///
    /// See [`QueueSettings`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of tasks that run at once, over all workers: at least 1. There is no maximum by default. To
    /// stop a queue, [pause](super::super::Queue::pause) it. `None` removes the maximum.
    ///
    /// A task counts from its claim until its worker reports the end of the run, or until the task is taken back from a worker
    /// that has died. So the maximum also holds while workers die. A task does not count while it waits to be tried again.
    ///
    /// A task that awaits another task of its own queue still counts. So with a maximum of 1, both tasks wait forever. Spawn the
    /// other task into another queue.
    ///
    /// A worker that has lost its lease without noticing may still run a task when another worker starts it again. A
    /// [fencing token](super::super::TaskContext::fencing_token) protects what the task changes.
    ///
    /// # Examples
    ///
    /// See [`QueueSettings`].
    #[must_use]
    pub fn max_running(mut self, max_running: impl Into<Option<u32>>) -> Self {
        self.max_running = max_running.into();
        self
    }

    /// Sets the maximum rate at which tasks start, over all workers. There is no maximum by default. `None` removes the maximum.
    ///
    /// # Examples
    ///
    /// See [`QueueSettings`].
    #[must_use]
    pub fn rate(mut self, rate: impl Into<Option<Rate>>) -> Self {
        self.rate = rate.into();
        self
    }

    /// Sets how the queue serves its [groups](super::super::SpawnOptions::group). By default, groups have no limit, and the quantum
    /// is 1.
    ///
    /// # Examples
    ///
    /// See [`Groups`].
    #[must_use]
    pub fn grouped(mut self, groups: Groups) -> Self {
        self.groups = groups;
        self
    }

    /// Sets the revision of the settings. A store ignores settings whose revision is lower than that of the settings that it has.
    /// So processes of an old release do not undo what a newer release has set. The default is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore, QueueSettings};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let queue = client.queue("gpu");
    /// assert!(queue.set(QueueSettings::new().max_running(8).revision(2)).await?);
    /// // A process of an older release starts later.
    /// assert!(!queue.set(QueueSettings::new().max_running(4).revision(1)).await?);
    /// assert_eq!(queue.info().await?.settings.running_limit(), Some(8));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn revision(mut self, revision: u32) -> Self {
        self.revision = revision;
        self
    }

    /// Returns the maximum number of tasks that run at once, or `None` if there is no limit.
    pub fn running_limit(&self) -> Option<u32> {
        self.max_running
    }

    /// Returns the maximum rate at which tasks start, or `None` if there is no limit.
    pub fn rate_limit(&self) -> Option<Rate> {
        self.rate
    }

    for_stores! {
        /// Returns the settings of the groups.
        #[cfg(any(test, feature = "test-util", feature = "unstable-store"))]
        fn group_settings(&self) -> Groups {
            self.groups
        }

        /// Returns the revision of the settings.
        #[cfg(any(test, feature = "test-util", feature = "unstable-store"))]
        fn revision_number(&self) -> u32 {
            self.revision
        }
    }

    /// Returns the reason why these settings are not possible, and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        match (self.max_running, self.rate) {
            (Some(0), _) => {
                Err("`max_running` is 0: pause the queue instead, or set it to at least 1".into())
            }
            (_, Some(rate)) if rate.interval_micros == 0 || rate.burst == 0 => Err(
                "the number of starts, the interval or the burst of the rate is 0: set it to more than 0, or set no rate"
                    .into(),
            ),
            (_, Some(rate)) if rate.whole() > MAX_WHOLE.as_micros() as u64 => Err(
                "the burst of the rate takes more than 100 years to become available again: reduce the burst or the interval"
                    .into(),
            ),
            _ => self.groups.check(),
        }
    }
}

/// The rate at which tasks start.
///
/// Starts are spaced evenly: with `per_minute(100)`, at most one task starts every 600 ms. With a [`burst`](Self::burst) of 20, up
/// to 20 tasks start at once if none have started for a while. So in any period `t`, at most `t / interval + burst` tasks start,
/// unless the clock is set. A task that is tried again counts again. (This is the [generic cell rate
/// algorithm](https://en.wikipedia.org/wiki/Generic_cell_rate_algorithm).)
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use throng::durable::Rate;
///
/// assert_eq!(Rate::per_minute(120), Rate::every(Duration::from_millis(500)));
/// assert_ne!(Rate::per_minute(120), Rate::per_minute(120).burst(20));
/// assert_eq!(Rate::per_minute(120).interval(), Duration::from_millis(500));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Rate {
    /// The mean time between two starts.
    pub(crate) interval_micros: u64,
    /// The maximum number of tasks that may start at once.
    pub(crate) burst: u32,
}

/// The maximum interval. It fits into 6 bytes, in which Redis stores the interval in microseconds.
const MAX_INTERVAL: Duration = Duration::from_secs(366 * 24 * 3600);

/// The maximum time after which the whole burst is available. Together with this time, the clock in microseconds stays below
/// 2^53, up to which the numbers of Redis scripts are exact, and has 16 digits, by which maintenance recognizes it.
const MAX_WHOLE: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

impl Rate {
    /// Returns the rate of one start per `interval`. The interval is rounded up to microseconds; the maximum is 366 days.
    ///
    /// # Examples
    ///
    /// See [`Rate`].
    pub fn every(interval: Duration) -> Self {
        let micros = interval.min(MAX_INTERVAL).as_nanos().div_ceil(1_000);
        Self {
            interval_micros: micros as u64,
            burst: 1,
        }
    }

    /// Returns the rate of this many starts per second. The maximum is a million.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::Rate;
    ///
    /// assert_eq!(Rate::per_second(5), Rate::per_minute(300));
    /// ```
    pub fn per_second(tasks: u32) -> Self {
        Self::per(Duration::from_secs(1), tasks)
    }

    /// Returns the rate of this many starts per minute.
    ///
    /// # Examples
    ///
    /// See [`Rate`].
    pub fn per_minute(tasks: u32) -> Self {
        Self::per(Duration::from_secs(60), tasks)
    }

    /// Returns the rate of this many starts per hour.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::Rate;
    ///
    /// assert_eq!(Rate::per_hour(120), Rate::per_minute(2));
    /// ```
    pub fn per_hour(tasks: u32) -> Self {
        Self::per(Duration::from_secs(3600), tasks)
    }

    /// Sets the number of tasks that may start at once if none have started for a while. The default is 1. The maximum is the
    /// number that the rate allows in 100 years.
    ///
    /// # Examples
    ///
    /// See [`Rate`].
    #[must_use]
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }

    /// Returns the mean time between two starts.
    pub fn interval(self) -> Duration {
        Duration::from_micros(self.interval_micros)
    }

    /// Returns the number of tasks that may start at once if none have started for a while.
    pub fn burst_size(self) -> u32 {
        self.burst
    }

    fn per(time: Duration, tasks: u32) -> Self {
        match tasks {
            0 => Self {
                interval_micros: 0,
                burst: 1,
            },
            // Rounded up, so that the rate is never exceeded.
            tasks => Self::every(Duration::from_nanos(
                (time.as_nanos() as u64).div_ceil(u64::from(tasks)),
            )),
        }
    }

    /// Returns the time after which the whole burst is available, in microseconds.
    fn whole(self) -> u64 {
        self.interval_micros.saturating_mul(u64::from(self.burst))
    }
}

/// The stores without a server compute with these. The script `queues.lua` does the same in Redis.
#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
impl Rate {
    for_stores! {
        /// Returns the number of tasks that may start now. `used_until` is the time up to which the rate is used, in microseconds
        /// like `now`.
        fn available(self, used_until: u64, now: u64) -> u64 {
            let used = self.clamp(used_until, now) - now;
            (self.whole() - used) / self.interval_micros.max(1)
        }

        /// Returns the time up to which the rate is used once this many tasks have started. If it is before `used_until`, the clock
        /// was put back, and the new time must be stored even if no task has started.
        fn use_up(self, used_until: u64, now: u64, tasks: u64) -> u64 {
            let more = self.interval_micros.saturating_mul(tasks);
            self.clamp(used_until, now).saturating_add(more)
        }

        /// Returns the time until a task may start, in microseconds.
        fn wait(self, used_until: u64, now: u64) -> u64 {
            let used = self.clamp(used_until, now) - now;
            (used + self.interval_micros).saturating_sub(self.whole())
        }
    }

    /// Limits a stored time to the times that are possible now. If it is in the past, the whole burst is available. If it is
    /// further ahead than the burst takes, the clock was put back.
    fn clamp(self, used_until: u64, now: u64) -> u64 {
        used_until.clamp(now, now.saturating_add(self.whole()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rate_is_spaced_evenly() {
        let rate = Rate::per_minute(100).burst(3);
        let (mut used, mut starts) = (0, Vec::new());
        for now in (0..6_000_000).step_by(100_000) {
            let available = rate.available(used, now);
            used = rate.use_up(used, now, available);
            starts.extend((0..available).map(|_| now / 100_000));
        }
        assert_eq!(starts, [0, 0, 0, 6, 12, 18, 24, 30, 36, 42, 48, 54]);
    }

    #[test]
    fn impossible_settings_are_refused() {
        let settings = QueueSettings::new();
        assert_eq!(settings.check(), Ok(()));
        assert!(settings.max_running(0).check().is_err());
        assert!(settings.rate(Rate::per_hour(0)).check().is_err());
        assert!(settings.rate(Rate::per_hour(1).burst(0)).check().is_err());
        assert!(settings.rate(Rate::every(Duration::ZERO)).check().is_err());
        assert!(settings.grouped(Groups::new().quantum(0)).check().is_err());
    }

    /// The time up to which a rate is used must be a number that each store keeps exactly.
    #[test]
    fn a_burst_of_more_than_a_hundred_years_is_refused() {
        let settings = QueueSettings::new();
        let longest = Rate::every(Duration::MAX);
        assert_eq!(settings.rate(longest.burst(100)).check(), Ok(()));
        assert!(settings.rate(longest.burst(101)).check().is_err());
        let in_2026: u64 = 1_795_000_000_000_000;
        let used = longest.burst(100).use_up(0, in_2026, 100);
        assert!(used < 1 << 53 && used.to_string().len() == 16, "{used}");
        assert!(
            settings
                .rate(Rate::per_second(u32::MAX).burst(u32::MAX))
                .check()
                .is_ok()
        );
    }

    proptest! {
        /// In any period, at most `period / interval + burst` tasks start. After the wait that the rate asks for, at least one can
        /// start.
        #[test]
        fn a_rate_is_never_exceeded(
            interval in 1_u64..50,
            burst in 1_u32..5,
            steps in proptest::collection::vec((0_u64..40, 0_u64..8), 1..40),
        ) {
            let rate = Rate { interval_micros: interval, burst };
            let (mut now, mut used, mut starts) = (1_000, 0, Vec::new());
            for (pause, want) in steps {
                now += pause;
                let wait = rate.wait(used, now);
                prop_assert_eq!(wait == 0, rate.available(used, now) > 0);
                prop_assert!(rate.available(used, now + wait) > 0);
                let tasks = want.min(rate.available(used, now));
                used = rate.use_up(used, now, tasks);
                starts.extend((0..tasks).map(|_| now));
            }
            for (first, &from) in starts.iter().enumerate() {
                for (last, &to) in starts.iter().enumerate().skip(first) {
                    let most = (to - from) / interval + u64::from(burst);
                    prop_assert!((last - first + 1) as u64 <= most);
                }
            }
        }

        /// If the clock is put back, the next task can start after one interval at the latest.
        #[test]
        fn a_clock_that_is_put_back_stops_nothing_for_long(back in 0_u64..10_000) {
            let rate = Rate { interval_micros: 10, burst: 3 };
            let used = rate.use_up(0, 20_000, 3);
            prop_assert!(rate.wait(used, 20_000 - back) <= 10);
        }
    }
}
