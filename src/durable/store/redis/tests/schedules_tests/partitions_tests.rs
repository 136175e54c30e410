//! Schedules in a store with several partitions.

use super::super::proxy::Trick;
use super::*;
use crate::durable::store::StoredSchedule;

async fn open_divided(server: &Server, clock: &Clock) -> Worker {
    open_divided_at(&server.url(), clock).await
}

async fn open_divided_at(url: &str, clock: &Clock) -> Worker {
    let mut builder = RedisStore::builder(url);
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

/// The partition that fails is asked again after the usual interval.
#[tokio::test]
async fn a_partition_that_fails_delays_no_schedule_of_another() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let worker = open_divided(&server, &clock).await;
    let store = &worker.store;
    let mut partitions_found = Vec::new();
    for number in 0..16 {
        let of = format!("{number:02}");
        let change = new_schedule(&of, clock.wall() + MINUTE);
        store.change_schedule(Arc::new(change)).await.unwrap();
        let found = store.schedule(name(&of)).await.unwrap().found.unwrap();
        partitions_found.push(found.partition);
    }
    assert_eq!(hand_out(&worker).await.next, Some(MINUTE));
    let failing = partitions_found[0];
    let others = partitions_found
        .iter()
        .filter(|&&partition| partition != failing)
        .count();
    assert!(others > 0);
    let meta = meta_of(failing);
    let times = meta.replace(":meta", ":schedule_times:1");
    server.ask(&["SET", &times, "x"]);
    server.ask(&["HSET", &meta, "schedules", ""]);
    let handed_out = hand_out(&worker).await;
    assert_eq!(handed_out.next, Some(HAND_OUT_INTERVAL));
    clock.advance(MINUTE);
    assert_eq!(due(&worker).await.len(), others);
}

/// Each definition puts the tasks into another queue, so the schedule moves to the partition of that queue.
#[tokio::test]
async fn a_schedule_moves_to_the_partition_of_its_tasks() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let worker = open_divided(&server, &clock).await;
    let client = client_of(&worker);
    let mut partitions_found = std::collections::BTreeSet::new();
    for number in 0..12 {
        let spawn = SpawnOptions::new().queue(format!("q{number}"));
        let options = ScheduleOptions::new().overlap(Overlap::Allow).spawn(spawn);
        let defined = client
            .schedule_with("a", Every::new(MINUTE), Job, options)
            .await;
        assert!(defined.unwrap());
        assert_eq!(worker.store.schedules(None, 9).await.unwrap().len(), 1);
        let found = worker.store.schedule(name("a")).await.unwrap().found;
        partitions_found.insert(found.unwrap().partition);
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
    assert_eq!(partitions_found.len(), 4);
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
    let mut partitions_found = std::collections::BTreeSet::new();
    for (number, revision) in [(0, 1), (1, 3), (2, 3), (3, 2), (4, 0), (5, 1)] {
        let change = row(&format!("q{number}"), revision);
        let partition = store.inner.partitions.of_queue(&change.queue).unwrap();
        partitions_found.insert(partition);
        let added = schedules::change_in(&store.inner, partition, &change, vec![]);
        added.await.unwrap();
    }
    assert!(partitions_found.len() > 2);
    assert_eq!(store.schedules(None, 9).await.unwrap().len(), 1);
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
    for partition in 0..4 {
        let mut change = new_schedule("a", clock.wall() + SECOND);
        change.after.as_mut().unwrap().version = partition as u64 + 1;
        let added = schedules::change_in(&store.inner, partition, &change, vec![]);
        added.await.unwrap();
    }
    store.maintain(100).await.unwrap();
    clock.advance(SECOND);
    let due = due(&worker).await;
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].schedule.partition, 0);
}

/// Returns a queue whose tasks are in a partition.
fn queue_in(worker: &Worker, partition: usize) -> String {
    let partitions = worker.store.inner.partitions;
    let is_there = |name: &String| {
        let queue = QueueName::new(name).unwrap();
        partitions.of_queue(&queue) == Some(partition)
    };
    let mut names = (0..).map(|number| format!("q{number}"));
    names.find(is_there).unwrap()
}

async fn define_in(worker: &Worker, partition: usize, revision: u32) {
    let spawn = SpawnOptions::new().queue(queue_in(worker, partition));
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
    // Its revision is the highest, so its row would be kept if it were stored.
    let mut body = stale.row.body.clone();
    body[..4].copy_from_slice(&9_u32.to_be_bytes());
    let slow = ScheduleChange {
        before: Some((stale.row.version, stale.partition)),
        queue: QueueName::new(&queue_in(&worker, 2)).unwrap(),
        after: Some(ScheduleRow {
            version: 7,
            body,
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

/// Returns a change that moves a schedule to the third partition.
fn move_of(worker: &Worker, from: StoredSchedule, clock: &Clock) -> Arc<ScheduleChange> {
    Arc::new(ScheduleChange {
        before: Some((from.row.version, from.partition)),
        queue: QueueName::new(&queue_in(worker, 2)).unwrap(),
        after: Some(ScheduleRow {
            version: 7,
            ..from.row
        }),
        ..new_schedule("a", clock.wall())
    })
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
    let moving = move_of(&worker, row, &clock);
    for _ in 0..3 {
        let moved = store.change_schedule(Arc::clone(&moving)).await.unwrap();
        assert_eq!(moved, Some(Default::default()));
        let found = store.schedule(name("a")).await.unwrap().found.unwrap();
        assert_eq!((found.partition, found.row.version), (2, 7));
    }
}

/// The first step is sent again at once, and finds that it has taken effect.
#[tokio::test]
async fn a_move_goes_on_if_the_answer_to_its_first_step_is_lost() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let proxy = Proxy::to(server.port()).await;
    let worker = open_divided_at(&proxy.url(), &clock).await;
    let store = &worker.store;
    define_in(&worker, 0, 0).await;
    let row = store.schedule(name("a")).await.unwrap().found.unwrap();
    let moving = move_of(&worker, row, &clock);
    proxy.play(Trick::Lose);
    let moved = store.change_schedule(moving).await.unwrap();
    assert_eq!(moved, Some(Default::default()));
    let found = store.schedule(name("a")).await.unwrap().found.unwrap();
    assert_eq!((found.partition, found.row.version), (2, 7));
}

/// The row is stored, but another partition cannot be read, so the process does not learn whether the row is kept.
#[tokio::test]
async fn a_definition_that_was_not_checked_may_have_taken_effect() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let worker = open_divided(&server, &clock).await;
    let store = &worker.store;
    let mut change = new_schedule("a", clock.wall() + SECOND);
    change.queue = QueueName::new(&queue_in(&worker, 0)).unwrap();
    let change = Arc::new(change);
    let schedules = meta_of(3).replace(":meta", ":schedules");
    server.ask(&["SET", &schedules, "x"]);
    let failure = store
        .change_schedule(Arc::clone(&change))
        .await
        .unwrap_err();
    assert_eq!(failure.effect, Effect::Unknown, "{failure}");
    server.ask(&["DEL", &schedules]);
    let found = store.schedule(name("a")).await.unwrap().found.unwrap();
    assert_eq!((found.partition, found.row.version), (0, 7));
    // A repetition changes nothing, and tells that the definition is stored.
    let changed = store.change_schedule(change).await.unwrap();
    assert_eq!(changed, Some(Default::default()));
}
