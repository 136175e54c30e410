//! Schedules in Redis: their costs for a store without schedules, damage, a full server, partitions, and many that are due at once.

use super::super::schedules;
use super::super::time::Time;
use super::scene::{HOUR, SECOND, Scene};
use super::*;
use crate::durable::clock::millis;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::schedule::step;
use crate::durable::store::{
    DueSchedule, HandOut, MAX_HAND_OUTS, ScheduleChange, ScheduleRow, Store,
};
use crate::durable::{
    DurableClient, DurableExecutor, DurableTask, Every, Overlap, Run, ScheduleOptions, ServedQueue,
    SpawnOptions, TaskContext, TaskError,
};

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
    assert_eq!([idle, enqueue, claimed, done], [7, 10, 13, 18]);
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

// ===== Partitions =====

async fn open_divided(server: &Server, clock: &Clock) -> Worker {
    let mut builder = RedisStore::builder(&server.url());
    builder.partitions(4);
    let store = RedisStore::open_as(&builder, Time::manual(clock.clone())).await;
    Worker::new(store.unwrap()).await
}

#[tokio::test]
async fn schedules_of_all_partitions_fire() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let worker = open_divided(&server, &clock).await;
    let client = client_of(&worker);
    let names: Vec<_> = (0..16).map(|number| format!("{number:02}")).collect();
    for (number, name) in names.iter().enumerate() {
        let queue = (number % 2 == 1).then(|| format!("q{number}"));
        let spawn = queue.map_or_else(SpawnOptions::new, |queue| SpawnOptions::new().queue(queue));
        let options = ScheduleOptions::new().spawn(spawn);
        let defined = client
            .schedule_with(name, Every::new(MINUTE), Job, options)
            .await;
        assert!(defined.unwrap());
    }
    let listed = client.schedules().list(Some("03"), 8).await.unwrap();
    assert!(listed.iter().map(|info| &info.name).eq(&names[4..12]));
    clock.advance(MINUTE);
    let due = due(&worker).await;
    assert_eq!(due.len(), 16);
    for due in &due {
        let fired = worker
            .store
            .change_schedule(firing(&worker.store, due))
            .await;
        assert_eq!(fired.unwrap(), Some(Default::default()));
    }
    assert_eq!(worker.store.counts().await.unwrap().waiting, 16);
}

/// Each definition puts the tasks into another queue, so the schedule moves to the partition of that queue.
#[tokio::test]
async fn a_schedule_moves_to_the_partition_of_its_tasks() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let worker = open_divided(&server, &clock).await;
    let client = client_of(&worker);
    let mut homes = std::collections::BTreeSet::new();
    for number in 0..12 {
        let spawn = SpawnOptions::new().queue(format!("q{number}"));
        let options = ScheduleOptions::new().overlap(Overlap::Allow).spawn(spawn);
        let defined = client
            .schedule_with("a", Every::new(MINUTE), Job, options)
            .await;
        assert!(defined.unwrap());
        assert_eq!(worker.store.schedules(None, 9).await.unwrap().len(), 1);
        let found = worker.store.schedule(name("a")).await.unwrap().found;
        homes.insert(found.unwrap().home);
        // A tick that has passed is not lost when the schedule moves.
        if number % 2 == 0 {
            clock.advance(MINUTE);
            continue;
        }
        let due = due(&worker).await;
        let fired = worker
            .store
            .change_schedule(firing(&worker.store, &due[0]))
            .await;
        assert_eq!(fired.unwrap(), Some(Default::default()));
    }
    assert_eq!(homes.len(), 4);
    let info = client.schedules().get("a").await.unwrap().unwrap();
    assert_eq!((info.started, info.queue.as_deref()), (6, Some("q11")));
    assert!(client.schedules().remove("a").await.unwrap());
    assert_eq!(client.schedules().get("a").await.unwrap(), None);
}

/// An executor of one queue works in one partition, but fires the schedules of all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_of_one_queue_fires_the_schedules_of_all_partitions() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let worker = open_divided(&server, &clock).await;
    let client = client_of(&worker);
    let mut builder = DurableExecutor::builder(client.clone());
    builder
        .register::<Job>()
        .serve(ServedQueue::new("q0"))
        .lease(Duration::from_millis(100));
    let executor = builder.start(()).await.unwrap();
    let names: Vec<_> = (0..8).map(|number| format!("s{number}")).collect();
    for name in &names {
        let spawn = SpawnOptions::new().queue(format!("of-{name}"));
        let options = ScheduleOptions::new().spawn(spawn);
        let every = Every::new(MINUTE);
        client
            .schedule_with(name, every, Job, options)
            .await
            .unwrap();
    }
    clock.advance(MINUTE);
    let started = async || {
        let all = client.schedules().list(None, 9).await.unwrap();
        all.iter().map(|info| info.started).collect::<Vec<_>>()
    };
    let fires = async {
        while started().await != [1; 8] {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, fires).await.unwrap();
    executor.shutdown(Duration::ZERO).await;
}

