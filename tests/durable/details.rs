//! One task in detail, and the head of a queue.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throng::durable::{
    DurableTask, Key, KeyState, Priority, SpawnOptions, StatsFilter, Status, TaskChange,
    TaskFilter, TaskId,
};

use crate::harness::{Door, Number, TestStore, pass_a_millisecond, reaches, spawn, start};
use crate::support::within;

on_all_stores! {
    an_operator_sees_what_a_task_was_spawned_with,
    large_payloads_are_cut,
    a_run_is_shown_until_its_output_is,
    the_head_of_a_queue_shows_what_waits_longest,
    what_an_operator_sees_is_serialised,
}

/// A task that no worker runs.
#[derive(Serialize, Deserialize)]
struct Letter {
    text: String,
}

impl DurableTask for Letter {
    const NAME: &'static str = "letter";
    const VERSION: u8 = 3;
    type Output = ();
}

fn letter(text: impl Into<String>) -> Letter {
    Letter { text: text.into() }
}

async fn an_operator_sees_what_a_task_was_spawned_with(store: TestStore) {
    let client = store.client().await;
    let absent = client.admin().task(TaskId::derive("no", b"task")).await;
    assert_eq!(absent.unwrap(), None);
    let options = SpawnOptions::new()
        .queue("post")
        .group("berlin")
        .priority(Priority::High)
        .key(Key::new("anna"));
    let handle = client.spawn_with(letter("h\u{e9}"), options).await.unwrap();
    // Another process reads the task.
    let other = store.client().await;
    let detail = other.admin().task(handle.id()).await.unwrap().unwrap();
    let payload = detail.payload.expect("it is there");
    assert_eq!(payload.as_str(), Some("{\"text\":\"h\u{e9}\"}"));
    assert!(payload.is_whole());
    assert_eq!(detail.version, Some(3));
    assert_eq!(detail.priority, Some(Priority::High));
    assert_eq!(detail.key, Some(KeyState::Held));
    assert_eq!(detail.task.group.as_deref(), Some("berlin"));
    let status = detail.task.status;
    assert!(TaskChange::Cancel.applies_to(status));
    assert!(!TaskChange::Replay.applies_to(status) && !TaskChange::Delete.applies_to(status));
    assert_eq!(detail.damage, None);
}

