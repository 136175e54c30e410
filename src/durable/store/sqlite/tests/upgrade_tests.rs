//! Upgrades: the layout rises when no process of an older version is left.

use super::*;
use crate::durable::StoreLayout;
use crate::durable::clock::Clock;
use crate::durable::store::layouts::Layouts;

const OLD: i64 = Layouts::KNOWN.newest;
const NEW: i64 = Layouts::OF_SUCCESSOR.newest;

/// Opens the store as a process of a later version does.
async fn open_later_version(file: &File) -> Arc<SqliteStore> {
    let opened = SqliteStore::open_as(&file.path, Clock::machine(), Layouts::OF_SUCCESSOR);
    Arc::new(opened.await.unwrap())
}

fn layout(file: &File) -> i64 {
    file.number("SELECT layout FROM throng_meta")
}

fn too_new() -> Cause {
    Cause::NewerLayout {
        found: NEW,
        known: OLD,
    }
}

#[tokio::test]
async fn tasks_of_the_old_layout_go_on_when_no_old_process_is_left() {
    let file = File::new();
    let old = Worker::new(&file.open().await).await;
    let tasks = (1..=3).map(|n| task(n).0);
    old.enqueue(tasks.chain([task(4).delay(3600).0])).await;
    let running = old.claim(1).await;
    let new = Worker::new(&open_later_version(&file).await).await;

    // The new process works beside the old one, and does not raise the layout.
    new.turn(done(&new.claim(1).await, Vec::new()), 0).await;
    let this = format!("process {}", std::process::id());
    assert_fails(new.store.upgrade().await, &Cause::OldProcesses(vec![this]));
    assert_eq!(layout(&file), OLD);
    let expected = StoreLayout {
        current: OLD,
        newest: NEW,
        older_processes: vec![format!("process {}", std::process::id())],
    };
    assert_eq!(new.store.layout().await.unwrap(), expected);
    let by_old = StoreLayout {
        newest: OLD,
        older_processes: Vec::new(),
        ..expected.clone()
    };
    assert_eq!(old.store.layout().await.unwrap(), by_old);

    old.turn(done(&running, Vec::new()), 0).await;
    old.store.close_session(old.session).await.unwrap();
    let unused = StoreLayout {
        older_processes: Vec::new(),
        ..expected
    };
    assert_eq!(new.store.layout().await.unwrap(), unused);
    assert_eq!(layout(&file), OLD);
    for _ in 0..2 {
        new.store.upgrade().await.unwrap();
        assert_eq!(layout(&file), NEW);
        let upgraded = StoreLayout {
            current: NEW,
            ..unused.clone()
        };
        assert_eq!(new.store.layout().await.unwrap(), upgraded);
    }
    let claim = new.claim(9).await;
    assert_eq!((claim.tasks.len(), claim.tasks[0].id), (1, id(3)));
    new.turn(done(&claim, Vec::new()), 0).await;
    let counts = new.store.counts().await.unwrap();
    assert_eq!((counts.done, counts.delayed), (3, 1), "{counts:?}");
}

#[tokio::test]
async fn an_old_process_is_refused_after_the_upgrade() {
    let file = File::new();
    let old = Worker::new(&file.open().await).await;
    let new = open_later_version(&file).await;
    old.store.close_session(old.session).await.unwrap();
    new.upgrade().await.unwrap();

    assert_fails(old.try_enqueue([task(1).0]).await, &too_new());
    assert_fails(old.store.status(vec![id(1)]).await, &too_new());
    assert_fails(old.store.counts().await, &too_new());
    assert_fails(old.store.upgrade().await, &too_new());
    let refused = SqliteStore::open(&file.path).await.unwrap_err();
    assert!(refused.is_newer_layout(), "{refused}");
    assert_eq!(layout(&file), NEW);
}

#[tokio::test]
async fn a_process_that_has_died_does_not_hold_back_an_upgrade() {
    let file = File::new();
    let old = Worker::new(&file.open().await).await;
    old.enqueue([task(1).0]).await;
    old.claim(1).await;
    let new = Worker::new(&open_later_version(&file).await).await;
    assert!(new.store.upgrade().await.is_err());
    old.store.simulate_crash();
    new.store.upgrade().await.unwrap();
    assert_eq!(layout(&file), NEW);
    // Its task is taken back.
    assert_eq!(new.claim(9).await.tasks.len(), 1);
}

/// The folder with the lock files was not restored. Nobody knows this endpoint.
#[tokio::test]
async fn a_restored_file_has_no_process_that_prevents_an_upgrade() {
    let file = File::new();
    let _old = Worker::new(&file.open().await).await;
    let new = open_later_version(&file).await;
    assert_eq!(new.layout().await.unwrap().older_processes.len(), 1);
    file.sql("UPDATE throng_session SET endpoint = 123456789");
    assert_eq!(new.layout().await.unwrap().older_processes, [""; 0]);
    new.upgrade().await.unwrap();
    assert_eq!(layout(&file), NEW);
}

#[tokio::test]
async fn a_new_store_has_the_newest_layout() {
    let file = File::new();
    file.open().await.upgrade().await.unwrap();
    assert_eq!(layout(&file), OLD);
    let newer = File::new();
    drop(open_later_version(&newer).await);
    assert_eq!(layout(&newer), NEW);
}
