//! Single tasks and the heads of queues: how SQLite finds them, and damage.

use super::super::head::{BLOCKED, NEXT, SERVED};
use super::*;
use crate::durable::Status;

/// Neither sorts anything, nor reads rows that it does not return.
#[tokio::test]
async fn the_head_of_a_list_is_where_an_index_says() {
    let file = File::new();
    drop(file.open().await);
    let db = file.connect();
    let key = "PRIMARY KEY (list=? AND sublist=? AND place>?)";
    let plans = [
        (
            NEXT,
            vec![
                format!("SEARCH ready USING {key}"),
                String::from("SEARCH task USING PRIMARY KEY (id=?)"),
            ],
        ),
        (
            SERVED,
            vec![String::from(
                "SEARCH throng_group USING COVERING INDEX throng_group_turn (list=? AND turn>?)",
            )],
        ),
        (
            BLOCKED,
            vec![String::from(
                "SEARCH throng_group USING PRIMARY KEY (list=?)",
            )],
        ),
    ];
    for (sql, expected) in plans {
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let params = vec![1; plan.parameter_count()];
        let rows = plan.query_map(rusqlite::params_from_iter(params), |row| row.get(3));
        let plan: Vec<String> = rows.unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(plan, expected);
    }
}

/// A garbled row is repaired: the task is a dead letter.
#[tokio::test]
async fn a_task_with_a_garbled_row_is_found() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0, task(2).0]).await;
    file.sql("UPDATE throng_task SET failures = 'garbled', ready_at = 'garbled' WHERE hex(id) LIKE '%01'");
    let found = worker.store.find(id(1)).await.unwrap().expect("it exists");
    assert_eq!(found.status(), Status::Dead);
    assert_eq!(found.detail.task.reason, Some(DeadReason::Damaged));
    assert!(found.payload.is_some());
    let found = worker.store.find(id(2)).await.unwrap().expect("it exists");
    assert_eq!(found.status(), Status::Waiting);
}

#[tokio::test]
async fn a_lost_payload_is_reported() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).payload(vec![7; 1_000]).0]).await;
    file.sql("DELETE FROM throng_payload");
    let found = worker.store.find(id(1)).await.unwrap().expect("it exists");
    assert_eq!((found.status(), found.payload), (Status::Waiting, None));
    let damage = found.detail.damage.expect("it is lost");
    assert!(damage.starts_with("its data cannot be read"), "{damage}");
}

/// A worker whose session is gone is still the one that holds the task.
#[tokio::test]
async fn a_run_without_its_session_or_its_claim_is_found() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    let epoch = worker.claim(1).await.epoch;
    let detail = async || {
        let found = worker.store.find(id(1)).await.unwrap();
        let detail = found.expect("it exists").detail;
        assert_eq!(detail.task.status, Status::Running);
        detail
    };
    let runner = detail().await.runner.expect("it is known");
    let process = format!("process {}", std::process::id());
    assert_eq!(runner.process, Some(process));
    file.sql("DELETE FROM throng_session");
    let found = detail().await;
    assert_eq!(found.task.fencing_token, Some(epoch));
    assert_eq!(found.runner.map(|it| it.process), Some(None));
    file.sql("DELETE FROM throng_claim");
    let found = detail().await;
    assert_eq!((found.task.fencing_token, found.runner), (None, None));
}
