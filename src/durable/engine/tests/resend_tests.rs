//! Requests that are sent again until the store answers them, or for as long as a client is patient.

use super::*;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::resend::{STORE_TIMEOUT, resend};

#[tokio::test(start_paused = true)]
async fn a_busy_store_is_asked_again() {
    let timers = Handle::current();
    let mut answers = vec![
        Ok(7),
        Err(Cause::Busy),
        Err(Cause::Unavailable),
        Err(Cause::Busy),
    ];
    let settled = resend(&timers, || {
        let answer = answers.pop().expect("it is not asked after an answer");
        async { answer.map_err(|cause| Failure::new(Effect::None, cause)) }
    });
    assert_eq!(settled.await.expect("an answer in the end"), 7);
}

#[tokio::test(start_paused = true)]
async fn a_full_store_is_not_asked_again_and_what_is_unknown_stays_so() {
    let timers = Handle::current();
    for (first, effect) in [
        (Effect::None, Effect::None),
        (Effect::Unknown, Effect::Unknown),
    ] {
        let mut failures = vec![
            Failure::new(Effect::None, Cause::Full),
            Failure::new(first, Cause::Unavailable),
        ];
        let settled: Result<(), _> = resend(&timers, || {
            let failure = failures.pop().expect("it is not asked after `Full`");
            async { Err(failure) }
        })
        .await;
        let failure = settled.expect_err("it is full");
        assert_eq!((failure.effect, failure.cause), (effect, Cause::Full));
    }
}

#[tokio::test(start_paused = true)]
async fn patience_ends() {
    let start = tokio::time::Instant::now();
    let settled: Result<(), _> = resend(&Handle::current(), || async { Err(lost()) }).await;
    let failure = settled.expect_err("it never answers");
    assert_eq!(failure.effect, Effect::Unknown);
    assert!(start.elapsed() <= STORE_TIMEOUT, "{:?}", start.elapsed());
    assert!(
        start.elapsed() >= STORE_TIMEOUT / 2,
        "{:?}",
        start.elapsed()
    );
}
