//! A page of the file cannot be read, and a worker is killed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use throng::durable::{DeadReason, Health};

use super::job::Job;
use super::site::{PATIENT, Site};
use super::support::within;

#[tokio::test]
async fn a_lost_page_and_a_killed_worker_cost_the_tasks_of_that_page() {
    let site = Site::file().await;
    let mut handles = site.spawn_all(Job::Work(1), 400).await;
    let held = site.spawn(Job::Wait).await;
    let db = site.database();
    let moved = "PRAGMA wal_checkpoint(TRUNCATE)";
    let moved: i64 = db
        .query_row(moved, [], |row| row.get(0))
        .expect("an answer");
    assert_eq!(moved, 0);
    let page = "SELECT pageno FROM dbstat WHERE name = 'throng_task' AND pagetype = 'leaf'
         ORDER BY path LIMIT 1 OFFSET 2";
    let page: i64 = db.query_row(page, [], |row| row.get(0)).expect("a page");
    drop(db);
    let path = site.folder.0.join("tasks.db");
    let file = OpenOptions::new().write(true).open(path).expect("the file");
    file.write_all_at(&[0x5a; 4096], (page as u64 - 1) * 4096)
        .expect("it is written");

    let mut first = site.worker(PATIENT).await;
    site.begun(held.id(), &first).await;
    first.kill();
    let mut second = site.worker(PATIENT).await;
    site.begun(held.id(), &second).await;
    site.folder.open_gate();
    handles.push(held);
    let mut lost = 0;
    for handle in handles {
        match within(handle).await {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.dead_reason(), Some(DeadReason::Damaged), "{error}");
                lost += 1;
            }
        }
    }
    assert!((1..100).contains(&lost), "{lost}");
    // All processes learn of the damage that one has found.
    for client in [site.client.clone(), site.place.client().await] {
        client.counts().await.expect("the store answers");
        assert!(
            matches!(client.health(), Health::Damaged { .. }),
            "{:?}",
            client.health()
        );
    }
    second.stop(0).await;
}
