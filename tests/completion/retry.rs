//! `Retry::run` and `Retry::run_if`, as jobs of a stream.

use std::any::Any;
use std::future::{Future, Ready, pending};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
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

/// Counts the calls of a closure that makes futures.
fn counted<F>(mut make: impl FnMut(u32) -> F) -> (Arc<AtomicU32>, impl FnMut(u32) -> F) {
    let calls = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&calls);
    let make = move |attempt| {
        assert_eq!(counter.fetch_add(1, Ordering::SeqCst) + 1, attempt);
        make(attempt)
    };
    (calls, make)
}

fn calls(counter: &AtomicU32) -> u32 {
    counter.load(Ordering::SeqCst)
}

/// Fails until the attempt with this number.
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
    let (tried, make) = counted(until(4));
    let id = jobs.submit(5, attempts(9).run(make)).await.ok().unwrap();
    let completed = within(done.next()).await.unwrap();
    assert_eq!((completed.id, completed.tag, calls(&tried)), (id, 5, 4));
    assert_eq!(completed.outcome.unwrap(), Ok(4));
    assert_eq!(jobs.in_flight(), 0);
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
        let job = attempts(limit).run(make);
        jobs.submit(tag, job).await.ok().unwrap();
        let completed = within(done.next()).await.unwrap();
        let last = if limit == 3 { "the last" } else { "no" };
        assert_eq!(completed.outcome.unwrap(), Err(last));
        assert_eq!(made.swap(0, Ordering::SeqCst), limit);
    }
}

