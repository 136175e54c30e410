//! Schedules in Redis: their costs for a store without schedules, damage, a full server, the disk, and many that are due at once.

use tokio::sync::mpsc;

use super::super::address::RedisAddress;
use super::super::inner::Inner;
use super::super::keys::{self, Keys};
use super::super::schedules;
use super::super::time::Time;
use super::super::types;
use super::scene::{HOUR, SECOND, Scene};
use super::*;
use crate::durable::clock::millis;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::schedule::step;
use crate::durable::store::{
    DueSchedule, HAND_OUT_INTERVAL, HandOut, MAX_HAND_OUTS, ScheduleChange, ScheduleRow, Store,
};
use crate::durable::{
    DurableClient, DurableExecutor, DurableTask, Every, Overlap, Run, ScheduleOptions, ServedQueue,
    SpawnOptions, TaskContext, TaskError,
};

mod partitions_tests;

#[derive(serde::Serialize, serde::Deserialize)]
struct Job;

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = ();
}

impl Run<()> for Job {
    async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
        Ok(())
    }
}

const MINUTE: Duration = Duration::from_secs(60);

fn name(name: &str) -> ScheduleName {
    ScheduleName::new(name).unwrap()
}

/// Returns a change that defines a schedule. It is handed out at the given time, and its body cannot be read.
fn new_schedule(of: &str, time: Duration) -> ScheduleChange {
    ScheduleChange {
        name: name(of),
        before: None,
        after: Some(ScheduleRow {
            version: 7,
            needs: 1,
            time: Some(millis(time)),
            started: 0,
            skipped: 0,
            last_task: None,
            body: b"body".to_vec(),
        }),
        queue: QueueName::DEFAULT,
        tasks: Vec::new(),
    }
}

async fn define_rows(scene: &Scene, names: &[&str]) {
    for of in names {
        let change = new_schedule(of, scene.clock.wall() + SECOND);
        let changed = scene.worker.store.change_schedule(Arc::new(change)).await;
        assert!(changed.unwrap().is_some());
    }
}

fn client_of(worker: &Worker) -> DurableClient {
    DurableClient::open(Store(worker.store.clone()))
}

async fn hand_out(worker: &Worker) -> HandOut {
    settled(|| worker.store.hand_out(3)).await.unwrap()
}

async fn due(worker: &Worker) -> Vec<DueSchedule> {
    hand_out(worker).await.due
}

async fn due_names(worker: &Worker) -> Vec<String> {
    let due = due(worker).await;
    let names = due.iter().map(|due| due.schedule.name.as_str().to_owned());
    names.collect()
}

fn firing(store: &RedisStore, due: &DueSchedule) -> Arc<ScheduleChange> {
    let can_have = |id: TaskId, queue: &_, key| store.can_have(id, queue, key);
    Arc::new(step::fire(due, &can_have).unwrap())
}

/// Returns the key `meta` of a partition.
fn meta_of(partition: usize) -> String {
    let base = keys::base("default", partition);
    Keys::new(&base).meta().to_owned()
}

/// Returns the number of commands on data that the server has run since the last call.
fn commands(server: &Server) -> u64 {
    let redis::Value::BulkString(text) = server.ask(&["INFO", "commandstats"]) else {
        panic!("a text");
    };
    server.ask(&["CONFIG", "RESETSTAT"]);
    let text = String::from_utf8(text).unwrap();
    let calls = text.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let first = command.chars().next()?;
        // Lists, hashes, sets and sorted sets.
        let is_data =
            "lhsz".contains(first) && !command.starts_with("hello") && !command.starts_with("se");
        is_data.then(|| rest.split(',').next()?.parse::<u64>().ok())?
    });
    calls.sum()
}

