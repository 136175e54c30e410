//! Upgrades: the layout rises when no process of an older version is left.

use super::super::time::Time;
use super::scene::{SECOND, Scene, later};
use super::*;
use crate::durable::store::layouts::Layouts;
use crate::durable::{DurableError, StoreLayout};

const OLD: i64 = Layouts::KNOWN.newest;
const NEW: i64 = Layouts::OF_SUCCESSOR.newest;

impl Scene {
    /// Opens the store as a process of a later version does.
    async fn open_later_version(&self) -> Result<RedisStore, DurableError> {
        let mut builder = RedisStore::builder(&self.server.url());
        builder.namespace(&self.namespace);
        builder.layouts = Layouts::OF_SUCCESSOR;
        RedisStore::open_as(&builder, Time::manual(self.clock.clone())).await
    }

    async fn new_worker(&self) -> Worker {
        Worker::new(self.open_later_version().await.unwrap()).await
    }

    fn layout(&self) -> i64 {
        match self.ask(&["HGET", &self.key("meta"), "layout"]) {
            redis::Value::BulkString(text) => String::from_utf8(text).unwrap().parse().unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

/// The failure of a request of a process that does not know the layout.
fn too_new() -> Cause {
    Cause::NewerLayout {
        found: NEW,
        known: OLD,
    }
}

#[tokio::test]
async fn tasks_of_the_old_layout_go_on_when_no_old_process_is_left() {
    needs_redis!();
    let scene = Scene::new().await;
    let tasks = (1..=4).map(task).chain([later(5, SECOND)]);
    scene.worker.enqueue(tasks).await;
    let claim = scene.worker.claim(1).await;
    scene
        .worker
        .turn(dead(&claim, DeadReason::Fatal, "error"), 0)
        .await;
    let running = scene.worker.claim(1).await;
    let new = scene.new_worker().await;

    // The new process works beside the old one, and does not raise the layout.
    new.turn(done(&new.claim(1).await), 0).await;
    let refused = new.store.upgrade().await.unwrap_err();
    let Cause::OldProcesses(processes) = &refused.cause else {
        panic!("{refused}")
    };
    let this = format!("process {} on ", std::process::id());
    assert!(
        processes.len() == 1 && processes[0].starts_with(&this),
        "{refused}"
    );
    assert_eq!((refused.effect, scene.layout()), (Effect::None, OLD));
    let mut expected = StoreLayout {
        current: OLD,
        newest: NEW,
        older_processes: processes.clone(),
    };
    assert_eq!(new.store.layout().await.unwrap(), expected);

    scene.worker.turn(done(&running), 0).await;
    let store = Arc::clone(&scene.worker.store);
    store.close_session(scene.worker.session).await.unwrap();
    expected.older_processes.clear();
    assert_eq!(new.store.layout().await.unwrap(), expected);
    assert_eq!(scene.layout(), OLD);
    expected.current = NEW;
    // Another process, or a repeated request, finds nothing to do.
    for _ in 0..2 {
        new.store.upgrade().await.unwrap();
        assert_eq!(scene.layout(), NEW);
        assert_eq!(new.store.layout().await.unwrap(), expected);
    }
    scene.clock.advance(SECOND);
    assert_eq!(scene.run_all(&new).await, [id(4), id(5)]);
    let replayed = new.store.replay_dead_letters(DeadFilter::all()).await;
    assert_eq!(replayed.unwrap(), 1);
    assert_eq!(scene.run_all(&new).await, [id(1)]);
    let ended = TaskState::Done(b"output".to_vec());
    for number in 1..=5 {
        let seen = new.store.status(vec![id(number)]).await.unwrap();
        assert_eq!(seen, std::slice::from_ref(&ended), "{number}");
    }
}

/// The copy of the layout says what it is.
#[tokio::test]
async fn a_layout_that_cannot_be_read_is_reported_from_its_copy() {
    needs_redis!();
    for garbage in ["inf", "nan", "1e400", "1.5", "-3", ""] {
        let scene = Scene::new().await;
        let store = &scene.worker.store;
        let whole = store.layout().await.unwrap();
        scene.run(&format!("call('HSET', 'meta', 'layout', '{garbage}')"));
        let read = store.layout().await.unwrap();
        assert_eq!(read.current, whole.current, "{garbage:?}");
    }
}

#[tokio::test]
async fn an_old_process_is_refused_after_the_upgrade() {
    needs_redis!();
    let scene = Scene::new().await;
    let new = scene.new_worker().await;
    let store = &scene.worker.store;
    store.close_session(scene.worker.session).await.unwrap();
    new.store.upgrade().await.unwrap();

    assert_fails(store.open_session(None).await, &too_new(), Effect::None);
    assert_fails(store.status(vec![id(1)]).await, &too_new(), Effect::None);
    assert_fails(store.upgrade().await, &too_new(), Effect::None);
    let refused = scene.try_open().await.unwrap_err();
    assert!(refused.is_newer_layout(), "{refused}");
    // No old process can open the store, so none lowers its layout.
    assert_eq!(scene.layout(), NEW);
}

#[tokio::test]
async fn a_process_that_is_gone_does_not_hold_back_an_upgrade() {
    needs_redis!();
    let mut scene = Scene::new().await;
    scene.worker.enqueue([task(1)]).await;
    let claimed = scene.worker.claim(1).await;
    let new = scene.new_worker().await;
    // The old process dies with a task, and leaves its session behind.
    let other = scene.new_worker().await;
    let left = std::mem::replace(&mut scene.worker, other);
    let channel = left.store.client_id().to_owned();
    drop(left);
    let channel = format!("{}client:{channel}", scene.key(""));
    let end = Instant::now() + DEADLINE;
    while has_receivers(&scene, &channel) {
        assert!(Instant::now() < end, "the connection is still open");
        sleep(Duration::from_millis(5)).await;
    }
    let refused = new.store.upgrade().await.unwrap_err();
    assert!(matches!(refused.cause, Cause::OldProcesses(_)), "{refused}");

    scene.clock.advance(180 * SECOND);
    new.store.upgrade().await.unwrap();
    assert_eq!(scene.layout(), NEW);
    // Its task is taken back once. The first turn only suspects its worker.
    assert_eq!(new.turn(Vec::new(), 9).await.claim, None);
    scene.clock.advance(LEASE);
    let claim = new.claim(9).await;
    assert!(claim.epoch > claimed.epoch);
    assert_eq!((claim.tasks.len(), claim.tasks[0].id), (1, id(1)));
    new.turn(done(&claim), 0).await;
    scene.check();
}

#[tokio::test]
async fn a_damaged_layout_is_restored_and_not_raised() {
    needs_redis!();
    let scene = Scene::new().await;
    let new = scene.new_worker().await;
    let old = Arc::clone(&scene.worker.store);
    let garble = "call('HSET', 'meta', 'layout', 'x')";
    let remove = "call('HDEL', 'meta', 'layout')";
    for damage in [garble, remove] {
        for store in [&old, &new.store] {
            scene.run(damage);
            store.maintain(100).await.unwrap();
            assert_eq!(scene.layout(), OLD);
        }
    }
    old.close_session(scene.worker.session).await.unwrap();
    new.store.upgrade().await.unwrap();
    for damage in [garble, remove] {
        scene.run(damage);
        assert_fails(old.maintain(100).await, &too_new(), Effect::None);
        assert_fails(old.open_session(None).await, &too_new(), Effect::None);
        new.store.maintain(100).await.unwrap();
        assert_eq!(scene.layout(), NEW);
    }
    // A process that opens the store restores the layout, too.
    scene.run(remove);
    drop(scene.open_later_version().await.unwrap());
    assert_eq!(scene.layout(), NEW);
}

fn has_receivers(scene: &Scene, channel: &str) -> bool {
    let answer = scene.ask(&["PUBSUB", "NUMSUB", channel]);
    let redis::Value::Array(parts) = answer else {
        panic!("{answer:?}")
    };
    parts[1] != redis::Value::Int(0)
}

#[tokio::test]
async fn all_partitions_are_upgraded_or_an_old_process_is_named() {
    needs_redis!();
    let server = Server::start();
    let open = async |layouts| {
        let mut builder = RedisStore::builder(&server.url());
        builder.partitions(3);
        builder.layouts = layouts;
        builder.open().await.map(Arc::new)
    };
    let old = open(Layouts::KNOWN).await.unwrap();
    let session = old.open_session(None).await.unwrap();
    let new = open(Layouts::OF_SUCCESSOR).await.unwrap();
    let worker = Worker::of(&new).await;
    worker.enqueue((1..=30).map(task)).await;
    let layouts = || {
        let layout = |partition| {
            let key = format!("throng:{{default:{partition}}}:meta");
            server.ask(&["HGET", &key, "layout"])
        };
        [0, 1, 2].map(layout)
    };
    let all = |layout: i64| [(); 3].map(|()| redis::Value::BulkString(layout.to_string().into()));

    assert!(new.upgrade().await.is_err());
    assert_eq!(layouts(), all(OLD));
    old.close_session(session).await.unwrap();
    // An upgrade was interrupted after the first partition.
    server.ask(&[
        "HSET",
        "throng:{default:0}:meta",
        "layout",
        &NEW.to_string(),
    ]);
    new.upgrade().await.unwrap();
    assert_eq!(layouts(), all(NEW));
    let mut tasks = 0;
    while tasks < 30 {
        let claim = worker.claim(30).await;
        tasks += claim.tasks.len();
        worker.turn(done(&claim), 0).await;
    }
}