/// An attempt takes 3 s and its delay up to 1 s, and the limit is 10 s.
#[tokio::test(start_paused = true)]
async fn no_attempt_begins_later_than_the_total_time_after_the_first_failure() {
    let (first, begun) = (
        Instant::now() + 3 * SECOND,
        Arc::new(Mutex::new(Vec::new())),
    );
    let starts = Arc::clone(&begun);
    let make = move |attempt| {
        starts.lock().unwrap().push(Instant::now());
        async move {
            tokio::time::sleep(3 * SECOND).await;
            Outcome::Err(if attempt == 1 {
                "the first"
            } else {
                "a later one"
            })
        }
    };
    let ended = attempts(u32::MAX).max_elapsed(10 * SECOND).run(make).await;
    assert_eq!(ended, Err("a later one"));
    let begun = begun.lock().unwrap();
    assert!(begun.last().unwrap().duration_since(first) <= 10 * SECOND);
    assert!((3..=5).contains(&begun.len()), "{begun:?}");
    // Nothing is awaited after the last attempt.
    assert_eq!(begun.last().unwrap().elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_tried_again_if_the_first_delay_exceeds_the_total_time() {
    let (tried, make) = counted(until(2));
    let retry = Retry::exponential().base(3600 * SECOND);
    let start = Instant::now();
    let ended = retry.max_elapsed(Duration::ZERO).run(make).await;
    assert_eq!((ended, calls(&tried)), (Err("not yet"), 1));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn waits_are_of_tokios_time_and_hold_no_future_and_no_outcome() {
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
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
    let (tried, make) = counted(make);
    jobs.submit((), hour.run(make)).await.ok().unwrap();
    eventually("it waits", || outputs.count() == 1).await;
    assert_eq!(futures.count(), 1);
    // Time passes by itself, if nothing else is to do.
    let _completed = done.next().await.unwrap();
    assert_eq!(calls(&tried), 3);
    // Up to one hour, and then up to two: at random, but not nothing.
    let waited = start.elapsed();
    assert!(
        waited > Duration::from_millis(1) && waited < 3 * 3601 * SECOND,
        "{waited:?}"
    );
    assert_eq!((futures.count(), outputs.count()), (3, 2));
}

/// Runs a job, and returns how often it was tried, and its outcome.
async fn run_if<F>(
    retry: Retry,
    make: impl FnMut(u32) -> F + Send + 'static,
    should_retry: impl FnMut(Result<&Outcome, &(dyn Any + Send)>) -> bool + Send + 'static,
) -> (u32, Result<Outcome, JoinError>)
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let (jobs, mut done) = unbounded();
    let (tried, make) = counted(make);
    let id = jobs.submit(0, retry.run_if(make, should_retry)).await;
    let completed = within(done.next()).await.unwrap();
    assert_eq!(completed.id, id.ok().unwrap());
    (calls(&tried), completed.outcome)
}

#[tokio::test(start_paused = true)]
async fn panics_are_tried_again_only_on_request() {
    let panics = |attempt| async move {
        assert!(attempt > 1, "attempt {attempt}");
        Outcome::Ok(attempt)
    };
    let failed = |tried: Result<&Outcome, &(dyn Any + Send)>| tried.is_ok_and(Result::is_err);
    let (tried, outcome) = run_if(attempts(5), panics, failed).await;
    assert_eq!(tried, 1);
    assert_eq!(message(outcome.unwrap_err().into_panic()), "attempt 1");

    let has_panicked = |tried: Result<&Outcome, &(dyn Any + Send)>| {
        tried.is_err_and(|payload| payload.is::<String>())
    };
    let (tried, outcome) = run_if(attempts(5), panics, has_panicked).await;
    assert_eq!((tried, outcome.unwrap()), (2, Ok(2)));

    // Also a panic of `make`. Errors are not tried again, because the closure says so.
    let make = |attempt| {
        assert!(attempt > 2, "attempt {attempt}");
        async { Outcome::Err("an error") }
    };
    let (tried, outcome) = run_if(attempts(5), make, has_panicked).await;
    assert_eq!((tried, outcome.unwrap()), (3, Err("an error")));

    // The last panic is the outcome.
    let make = |attempt: u32| async move { panic!("attempt {attempt}") };
    let (tried, outcome) = run_if(attempts(3), make, has_panicked).await;
    assert_eq!(tried, 3);
    assert_eq!(message(outcome.unwrap_err().into_panic()), "attempt 3");
}

#[tokio::test(start_paused = true)]
async fn the_closure_judges_outputs_while_an_attempt_is_left() {
    let asked = Arc::new(AtomicUsize::new(0));
    let asks = Arc::clone(&asked);
    let should_retry = move |tried: Result<&Outcome, &(dyn Any + Send)>| {
        asks.fetch_add(1, Ordering::SeqCst);
        matches!(tried, Ok(Err("503")))
    };
    let status = |attempt| async move { Outcome::Err(if attempt < 3 { "503" } else { "404" }) };
    let (tried, outcome) = run_if(attempts(9), status, should_retry.clone()).await;
    assert_eq!((tried, outcome.unwrap()), (3, Err("404")));
    assert_eq!(asked.swap(0, Ordering::SeqCst), 3);

    let unavailable = |_| async { Outcome::Err("503") };
    let (tried, _) = run_if(attempts(2), unavailable, should_retry).await;
    assert_eq!((tried, asked.load(Ordering::SeqCst)), (2, 1));

    let panics = |_: Result<&Outcome, &(dyn Any + Send)>| panic!("it judges");
    let (_, outcome) = run_if(attempts(2), unavailable, panics).await;
    assert_eq!(message(outcome.unwrap_err().into_panic()), "it judges");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_counts_as_running_and_survives_a_close() {
    let (jobs, mut done) = bounded(1, 2);
    let tried = Arc::new(AtomicU32::new(0));
    let tries = Arc::clone(&tried);
    let mut make = until(2);
    let make = move |attempt| {
        tries.store(attempt, Ordering::SeqCst);
        make(attempt)
    };
    let job = attempts(2).run(make);
    jobs.submit(0, job).await.ok().unwrap();
    eventually("it waits", || tried.load(Ordering::SeqCst) == 1).await;
    assert!(jobs.try_slot(1).unwrap_err().is_full());
    assert!(poll(&mut pin!(jobs.slot(1))).is_pending());
    assert_eq!((jobs.in_flight(), jobs.ready()), (1, 0));

    jobs.close();
    let completed = within(done.next()).await.unwrap();
    assert_eq!(completed.outcome.unwrap(), Ok(2));
    assert_eq!(calls(&tried), 2);
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
        let id = jobs.submit(0, year.run(make)).await.ok().unwrap();
        eventually("it began", || began.load(Ordering::SeqCst) == 1).await;
        assert!(jobs.abort(id));
        // In no time: the clock is paused, and goes on when nothing else is to do.
        let start = Instant::now();
        let completed = done.next().await.unwrap();
        assert!(completed.outcome.unwrap_err().is_cancelled());
        assert_eq!(captured.count(), 1);
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
    let job = attempts(u32::MAX).run(make);
    jobs.submit(0, job).await.ok().unwrap();
    eventually("it began", || began.load(Ordering::SeqCst) == 1).await;
    drop(done);
    eventually("it is dropped", || captured.count() == 1).await;
    assert_eq!(began.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_closed_stream_returns_the_job() {
    let (jobs, _done) = unbounded();
    jobs.close();
    let submitted = jobs.submit(7, attempts(2).run(until(1))).await;
    let (tag, job) = submitted.err().unwrap().into_inner();
    assert_eq!((tag, job.await), (7, Ok(1)));
    assert_eq!(jobs.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_drop_is_the_item() {
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    let captured = Drops::new();
    let drops = captured.clone();
    let make = move |_| {
        let bomb = PanicsOnDrop(drops.value());
        async move { Result::<(), _>::Err(bomb) }
    };
    jobs.submit((), attempts(3).run(make)).await.ok().unwrap();
    // The error of the first attempt is dropped before the second.
    let completed = within(done.next()).await.unwrap();
    let Err(error) = completed.outcome else {
        panic!("it was dropped");
    };
    assert_eq!(message(error.into_panic()), "the drop panics");
    assert_eq!(captured.count(), 1);
}

#[test]
fn without_time_the_first_wait_is_a_panic() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let (jobs, mut done) = unbounded();
    let _in = runtime.enter();
    let job = attempts(2).run(until(2));
    block_on(jobs.submit(0, job)).ok().unwrap();
    let error = block_on(done.next()).unwrap().outcome.unwrap_err();
    assert!(error.is_panic());
}
