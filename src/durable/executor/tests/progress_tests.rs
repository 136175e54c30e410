//! Reports of progress: when they are sent, and what streams receive.

use futures::StreamExt;

use super::*;
use crate::durable::StopReason;
use crate::durable::progress_stream::ProgressStream;
use crate::sync::Number as Count;

/// The requests of clients, with the times at which they were sent.
type Requests = StdArc<Mutex<Vec<(&'static str, Instant)>>>;

/// A client that records its requests.
fn recording_client(store: &MemoryStore) -> (DurableClient, Requests) {
    let requests = Requests::default();
    let recorded = StdArc::clone(&requests);
    let client = client_with(store, move |name| {
        lock(&recorded).push((name, Instant::now()));
        Box::pin(async { Ok(()) })
    });
    (client, requests)
}

/// Returns the number of requests of a kind.
fn count(requests: &Requests, name: &str) -> usize {
    let requests = lock(requests);
    requests.iter().filter(|request| request.0 == name).count()
}

/// Waits until a stream yields a value.
async fn yields(stream: &mut ProgressStream<u64>, expected: u64) {
    while stream.next().await.unwrap().unwrap() != expected {}
}

/// Returns a policy that retries after about a second.
fn later() -> Retry {
    Retry::exponential()
        .base(Duration::from_secs(1))
        .attempts(2)
}

#[tokio::test(start_paused = true)]
async fn many_reports_in_a_second_cause_few_requests() {
    let store = MemoryStore::new();
    let (client, requests) = recording_client(&store);
    let app = App::new(|_, cx| async move {
        for number in 0..100_000_u64 {
            cx.progress(&number);
            if number.is_multiple_of(100) {
                sleep(Duration::from_millis(1)).await;
            }
        }
        cx.stopped().await;
        Ok(0)
    });
    let _executor = builder(&client).start(app).await.unwrap();
    let handle = spawn(&client, 1).await.unwrap();
    let begun = Instant::now();
    // This client stands for another process.
    let other = client_of(&store);
    let mut stream = other.attach::<Number>(handle.id()).progress();
    yields(&mut stream, 99_999).await;
    let taken = begun.elapsed();
    assert!(taken < Duration::from_secs(4), "{taken:?}");
    let sent = count(&requests, "report_progress");
    assert!((2..=3).contains(&sent), "{sent}");
    handle.cancel().await.unwrap();
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_reports_of_many_runs_are_sent_together() {
    const RUNS: u64 = 600;
    let store = MemoryStore::new();
    let (client, requests) = recording_client(&store);
    let app = App::new(|number, cx| async move {
        loop {
            cx.progress(&number);
            sleep(Duration::from_millis(100)).await;
        }
    });
    let mut builder = builder(&client);
    let _executor = builder.max_running(1000).start(app).await.unwrap();
    let tasks = (0..RUNS).map(|number| (Number(number), SpawnOptions::new().id(id(number))));
    client.spawn_all_with(tasks).await.unwrap();
    let (other, looks) = recording_client(&store);
    let mut streams: Vec<ProgressStream<u64>> = (0..RUNS)
        .map(|number| other.attach::<Number>(id(number)).progress())
        .collect();
    for (number, stream) in (0..).zip(&mut streams) {
        yields(stream, number).await;
    }
    let before = count(&requests, "report_progress");
    sleep(Duration::from_secs(10)).await;
    let sent = count(&requests, "report_progress") - before;
    assert!((27..=33).contains(&sent), "{sent}");
    // No stream is awaited.
    let before = count(&looks, "progress");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(count(&looks, "progress"), before);
    // All of them are awaited.
    let mut all = futures::stream::select_all(streams);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        all.next().await.unwrap().unwrap();
    }
    let asked = count(&looks, "progress") - before;
    assert!((50..=70).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn progress_is_at_most_two_seconds_old() {
    let store = MemoryStore::new();
    let client = client_of(&store);
    let begun = Instant::now();
    let app = App::new(move |_, cx| async move {
        loop {
            cx.progress(&(begun.elapsed().as_millis() as u64));
            sleep(Duration::from_millis(7)).await;
        }
    });
    let _executor = builder(&client).start(app).await.unwrap();
    let handle = spawn(&client, 1).await.unwrap();
    let other = client_of(&store);
    let mut stream = other.attach::<Number>(handle.id()).progress();
    let (mut last, mut values) = (0, 0);
    while begun.elapsed() < Duration::from_secs(60) {
        let value: u64 = stream.next().await.unwrap().unwrap();
        assert!(values == 0 || value > last, "{value} after {last}");
        let age = begun.elapsed() - Duration::from_millis(value);
        assert!(age < Duration::from_secs(2), "{age:?}");
        (last, values) = (value, values + 1);
    }
    assert!(values > 50, "{values}");
}

#[tokio::test(start_paused = true)]
async fn the_next_run_reads_the_last_report_of_a_failed_one() {
    let (client, requests) = recording_client(&MemoryStore::new());
    let app = App::new(|_, cx| async move {
        if cx.attempt() > 1 {
            return Ok(cx.last_progress().await?.unwrap_or_default());
        }
        for number in 1..=3_u64 {
            cx.progress(&number);
            // The first report is sent at once, the others are not.
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(cx.last_progress().await?, Some(3_u64));
        Err(TaskError::retry("not yet"))
    });
    let _executor = builder(&client).retry(later()).start(app).await.unwrap();
    assert_eq!(spawn(&client, 1).await.unwrap().await.unwrap(), 3);
    assert_eq!(count(&requests, "report_progress"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_and_a_snooze_lose_no_report() {
    let client = client_of(&MemoryStore::new());
    let app = App::new(|_, cx| async move {
        let before = cx.last_progress::<u64>().await?.unwrap_or_default();
        cx.progress(&(before + 1));
        // The first report is on its way.
        tokio::task::yield_now().await;
        cx.progress(&(before + 2));
        match before {
            0 => std::panic::resume_unwind(Box::new("it panics")),
            2 => Err(TaskError::snooze(Duration::from_secs(1))),
            before => Ok(before),
        }
    });
    let _executor = builder(&client).retry(later()).start(app).await.unwrap();
    assert_eq!(spawn(&client, 1).await.unwrap().await.unwrap(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_loses_no_report() {
    let store = MemoryStore::new();
    let client = client_of(&store);
    let app = App::new(|_, cx| async move {
        for number in 1..=3_u64 {
            cx.progress(&number);
            sleep(Duration::from_millis(100)).await;
        }
        std::future::pending().await
    });
    let executor = builder(&client).start(app).await.unwrap();
    let handle = spawn(&client, 1).await.unwrap();
    let mut stream = handle.progress();
    yields(&mut stream, 1).await;
    sleep(Duration::from_millis(300)).await;
    executor.shutdown(Duration::ZERO).await;
    let app = App::new(|_, cx| async move { Ok(cx.last_progress().await?.unwrap_or_default()) });
    let _executor = builder(&client).start(app).await.unwrap();
    assert_eq!(handle.await.unwrap(), 3);
}

/// The verdict waits for the report, but only for a second.
#[tokio::test(start_paused = true)]
async fn a_store_that_answers_no_report_delays_the_end_of_a_run_by_a_second() {
    let client = client_with(&MemoryStore::new(), |name| {
        Box::pin(async move {
            match name {
                "report_progress" => std::future::pending().await,
                _ => Ok(()),
            }
        })
    });
    let app = App::new(|_, cx| async move {
        cx.progress(&1);
        match cx.attempt() {
            1 => Err(TaskError::retry_after("not yet", Duration::ZERO)),
            _ => Ok(7),
        }
    });
    let _executor = builder(&client).retry(later()).start(app).await.unwrap();
    let begun = Instant::now();
    assert_eq!(spawn(&client, 1).await.unwrap().await.unwrap(), 7);
    let taken = begun.elapsed();
    assert!(taken < Duration::from_secs(4), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn a_report_that_the_store_did_not_answer_is_sent_again() {
    let fails = StdArc::new(Mutex::new(3));
    let store = MemoryStore::new();
    let client = client_with(&store, move |name| {
        let mut left = lock(&fails);
        let is_lost = name == "report_progress" && *left > 0;
        *left -= u32::from(is_lost);
        Box::pin(async move {
            match is_lost {
                true => Err(Failure::new(Effect::Unknown, Cause::Unavailable)),
                false => Ok(()),
            }
        })
    });
    let app = App::new(|_, cx| async move {
        cx.progress(&1);
        std::future::pending().await
    });
    let _executor = builder(&client).start(app).await.unwrap();
    let mut stream = spawn(&client, 1).await.unwrap().progress();
    yields(&mut stream, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_report_is_refused_is_asked_to_stop() {
    let store = MemoryStore::new();
    let (first, second) = (client_of(&store), client_of(&store));
    let stops = StdArc::new(Mutex::new(None));
    let noted = StdArc::clone(&stops);
    let app = App::new(move |_, cx| {
        let noted = StdArc::clone(&noted);
        async move {
            while cx.stop_reason().is_none() {
                cx.progress(&1);
                sleep(Duration::from_millis(100)).await;
            }
            *lock(&noted) = cx.stop_reason();
            Ok(0)
        }
    });
    let lease = Duration::from_secs(3600);
    let _zombie = builder(&first).lease(lease).start(app).await.unwrap();
    let handle = spawn(&second, 1).await.unwrap();
    yields(&mut handle.progress(), 1).await;
    take_back_all(&store).await;
    let app = App::new(|_, cx| async move {
        cx.progress(&2);
        cx.stopped().await;
        Ok(2)
    });
    let _executor = builder(&second).lease(lease).start(app).await.unwrap();
    let begun = Instant::now();
    until("the run is asked to stop", || lock(&stops).is_some()).await;
    assert_eq!(*lock(&stops), Some(StopReason::LeaseLost));
    assert!(begun.elapsed() < Duration::from_secs(60));
    yields(&mut handle.progress(), 2).await;
}

/// Takes all tasks back from their workers.
async fn take_back_all(store: &MemoryStore) {
    let backend = store.within(&Handle::current(), |_| Box::pin(async { Ok(()) }));
    for session in 0..9 {
        backend.0.close_session(session).await.unwrap();
    }
}

/// Leases end in real time.
#[tokio::test]
async fn a_run_that_has_lost_its_task_leaves_no_report_behind() {
    let store = MemoryStore::new();
    let (client, requests) = recording_client(&store);
    let (runs, ends) = (Count::new(0), StdArc::new(Count::new(0)));
    let end = StdArc::clone(&ends);
    let app = App::new(move |number, cx| {
        let (is_first, ends) = (runs.add(1) == 0, StdArc::clone(&end));
        async move {
            while is_first && ends.get() == 0 {
                cx.progress(&number);
                sleep(Duration::from_millis(10)).await;
            }
            match is_first {
                true => Err(TaskError::retry("it has lost its task")),
                false => Ok(number),
            }
        }
    });
    let mut builder = builder(&client);
    builder.retry(later()).lease(Duration::from_millis(600));
    let executor = builder.start(app).await.unwrap();
    let handle = spawn(&client, 1).await.unwrap();
    yields(&mut handle.progress(), 1).await;
    take_back_all(&store).await;
    until("the loss is noticed", || executor.metrics().leases_lost > 0).await;
    ends.add(1);
    assert_eq!(handle.await.unwrap(), 1);
    until("the first run has ended", || {
        executor.metrics().rejected > 0
    })
    .await;
    let before = count(&requests, "report_progress");
    for number in 2..9 {
        spawn(&client, number).await.unwrap().await.unwrap();
    }
    assert_eq!(count(&requests, "report_progress"), before);
}

#[tokio::test(start_paused = true)]
async fn a_report_after_the_end_of_the_run_is_ignored() {
    let (client, requests) = recording_client(&MemoryStore::new());
    let late = StdArc::new(Count::new(0));
    let reported = StdArc::clone(&late);
    let app = App::new(move |number, cx| {
        let reported = StdArc::clone(&reported);
        async move {
            tokio::spawn(async move {
                sleep(Duration::from_secs(1)).await;
                cx.progress(&number);
                reported.add(1);
            });
            Ok(number)
        }
    });
    let _executor = builder(&client).start(app).await.unwrap();
    spawn(&client, 1).await.unwrap().await.unwrap();
    until("it has reported", || late.get() == 1).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(count(&requests, "report_progress"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_waits_while_the_store_cannot_be_reached() {
    let is_cut = StdArc::new(Mutex::new(false));
    let store = MemoryStore::new();
    let client = client_of(&store);
    let app = App::new(|_, cx| async move {
        for number in 0..100_u64 {
            cx.progress(&number);
            sleep(Duration::from_secs(1)).await;
        }
        Ok(0)
    });
    let _executor = builder(&client).start(app).await.unwrap();
    let handle = spawn(&client, 1).await.unwrap();
    let cut = StdArc::clone(&is_cut);
    let other = client_with(&store, move |_| {
        let is_cut = *lock(&cut);
        Box::pin(async move {
            match is_cut {
                true => Err(Failure::new(Effect::Unknown, Cause::Unavailable)),
                false => Ok(()),
            }
        })
    });
    let mut stream = other.attach::<Number>(handle.id()).progress::<u64>();
    yields(&mut stream, 5).await;
    *lock(&is_cut) = true;
    let waited = timeout(Duration::from_secs(30), stream.next()).await;
    assert!(waited.is_err(), "{waited:?}");
    *lock(&is_cut) = false;
    let next = stream.next().await.unwrap().unwrap();
    assert!((30..40).contains(&next), "{next}");
    // The task ends while the store cannot be reached.
    *lock(&is_cut) = true;
    handle.await.unwrap();
    *lock(&is_cut) = false;
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_leaves_nothing_behind() {
    let (client, requests) = recording_client(&MemoryStore::new());
    let app = App::new(|_, _| std::future::pending());
    let _executor = builder(&client).start(app).await.unwrap();
    let handle = spawn(&client, 1).await.unwrap();
    for _ in 0..3 {
        let mut stream = handle.progress::<u64>();
        let waited = timeout(Duration::from_secs(2), stream.next()).await;
        assert!(waited.is_err());
    }
    sleep(Duration::from_secs(1)).await;
    assert!(client.engine().progress.is_idle());
    let before = count(&requests, "progress");
    assert!((9..=16).contains(&before), "{before}");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(count(&requests, "progress"), before);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_an_error_when_its_client_is_closed() {
    let client = client_of(&MemoryStore::new());
    let later = SpawnOptions::new().delay(Duration::from_secs(3600));
    let handle = client.spawn_with(Number(1), later).await.unwrap();
    let mut stream = handle.progress::<u64>();
    assert!(
        timeout(Duration::from_secs(2), stream.next())
            .await
            .is_err()
    );
    client.close().await.unwrap();
    assert!(stream.next().await.unwrap().unwrap_err().is_closed());
    assert!(stream.next().await.is_none());
    let mut late = handle.progress::<u64>();
    assert!(late.next().await.unwrap().unwrap_err().is_closed());
    assert!(late.next().await.is_none());
}
