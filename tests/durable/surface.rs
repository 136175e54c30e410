//! The surface: what can be sent, what is shown, what a store promises.

use throng::Retry;
use throng::durable::{
    Builder, Clock, Counts, DeadFilter, DeadLetter, DeadLetters, DeadReason, Durability,
    DurableClient, DurableError, DurableExecutor, DurableHandle, Every, InlineExecutor,
    MemoryStore, Metrics, ParseTaskIdError, ScheduleInfo, ScheduleOptions, Schedules, ServedQueue,
    SpawnOptions, Status, StopReason, Store, TaskContext, TaskError, TaskId, When,
};

use crate::harness::{
    App, Number, TestStore, builder, id, run_due, spawn, start, start_inline, timed,
};
use crate::support::within;

on_all_stores! {
    errors_say_which_task_in_which_store_and_what_to_do,
    what_is_shown_says_what_it_is,
    a_store_says_how_durable_it_is,
    counts_say_what_there_is,
    a_handle_is_serialised_as_its_id,
    a_deserialised_handle_is_attached_to_a_client,
}

const fn is_thread_safe<T: Send + Sync + Unpin>() {}

const _: () = {
    is_thread_safe::<Builder<App>>();
    is_thread_safe::<Clock>();
    is_thread_safe::<Counts>();
    is_thread_safe::<DeadFilter>();
    is_thread_safe::<DeadLetter>();
    is_thread_safe::<DeadLetters<'static>>();
    is_thread_safe::<DeadReason>();
    is_thread_safe::<Durability>();
    is_thread_safe::<DurableClient>();
    is_thread_safe::<DurableError>();
    is_thread_safe::<DurableExecutor>();
    // Also of an output that is neither.
    is_thread_safe::<DurableHandle<std::rc::Rc<u8>>>();
    is_thread_safe::<InlineExecutor>();
    is_thread_safe::<MemoryStore>();
    is_thread_safe::<Every>();
    is_thread_safe::<Metrics>();
    is_thread_safe::<ParseTaskIdError>();
    is_thread_safe::<ScheduleInfo>();
    is_thread_safe::<ScheduleOptions>();
    is_thread_safe::<Schedules<'static>>();
    is_thread_safe::<ServedQueue>();
    is_thread_safe::<SpawnOptions>();
    is_thread_safe::<Status>();
    is_thread_safe::<StopReason>();
    is_thread_safe::<Store>();
    is_thread_safe::<TaskContext<App>>();
    is_thread_safe::<TaskError>();
    is_thread_safe::<TaskId>();
    is_thread_safe::<When>();
    #[cfg(feature = "cron")]
    is_thread_safe::<throng::durable::Cron>();
    #[cfg(feature = "sqlite")]
    is_thread_safe::<throng::durable::SqliteStore>();
};

#[tokio::test]
async fn futures_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    let (_, client) = timed();
    is_send(&client.spawn(Number(1)));
    is_send(&client.spawn_with(Number(1), SpawnOptions::new()));
    is_send(&client.spawn_all([Number(1)]));
    is_send(&client.spawn_all_with([(Number(1), SpawnOptions::new())]));
    is_send(&client.status(id(1)));
    is_send(&client.cancel(&[]));
    is_send(&client.counts());
    is_send(&client.durability());
    is_send(&client.require(Durability::Synced));
    is_send(&client.dead_letters().list(DeadFilter::all(), 1));
    is_send(&client.dead_letters().replay(DeadFilter::all()));
    is_send(&client.dead_letters().delete(DeadFilter::all()));
    let handle = client.attach::<Number>(id(1));
    is_send(&handle.status());
    is_send(&handle.cancel());
    let app = || App::new(|number, _| async move { Ok(number) });
    is_send(&builder(&client).start(app()));
    is_send(&builder(&client).start_inline(app()));
    let executor = builder(&client).start(app()).await.unwrap();
    is_send(&executor.shutdown(std::time::Duration::ZERO));
    is_send(&executor.closed());
    let mut inline = builder(&client).start_inline(app()).await.unwrap();
    is_send(&inline.run_due());
}

