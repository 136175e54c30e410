//! How durations and times are read and written.

use std::time::{Duration, SystemTime};

/// Writes a duration with its two largest units, such as `3m12s`.
pub(crate) fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if seconds == 0 => format!("{}ms", time.as_millis()),
        () if minutes == 0 => format!("{seconds}s"),
        () if hours == 0 => format!("{minutes}m{:02}s", seconds % 60),
        () if days == 0 => format!("{hours}h{:02}m", minutes % 60),
        () => format!("{days}d{:02}h", hours % 24),
    }
}

/// Writes a time in UTC, to the second.
pub(crate) fn utc(time: SystemTime) -> String {
    // The library panics on times that its format cannot represent, which come from a damaged store at most.
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let time = time.clamp(SystemTime::UNIX_EPOCH, last);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Returns the milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Reads a duration such as `30d` or `1h 30m`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}: write a duration such as `90s`, `15m` or `30d`"))
}

/// Reads a time such as `2026-11-26T14:05:07Z`.
pub(crate) fn parse_time(text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339_weak(text)
        .map_err(|error| format!("{error}: write a time in UTC such as `2026-11-26T14:05:07Z`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let texts = [
            (0, "0ms"),
            (59, "59s"),
            (192, "3m12s"),
            (7_500, "2h05m"),
            (273_600, "3d04h"),
        ];
        for (seconds, text) in texts {
            assert_eq!(short(Duration::from_secs(seconds)), text);
        }
        assert_eq!(short(Duration::from_millis(7)), "7ms");
    }

    #[test]
    fn times_that_cannot_be_written_are_cut() {
        assert_eq!(utc(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00Z");
        let late = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(utc(late), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(parse("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert!(parse("soon").is_err_and(|error| error.contains("`15m`")));
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        assert_eq!(parse_time(&utc(time)), Ok(time));
    }
}
