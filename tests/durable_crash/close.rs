//! A client is closed: what was spawned is stored, and it leaves nothing behind but that.

use std::fs;
use std::path::Path;

use throng::durable::{DurableClient, DurableExecutor, SqliteStore};

use super::child::Role;
use super::job::Job;
use super::process::{Process, until};
use super::site::{PATIENT, Site, outcomes};

on_all_stores! {
    what_was_spawned_is_stored_and_nothing_is_spawned_afterwards,
    what_runs_goes_to_others,
}

async fn what_was_spawned_is_stored_and_nothing_is_spawned_afterwards(site: Site) {
    let client = site.address.client().await;
    let spawning = tokio::spawn({
        let client = client.clone();
        async move { client.spawn_all(vec![Job::Work(1); 3000]).await }
    });
    let handle = client.spawn(Job::Work(1)).await.expect("it is stored");
    let awaiting = tokio::spawn(client.attach::<Job>(handle.id()));
    let (first, second) = tokio::join!(client.close(), client.close());
    assert!(first.and(second).is_ok());

    let stored = spawning.await.expect("no panic");
    let stored = stored.map(|handles| handles.len());
    let counted = site.counts().await.stored as usize;
    match stored {
        Ok(count) => assert_eq!(counted, count + 1),
        Err(error) => assert!(error.is_closed() && counted >= 1, "{error}"),
    }
    let refused = client.spawn(Job::Work(1)).await;
    assert!(refused.expect_err("it is closed").is_closed());
    let awaited = awaiting.await.expect("no panic");
    assert!(awaited.expect_err("it is closed").is_closed());
    let asked = client.counts().await;
    assert!(asked.expect_err("it is closed").is_closed());
    assert_eq!(site.counts().await.stored as usize, counted);
    assert!(client.close().await.is_ok());
}

async fn what_runs_goes_to_others(site: Site) {
    let client = site.address.client().await;
    let executor = DurableExecutor::builder(client.clone())
        .register::<Job>()
        .start(site.folder.clone())
        .await
        .expect("an executor");
    let handles = site.spawn_all(Job::Wait, 4).await;
    until("all run", async || {
        (site.counts().await.running == 4).then_some(())
    })
    .await;
    client.close().await.expect("it ends in order");
    executor.closed().await;
    let counts = site.counts().await;
    assert_eq!((counts.released, counts.waiting), (4, 4), "{counts:?}");

    site.folder.open_gate();
    let mut worker = site.worker(PATIENT).await;
    outcomes(handles).await;
    worker.stop(0).await;
}

#[tokio::test]
async fn the_file_alone_has_everything() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    let (client, peer) = (open(&path).await, open(&path).await);
    let large = Job::Work(1);
    let ids = client.spawn_all(vec![large; 500]).await.expect("stored");
    // The second one awaits, so it wants to be told of ends, and its worker rests.
    let executor = DurableExecutor::builder(peer.clone())
        .register::<Job>()
        .start(super::job::Folder(folder.path().to_owned()))
        .await
        .expect("an executor");
    for id in ids.iter().take(10) {
        let handle = peer.attach::<Job>(id.id());
        handle.await.expect("it succeeds");
    }
    executor.shutdown(std::time::Duration::ZERO).await;
    let before = client.counts().await.expect("an answer");
    client.close().await.expect("it ends in order");
    // The other goes on.
    drop(peer.spawn(Job::Work(1)).await.expect("it is stored"));
    peer.close().await.expect("it ends in order");
    assert_eq!(names(folder.path()), ["ledger", "tasks.db"]);

    let copy = folder.path().join("copy.db");
    fs::copy(&path, &copy).expect("a copy");
    let client = open(&copy).await;
    let after = client.counts().await.expect("an answer");
    assert_eq!(after.stored, before.stored + 1);
    assert_eq!(after.waiting, before.waiting + 1);
    client.close().await.expect("it ends in order");
}

/// The executor owns the last client. `shutdown` leaves it open, so more can be stored.
#[tokio::test]
async fn after_a_shutdown_the_file_is_left_alone_when_the_last_client_is_closed() {
    let (site, mut program) = program_that_ends(true).await;
    // The program lives, and has waited for this.
    assert_eq!(names(&site.folder.0), ["ledger", "tasks.db"]);
    assert_file_has_all(&site).await;
    program.tell_to_stop(0);
    assert!(program.died().await.success());
}

/// The same, but nobody waits for it.
#[tokio::test]
async fn after_a_shutdown_the_file_is_left_alone_soon_after_the_last_client_is_dropped() {
    let (site, mut program) = program_that_ends(false).await;
    until("the file is left alone", async || {
        (names(&site.folder.0) == ["ledger", "tasks.db"]).then_some(())
    })
    .await;
    assert_file_has_all(&site).await;
    program.tell_to_stop(0);
    assert!(program.died().await.success());
}

const TASKS: usize = 50;

/// A program that has run tasks, and then stored as many.
async fn program_that_ends(closes: bool) -> (Site, Process) {
    let site = Site::file().await;
    site.client.close().await.expect("it ends in order");
    let role = Role::Whole {
        tasks: TASKS,
        closes,
    };
    let program = Process::start(&site.plan(role));
    program.wait_for_line("ended").await;
    (site, program)
}

/// A copy of nothing but the file has all tasks and results.
async fn assert_file_has_all(site: &Site) {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy.db");
    fs::copy(site.folder.0.join("tasks.db"), &copy).expect("a copy");
    let client = open(&copy).await;
    let counts = client.counts().await.expect("an answer");
    let counted = [counts.stored, counts.done, counts.kept, counts.waiting];
    let tasks = TASKS as u64;
    assert_eq!(counted, [2 * tasks, tasks, tasks, tasks], "{counts:?}");
    client.close().await.expect("it ends in order");
}

#[tokio::test]
async fn a_connection_of_somebody_else_delays_nobody() {
    let site = Site::file().await;
    site.spawn_all(Job::Work(1), 10).await;
    let reader = site.file_connection();
    reader.execute_batch("BEGIN").expect("it begins");
    let stored = "SELECT stored FROM throng_meta";
    let stored: i64 = reader
        .query_row(stored, [], |row| row.get(0))
        .expect("a row");
    assert_eq!(stored, 10);
    let begun = std::time::Instant::now();
    site.client.close().await.expect("it ends in order");
    // Less than what SQLite waits for a lock.
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    drop(reader);
    assert_eq!(names(&site.folder.0), ["tasks.db"]);
}

#[tokio::test]
async fn short_programs_leave_nothing_even_if_one_is_killed() {
    let site = Site::file().await;
    site.client.close().await.expect("it ends in order");
    let plan = site.plan(Role::Producer { tasks: 1 });
    let folder = &site.folder.0;
    for _ in 0..3 {
        let mut deadly = Process::start_deadly(&plan, "sqlite.after-commit:2");
        deadly.died().await;
        assert!(names(folder).len() > 1, "it had no time to tidy up");
        for _ in 0..2 {
            let mut producer = Process::start(&plan);
            assert!(producer.died().await.success());
            assert_eq!(names(folder), ["tasks.db"]);
        }
    }
}

async fn open(path: &Path) -> DurableClient {
    DurableClient::open(SqliteStore::open(path).await.expect("a store"))
}

/// Returns the names of the entries of a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names.map(|name| name.display().to_string()).collect();
    names.sort();
    names
}
