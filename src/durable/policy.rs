//! [`Policy`]: how often a task is tried again, and how long a run may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::retry::Retry;

/// The number of times that a task is tried again, and the time that a run of it may take. A spawn, a type and an executor each have a
/// policy. The first of them in which a field is not `None` determines the field: see [`or`](Self::or).
///
/// A policy is stored with a task or a schedule. It consists of flags in one byte (1: there is a [`Retry`]; 2: there is a timeout), the
/// `Retry`, if there is one, and the timeout, if there is one. A `Retry` consists of the number of attempts in 4 bytes, and of three
/// times: `base`, `cap`, and `max_elapsed`, which is the highest number if there is no limit. Each time is in nanoseconds, in 8 bytes.
/// All numbers are big-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<u8>", try_from = "Vec<u8>")]
pub(crate) struct Policy {
    pub(crate) retry: Option<Retry>,
    pub(crate) timeout: Option<Duration>,
}

/// The maximum number of bytes of a policy as it is stored.
pub(crate) const MAX_POLICY_BYTES: usize = 1 + (4 + 3 * 8) + 8;
const HAS_RETRY: u8 = 1;
const HAS_TIMEOUT: u8 = 2;

impl Policy {
    /// The policy of a task that was spawned without one.
    pub(crate) const DEFAULT: Self = Self {
        retry: None,
        timeout: None,
    };

    /// Returns this policy, with the fields of `other` in place of those that are `None`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            retry: self.retry.or(other.retry),
            timeout: self.timeout.or(other.timeout),
        }
    }

    /// Checks the options of a spawn.
    ///
    /// # Errors
    ///
    /// A task cannot have this policy. The error contains the reason and the remedy.
    pub(crate) fn check(self) -> Result<Self, String> {
        match self.timeout {
            Some(Duration::ZERO) => Err(String::from(
                "`timeout` is 0, so no run could succeed: use a longer timeout, or none",
            )),
            _ => Ok(self),
        }
    }

    /// Returns the policy as it is stored.
    pub(crate) fn encode(self) -> Vec<u8> {
        let flag = |is_there, flag| if is_there { flag } else { 0 };
        let flags =
            flag(self.retry.is_some(), HAS_RETRY) | flag(self.timeout.is_some(), HAS_TIMEOUT);
        let mut stored = vec![flags];
        if let Some(retry) = self.retry {
            stored.extend(retry.attempts.to_be_bytes());
            let max_elapsed = retry.max_elapsed.unwrap_or(Duration::MAX);
            for time in [retry.base, retry.cap, max_elapsed] {
                stored.extend(nanos(time).to_be_bytes());
            }
        }
        stored.extend(
            self.timeout
                .map(|time| nanos(time).to_be_bytes())
                .iter()
                .flatten(),
        );
        stored
    }

    /// Reads a policy at the beginning of `stored`. Also returns the remaining bytes. Returns `None` if the policy cannot be read.
    pub(crate) fn decode(stored: &[u8]) -> Option<(Self, &[u8])> {
        let (&flags, mut rest) = stored.split_first()?;
        let mut policy = Self::DEFAULT;
        if flags & HAS_RETRY != 0 {
            let (attempts, times) = rest.split_first_chunk()?;
            let (base, times) = split_time(times)?;
            let (cap, times) = split_time(times)?;
            let (max_elapsed, times) = split_time(times)?;
            policy.retry = Some(Retry {
                attempts: u32::from_be_bytes(*attempts),
                base,
                cap,
                max_elapsed: Some(max_elapsed).filter(|&time| nanos(time) < u64::MAX),
            });
            rest = times;
        }
        if flags & HAS_TIMEOUT != 0 {
            let (timeout, others) = split_time(rest)?;
            (policy.timeout, rest) = (Some(timeout), others);
        }
        (flags <= HAS_RETRY | HAS_TIMEOUT).then_some((policy, rest))
    }
}

/// Returns the nanoseconds of a time, or the highest number if the time exceeds 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn split_time(stored: &[u8]) -> Option<(Duration, &[u8])> {
    let (nanos, rest) = stored.split_first_chunk()?;
    Some((Duration::from_nanos(u64::from_be_bytes(*nanos)), rest))
}

impl From<Policy> for Vec<u8> {
    fn from(policy: Policy) -> Self {
        policy.encode()
    }
}

impl TryFrom<Vec<u8>> for Policy {
    type Error = &'static str;

    fn try_from(stored: Vec<u8>) -> Result<Self, Self::Error> {
        match Self::decode(&stored) {
            Some((policy, [])) => Ok(policy),
            _ => Err("it is not a policy"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_stored_policy_can_be_read() {
        let unlimited = Retry::exponential().attempts(3).base(SECOND / 7);
        for retry in [None, Some(unlimited), Some(unlimited.max_elapsed(SECOND))] {
            for timeout in [None, Some(SECOND), Some(Duration::from_nanos(u64::MAX))] {
                let policy = Policy { retry, timeout };
                let stored = policy.encode();
                assert_eq!(Policy::decode(&stored), Some((policy, &[][..])));
                let longer = [&stored[..], b"rest"].concat();
                assert_eq!(Policy::decode(&longer), Some((policy, &b"rest"[..])));
                for len in 0..stored.len() {
                    assert_eq!(Policy::decode(&stored[..len]), None, "{policy:?} {len}");
                }
            }
        }
        assert_eq!(Policy::decode(&[4]), None, "an unknown flag");
    }

    #[test]
    fn a_time_that_is_too_long_to_store_is_as_long_as_possible() {
        let policy = Policy {
            retry: Some(
                Retry::exponential()
                    .cap(Duration::MAX)
                    .max_elapsed(Duration::MAX),
            ),
            timeout: Some(Duration::MAX),
        };
        let (read, _) = Policy::decode(&policy.encode()).unwrap();
        let longest = Duration::from_nanos(u64::MAX);
        assert_eq!(read.timeout, Some(longest));
        assert_eq!(read.retry, Some(Retry::exponential().cap(longest)));
    }

    #[test]
    fn the_first_policy_that_decides_is_used() {
        let retries = [3, 5].map(|attempts| Some(Retry::exponential().attempts(attempts)));
        let spawn = Policy {
            retry: retries[0],
            timeout: None,
        };
        let of_type = Policy {
            retry: retries[1],
            timeout: Some(SECOND),
        };
        let both = spawn.or(of_type);
        assert_eq!((both.retry, both.timeout), (retries[0], Some(SECOND)));
        assert_eq!(Policy::DEFAULT.or(of_type), of_type);
    }

    #[test]
    fn a_timeout_of_zero_is_refused() {
        let policy = |timeout| Policy {
            timeout,
            ..Policy::DEFAULT
        };
        assert!(
            policy(Some(Duration::ZERO))
                .check()
                .unwrap_err()
                .contains("`timeout` is 0")
        );
        for timeout in [None, Some(Duration::from_nanos(1)), Some(Duration::MAX)] {
            assert_eq!(policy(timeout).check(), Ok(policy(timeout)));
        }
    }
}
