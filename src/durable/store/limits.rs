//! The limits of what a store keeps.

use std::time::Duration;

/// A store that can be restored from a copy records a *ceiling*: a number that the epochs of the next minutes do not
/// exceed. The store keeps the ceiling this far above the last epoch and above the time: each claim, each pass of
/// maintenance and each worker that opens a session raises a lower ceiling, to one and a half times this distance. So
/// maintenance may be five minutes late, and a copy that is five minutes old still has a ceiling above all epochs that
/// it lacks.
#[cfg_attr(
    not(any(feature = "redis", feature = "sqlite-unbundled")),
    allow(dead_code, reason = "other stores count epochs without a ceiling")
)]
pub const CEILING_AHEAD: Duration = Duration::from_secs(600);

/// The maximum number of errors of attempts that a store keeps of a task: the last ones.
pub const MAX_ERRORS: usize = 8;
/// The maximum size in bytes of the last error of a task.
pub const MAX_ERROR_BYTES: usize = 2048;
/// The maximum size in bytes of the error of an attempt after which the task is tried again, and of that of a dead child. A task
/// has several of these.
pub const MAX_ATTEMPT_ERROR_BYTES: usize = 1024;

/// The time for which a dead letter is kept by default.
pub const DEAD_LETTER_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// The maximum number of dead letters that are kept by default: the newest ones.
pub const MAX_DEAD_LETTERS: u64 = 10_000;
/// The maximum by which one pass of maintenance advances store time. The time for which ends are kept is measured in store
/// time, since the clock can be set: see `PROTOCOL.md`.
#[cfg(any(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "unstable-store"
))]
pub const MAX_STORE_TIME_STEP: Duration = Duration::from_secs(60);

/// The maximum time between two turns of an idle worker. An idle worker is woken by messages; but a wake-up may be lost with the process
/// that owed it, and timers stand still while the machine sleeps.
pub const MAX_REST: Duration = Duration::from_secs(60);

/// The number of idle sessions of which the mean rest of each is one lease longer.
const SESSIONS_PER_LEASE: usize = 32;
/// The maximum of the mean rest, in leases.
const MAX_MEAN_REST: usize = 4;

/// Returns the time after which an idle session looks for tasks if no message wakes it: a lease, or a random time if many sessions are idle.
///
/// An idle session looks in each lease, so that the claims of a worker that dies are seen before they end. If many sessions are idle, it need
/// not always be the same one. From 64 on, the probability that none of them looks during a lease is below one in ten million, provided
/// that their leases are equal.
pub(crate) fn rest(lease: Duration, idle_sessions: usize) -> Duration {
    match (idle_sessions / SESSIONS_PER_LEASE).clamp(1, MAX_MEAN_REST) {
        1 => lease.min(MAX_REST),
        leases => {
            let longest = lease.saturating_mul(2 * leases as u32);
            longest.min(MAX_REST).mul_f64(fastrand::f64())
        }
    }
}

/// Cuts a text to at most `max` bytes.
pub fn shortened(mut text: String, max: usize) -> String {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(6);

    #[test]
    fn a_few_idle_sessions_look_once_in_a_lease() {
        for idle in [0, 1, SESSIONS_PER_LEASE, 2 * SESSIONS_PER_LEASE - 1] {
            assert_eq!(rest(LEASE, idle), LEASE, "{idle}");
        }
        assert_eq!(rest(2 * MAX_REST, 1), MAX_REST);
    }

    #[test]
    fn many_idle_sessions_look_as_often_together() {
        for (idle, leases) in [(2, 2), (3, 3), (4, 4), (1_000, 4)] {
            let rests: Vec<_> = (0..10_000)
                .map(|_| rest(LEASE, idle * SESSIONS_PER_LEASE))
                .collect();
            assert!(rests.iter().all(|&it| it < 2 * leases * LEASE));
            let mean = rests.iter().sum::<Duration>() / 10_000;
            let expected = leases * LEASE;
            assert!(mean.abs_diff(expected) < expected / 20, "{idle}: {mean:?}");
        }
    }
}