/// Several processes have found no schedule, and define it in different queues.
#[tokio::test]
async fn only_one_row_of_a_name_is_kept() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let worker = open_divided(&server, &clock).await;
    let store = &worker.store;
    let row = |queue: &str, revision: u8| {
        let mut change = new_schedule("a", clock.wall() + SECOND);
        change.queue = QueueName::new(queue).unwrap();
        let row = change.after.as_mut().unwrap();
        row.version = fastrand::u64(1..);
        row.body = vec![0, 0, 0, revision, 0];
        Arc::new(change)
    };
    // They are added without the check that follows, as if all of them were added at the same time.
    let mut homes = std::collections::BTreeSet::new();
    for (number, revision) in [(0, 1), (1, 3), (2, 3), (3, 2), (4, 0), (5, 1)] {
        let change = row(&format!("q{number}"), revision);
        let home = store.inner.partitions.of_queue(&change.queue).unwrap();
        homes.insert(home);
        let added =
            schedules::change_in(&store.inner, home, &change, vec![], change.after.as_ref());
        added.await.unwrap();
    }
    assert!(homes.len() > 2);
    // Maintenance would keep the same one.
    let found = store.schedule(name("a")).await.unwrap().found.unwrap();
    assert_eq!(step::revision(&found), 3);
    clock.advance(SECOND);
    let due = due(&worker).await;
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].schedule.row.version, found.row.version);
    // A process whose row is not kept learns of it.
    let mut kept = 0;
    for number in 0..6 {
        clock.advance(HOUR);
        let change = row(&format!("q{number}"), 1);
        let added = store.change_schedule(Arc::clone(&change)).await.unwrap();
        kept += usize::from(added.is_some());
        let found = store.schedule(name("a")).await.unwrap().found.unwrap();
        assert_eq!(step::revision(&found), 3, "{number}");
    }
    assert_eq!(kept, 0);
    assert!(client_of(&worker).schedules().remove("a").await.unwrap());
    clock.advance(HOUR);
    assert_eq!(hand_out(&worker).await, HandOut::default());
}

/// No process reads the schedule, so maintenance removes the additional rows.
#[tokio::test]
async fn maintenance_keeps_one_row_of_a_name() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let worker = open_divided(&server, &clock).await;
    let store = &worker.store;
    for home in 0..4 {
        let mut change = new_schedule("a", clock.wall() + SECOND);
        change.after.as_mut().unwrap().version = home as u64 + 1;
        let added =
            schedules::change_in(&store.inner, home, &change, vec![], change.after.as_ref());
        added.await.unwrap();
    }
    store.maintain(100).await.unwrap();
    clock.advance(SECOND);
    let due = due(&worker).await;
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].schedule.home, 0);
}

/// Returns a queue whose tasks are in a partition.
fn queue_in(worker: &Worker, home: usize) -> String {
    let partitions = worker.store.inner.partitions;
    let is_there = |name: &String| {
        let queue = QueueName::new(name).unwrap();
        partitions.of_queue(&queue) == Some(home)
    };
    let mut names = (0..).map(|number| format!("q{number}"));
    names.find(is_there).unwrap()
}

async fn define_in(worker: &Worker, home: usize, revision: u32) {
    let spawn = SpawnOptions::new().queue(queue_in(worker, home));
    let options = ScheduleOptions::new()
        .overlap(Overlap::Allow)
        .revision(revision)
        .spawn(spawn);
    let client = client_of(worker);
    let defined = client.schedule_with("a", Every::new(MINUTE), Job, options);
    assert!(defined.await.unwrap());
}

/// A reader sees the schedule both in its old and in its new partition, if it moves while the reader reads the partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_that_moves_while_others_read_it_is_not_lost() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let mover = open_divided(&server, &clock).await;
    let reader = client_of(&open_divided(&server, &clock).await);
    let reading = tokio::spawn(async move {
        loop {
            assert!(reader.schedules().get("a").await.is_ok());
        }
    });
    for nth in 0..200 {
        define_in(&mover, 3 * (nth % 2), 0).await;
        let rows = mover.store.schedules(None, 9).await.unwrap();
        assert_eq!(rows.len(), 1, "{nth}");
    }
    reading.abort();
    assert!(reading.await.unwrap_err().is_cancelled());
}

/// A process has read the schedule, and defines it differently, after another one has moved it and its tick has fired.
#[tokio::test]
async fn a_slow_move_repeats_no_tick() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let worker = open_divided(&server, &clock).await;
    let store = &worker.store;
    define_in(&worker, 0, 0).await;
    let stale = store.schedule(name("a")).await.unwrap().found.unwrap();
    define_in(&worker, 1, 1).await;
    clock.advance(MINUTE);
    let fired = firing(store, &due(&worker).await[0]);
    assert!(store.change_schedule(fired).await.unwrap().is_some());
    let slow = ScheduleChange {
        before: Some((stale.row.version, stale.home)),
        queue: QueueName::new(&queue_in(&worker, 2)).unwrap(),
        after: Some(ScheduleRow {
            version: 7,
            ..stale.row
        }),
        ..new_schedule("a", clock.wall())
    };
    let slow = Arc::new(slow);
    for _ in 0..2 {
        assert_eq!(
            store.change_schedule(Arc::clone(&slow)).await.unwrap(),
            None
        );
    }
    assert_eq!(hand_out(&worker).await.due, []);
    assert_eq!(store.counts().await.unwrap().waiting, 1);
}

/// The answers of both steps are lost.
#[tokio::test]
async fn a_move_that_is_sent_again_moves_once() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let worker = open_divided(&server, &clock).await;
    let store = &worker.store;
    define_in(&worker, 0, 0).await;
    let row = store.schedule(name("a")).await.unwrap().found.unwrap();
    let moving = Arc::new(ScheduleChange {
        before: Some((row.row.version, row.home)),
        queue: QueueName::new(&queue_in(&worker, 2)).unwrap(),
        after: Some(ScheduleRow {
            version: 7,
            ..row.row
        }),
        ..new_schedule("a", clock.wall())
    });
    for _ in 0..3 {
        let moved = store.change_schedule(Arc::clone(&moving)).await.unwrap();
        assert_eq!(moved, Some(Default::default()));
        let found = store.schedule(name("a")).await.unwrap().found.unwrap();
        assert_eq!((found.home, found.row.version), (2, 7));
    }
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