async fn large_payloads_are_cut(store: TestStore) {
    let client = store.client().await;
    let text = "\u{fc}".repeat(100_000);
    let handle = client.spawn(letter(&*text)).await.unwrap();
    let detail = client.admin().task(handle.id()).await.unwrap().unwrap();
    let payload = detail.payload.expect("it is there");
    assert_eq!(payload.len, 200_000 + r#"{"text":""}"#.len());
    let beginning = payload.as_str().expect("it ends with a whole character");
    assert!(beginning.len() > 65_000 && beginning.len() <= 65_536);
    assert!(format!("{{\"text\":\"{text}").starts_with(beginning));
}

async fn a_run_is_shown_until_its_output_is(store: TestStore) {
    let client = store.client().await;
    let (door, at_door) = (Door::new(), Door::new());
    let (inner, entered) = (door.clone(), at_door.clone());
    let executor = start(&client, move |number, cx| {
        let (door, entered) = (inner.clone(), entered.clone());
        async move {
            cx.progress(&"half");
            entered.open();
            door.pass().await;
            Ok(number)
        }
    })
    .await;
    let handle = spawn(&client, 7).await;
    within(at_door.pass()).await;
    reaches(&handle, Status::Running).await;
    let look = async || {
        let detail = client.admin().task(handle.id()).await.unwrap();
        detail.expect("it exists")
    };
    let detail = look().await;
    let text = serde_json::to_value(&detail).unwrap();
    let token = detail.task.fencing_token.expect("it runs");
    assert_eq!(text["task"]["fencing_token"], json!(token.to_string()));
    let session = detail.runner.as_ref().expect("it runs").session;
    assert_eq!(text["runner"]["session"], json!(session.to_string()));
    let workers = client.admin().workers(None, 9).await.unwrap();
    let text = serde_json::to_value(&workers).unwrap();
    assert_eq!(text["workers"][0]["session"], json!(session.to_string()));
    assert_eq!(text["workers"][0]["state"], "live");
    assert!(text["workers"][0]["started"].is_u64());
    assert!(detail.lease_left.is_some_and(|left| left > Duration::ZERO));
    assert!(detail.runner.is_some_and(|it| !it.is_suspect));
    assert_eq!(detail.payload.unwrap().as_str(), Some("7"));
    // Progress is sent after a while.
    let mut progress = detail.progress;
    for _ in 0..1_000 {
        if progress.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        progress = look().await.progress;
    }
    assert_eq!(progress.unwrap().as_str(), Some("\"half\""));
    door.open();
    within(handle.clone()).await.unwrap();
    reaches(&handle, Status::Done).await;
    let detail = look().await;
    assert_eq!(detail.output.unwrap().as_str(), Some("7"));
    assert_eq!((detail.payload, detail.runner), (None, None));
    assert!(!TaskChange::Cancel.applies_to(detail.task.status));
    drop(executor);
}

async fn the_head_of_a_queue_shows_what_waits_longest(store: TestStore) {
    let client = store.client().await;
    let admin = client.admin();
    let mut ids = Vec::new();
    for number in 0..3 {
        let options = SpawnOptions::new().queue("post");
        let handle = client.spawn_with(letter("x"), options).await.unwrap();
        ids.push(handle.id());
        if number == 0 {
            pass_a_millisecond(&client).await;
        }
    }
    client.spawn(Number(1)).await.unwrap();
    let head = admin.head(Some("post"), 50).await.unwrap();
    assert_eq!(head.tasks.len(), 3);
    assert_eq!(head.tasks[0].id, ids[0]);
    let ready_for = [0, 1].map(|at: usize| head.tasks[at].ready_for);
    assert!(ready_for[0] > ready_for[1], "{head:?}");
    let first = admin.head(Some("post"), 1).await.unwrap();
    assert_eq!(first.tasks[0].id, ids[0]);
    assert!(first.now >= head.now, "{first:?}");
    assert_eq!(admin.head(None, 9).await.unwrap().tasks.len(), 1);
    for (queue, limit, remedy) in [
        (None, 0, "set it to 1 to 50"),
        (None, 51, "set it to 1 to 50"),
        (Some("a queue"), 1, "use 1 to 64 ASCII letters"),
    ] {
        let error = admin.head(queue, limit).await.unwrap_err();
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

async fn what_an_operator_sees_is_serialised(store: TestStore) {
    let client = store.client().await;
    let options = SpawnOptions::new().delay(Duration::from_secs(3600));
    let handle = client.spawn_with(letter("x"), options).await.unwrap();
    client.spawn_all((0..2).map(Number)).await.unwrap();
    let detail = client.admin().task(handle.id()).await.unwrap();
    let detail = serde_json::to_value(&detail).unwrap();
    let task = &detail["task"];
    assert_eq!(task["id"], json!(handle.id().to_string()));
    assert_eq!(task["status"], "delayed");
    let due_in = task["due_in"].as_u64().expect("it is a number");
    assert!((3_000_000..=3_600_000).contains(&due_in), "{due_in}");
    assert_eq!(task["kept_for"], Value::Null);
    assert_eq!(
        detail["payload"],
        json!({"len": 12, "text": r#"{"text":"x"}"#})
    );
    assert_eq!(detail["priority"], "normal");
    let page = client.admin();
    let waiting = TaskFilter::new(Status::Waiting);
    let page = page.tasks(&waiting, None, 1).await.unwrap();
    let cursor = page.next.as_ref().expect("there is another page");
    let page = serde_json::to_value(&page).unwrap();
    assert_eq!(page["next"], json!(cursor.to_string()));
    assert_eq!(page["tasks"][0]["name"], Number::NAME);
    assert!(page["now"].as_u64() > Some(1_700_000_000_000), "{page}");
    let head = client.admin().head(None, 1).await.unwrap();
    let head = serde_json::to_value(&head).unwrap();
    assert_eq!(head["tasks"][0]["name"], Number::NAME);
    assert!(head["now"].as_u64() > Some(1_700_000_000_000), "{head}");
    let overview = client.admin().overview().await.unwrap();
    let overview = serde_json::to_value(&overview).unwrap();
    assert!(overview["now"].as_u64() > Some(1_700_000_000_000));
    assert_eq!(overview["queues"][0]["info"]["is_paused"], false);
    let stats = client.admin().stats(&StatsFilter::by_hour()).await;
    let stats = serde_json::to_value(stats.unwrap()).unwrap();
    assert!(stats["now"].as_u64() > Some(1_700_000_000_000));
    let counts = serde_json::to_value(client.counts().await.unwrap()).unwrap();
    assert_eq!(
        (&counts["waiting"], &counts["delayed"]),
        (&json!(2), &json!(1))
    );
}