/// The numbers are those that were measured before the crate had schedules.
#[tokio::test]
async fn a_store_without_schedules_runs_no_command_for_them() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    // Otherwise, the first task of a type would have its name recorded.
    let first = task(1);
    types::record(&worker.store.inner, 0, &[&first])
        .await
        .unwrap();
    worker.turn(Vec::new(), 1).await;
    commands(&server);
    assert_eq!(worker.turn(Vec::new(), 1).await.claim, None);
    let idle = commands(&server);
    worker.enqueue([task(1)]).await;
    let enqueue = commands(&server);
    let claim = worker.claim(1).await;
    let claimed = commands(&server);
    worker.turn(done(&claim), 0).await;
    let done = commands(&server);
    // One of the eight counts the idle sessions.
    assert_eq!([idle, enqueue, claimed, done], [8, 11, 12, 17]);
}

// ===== Damage =====

#[tokio::test]
async fn a_row_that_cannot_be_read_affects_no_other_schedule() {
    needs_redis!();
    for garbled in [
        "''",
        "'x'",
        "string.sub(row, 1, 42)",
        r"string.sub(row, 1, 8) .. '\3' .. string.sub(row, 10)",
    ] {
        let scene = Scene::new().await;
        define_rows(&scene, &["a", "b"]).await;
        scene.run(&format!(
            "local row = call('HGET', 'schedules', 'a') call('HSET', 'schedules', 'a', {garbled})"
        ));
        scene.clock.advance(SECOND);
        assert_eq!(due_names(&scene.worker).await, ["b"], "{garbled}");
        scene.maintain().await;
        assert_eq!(scene.worker.store.damage().map(|it| it.0), Some(1));
        let listed = scene.worker.store.schedules(None, 9).await.unwrap();
        assert_eq!(listed.len(), 1, "{garbled}");
        // The schedule can be defined again.
        define_rows(&scene, &["a"]).await;
        scene.clock.advance(SECOND);
        assert_eq!(due_names(&scene.worker).await, ["a"], "{garbled}");
        scene.check();
    }
}

/// Such a row is also left out of a page, which continues with the next one.
#[tokio::test]
async fn a_row_that_cannot_be_read_does_not_end_a_page() {
    needs_redis!();
    let scene = Scene::new().await;
    define_rows(&scene, &["a", "b", "c"]).await;
    scene.run("call('HSET', 'schedules', 'a', 'x')");
    let listed = scene.worker.store.schedules(None, 1).await.unwrap();
    let names: Vec<_> = listed.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["b"]);
}

#[tokio::test]
async fn a_row_with_an_impossible_name_is_removed() {
    needs_redis!();
    for bad in [r"'\255'", "'not valid'", "''", "string.rep('n', 65)"] {
        let scene = Scene::new().await;
        define_rows(&scene, &["a"]).await;
        scene.run(&format!(
            "call('HSET', 'schedules', {bad}, call('HGET', 'schedules', 'a'))
            call('ZADD', 'schedule_times:1', 0, {bad})"
        ));
        scene.maintain().await;
        assert_eq!(scene.worker.store.damage().map(|it| it.0), Some(1), "{bad}");
        scene.run(
            "assert(call('HLEN', 'schedules') == 1 and call('ZCARD', 'schedule_times:1') == 1)",
        );
        scene.clock.advance(SECOND);
        assert_eq!(due_names(&scene.worker).await, ["a"], "{bad}");
        scene.check();
    }
}

/// A new definition also replaces the row before maintenance has removed it.
#[tokio::test]
async fn a_garbled_row_is_replaced_or_removed() {
    needs_redis!();
    for is_removed in [false, true] {
        let scene = Scene::new().await;
        define_rows(&scene, &["a"]).await;
        scene.run("call('HSET', 'schedules', 'a', 'x')");
        let store = &scene.worker.store;
        assert_eq!(store.schedule(name("a")).await.unwrap().found, None);
        match is_removed {
            false => define_rows(&scene, &["a"]).await,
            true => scene.maintain().await,
        }
        let found = store.schedule(name("a")).await.unwrap().found;
        assert_eq!(found.is_some(), !is_removed);
        scene.maintain().await;
        scene.check();
    }
}

