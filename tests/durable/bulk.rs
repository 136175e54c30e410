//! Changes of all tasks that match, a part at a time.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use throng::durable::{
    Bulk, BulkPart, Cursor, DurableClient, DurableTask, Run, Status, TaskContext, TaskError,
    TaskFilter,
};

use crate::harness::{App, Number, TestStore, reaches, start};
use crate::support::{rounds, within};

on_all_stores! {
    all_waiting_and_delayed_tasks_that_match_are_cancelled,
    a_change_that_stops_half_way_is_continued_from_its_cursor,
    dead_letters_are_replayed_and_deleted,
    a_change_that_does_not_apply_is_refused,
    each_task_ends_once_if_all_are_cancelled_while_workers_drain_them,
}

/// A task that no worker runs.
#[derive(Serialize, Deserialize)]
struct Other;

impl DurableTask for Other {
    const NAME: &'static str = "other";
    type Output = ();
}

impl Run<App> for Other {
    async fn run(self, _: TaskContext<App>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// Applies all parts. Returns their sum.
async fn all(mut bulk: Bulk<'_>) -> (u64, u64) {
    let (mut changed, mut unchanged) = (0, 0);
    while let Some(part) = bulk.next().await {
        let BulkPart {
            changed: more,
            unchanged: others,
            ..
        } = part.unwrap();
        (changed, unchanged) = (changed + more, unchanged + others);
    }
    (changed, unchanged)
}

fn of(status: Status) -> TaskFilter {
    TaskFilter::new(status).name(Number::NAME)
}

async fn spawn_numbers(client: &DurableClient, count: u64) {
    let numbers = (0..count).map(Number);
    client.spawn_all(numbers).await.unwrap();
}

async fn all_waiting_and_delayed_tasks_that_match_are_cancelled(store: TestStore) {
    let client = store.client().await;
    spawn_numbers(&client, 300).await;
    let other = client.spawn(Other).await.unwrap();
    assert_eq!(
        all(client.admin().cancel(of(Status::Delayed))).await,
        (0, 0)
    );
    assert_eq!(
        all(client.admin().cancel(of(Status::Waiting))).await,
        (300, 0)
    );
    assert_eq!(
        all(client.admin().cancel(of(Status::Waiting))).await,
        (0, 0)
    );
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.kept), (1, 300));
    assert_eq!(other.status().await.unwrap(), Status::Waiting);
}

async fn a_change_that_stops_half_way_is_continued_from_its_cursor(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    spawn_numbers(&client, 300).await;
    let admin = client.admin();
    let mut first = admin.cancel(of(Status::Waiting));
    assert!(first.cursor().is_none());
    let part = first.next().await.unwrap().unwrap();
    assert!((1..=128).contains(&part.changed), "{part:?}");
    let cursor: Cursor = first.cursor().unwrap().to_string().parse().unwrap();
    drop(first);
    let rest = other.admin().cancel(of(Status::Waiting)).after(cursor);
    assert_eq!(all(rest).await, (300 - part.changed, 0));
    assert_eq!(client.counts().await.unwrap().waiting, 0);
}

async fn dead_letters_are_replayed_and_deleted(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |_, _| async { Err(TaskError::fatal("no")) }).await;
    for handle in client.spawn_all((0..150).map(Number)).await.unwrap() {
        within(handle).await.unwrap_err();
    }
    executor.shutdown(std::time::Duration::ZERO).await;
    assert_eq!(all(client.admin().replay(of(Status::Dead))).await, (150, 0));
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.dead), (150, 0));

    let executor = start(&client, |_, _| async { Err(TaskError::fatal("no")) }).await;
    let listed = async || client.counts().await.unwrap().dead;
    while listed().await < 150 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(all(client.admin().delete(of(Status::Dead))).await, (150, 0));
    assert_eq!(listed().await, 0);
    drop(executor);
}

async fn a_change_that_does_not_apply_is_refused(store: TestStore) {
    let client = store.client().await;
    let admin = client.admin();
    for (mut bulk, remedy) in [
        (
            admin.cancel(of(Status::Dead)),
            "waiting, delayed or running",
        ),
        (
            admin.replay(of(Status::Waiting)),
            "dead letters can be replayed",
        ),
        (
            admin.delete(of(Status::Done)),
            "dead letters can be deleted",
        ),
    ] {
        let error = bulk.next().await.unwrap().unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains(remedy),
            "{error}"
        );
    }
}

async fn each_task_ends_once_if_all_are_cancelled_while_workers_drain_them(store: TestStore) {
    let many = match store {
        // This store searches all tasks for each page.
        TestStore::Memory(_) => 2_000,
        _ => 100_000,
    };
    let tasks = rounds(2_000, many) as u64;
    let client = store.client().await;
    let handles = client.spawn_all((0..tasks).map(Number)).await.unwrap();
    let mut executors = Vec::new();
    for _ in 0..4 {
        let client = store.client().await;
        executors.push(start(&client, |number, _| async move { Ok(number) }).await);
    }
    let admin = client.admin();
    all(admin.cancel(of(Status::Waiting))).await;
    let mut ends = BTreeSet::new();
    for handle in handles {
        ends.insert((handle.id(), within(handle).await.is_ok()));
    }
    let counts = client.counts().await.unwrap();
    let done = ends.iter().filter(|(_, is_done)| *is_done).count() as u64;
    assert_eq!((counts.waiting, counts.running, counts.dead), (0, 0, 0));
    assert_eq!((counts.done, counts.kept), (done, tasks));
    let probe = client.spawn(Number(7)).await.unwrap();
    reaches(&probe, Status::Done).await;
}
