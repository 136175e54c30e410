//! The progress that runs report, and streams of it.

use std::time::{Duration, Instant};

use futures::StreamExt;
use serde::{Deserialize, Serialize};
use throng::durable::{DurableHandle, ProgressStream, SpawnOptions, Status, TaskError};

use crate::harness::{
    Door, Number, TestStore, reaches, run_due, spawn, spawn_as, start, start_as, start_inline,
};
use crate::harness::{builder, timed};
use crate::support::within;

on_all_stores! {
    another_client_sees_progress,
    a_stream_of_a_task_that_has_not_started_waits,
    a_stream_ends_however_its_task_ends,
    a_stream_of_an_ended_task_is_empty,
    the_next_attempt_reads_what_the_last_one_has_reported,
    a_report_just_before_an_error_is_not_lost,
    a_value_of_another_type_is_an_error_and_the_stream_continues,
    a_value_that_is_too_large_is_ignored,
    a_replayed_task_has_no_progress,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Done {
    files: u64,
    of: u64,
}

async fn next<P: serde::de::DeserializeOwned>(stream: &mut ProgressStream<P>) -> P {
    let item = within(stream.next()).await;
    item.expect("the task has not ended")
        .expect("it is a value of this type")
}

async fn another_client_sees_progress(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let (door, passed) = (Door::new(), Door::new());
    let (run_door, run_passed) = (door.clone(), passed.clone());
    let _executor = start(&client, move |number, cx| {
        let (door, passed) = (run_door.clone(), run_passed.clone());
        async move {
            cx.progress(&Done { files: 40, of: 100 });
            door.pass().await;
            cx.progress(&Done { files: 50, of: 100 });
            passed.pass().await;
            Ok(number)
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    let mut stream = other.attach::<Number>(handle.id()).progress::<Done>();
    assert_eq!(next(&mut stream).await, Done { files: 40, of: 100 });
    // Another stream begins with the last value.
    let mut own = handle.progress::<Done>();
    assert_eq!(next(&mut own).await, Done { files: 40, of: 100 });
    door.open();
    for stream in [&mut stream, &mut own] {
        assert_eq!(next(stream).await, Done { files: 50, of: 100 });
    }
    passed.open();
    assert!(within(stream.next()).await.is_none());
    assert!(within(StreamExt::next(&mut own)).await.is_none());
    assert_eq!(within(handle).await.unwrap(), 1);
}

async fn a_stream_of_a_task_that_has_not_started_waits(store: TestStore) {
    let client = store.client().await;
    let handle = spawn(&client, 1).await;
    let mut stream = handle.progress::<u64>();
    let waits = tokio::time::timeout(Duration::from_millis(100), stream.next()).await;
    assert!(waits.is_err());
    let _executor = start(&client, |_, cx| async move {
        cx.progress(&7);
        cx.stopped().await;
        Ok(0)
    })
    .await;
    assert_eq!(next(&mut stream).await, 7);
    handle.cancel().await.unwrap();
    assert!(within(stream.next()).await.is_none());
}

async fn a_stream_ends_however_its_task_ends(store: TestStore) {
    let client = store.client().await;
    let doors = [Door::new(), Door::new()];
    let run_doors = doors.clone();
    let _executor = start(&client, move |number, cx| {
        let doors = run_doors.clone();
        async move {
            cx.progress(&number);
            match number {
                2 => drop(cx.stopped().await),
                number => doors[number as usize].pass().await,
            }
            match number {
                0 => Ok(0),
                _ => Err(TaskError::fatal("it fails")),
            }
        }
    })
    .await;
    for number in 0..3 {
        let handle = spawn(&client, number).await;
        let mut stream = handle.progress::<u64>();
        assert_eq!(next(&mut stream).await, number);
        match number {
            2 => drop(handle.cancel().await.unwrap()),
            number => doors[number as usize].open(),
        }
        while let Some(item) = within(stream.next()).await {
            assert_eq!(item.unwrap(), number);
        }
        assert!(handle.status().await.unwrap().is_final());
    }
}

async fn a_stream_of_an_ended_task_is_empty(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        cx.progress(&number);
        Ok(number)
    })
    .await;
    let handle = spawn(&client, 1).await;
    within(handle.clone()).await.unwrap();
    assert!(within(handle.progress::<u64>().next()).await.is_none());
    let unknown = client.attach::<Number>(crate::harness::id(99));
    assert!(within(unknown.progress::<u64>().next()).await.is_none());
}

async fn the_next_attempt_reads_what_the_last_one_has_reported(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, cx| async move {
        let before = cx.last_progress::<u64>().await?;
        match cx.attempt() {
            1 => assert_eq!(before, None),
            attempt => assert_eq!(before, Some(u64::from(attempt) - 1)),
        }
        cx.progress(&u64::from(cx.attempt()));
        assert_eq!(cx.last_progress().await?, Some(u64::from(cx.attempt())));
        match cx.attempt() {
            3 => Ok(3),
            _ => Err(TaskError::retry("not yet")),
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 3);
}

/// The second report is within the time in which the executor sends no other.
async fn a_report_just_before_an_error_is_not_lost(store: TestStore) {
    let client = store.client().await;
    let reader = client.clone();
    let _executor = start(&client, move |number, cx| {
        let reader = reader.clone();
        async move {
            if cx.attempt() > 1 {
                return Ok(cx.last_progress().await?.unwrap_or_default());
            }
            cx.progress(&number);
            let mut stream = reader.attach::<Number>(cx.id()).progress::<u64>();
            assert_eq!(stream.next().await.unwrap()?, number);
            cx.progress(&(number + 1));
            Err(TaskError::retry("not yet"))
        }
    })
    .await;
    for number in [10, 20] {
        let handle = spawn(&client, number).await;
        assert_eq!(within(handle).await.unwrap(), number + 1);
    }
}

async fn a_value_of_another_type_is_an_error_and_the_stream_continues(store: TestStore) {
    let client = store.client().await;
    let door = Door::new();
    let run_door = door.clone();
    let _executor = start(&client, move |_, cx| {
        let door = run_door.clone();
        async move {
            cx.progress("half");
            assert!(cx.last_progress::<u64>().await.unwrap_err().is_decode());
            door.pass().await;
            cx.progress(&7);
            cx.stopped().await;
            Ok(0)
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    let mut stream = handle.progress::<u64>();
    let error = within(stream.next()).await.unwrap().unwrap_err();
    assert!(error.is_decode(), "{error}");
    door.open();
    assert_eq!(next(&mut stream).await, 7);
    handle.cancel().await.unwrap();
    assert!(within(stream.next()).await.is_none());
}

async fn a_value_that_is_too_large_is_ignored(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        if cx.attempt() == 1 {
            cx.progress(&"x".repeat(4094));
            cx.progress(&"y".repeat(4095));
            // It cannot be encoded.
            cx.progress(&std::collections::HashMap::from([([1], 2)]));
            return Err(TaskError::retry("not yet"));
        }
        let last = cx.last_progress::<String>().await?;
        assert_eq!(last, Some("x".repeat(4094)));
        Ok(number)
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 1);
}

async fn a_replayed_task_has_no_progress(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        assert_eq!(cx.last_progress::<u64>().await?, None);
        cx.progress(&number);
        Err(TaskError::fatal("it fails"))
    })
    .await;
    let handle = spawn(&client, 1).await;
    within(handle.clone()).await.unwrap_err();
    for _ in 0..2 {
        let dead_letters = client.dead_letters();
        let replayed = dead_letters
            .replay(throng::durable::DeadFilter::all())
            .await;
        assert_eq!(replayed.unwrap(), 1);
        let error = within(handle.clone()).await.unwrap_err();
        assert!(error.to_string().contains("it fails"), "{error}");
    }
}

#[tokio::test]
async fn an_inline_executor_stores_progress() {
    let (clock, client) = timed();
    let mut executor = start_inline(builder(&client), |_, cx| async move {
        let before = cx.last_progress::<u64>().await?.unwrap_or_default();
        cx.progress(&(before + 1));
        match before {
            0 => Err(TaskError::retry_after("not yet", Duration::from_secs(60))),
            _ => Ok(before),
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    assert_eq!(run_due(&mut executor).await, 1);
    let mut stream = handle.progress::<u64>();
    assert_eq!(next(&mut stream).await, 1);
    clock.advance(Duration::from_secs(60));
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(within(handle).await.unwrap(), 1);
    assert!(within(stream.next()).await.is_none());
}

#[tokio::test]
async fn a_stream_of_a_handle_that_is_not_attached_is_one_error() {
    let (_, client) = timed();
    let later = SpawnOptions::new().delay(Duration::from_secs(60));
    let handle = spawn_as(&client, 1, later).await;
    reaches(&handle, Status::Delayed).await;
    let text = serde_json::to_string(&handle).unwrap();
    let detached: DurableHandle<u64> = serde_json::from_str(&text).unwrap();
    let mut stream = detached.progress::<u64>();
    assert!(stream.next().await.unwrap().unwrap_err().is_detached());
    assert!(stream.next().await.is_none());
}

/// Ten thousand tasks report, and each has a stream in another client.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures, on a quiet machine: `scripts/test --long` runs it"]
async fn the_progress_of_many_tasks() {
    const TASKS: usize = 10_000;
    const SPAN: Duration = Duration::from_secs(20);
    needs_redis!();
    let store = TestStore::server();
    let TestStore::Server(server, ..) = &store else {
        panic!("it is a server");
    };
    let scripts = || match server.ask(&["INFO", "commandstats"]) {
        ::redis::Value::BulkString(text) => calls(&String::from_utf8_lossy(&text)),
        other => panic!("{other:?}"),
    };
    let (client, other) = (store.client().await, store.client().await);
    let begun = Instant::now();
    let mut builder = builder(&client);
    builder.max_running(TASKS);
    let _executor = start_as(&builder, move |_, cx| async move {
        while cx.stop_reason().is_none() {
            cx.progress(&(begun.elapsed().as_millis() as u64));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(0)
    })
    .await;
    let handles = client.spawn_all((0..TASKS as u64).map(Number)).await;
    let handles = handles.unwrap();
    let streams = handles.iter().map(|it| other.attach::<Number>(it.id()));
    let streams = streams.map(|handle| handle.progress::<u64>());
    let mut all = futures::stream::select_all(streams);
    let (mut ages, mut before) = (Vec::new(), 0);
    let measured_from = Instant::now() + Duration::from_secs(10);
    while measured_from + SPAN > Instant::now() {
        let value = all.next().await.unwrap().unwrap();
        if Instant::now() > measured_from {
            if ages.is_empty() {
                before = scripts();
            }
            ages.push(begun.elapsed() - Duration::from_millis(value));
        }
    }
    ages.sort();
    let at = |share: f64| ages[((ages.len() - 1) as f64 * share) as usize];
    println!(
        "{} values and {} requests in {SPAN:?}; age: median {:?}, 99% {:?}, maximum {:?}",
        ages.len(),
        scripts() - before,
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// Returns the number of scripts that a server has run.
#[cfg(feature = "redis")]
fn calls(stats: &str) -> u64 {
    let calls = stats.split("cmdstat_evalsha:calls=").nth(1);
    let calls = calls.and_then(|it| it.split(',').next());
    calls.and_then(|it| it.parse().ok()).unwrap_or_default()
}