#[tokio::test]
async fn a_schedule_that_would_not_be_handed_out_is_repaired() {
    needs_redis!();
    for damage in [
        "call('DEL', 'schedule_times:1')",
        "call('SET', 'schedule_times:1', 'x')",
        "call('ZREM', 'schedule_times:1', 'a')",
        "call('HDEL', 'meta', 'schedules')",
        "call('HSET', 'meta', 'schedules', 'garbled')",
        "call('HSET', 'meta', 'schedules', string.rep('\\255', 12))",
        "call('HSET', 'meta', 'schedules_cursor', 'garbled')",
        "call('ZADD', 'schedule_times:1', 0, 'a')",
        "call('ZADD', 'schedule_times:1', -1, 'a')",
        // A member of the wrong set is not handed out there.
        "call('ZADD', 'schedule_times:2', 0, 'a')",
        "call('ZADD', 'schedule_times:2', -1, 'unknown')",
    ] {
        let scene = Scene::new().await;
        define_rows(&scene, &["a", "b"]).await;
        scene.run(damage);
        scene.maintain().await;
        scene.clock.advance(SECOND);
        assert_eq!(due_names(&scene.worker).await, ["a", "b"], "{damage}");
        scene.check();
    }
}

#[tokio::test]
async fn a_paused_schedule_is_not_handed_out() {
    needs_redis!();
    let scene = Scene::new().await;
    let client = client_of(&scene.worker);
    let defined = client.schedule("a", Every::new(MINUTE), Job).await;
    assert!(defined.unwrap());
    assert!(client.schedules().pause("a").await.unwrap());
    define_rows(&scene, &["b"]).await;
    scene.run("call('ZADD', 'schedule_times:1', 1, 'a')");
    scene.clock.advance(SECOND);
    assert_eq!(due_names(&scene.worker).await, ["b"]);
    scene.check();
}

/// Each pass of maintenance examines a page, and the next one goes on after it.
#[tokio::test]
async fn all_of_many_schedules_are_repaired() {
    needs_redis!();
    const SCHEDULES: i64 = 2_000;
    let scene = Scene::new().await;
    define_rows(&scene, &["0"]).await;
    scene.run(&format!(
        "local row = call('HGET', 'schedules', '0')
        for i = 1, {SCHEDULES} - 1 do call('HSET', 'schedules', i, row) end
        call('DEL', 'schedule_times:1')"
    ));
    // Redis may return fewer rows than a page has.
    for _ in 0..SCHEDULES / 32 {
        scene.worker.store.maintain(1_000).await.unwrap();
    }
    let repaired = scene.run("return call('ZCARD', 'schedule_times:1')");
    assert_eq!(repaired, redis::Value::Int(SCHEDULES));
    scene.check();
}

#[tokio::test]
async fn lost_schedules_can_be_defined_again() {
    needs_redis!();
    let scene = Scene::new().await;
    define_rows(&scene, &["a"]).await;
    scene.run("call('SET', 'schedules', 'x')");
    // Tasks are not affected.
    scene.worker.enqueue([task(1)]).await;
    assert_eq!(scene.run_all(&scene.worker).await, [id(1)]);
    scene.maintain().await;
    assert_eq!(scene.worker.store.schedules(None, 9).await.unwrap(), []);
    define_rows(&scene, &["a"]).await;
    scene.clock.advance(SECOND);
    assert_eq!(due_names(&scene.worker).await, ["a"]);
}

// ===== A full server =====

