//! A page of the file cannot be read, and a worker is killed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use throng::durable::{DeadReason, DurableClient, DurableError, Health, TaskId};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use super::job::{Job, Outcome};
use super::process::until;
use super::site::{PATIENT, Site, outcomes};
use super::support::{rounds, within};

#[tokio::test]
async fn a_lost_page_and_a_killed_worker_cost_the_tasks_of_that_page() {
    let site = Site::file().await;
    let mut handles = site.spawn_all(Job::Work(1), 400).await;
    let held = site.spawn(Job::Wait).await;
    let db = site.file_connection();
    let moved = "PRAGMA wal_checkpoint(TRUNCATE)";
    let moved: i64 = db
        .query_row(moved, [], |row| row.get(0))
        .expect("an answer");
    assert_eq!(moved, 0);
    let page = "SELECT pageno FROM dbstat WHERE name = 'throng_task' AND pagetype = 'leaf'
         ORDER BY path LIMIT 1 OFFSET 2";
    let page: i64 = db.query_row(page, [], |row| row.get(0)).expect("a page");
    drop(db);
    overwrite(&site, page);

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
    for client in [site.client.clone(), site.address.client().await] {
        client.counts().await.expect("the store answers");
        assert!(
            matches!(client.health(), Health::Damaged { .. }),
            "{:?}",
            client.health()
        );
    }
    second.stop(0).await;
}

fn overwrite(site: &Site, page: i64) {
    let path = site.folder.0.join("tasks.db");
    let file = OpenOptions::new().write(true).open(path).expect("the file");
    file.write_all_at(&[0x5a; 4096], (page as u64 - 1) * 4096)
        .expect("it is written");
}

/// The trees of a store that has neither large tasks nor errors.
const TREES: [&str; 5] = [
    "throng_task",
    "throng_task_at",
    "throng_ready",
    "throng_claim",
    "throng_session",
];

/// Stores and awaits tasks all the time.
struct Load {
    is_over: Arc<AtomicBool>,
    stored: JoinHandle<Vec<(TaskId, Result<Outcome, DurableError>)>>,
}

impl Load {
    fn start(client: &DurableClient) -> Self {
        let (client, is_over) = (client.clone(), Arc::<AtomicBool>::default());
        let stops = Arc::clone(&is_over);
        let stored = tokio::spawn(async move {
            let (permits, mut awaited) = (Arc::new(Semaphore::new(50)), JoinSet::new());
            while !stops.load(Ordering::SeqCst) {
                let permit = Arc::clone(&permits).acquire_owned().await;
                let handle = client.spawn(Job::Work(1)).await.expect("it is stored");
                awaited.spawn(async move {
                    let (id, ended) = (handle.id(), within(handle).await);
                    drop(permit);
                    (id, ended)
                });
            }
            awaited.join_all().await
        });
        Self { is_over, stored }
    }

    async fn end(self) -> Vec<(TaskId, Result<Outcome, DurableError>)> {
        self.is_over.store(true, Ordering::SeqCst);
        self.stored.await.expect("all are stored, and end")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_are_lost_under_load_cost_their_own_tasks() {
    let site = Site::file().await;
    let mut workers = [site.worker(PATIENT).await, site.worker(PATIENT).await];
    let load = Load::start(&site.client);
    // The store keeps at most twenty damaged tables.
    let count = rounds(6, 18);
    for round in 0..count {
        let before = site.counts().await.done;
        until("the tasks go on", async || {
            (site.counts().await.done >= before + 100).then_some(())
        })
        .await;
        lose_page(&site, TREES[round % TREES.len()]).await;
    }
    let ended = load.end().await;
    // Possibly, no request has read the rows of a lost page since then.
    for &(id, _) in &ended {
        let status = site.client.attach::<Job>(id).status().await;
        status.expect("the store answers");
    }
    let lost = ended.iter().filter_map(|(_, ended)| ended.as_ref().err());
    let lost: Vec<_> = lost.collect();
    for error in &lost {
        let is_damage = error.dead_reason() == Some(DeadReason::Damaged) || error.is_expired();
        assert!(is_damage, "{error}");
    }
    assert!(lost.len() < 60 * count, "{} of {}", lost.len(), ended.len());

    outcomes(site.spawn_all(Job::Work(1), 20).await).await;
    let counts = site.counts().await;
    let left = (counts.waiting, counts.delayed, counts.running);
    assert_eq!(left, (0, 0, 0), "{counts:?}");
    let health = site.client.health();
    assert!(matches!(health, Health::Damaged { .. }), "{health:?}");
    let finds = "SELECT count(*) FROM throng_damaged";
    let finds: i64 = site
        .file_connection()
        .query_row(finds, [], |row| row.get(0))
        .expect("a number");
    assert!(finds > 0);
    for worker in &mut workers {
        worker.stop(0).await;
    }
}

/// Overwrites a random leaf of a tree in the file.
async fn lose_page(site: &Site, tree: &str) {
    let db = site.file_connection();
    db.busy_timeout(Duration::from_secs(5)).expect("a timeout");
    until("the log is in the file", async || {
        let moved = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        matches!(moved, Ok(0)).then_some(())
    })
    .await;
    let page = "SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype = 'leaf'
         ORDER BY random() LIMIT 1";
    if let Ok(page) = db.query_row(page, [tree], |row| row.get(0)) {
        overwrite(site, page);
    }
}
