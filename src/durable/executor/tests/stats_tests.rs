//! Runs are counted and reported.

use super::*;
use crate::durable::{RunTotals, StatsFilter, Status, TaskFilter};
use crate::sync::Number as Count;

const SECOND: Duration = Duration::from_secs(1);

/// Returns the sum of all statistics of a store, as another process reads them.
async fn total(store: &MemoryStore) -> RunTotals {
    let page = client_of(store)
        .admin()
        .stats(&StatsFilter::by_hour())
        .await;
    let mut total = RunTotals::default();
    for row in page.unwrap().rows {
        assert_eq!((row.name.as_deref(), row.queue), (Some(Number::NAME), None));
        total.add(row.runs);
    }
    total
}

/// Returns a client that counts its reports, of which the first ones fail.
fn reporting_client(store: &MemoryStore, failing: usize) -> (DurableClient, StdArc<Count>) {
    let reports = StdArc::new(Count::default());
    let counted = StdArc::clone(&reports);
    let client = client_with(store, move |name| {
        let fails = name == "record_stats" && counted.add(1) < failing;
        Box::pin(async move {
            match fails {
                true => Err(Failure::new(Effect::Unknown, Cause::Unavailable)),
                false => Ok(()),
            }
        })
    });
    (client, reports)
}

/// An app whose tasks run for as many seconds as their number. The number modulo 5 determines how they end.
fn app() -> App {
    App::new(|number, cx| async move {
        sleep(SECOND * number as u32).await;
        match number % 5 {
            1 => Err(TaskError::fatal("bad")),
            2 if cx.attempt() < 3 => Err(TaskError::retry("again")),
            3 if cx.attempt() == 1 => Err(TaskError::snooze(SECOND)),
            4 => {
                cx.stopped().await;
                Err(TaskError::retry("stopped"))
            }
            _ => Ok(number),
        }
    })
}

/// The durations of runs that have failed, of the last one, and of one that has succeeded.
#[tokio::test(start_paused = true)]
async fn an_attempt_has_its_duration() {
    let store = MemoryStore::new();
    let client = client_of(&store);
    let retry = Retry::exponential().base(SECOND).attempts(2);
    let executor = builder(&client).retry(retry).start(app()).await.unwrap();
    let dead = spawn(&client, 7).await.unwrap();
    let done = spawn(&client, 5).await.unwrap();
    let id = dead.id();
    assert_eq!(done.await.unwrap(), 5);
    assert!(dead.await.unwrap_err().is_dead());
    let admin = client.admin();
    let dead = admin.task(id).await.unwrap().expect("it is kept");
    let took: Vec<_> = dead.errors.iter().map(|error| error.took).collect();
    assert_eq!(
        (took, dead.task.took),
        (vec![Some(7 * SECOND)], Some(7 * SECOND))
    );
    let filter = TaskFilter::new(Status::Done);
    let page = admin.tasks(&filter, None, 9).await.unwrap();
    let took: Vec<_> = page.tasks.iter().map(|task| task.took).collect();
    assert_eq!(took, [Some(5 * SECOND)]);
    executor.shutdown(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn runs_are_counted_by_their_outcomes() {
    let store = MemoryStore::new();
    let (client, reports) = reporting_client(&store, 0);
    let retry = Retry::exponential().base(SECOND).attempts(3);
    let mut builder = builder(&client);
    let executor = builder.retry(retry).start(app()).await.unwrap();
    spawn(&client, 0).await.unwrap().await.unwrap();
    spawn(&client, 1).await.unwrap().await.unwrap_err();
    spawn(&client, 2).await.unwrap().await.unwrap();
    let cancelled = spawn(&client, 4).await.unwrap();
    sleep(5 * SECOND).await;
    cancelled.cancel().await.unwrap();
    cancelled.await.unwrap_err();
    client.close().await.unwrap();
    let total = total(&store).await;
    assert_eq!(total.numbers(), [6, 2, 2, 1, 1], "{total:?}");
    let least = SECOND * (1 + 3 * 2 + 5);
    let time = total.run_time;
    assert!(time >= least && time < least + SECOND, "{time:?}");
    assert!((1..=4).contains(&reports.get()), "{}", reports.get());
    assert_eq!(executor.metrics().died, 1);
}

#[tokio::test(start_paused = true)]
async fn runs_of_ten_seconds_are_reported_together_and_idleness_is_not() {
    let store = MemoryStore::new();
    let (client, reports) = reporting_client(&store, 0);
    let _executor = builder(&client).start(app()).await.unwrap();
    sleep(100 * SECOND).await;
    assert_eq!(reports.get(), 0);
    for _ in 0..90 {
        let handle = client.spawn(Number(0)).await.unwrap();
        handle.await.unwrap();
        sleep(SECOND).await;
    }
    assert!((7..=9).contains(&reports.get()), "{}", reports.get());
    sleep(20 * SECOND).await;
    let sent = reports.get();
    assert_eq!(total(&store).await.numbers(), [90, 90, 0, 0, 0]);
    sleep(100 * SECOND).await;
    assert_eq!(reports.get(), sent);
    // There is nothing left to report.
    client.close().await.unwrap();
    assert_eq!(reports.get(), sent);
}

/// The store may have recorded a report whose answer is lost.
#[tokio::test(start_paused = true)]
async fn a_report_is_sent_again_until_it_is_answered() {
    let store = MemoryStore::new();
    let (client, reports) = reporting_client(&store, 3);
    let _executor = builder(&client).start(app()).await.unwrap();
    spawn(&client, 0).await.unwrap().await.unwrap();
    until("a report has failed", || reports.get() == 1).await;
    spawn(&client, 5).await.unwrap().await.unwrap();
    sleep(60 * SECOND).await;
    assert_eq!(reports.get(), 5);
    assert_eq!(total(&store).await.numbers(), [2, 2, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_closed_waits_for_its_last_report_for_a_second_only() {
    let store = MemoryStore::new();
    let client = client_with(&store, |name| {
        Box::pin(async move {
            if name == "record_stats" {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    });
    let _executor = builder(&client).start(app()).await.unwrap();
    spawn(&client, 0).await.unwrap().await.unwrap();
    let start = Instant::now();
    client.close().await.unwrap();
    let waited = start.elapsed();
    assert!(waited >= SECOND && waited < 2 * SECOND, "{waited:?}");
}
