//! Cards of workers in a file: how SQLite finds them, and what happens if they are damaged.

use super::super::workers::WORKERS;
use super::*;
use crate::durable::WorkerInfo;
use crate::durable::store::{NewSession, WorkerCard};

async fn open(store: &SqliteStore) -> SessionId {
    let card = WorkerCard::new(&QueueName::DEFAULT, 3, ["job"]);
    let (set, card) = (TypeSet::of_tests(), Some(card));
    let opened = store.open_session_with(NewSession { set, card }).await;
    opened.unwrap()
}

async fn workers(store: &SqliteStore) -> Vec<WorkerInfo> {
    let page = store.workers(None, 100).await.unwrap();
    page.unwrap().workers
}

#[tokio::test]
async fn a_page_of_workers_begins_where_an_index_says() {
    let file = File::new();
    drop(file.open().await);
    let db = file.connect();
    let mut plan = db
        .prepare(&format!("EXPLAIN QUERY PLAN {WORKERS}"))
        .unwrap();
    let rows = plan.query_map([1, 1], |row| row.get::<_, String>(3));
    let plan = rows.unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let is_found = |step: &String| !step.contains("SCAN") && !step.contains("TEMP");
    assert!(plan.iter().all(is_found), "{plan:?}");
}

#[tokio::test]
async fn a_damaged_card_hides_no_other_worker() {
    let file = File::new();
    let store = file.open().await;
    let (damaged, other) = (open(&store).await, open(&store).await);
    let set = |card| {
        file.sql(&format!(
            "UPDATE throng_session SET card = {card} WHERE id = {damaged}"
        ))
    };
    set("x'7b'");
    let found = workers(&store).await;
    let seen: Vec<_> = found.iter().map(|it| (it.session, it.permits)).collect();
    assert_eq!(seen, [(damaged, 0), (other, 3)]);
    // A value of another type is damage. Its worker opens another session.
    set("7");
    let found = workers(&store).await;
    let seen: Vec<_> = found.iter().map(|it| (it.session, it.permits)).collect();
    assert_eq!(seen, [(other, 3)]);
}
