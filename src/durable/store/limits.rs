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

/// The maximum time between two turns of an idle worker, which is also at most a lease. An idle worker is woken by messages;
/// but a wake-up may be lost with the process that owed it, and timers stand still while the machine sleeps.
pub const MAX_REST: Duration = Duration::from_secs(60);

/// Cuts a text to at most `max` bytes.
pub fn shortened(mut text: String, max: usize) -> String {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
