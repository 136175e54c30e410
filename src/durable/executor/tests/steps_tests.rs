//! Steps are sent together, and read again by later runs.

use super::*;
use crate::sync::Number as Count;

/// Runs two steps. Returns the sum of their outputs.
async fn two_steps(number: u64, cx: TaskContext<App>) -> Result<u64, TaskError> {
    let first = cx.step("first", || async { Ok(number) }).await?;
    let second = cx.step("second", || async { Ok(number * 10) }).await?;
    Ok(first + second)
}

#[tokio::test(start_paused = true)]
async fn the_steps_of_many_runs_are_sent_together() {
    const RUNS: u64 = 600;
    let store = MemoryStore::new();
    let requests = StdArc::new(Count::default());
    let counted = StdArc::clone(&requests);
    let client = client_with(&store, move |name| {
        let is_for_steps = name == "store_steps";
        counted.add(usize::from(is_for_steps));
        Box::pin(async move {
            if is_for_steps {
                sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        })
    });
    let mut builder = builder(&client);
    let builder = builder.max_running(1000);
    let _executor = builder.start(App::new(two_steps)).await.unwrap();
    let handles = client.spawn_all((0..RUNS).map(Number)).await.unwrap();
    for (number, handle) in (0..).zip(handles) {
        assert_eq!(handle.await.unwrap(), 11 * number);
    }
    let sent = requests.get();
    assert!((5..=15).contains(&sent), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn a_run_fails_if_its_step_cannot_be_stored() {
    let store = MemoryStore::new();
    let client = client_with(&store, |name| {
        let answer = match name {
            "store_steps" => Err(Failure::new(Effect::Unknown, Cause::Unavailable)),
            _ => Ok(()),
        };
        Box::pin(async { answer })
    });
    let _executor = builder(&client).start(App::new(two_steps)).await.unwrap();
    let begun = Instant::now();
    let error = spawn(&client, 1).await.unwrap().await.unwrap_err();
    assert!(
        error.is_dead() && error.to_string().contains("the store is not available"),
        "{error}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_steps_cannot_be_read_fails_and_repeats_none() {
    let store = MemoryStore::new();
    let calls = StdArc::new(Count::default());
    let (client, counted) = (client_of(&store), StdArc::clone(&calls));
    let app = move |fails: bool| {
        let calls = StdArc::clone(&counted);
        App::new(move |_, cx: TaskContext<App>| {
            let calls = StdArc::clone(&calls);
            async move {
                let run = || async {
                    calls.add(1);
                    Ok(7)
                };
                let output = cx.step("once", run).await?;
                match fails {
                    true => Err(TaskError::snooze(Duration::from_secs(1))),
                    false => Ok(output),
                }
            }
        })
    };
    let executor = builder(&client).start(app(true)).await.unwrap();
    let handle = spawn(&client, 1).await.unwrap();
    until("the step is stored", || calls.get() == 1).await;
    executor.shutdown(Duration::from_secs(1)).await;
    let unreadable = client_with(&store, |name| {
        let answer = match name {
            "steps" => Err(Failure::new(Effect::None, Cause::Unavailable)),
            _ => Ok(()),
        };
        Box::pin(async { answer })
    });
    let executor = builder(&unreadable).start(app(false)).await.unwrap();
    assert!(handle.await.unwrap_err().is_dead());
    executor.shutdown(Duration::from_secs(1)).await;
    assert_eq!(calls.get(), 1);
}

/// The wake-up is lost with a row that says for how many steps the task waits, which is then restored.
#[cfg(feature = "sqlite-unbundled")]
#[tokio::test]
async fn a_wake_up_that_was_lost_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let client = DurableClient::open(crate::durable::SqliteStore::open(&path).await.unwrap());
    let app = App::new(|_, cx: TaskContext<App>| async move {
        let sum = cx.signal::<u64>("a").await? + cx.signal::<u64>("b").await?;
        Ok(sum)
    });
    let executor = builder(&client).start(app).await.unwrap();
    let handle = spawn(&client, 1).await.unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    let suspended = |steps: u32| {
        let sql = "SELECT count(*) FROM throng_workflow AS own JOIN throng_task USING (id)
            WHERE own.steps = ?1 AND own.until = ?1 + 1 AND state = 1";
        db.query_row(sql, [steps], |row| row.get::<_, i64>(0))
            .unwrap()
            == 1
    };
    until("it waits for a signal", || suspended(0)).await;
    db.execute_batch("UPDATE throng_workflow SET until = NULL")
        .unwrap();
    assert!(client.signal(handle.id(), "a", &1).await.unwrap());
    db.execute_batch("UPDATE throng_workflow SET until = 1; UPDATE throng_task SET at = 0")
        .unwrap();
    // The worker looks for delayed tasks when a task is stored.
    let other = client.spawn(Number(2)).await.unwrap();
    until("it waits for the other signal", || suspended(1)).await;
    assert_eq!(executor.metrics().late_wakes, 1);
    assert!(client.signal(handle.id(), "b", &2).await.unwrap());
    assert_eq!(handle.await.unwrap(), 3);
    assert_eq!(executor.metrics().late_wakes, 1);
    client.cancel(&[other.id()]).await.unwrap();
    executor.shutdown(Duration::from_secs(1)).await;
}
