//! Lists of tasks, a page at a time.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use throng::durable::{
    Cursor, DurableClient, DurableTask, ParseCursorError, SpawnOptions, Status, TaskFilter, TaskId,
    TaskInfo,
};

use crate::harness::{Number, TestStore, reaches, spawn, start};
use crate::support::within;

on_all_stores! {
    a_task_is_listed_with_its_status,
    another_client_continues_a_list_from_the_text_of_a_cursor,
    what_is_invalid_is_refused_with_the_remedy,
    tasks_that_wait_throughout_are_listed_while_others_run,
}

/// A task that no worker runs.
#[derive(Serialize, Deserialize)]
struct Unknown;

impl DurableTask for Unknown {
    const NAME: &'static str = "unknown";
    type Output = ();
}

async fn list(client: &DurableClient, filter: &TaskFilter, limit: usize) -> Vec<TaskInfo> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = client.admin().tasks(filter, after.as_ref(), limit).await;
        let page = page.unwrap();
        assert!(page.tasks.len() <= limit && page.examined <= 10 * limit);
        found.extend(page.tasks);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn ids(client: &DurableClient, status: Status) -> Vec<TaskId> {
    let tasks = list(client, &TaskFilter::new(status), 10).await;
    tasks.into_iter().map(|task| task.id).collect()
}

async fn a_task_is_listed_with_its_status(store: TestStore) {
    let client = store.client().await;
    let options = SpawnOptions::new().queue("later");
    let waiting = client.spawn_with(Unknown, options).await.unwrap();
    let cancelled = client.spawn(Unknown).await.unwrap();
    cancelled.cancel().await.unwrap();
    let done = spawn(&client, 7).await;
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    within(done.clone()).await.unwrap();
    reaches(&done, Status::Done).await;

    let found = list(&client, &TaskFilter::new(Status::Waiting), 1).await;
    assert_eq!(found.len(), 1);
    let info = &found[0];
    assert_eq!((info.id, info.status), (waiting.id(), Status::Waiting));
    assert_eq!(info.name.as_deref(), Some("unknown"));
    assert_eq!(info.queue.as_deref(), Some("later"));
    assert_eq!(ids(&client, Status::Cancelled).await, [cancelled.id()]);
    assert_eq!(ids(&client, Status::Done).await, [done.id()]);
    let named = TaskFilter::new(Status::Done).name(Number::NAME);
    assert_eq!(list(&client, &named, 1).await.len(), 1);
    let other = TaskFilter::new(Status::Done).name("unknown");
    assert_eq!(list(&client, &other, 1).await, []);
    for status in [Status::Delayed, Status::Running, Status::Dead] {
        assert_eq!(ids(&client, status).await, [], "{status:?}");
    }
    drop(executor);
}

async fn another_client_continues_a_list_from_the_text_of_a_cursor(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let handles = client.spawn_all((0..25).map(Number)).await.unwrap();
    let all: BTreeSet<_> = handles.iter().map(|handle| handle.id()).collect();
    let filter = TaskFilter::new(Status::Waiting);
    let (mut found, mut after) = (BTreeSet::new(), None);
    for client in [&client, &other].into_iter().cycle() {
        let after_page = after
            .take()
            .map(|text: String| text.parse::<Cursor>().unwrap());
        let page = client.admin().tasks(&filter, after_page.as_ref(), 10).await;
        let page = page.unwrap();
        found.extend(page.tasks.iter().map(|task| task.id));
        match page.next {
            Some(next) => after = Some(next.to_string()),
            None => break,
        }
    }
    assert_eq!(found, all);
}

async fn what_is_invalid_is_refused_with_the_remedy(store: TestStore) {
    let client = store.client().await;
    let waiting = TaskFilter::new(Status::Waiting);
    let cursor: Cursor = "w00".parse().unwrap();
    let of_others: Cursor = "d00".parse().unwrap();
    for (filter, after, limit, remedy) in [
        (waiting.clone(), None, 0, "set it to 1 to 200"),
        (waiting.clone(), None, 201, "set it to 1 to 200"),
        (
            waiting.clone(),
            Some(&cursor),
            10,
            "start with the first page",
        ),
        (
            waiting.clone(),
            Some(&of_others),
            10,
            "start with the first page",
        ),
        (
            waiting.queue("a queue"),
            None,
            10,
            "use 1 to 64 ASCII letters",
        ),
        (
            TaskFilter::new(Status::Absent),
            None,
            10,
            "choose another status",
        ),
        (
            TaskFilter::new(Status::Done).queue("q"),
            None,
            10,
            "remove `queue`",
        ),
    ] {
        let error = client
            .admin()
            .tasks(&filter, after, limit)
            .await
            .unwrap_err();
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
    assert_eq!("no cursor".parse::<Cursor>(), Err(ParseCursorError));
}

async fn tasks_that_wait_throughout_are_listed_while_others_run(store: TestStore) {
    let client = store.client().await;
    let unknown = client.spawn_all((0..60).map(|_| Unknown)).await.unwrap();
    let unknown: BTreeSet<_> = unknown.iter().map(|handle| handle.id()).collect();
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    let producer = async {
        for _ in 0..20 {
            for handle in client.spawn_all((0..100).map(Number)).await.unwrap() {
                within(handle).await.unwrap();
            }
        }
    };
    let reader = store.client().await;
    let reader = async {
        for limit in [1, 7, 50, 200].into_iter().cycle().take(20) {
            let found = list(&reader, &TaskFilter::new(Status::Waiting), limit).await;
            let found: BTreeSet<_> = found.iter().map(|task| task.id).collect();
            assert!(found.is_superset(&unknown), "limit {limit}: {found:?}");
        }
    };
    tokio::join!(producer, reader);
    drop(executor);
}