#[tokio::test]
async fn a_full_server_fires_schedules_once_it_has_memory() {
    needs_redis!();
    let server = Server::start();
    let clock = Clock::manual();
    let builder = RedisStore::builder(&server.url());
    let store = RedisStore::open_as(&builder, Time::manual(clock.clone())).await;
    let worker = Worker::new(store.unwrap()).await;
    let client = client_of(&worker);
    let (store, schedules) = (&worker.store, client.schedules());
    for name in ["a", "paused", "removed"] {
        client
            .schedule(name, Every::new(MINUTE), Job)
            .await
            .unwrap();
    }
    clock.advance(MINUTE);
    // A change has failed in the middle.
    server.ask(&["HSET", &meta_of(0), "schedules", "", "steps", "1"]);
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = schedules.get("a").await.unwrap().unwrap();
    for round in 0..2 {
        let due = due(&worker).await;
        assert_eq!(due.len(), 3, "{round}");
        let fired = store.change_schedule(firing(store, &due[0])).await;
        assert_fails(fired, &Cause::Full, Effect::None);
        assert_eq!(schedules.get("a").await.unwrap().unwrap(), before);
        clock.advance(5 * SECOND);
    }
    assert!(schedules.pause("paused").await.unwrap());
    assert!(schedules.remove("removed").await.unwrap());
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let due = due(&worker).await;
    assert_eq!(due.len(), 1);
    let fired = store.change_schedule(firing(store, &due[0])).await;
    assert!(fired.unwrap().is_some());
    assert_eq!(store.counts().await.unwrap().waiting, 1);
}

// ===== The disk =====

/// Redis can wait for its disk since 7.2. Before a request waits, it writes a field, which any server accepts.
#[tokio::test]
async fn a_schedule_is_on_the_disk_when_it_is_defined() {
    needs_redis!();
    let server = Server::with(&["--appendonly", "yes"]);
    let _store = open(&server.url()).await;
    let mut builder = RedisStore::builder(&server.url());
    builder.wait_for_disk(true);
    let target = RedisAddress::url(&server.url()).resolve().unwrap();
    let (sender, _events) = mpsc::unbounded_channel();
    let connected = Inner::connect(
        builder,
        target,
        "redis".into(),
        Time::server(),
        Some(sender),
    );
    let inner = connected.await.unwrap();
    // A server that cannot wait is refused when a store is opened, so this one is not opened.
    inner.has_to_wait.set(true).unwrap();
    let time = Clock::machine().wall() + HOUR;
    let changed = schedules::change(&inner, &new_schedule("a", time)).await;
    let can_wait = server.try_ask(&["WAITAOF", "0", "0", "1"]).is_some();
    assert_eq!(changed.is_ok(), can_wait);
    let field = server.ask(&["HEXISTS", &meta_of(0), "disk"]);
    assert_eq!(field, redis::Value::Int(1));
}

// ===== Many schedules =====

/// Each request hands out a limited number of them, and no schedule is left out.
#[tokio::test]
async fn ten_thousand_due_schedules_are_handed_out_in_short_scripts() {
    needs_redis!();
    const SCHEDULES: usize = 10_000;
    let scene = Scene::new().await;
    define_rows(&scene, &["0"]).await;
    scene.run(&format!(
        "local row, time = call('HGET', 'schedules', '0'), call('ZSCORE', 'schedule_times:1', '0')
        for i = 1, {SCHEDULES} - 1 do
          call('HSET', 'schedules', i, row)
          call('ZADD', 'schedule_times:1', time, i)
        end"
    ));
    scene.clock.advance(SECOND);
    let mut meter = meter::Meter::new(&scene.server);
    let (mut handed_out, mut requests) = (0, 0);
    while handed_out < SCHEDULES {
        let answer = meter.measure(hand_out(&scene.worker)).await;
        assert!(answer.due.len() <= MAX_HAND_OUTS);
        handed_out += answer.due.len();
        requests += 1;
    }
    assert_eq!(
        (handed_out, requests),
        (SCHEDULES, SCHEDULES.div_ceil(MAX_HAND_OUTS))
    );
    let taken = meter.taken.iter();
    // Other processes may delay some of the scripts, so the shortest time counts.
    let least = taken.min().copied();
    assert!(least <= Some(meter::LIMIT), "{least:?}");
    assert_eq!(due(&scene.worker).await, []);
    scene.clock.advance(HOUR);
    assert_eq!(due(&scene.worker).await.len(), MAX_HAND_OUTS);
}
