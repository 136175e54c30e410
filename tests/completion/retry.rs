//! Jobs that are tried again.

use std::future::{Ready, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use throng::{CompletionStream, JoinError, Retry};
use tokio::time::Instant;

use super::support::{Drops, PanicsOnDrop, block_on, eventually, message, poll, within};
use super::{bounded, unbounded};

const SECOND: Duration = Duration::from_secs(1);

type Outcome = Result<u32, &'static str>;

/// Several attempts, a second apart at most.
fn attempts(attempts: u32) -> Retry {
    Retry::exponential()
        .attempts(attempts)
        .base(SECOND)
        .cap(SECOND)
}

/// Fails until it is tried for the `succeeds`th time.
fn until(succeeds: u32) -> impl FnMut(u32) -> Ready<Outcome> {
    move |attempt| {
        std::future::ready(if attempt < succeeds {
            Err("not yet")
        } else {
            Ok(attempt)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_is_tried_until_it_succeeds() {
    let (jobs, mut done) = unbounded();
    let id = jobs.submit_retry(5, attempts(9), until(4)).await.unwrap();
    let completed = within(done.next()).await.unwrap();
    assert_eq!(
        (completed.id, completed.tag, completed.attempts),
        (id, 5, 4)
    );
    assert_eq!(completed.outcome.unwrap(), Ok(4));
    assert_eq!(jobs.in_flight(), 0);

    // What is submitted next under the same key was tried once.
    jobs.submit(6, async { Ok(0) }).await.unwrap();
    assert_eq!(within(done.next()).await.unwrap().attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn attempts_end_and_the_last_outcome_counts() {
    let (jobs, mut done) = unbounded();
    let made = Arc::new(AtomicU32::new(0));
    for (limit, tag) in [(1, 0), (3, 1)] {
        let makes = Arc::clone(&made);
        let make = move |attempt| {
            makes.fetch_add(1, Ordering::SeqCst);
            async move {
                if attempt == 3 {
                    Err("the last")
                } else {
                    Outcome::Err("no")
                }
            }
        };
        jobs.submit_retry(tag, attempts(limit), make).await.unwrap();
        let completed = within(done.next()).await.unwrap();
        assert_eq!(completed.attempts, limit);
        let last = if limit == 3 { "the last" } else { "no" };
        assert_eq!(completed.outcome.unwrap(), Err(last));
        assert_eq!(made.swap(0, Ordering::SeqCst), limit);
    }
}

#[tokio::test(start_paused = true)]
async fn waits_are_of_tokios_time_and_hold_no_future_and_no_outcome() {
    let (jobs, mut done) = CompletionStream::builder().build();
    let (futures, outputs) = (Drops::new(), Drops::new());
    let (future, output) = (futures.clone(), outputs.clone());
    let make = move |attempt: u32| {
        let (future, output) = (future.value(), output.value());
        async move {
            tokio::task::yield_now().await;
            drop(future);
            if attempt == 3 {
                Ok(output)
            } else {
                Err(output)
            }
        }
    };
    let hour = Retry::exponential().base(3600 * SECOND);
    let start = Instant::now();
    jobs.submit_retry((), hour, make).await.ok().unwrap();
    eventually("it waits", || outputs.count() == 1).await;
    assert_eq!(futures.count(), 1);
    // Time passes by itself, if nothing else is to do.
    let completed = done.next().await.unwrap();
    assert_eq!(completed.attempts, 3);
    // Up to one hour, and then up to two: at random, but not nothing.
    let waited = start.elapsed();
    assert!(
        waited > Duration::from_millis(1) && waited < 3 * 3601 * SECOND,
        "{waited:?}"
    );
    assert_eq!((futures.count(), outputs.count()), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn panics_are_tried_again_only_on_request() {
    let (jobs, mut done) = unbounded();
    let panics = |attempt| async move {
        assert!(attempt > 1, "attempt {attempt}");
        Outcome::Ok(attempt)
    };
    jobs.submit_retry(0, attempts(5), panics).await.unwrap();
    let completed = within(done.next()).await.unwrap();
    assert_eq!(completed.attempts, 1);
    let error = completed.outcome.unwrap_err();
    assert_eq!(
        (error.id(), message(error.into_panic())),
        (completed.id, "attempt 1".into())
    );

    let of_panics = |outcome: Result<&Outcome, &JoinError>| outcome.is_err_and(JoinError::is_panic);
    jobs.submit_retry_if(1, attempts(5), panics, of_panics)
        .await
        .unwrap();
    let completed = within(done.next()).await.unwrap();
    assert_eq!((completed.attempts, completed.outcome.unwrap()), (2, Ok(2)));

    // Where futures are made, too; and errors are not, if the closure says so.
    let make = |attempt| {
        assert!(attempt > 2, "attempt {attempt}");
        async { Outcome::Err("an error") }
    };
    jobs.submit_retry_if(2, attempts(5), make, of_panics)
        .await
        .unwrap();
    let completed = within(done.next()).await.unwrap();
    assert_eq!(
        (completed.attempts, completed.outcome.unwrap()),
        (3, Err("an error"))
    );

    // The last panic is the item.
    let make = |attempt: u32| async move { panic!("attempt {attempt}") };
    jobs.submit_retry_if(3, attempts(3), make, of_panics)
        .await
        .unwrap();
    let completed = within(done.next()).await.unwrap();
    assert_eq!(completed.attempts, 3);
    assert_eq!(
        message(completed.outcome.unwrap_err().into_panic()),
        "attempt 3"
    );
}

#[tokio::test(start_paused = true)]
async fn outputs_of_any_type_are_judged() {
    let (jobs, mut done) = unbounded();
    let asked = Arc::new(AtomicUsize::new(0));
    let asks = Arc::clone(&asked);
    let again = move |status: Result<&u16, &JoinError>| {
        asks.fetch_add(1, Ordering::SeqCst);
        status.is_ok_and(|status| *status >= 500)
    };
    let status = |attempt| async move { if attempt < 3 { 503 } else { 404 } };
    jobs.submit_retry_if(0, attempts(9), status, again.clone())
        .await
        .unwrap();
    let completed = within(done.next()).await.unwrap();
    assert_eq!((completed.attempts, completed.outcome.unwrap()), (3, 404));
    assert_eq!(asked.swap(0, Ordering::SeqCst), 3);

    // Not where no attempt is left.
    jobs.submit_retry_if(1, attempts(2), |_| async { 500 }, again)
        .await
        .unwrap();
    assert_eq!(within(done.next()).await.unwrap().attempts, 2);
    assert_eq!(asked.load(Ordering::SeqCst), 1);

    let judge = |_: Result<&u16, &JoinError>| panic!("it judges");
    jobs.submit_retry_if(2, attempts(2), |_| async { 500 }, judge)
        .await
        .unwrap();
    let error = within(done.next()).await.unwrap().outcome.unwrap_err();
    assert_eq!(message(error.into_panic()), "it judges");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_keeps_its_place_and_is_left_its_attempts() {
    let (jobs, mut done) = bounded(1, 2);
    let tried = Arc::new(AtomicU32::new(0));
    let tries = Arc::clone(&tried);
    let mut make = until(2);
    let make = move |attempt| {
        tries.store(attempt, Ordering::SeqCst);
        make(attempt)
    };
    jobs.submit_retry(0, attempts(2), make).await.unwrap();
    eventually("it waits", || tried.load(Ordering::SeqCst) == 1).await;
    assert!(jobs.try_slot(1).unwrap_err().is_full());
    assert!(poll(&mut pin!(jobs.slot(1))).is_pending());
    assert_eq!((jobs.in_flight(), jobs.ready()), (1, 0));

    jobs.close();
    let completed = within(done.next()).await.unwrap();
    assert_eq!((completed.attempts, completed.outcome.unwrap()), (2, Ok(2)));
    assert!(within(done.next()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_it_while_it_waits_and_while_it_runs() {
    for waits in [true, false] {
        let (jobs, mut done) = unbounded::<Outcome>();
        let (captured, began) = (Drops::new(), Arc::new(AtomicUsize::new(0)));
        let (value, begins) = (captured.value(), Arc::clone(&began));
        let make = move |_| {
            let _value = &value;
            begins.fetch_add(1, Ordering::SeqCst);
            async move {
                match waits {
                    true => Err("again"),
                    false => pending().await,
                }
            }
        };
        let year = Retry::exponential()
            .base(365 * 86_400 * SECOND)
            .cap(365 * 86_400 * SECOND);
        let id = jobs.submit_retry(0, year, make).await.unwrap();
        eventually("it began", || began.load(Ordering::SeqCst) == 1).await;
        assert!(jobs.abort(id));
        // In no time: the clock is paused, and goes on when nothing else is to do.
        let start = Instant::now();
        let completed = done.next().await.unwrap();
        assert!(completed.outcome.unwrap_err().is_cancelled());
        assert_eq!((completed.attempts, captured.count()), (1, 1));
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(began.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_ends_it_while_it_waits() {
    let (jobs, done) = unbounded::<Outcome>();
    let (captured, began) = (Drops::new(), Arc::new(AtomicUsize::new(0)));
    let (value, begins) = (captured.value(), Arc::clone(&began));
    let make = move |_| {
        let _value = &value;
        begins.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Outcome::Err("again"))
    };
    jobs.submit_retry(0, attempts(u32::MAX), make)
        .await
        .unwrap();
    eventually("it began", || began.load(Ordering::SeqCst) == 1).await;
    drop(done);
    eventually("it is dropped", || captured.count() == 1).await;
    assert_eq!(began.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_closed_stream_hands_tag_and_maker_back() {
    let (jobs, _done) = unbounded();
    jobs.close();
    let error = jobs
        .submit_retry(7, attempts(2), until(1))
        .await
        .unwrap_err();
    assert!(error.is_closed());
    let (tag, mut make) = error.into_inner();
    assert_eq!((tag, make(3).await), (7, Ok(3)));
    assert_eq!(jobs.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_drop_is_the_item() {
    let (jobs, mut done) = CompletionStream::builder().build();
    let captured = Drops::new();
    let drops = captured.clone();
    let make = move |_| {
        let bomb = PanicsOnDrop(drops.value());
        async move { Result::<(), _>::Err(bomb) }
    };
    jobs.submit_retry((), attempts(3), make).await.ok().unwrap();
    // The error of the first attempt, which nobody wants.
    let completed = within(done.next()).await.unwrap();
    let Err(error) = completed.outcome else {
        panic!("it was dropped");
    };
    assert_eq!(message(error.into_panic()), "the drop panics");
    assert_eq!((completed.attempts, captured.count()), (1, 1));
}

#[test]
fn without_time_the_first_wait_is_a_panic() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let (jobs, mut done) = unbounded();
    let _in = runtime.enter();
    block_on(jobs.submit_retry(0, attempts(2), until(2))).unwrap();
    let error = block_on(done.next()).unwrap().outcome.unwrap_err();
    assert!(error.is_panic());
}
