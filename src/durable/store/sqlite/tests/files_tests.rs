//! The file is removed or replaced while it is open.

use std::fs;
use std::path::PathBuf;

use super::{File, Worker, assert_fails, id, task};
use crate::durable::failure::{Cause, Effect};
use crate::durable::store::{Backend, TaskState};

#[tokio::test]
async fn nothing_is_stored_in_a_file_that_was_removed() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    for path in file.all() {
        fs::remove_file(path).unwrap();
    }
    assert_is_replaced(&worker).await;
    assert!(!file.path.exists(), "no other file was created");
}

#[tokio::test]
async fn nothing_is_stored_in_a_file_that_was_moved_until_it_is_back() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    let away = file.path.with_file_name("away.db");
    fs::rename(&file.path, &away).unwrap();
    assert_is_replaced(&worker).await;

    fs::rename(&away, &file.path).unwrap();
    worker.enqueue([task(4).0]).await;
    let seen = worker.store.status(vec![id(1), id(3), id(4)]).await;
    // The requests after the first error were never written.
    assert_eq!(
        seen.unwrap(),
        [TaskState::Waiting, TaskState::Absent, TaskState::Waiting]
    );
}

#[tokio::test]
async fn a_replacement_file_is_left_unchanged() {
    let file = File::new();
    let old = Worker::new(&file.open().await).await;
    old.enqueue([task(1).0]).await;
    for path in file.all() {
        fs::remove_file(path).unwrap();
    }
    let new = Worker::new(&file.open().await).await;
    new.enqueue([task(9).0]).await;

    assert_is_replaced(&old).await;
    drop(old);
    // The old file is closed, together with its log, which has the same name.
    new.enqueue([task(10).0]).await;
    let seen = new.store.status(vec![id(1), id(2), id(9), id(10)]).await;
    let expected = [
        TaskState::Absent,
        TaskState::Absent,
        TaskState::Waiting,
        TaskState::Waiting,
    ];
    assert_eq!(seen.unwrap(), expected);
}

#[tokio::test]
async fn a_copy_in_its_place_is_used() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    let copy = file.path.with_file_name("copy.db");
    file.sql(&format!("VACUUM INTO '{}'", copy.display()));
    let (session, log) = (worker.session, file.path.with_file_name("tasks.db-wal"));
    worker.enqueue([task(2).0]).await;
    fs::remove_file(log).unwrap();
    fs::rename(copy, &file.path).unwrap();

    let failure = worker.try_enqueue([task(3).0]).await.unwrap_err();
    assert_eq!(failure.cause, Cause::Replaced);
    worker.enqueue([task(4).0]).await;
    assert_eq!(worker.session, session);
    let seen = worker.store.status((1..=4).map(id).collect()).await;
    let expected = [
        TaskState::Waiting,
        TaskState::Absent,
        TaskState::Absent,
        TaskState::Waiting,
    ];
    assert_eq!(seen.unwrap(), expected);
}

#[tokio::test]
async fn nothing_is_stored_without_the_log_and_nothing_is_lost_with_it() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    fs::remove_file(file.path.with_file_name("tasks.db-wal")).unwrap();
    assert_is_replaced(&worker).await;

    // When the last process has closed the file, it contains everything from the log.
    drop(worker);
    super::until(|| file.files().is_empty()).await;
    let worker = Worker::new(&file.open().await).await;
    assert_eq!(
        worker.store.status(vec![id(1)]).await.unwrap(),
        [TaskState::Waiting]
    );
}

#[test]
fn the_last_of_many_processes_leaves_no_files() {
    let file = File::new();
    let come_and_go = &async |n: u64| {
        for round in 0..12 {
            let store = file.open().await;
            let worker = Worker::new(&store).await;
            worker.enqueue([task(100 * n + round).0]).await;
            worker.try_turn(vec![], 0, true).await.unwrap();
            store.close().await.unwrap();
        }
    };
    std::thread::scope(|scope| {
        for n in 0..4 {
            scope.spawn(move || futures::executor::block_on(come_and_go(n)));
        }
    });
    let names = fs::read_dir(file.path.parent().unwrap()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["tasks.db"]);
    assert_eq!(file.number("SELECT waiting FROM throng_meta"), 48);
    assert_eq!(file.number("SELECT count(*) FROM throng_session"), 0);
}

#[tokio::test]
async fn a_closed_store_rejects_requests() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    let late = worker.store.enqueue(worker.request([task(2).0]));
    // Dropped before it is finished, and begun again.
    drop(worker.store.close());
    worker.store.close().await.unwrap();
    worker.store.close().await.unwrap();
    late.await.unwrap();
    assert_fails(worker.try_enqueue([task(3).0]).await, &Cause::Unavailable);
    assert_fails(worker.store.status(vec![id(1)]).await, &Cause::Unavailable);
    assert_eq!(file.number("SELECT waiting FROM throng_meta"), 2);
}

/// Asserts that the file can neither be written nor read, from the first request on.
async fn assert_is_replaced(worker: &Worker) {
    let failure = worker.try_enqueue([task(2).0]).await.unwrap_err();
    let expected = (Cause::Replaced, Effect::Unknown);
    assert_eq!((failure.cause, failure.effect), expected);
    for _ in 0..2 {
        assert_fails(worker.try_enqueue([task(3).0]).await, &Cause::Replaced);
        assert_fails(worker.try_turn(vec![], 1, true).await, &Cause::Replaced);
        assert_fails(worker.store.status(vec![id(1)]).await, &Cause::Replaced);
    }
}

impl File {
    /// The files of the database.
    fn all(&self) -> Vec<PathBuf> {
        let names = ["tasks.db", "tasks.db-wal", "tasks.db-shm"];
        let paths = names.map(|name| self.path.with_file_name(name));
        assert!(paths.iter().all(|path| path.exists()));
        paths.into()
    }
}