#[test]
fn an_id_is_read_as_it_is_written() {
    let made = [
        TaskId::new(),
        id(1),
        TaskId::from_bytes([0; 16]),
        TaskId::from_bytes([255; 16]),
    ];
    for id in made {
        let text = id.to_string();
        assert_eq!(text.len(), 36);
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.to_uppercase().parse(), Ok(id));
        assert_eq!(format!("{id:?}"), format!("TaskId({text})"));
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<TaskId>(&json).unwrap(), id);
        assert_eq!(TaskId::from_bytes(id.to_bytes()), id);
    }
}

#[test]
fn what_is_no_id_is_refused() {
    for text in [
        "",
        "task",
        "00000000-0000-0000-0000-00000000000",
        "g0000000-0000-0000-0000-000000000000",
    ] {
        let error = text.parse::<TaskId>().unwrap_err();
        assert!(error.to_string().contains("task id"), "{error}");
        assert!(serde_json::from_str::<TaskId>(&format!("\"{text}\"")).is_err());
    }
    assert!(serde_json::from_str::<TaskId>("7").is_err());
}

#[test]
fn ids_rise_with_time() {
    let ids: Vec<_> = (0..10_000).map(|_| TaskId::new()).collect();
    assert!(ids.is_sorted_by(|one, next| one < next));
}

#[test]
fn some_states_are_final() {
    use Status::{Absent, Cancelled, Dead, Delayed, Done, Running, Waiting};
    assert!(
        [Done, Dead, Cancelled]
            .iter()
            .all(|status| status.is_final())
    );
    let open = [Absent, Waiting, Delayed, Running];
    assert!(!open.iter().any(|status| status.is_final()));
}

async fn errors_say_which_task_in_which_store_and_what_to_do(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, _| async {
        Err(TaskError::fatal("no such card"))
    })
    .await;
    let check = |error: &DurableError, task: TaskId, advice: &str| {
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(text.contains(&task.to_string()), "{text}");
            assert!(text.contains(error.store_name()), "{text}");
            assert!(text.contains(advice), "{text}");
        }
        assert!(!error.store_name().is_empty());
        assert_eq!(error.task_id(), Some(task));
    };
    let handle = spawn(&client, 1).await;
    let task = handle.id();
    let error = within(handle).await.unwrap_err();
    check(
        &error,
        task,
        "no such card; it can be replayed from the dead letters",
    );
    let error = within(client.attach::<Number>(id(1))).await.unwrap_err();
    check(&error, id(1), "its end is no longer kept");
    let later = SpawnOptions::new()
        .delay(std::time::Duration::from_secs(3600))
        .id(id(2));
    let handle = client.spawn_with(Number(1), later).await.unwrap();
    handle.cancel().await.unwrap();
    check(&within(handle).await.unwrap_err(), id(2), "cancelled");
    let large = client.spawn(Large("x".repeat(2 << 20))).await.unwrap_err();
    check(&large, large.task_id().unwrap(), "keep the data elsewhere");
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Large(String);

impl throng::durable::DurableTask for Large {
    const NAME: &'static str = "large";
    type Output = ();
}

async fn what_is_shown_says_what_it_is(store: TestStore) {
    let client = store.client().await;
    let text = format!("{client:?}");
    assert!(text.starts_with("DurableClient"), "{text}");
    let mut builder = builder(&client);
    builder.max_running(17);
    let text = format!("{builder:?}");
    assert!(text.contains("\"number\"") && text.contains("17"), "{text}");
    let executor = start(&client, |_, cx| async move {
        let text = format!("{cx:?}");
        assert!(text.contains(&cx.id().to_string()), "{text}");
        assert!(text.contains("attempt: 1"), "{text}");
        Ok(1)
    })
    .await;
    let mut handle = spawn(&client, 1).await;
    let text = format!("{handle:?}");
    assert!(text.contains(&handle.id().to_string()), "{text}");
    within(&mut handle).await.unwrap();
    crate::harness::until("it is counted", || {
        format!("{executor:?}").contains("completed: 1")
    })
    .await;
}

