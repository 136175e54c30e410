//! [`OtherClaims`]: how often an idle worker checks whether the workers of other processes have died.

use std::time::Duration;

use super::time::Now;
use crate::sync::{Mutex, lock};

/// The first interval between checks after another process has claimed tasks.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The longest interval between checks while there are other processes: one of them may have claimed tasks since, or
/// may have died after it received a wake-up.
pub(super) const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(2500);

/// The claims of other processes, as far as this process has observed them.
#[derive(Default)]
pub(super) struct OtherClaims {
    /// The newest of these claims, and when this process first saw it.
    newest: Mutex<Option<(i64, i64)>>,
}

impl OtherClaims {
    /// Returns the time until the next check for dead workers. It is the time for which no other process has made a new
    /// claim. So the tasks of a dead process wait no longer than they have run, and a long task costs an idle
    /// worker few checks.
    pub(super) fn check_interval(&self, newest: i64, now: Now) -> Duration {
        let mut known = lock(&self.newest);
        let since = match *known {
            Some((known, since)) if newest <= known => since,
            _ => now.boot,
        };
        *known = Some((newest, since));
        let unchanged = u64::try_from(now.boot - since).unwrap_or_default();
        Duration::from_millis(unchanged).clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL)
    }
}
