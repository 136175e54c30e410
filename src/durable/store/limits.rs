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

/// The mean rest of an idle session, in leases, is the number of idle sessions divided by this one.
const SESSIONS_PER_LEASE: usize = 32;
/// The maximum mean rest, in leases.
const MAX_MEAN_REST: usize = 4;

/// Returns the time after which an idle session looks for tasks if no message wakes it. This is a lease or, if many sessions are idle, a
/// random time. It is at most [`MAX_REST`].
///
/// At least one idle session must look during each lease, so that the claims of a worker that dies are seen before they end. If many
/// sessions are idle, each may rest for longer, because another one looks meanwhile. From 64 idle sessions on, the probability that none
/// of them looks during a lease is below one in ten million, provided that their leases are equal.
pub(crate) fn rest(lease: Duration, idle_sessions: usize) -> Duration {
    let leases = (idle_sessions / SESSIONS_PER_LEASE).clamp(1, MAX_MEAN_REST) as u32;
    let longest = lease.saturating_mul(2 * leases).min(MAX_REST);
    // A random time is not to be shorter than a lease on average.
    match leases > 1 && longest >= lease.saturating_mul(2) {
        true => longest.mul_f64(fastrand::f64()),
        false => lease.min(MAX_REST),
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
    fn a_long_lease_is_not_cut_in_half() {
        for lease in [
            MAX_REST / 2 + Duration::from_nanos(1),
            MAX_REST,
            9 * MAX_REST,
        ] {
            assert_eq!(rest(lease, 1_000), lease.min(MAX_REST));
        }
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
