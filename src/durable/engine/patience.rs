//! How long a store that fails is asked again.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep};

use crate::durable::error::{Cause, Effect, Failure};
use crate::retry::Retry;

/// The waits between two requests to a store that fails.
pub(crate) const BACKOFF: Retry = Retry::exponential()
    .attempts(u32::MAX)
    .base(Duration::from_millis(20))
    .cap(Duration::from_secs(2));

/// How long somebody who waits for an answer is kept waiting by a store that fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a request until its effect is known, or for as long as that makes sense.
///
/// `send` must send the same request each time, one that takes effect once. When the effect stays
/// unknown, so does that of the failure. The caller need not have a runtime: `timers` has one.
pub(crate) async fn settle<T, F>(timers: &Handle, mut send: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let end = Instant::now() + PATIENCE;
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
        if !may_pass(&failure) || Instant::now() + wait > end {
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

/// Whether the same request may succeed soon.
fn may_pass(failure: &Failure) -> bool {
    match failure.cause {
        _ if failure.answered => false,
        Cause::NoSession => false,
        Cause::Busy | Cause::Unavailable => true,
        _ => failure.effect == Effect::Unknown,
    }
}