#[test]
fn a_task_error_shows_its_source() {
    let error = TaskError::retry("not yet");
    assert_eq!(error.to_string(), "not yet");
    assert_eq!(error.source().unwrap().to_string(), "not yet");
    assert!(format!("{error:?}").contains("not yet"));
    let snooze = TaskError::snooze(std::time::Duration::ZERO);
    assert!(snooze.source().is_none() && !snooze.to_string().is_empty());
}

async fn a_store_says_how_durable_it_is(store: TestStore) {
    let client = store.client().await;
    let found = client.durability().await.unwrap();
    client.require(found).await.unwrap();
    if found == Durability::Memory {
        assert!(!store.is_on_disk());
        let error = client.require(Durability::Synced).await.unwrap_err();
        assert!(
            error.is_not_durable() && error.task_id().is_none(),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("Memory") && text.contains("Synced"), "{text}");
    } else {
        assert!(store.is_on_disk());
        assert_eq!(found, Durability::Synced);
    }
}

async fn counts_say_what_there_is(store: TestStore) {
    let client = store.client().await;
    assert_eq!(client.counts().await.unwrap(), Counts::default());
    let later = SpawnOptions::new().delay(std::time::Duration::from_secs(3600));
    let _delayed = client.spawn_with(Number(1), later).await.unwrap();
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(spawn(&client, number).await);
    }
    let mut inline = start_inline(
        builder(&client).retry(Retry::exponential().attempts(1)),
        |number, _| async move {
            match number {
                0 => Err("no".into()),
                1 => Err(TaskError::snooze(std::time::Duration::from_secs(3600))),
                _ => Ok(number),
            }
        },
    )
    .await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.delayed, counts.stored), (4, 1, 5));
    assert_eq!(run_due(&mut inline).await, 4);
    let counts = client.counts().await.unwrap();
    crate::ledger::assert_balanced(&counts);
    assert_eq!((counts.waiting, counts.delayed, counts.running), (0, 2, 0));
    assert_eq!((counts.kept, counts.dead, counts.claimed), (2, 1, 4));
    assert_eq!((counts.done, counts.died, counts.snoozed), (2, 1, 1));
}

async fn a_handle_is_serialised_as_its_id(store: TestStore) {
    let client = store.client().await;
    let handle = spawn(&client, 7).await;
    let json = serde_json::to_string(&handle).unwrap();
    let id: TaskId = serde_json::from_str(&json).unwrap();
    assert_eq!(id, handle.id());
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    assert_eq!(within(client.attach::<Number>(id)).await.unwrap(), 7);
}

async fn a_deserialised_handle_is_attached_to_a_client(store: TestStore) {
    let client = store.client().await;
    let json = serde_json::to_string(&spawn(&client, 7).await).unwrap();
    let detached: DurableHandle<u64> = serde_json::from_str(&json).unwrap();
    for error in [
        detached.status().await.unwrap_err(),
        detached.errors().await.unwrap_err(),
        detached.cancel().await.unwrap_err(),
        detached.clone().await.unwrap_err(),
    ] {
        assert!(error.is_detached(), "{error}");
        assert_eq!(error.task_id(), Some(detached.id()));
        assert!(
            error.to_string().contains("attach it to a client"),
            "{error}"
        );
    }
    let (jobs, mut done) = throng::CompletionStream::builder().build().unwrap();
    detached.clone().complete(jobs.slot(()).await.unwrap());
    let completed = within(done.next()).await.unwrap();
    assert!(completed.outcome.unwrap().unwrap_err().is_detached());
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    assert_eq!(within(detached.attach(&client)).await.unwrap(), 7);
}
