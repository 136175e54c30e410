//! [`resend`]: sends a request again while its store fails.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep};

use super::failure::{Cause, Effect, Failure};
use crate::retry::Retry;

/// The pauses between two requests to a store that fails.
pub(crate) const BACKOFF: Retry = Retry::exponential()
    .attempts(u32::MAX)
    .base(Duration::from_millis(20))
    .cap(Duration::from_secs(2));

/// The maximum time for which a caller waits while the store fails. If only a part of it fails, a caller may wait for longer.
pub(crate) const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a request again until the store answers, a failure is final, or [`STORE_TIMEOUT`] is over.
///
/// `send` must send the same request each time, and the request must take effect at most once. If one of the attempts
/// may have taken effect, the final failure says so. The caller need not be in a runtime: `timers` drives the pauses.
pub(crate) async fn resend<T, F>(timers: &Handle, mut send: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let end = Instant::now() + STORE_TIMEOUT;
    let (mut failures, mut effect) = (0, Effect::None);
    loop {
        let mut failure = match send().await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        if failure.effect == Effect::Unknown {
            effect = Effect::Unknown;
        }
        failures += 1;
        let wait = BACKOFF.delay(failures).unwrap_or_default();
        if !may_succeed(&failure) || Instant::now() + wait > end {
            failure.effect = effect;
            return Err(failure);
        }
        pause(timers, wait).await;
    }
}

fn pause(timers: &Handle, wait: Duration) -> Sleep {
    let _entered = timers.enter();
    sleep(wait)
}

/// Returns `true` if the same request may succeed soon.
pub(crate) fn may_succeed(failure: &Failure) -> bool {
    match failure.cause {
        _ if failure.answered => false,
        Cause::NoSession => false,
        Cause::Busy | Cause::Unavailable => true,
        _ => failure.effect == Effect::Unknown,
    }
}

/// Returns `true` if a request has had no effect because its session has ended.
pub(crate) fn may_succeed_in_another_session(failure: &Failure) -> bool {
    failure.cause == Cause::NoSession && failure.effect == Effect::None
}
