//! Sessions that are idle in some partitions.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::super::idle_costs_tests::sent;
use super::super::*;
use super::{PARTITIONS, claim_all, key, open_divided};
use crate::durable::clock::since_boot;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::redis::partitions::Partitions;
use crate::durable::store::{MAX_REST, ScheduleChange, ScheduleRow};
use crate::durable::{
    DurableClient, DurableExecutor, DurableTask, Run, ServedQueue, SpawnOptions, TaskContext,
    TaskError,
};

/// Returns a task in a partition.
fn task_in(partition: usize) -> NewTask {
    tasks_in(partition)
        .next()
        .expect("each partition has tasks")
}

/// Returns the tasks in a partition.
fn tasks_in(partition: usize) -> impl Iterator<Item = NewTask> {
    let partitions = Partitions::new(PARTITIONS);
    let numbers = 1_000 * partition as u64..;
    numbers
        .filter(move |&number| partitions.of_task(id(number)) == partition)
        .map(task)
}

fn idle_in(server: &Server, partition: usize) -> redis::Value {
    server.ask(&["KEYS", &key(partition, "idle:*")])
}

/// A session with free permits is not visited by its turns where it is idle.
#[tokio::test]
async fn a_turn_visits_the_partition_that_has_woken_its_session() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    let other = Worker::new(open_divided(&server.url()).await).await;
    let mut events = worker.store.events();
    assert_eq!(worker.turn(Vec::new(), 8).await.claim, None);
    for partition in 0..PARTITIONS {
        other.enqueue([task_in(partition)]).await;
        until(&mut events, &Event::Wake(None)).await;
        let before = sent(&server, &["evalsha"]);
        let turned = worker.turn(Vec::new(), 8).await;
        assert!(turned.is_idle && !turned.more, "{turned:?}");
        let claim = turned.claim.expect("there is a task");
        let turned = worker.turn(done(&claim), 8).await;
        assert_eq!((turned.claim, turned.more), (None, false));
        assert_eq!(sent(&server, &["evalsha"]) - before, 2);
    }
}

/// Two partitions wake the session, and it claims the task of one of them. It then has no permit.
#[tokio::test]
async fn a_session_passes_on_the_wake_ups_that_its_turn_has_not_followed() {
    needs_redis!();
    let server = Server::start();
    let first = Worker::new(open_divided(&server.url()).await).await;
    let second = Worker::new(open_divided(&server.url()).await).await;
    let producer = Worker::new(open_divided(&server.url()).await).await;
    let (mut events, mut others) = (first.store.events(), second.store.events());
    assert_eq!(second.turn(Vec::new(), 1).await.claim, None);
    // The session that is idle last is woken first.
    sleep(Duration::from_millis(2)).await;
    assert_eq!(first.turn(Vec::new(), 2).await.claim, None);
    for partition in [0, 1] {
        producer.enqueue([task_in(partition)]).await;
        until(&mut events, &Event::Wake(None)).await;
    }
    let turned = first.turn(Vec::new(), 2).await;
    assert!(turned.more && turned.passes_on, "{turned:?}");
    assert_eq!(turned.claim.expect("there are two").tasks.len(), 1);
    // Its worker has used the other permit for another queue meanwhile.
    assert!(!first.turn(Vec::new(), 0).await.passes_on);
    until(&mut others, &Event::Wake(None)).await;
    assert!(second.turn(Vec::new(), 1).await.claim.is_some());
}

/// A session that has claimed as much as it wanted is woken by no partition.
#[tokio::test]
async fn a_full_session_is_idle_in_no_partition() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    let other = Worker::new(open_divided(&server.url()).await).await;
    let mut events = worker.store.events();
    for want in [1, 2] {
        assert_eq!(worker.turn(Vec::new(), want).await.claim, None);
        let tasks = (0..want as u64).map(|_| task_in(want));
        other.enqueue(tasks).await;
        until(&mut events, &Event::Wake(None)).await;
        let claim = worker.claim(1).await;
        for partition in 0..PARTITIONS {
            let none = redis::Value::Array(Vec::new());
            assert_eq!(idle_in(&server, partition), none, "{partition}");
        }
        worker.turn(done(&claim), 0).await;
    }
}

/// Another queue of the worker has used the permits.
#[tokio::test]
async fn a_session_whose_turn_claims_nothing_is_idle_in_no_partition() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    for (want, is_idle) in [(2, true), (0, false)] {
        assert_eq!(worker.turn(Vec::new(), want).await.claim, None);
        for partition in 0..PARTITIONS {
            let is_listed = idle_in(&server, partition) != redis::Value::Array(Vec::new());
            assert_eq!(is_listed, is_idle, "{partition}");
        }
    }
}

/// It claims a quarantined task, and passes over another one until that has ended.
#[tokio::test]
async fn a_session_that_may_claim_quarantined_tasks_again_visits_all_partitions() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    let crashing = Worker::new(open_divided(&server.url()).await).await;
    let tasks = [0, 1].map(|partition| NewTask {
        max_crashes: 2,
        ..task_in(partition)
    });
    crashing.enqueue(tasks).await;
    let claims = claim_all(&crashing).await;
    let epochs = claims.iter().map(|claim| claim.epoch).collect();
    crashing.store.renew(epochs).await.unwrap();
    let closed = crashing.store.close_session(crashing.session).await;
    closed.unwrap();
    let first = worker.claim(8).await;
    let busy = Turn {
        quarantined: false,
        ..Turn::clone(&worker.new_turn(Vec::new(), 7))
    };
    let turned = worker.store.turn(Arc::new(busy)).await.unwrap();
    assert_eq!((turned.claim, turned.more), (None, false));
    let second = worker.turn(done(&first), 8).await.claim;
    assert!(second.expect("there is another").tasks[0].quarantined);
}

/// Each turn reports an end in a partition in which tasks arrive all the time.
#[tokio::test]
async fn a_busy_partition_does_not_hold_up_the_others() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    let producer = Worker::new(open_divided(&server.url()).await).await;
    let mut stream = tasks_in(0);
    producer.enqueue(stream.by_ref().take(2)).await;
    let mut claim = worker.claim(1).await;
    let other = task_in(3);
    let awaited = other.id;
    producer.enqueue([other]).await;
    for _ in 0..20 {
        producer.enqueue(stream.by_ref().take(1)).await;
        let turned = worker.turn(done(&claim), 1).await;
        claim = turned.claim.expect("there are tasks");
        if claim.tasks[0].id == awaited {
            return;
        }
    }
    panic!("it is not claimed");
}

/// A wake-up may be lost with the process that owed it, however long leases are.
#[tokio::test]
async fn a_session_with_a_long_lease_does_not_rest_for_longer_than_others() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    let other = Worker::new(open_divided(&server.url()).await).await;
    let mut events = worker.store.events();
    let turn = async || {
        let turn = Turn {
            lease: 100 * MAX_REST,
            ..Turn::clone(&worker.new_turn(Vec::new(), 8))
        };
        worker.store.turn(Arc::new(turn)).await.unwrap()
    };
    assert_eq!(turn().await.claim, None);
    other.enqueue([task_in(0)]).await;
    until(&mut events, &Event::Wake(None)).await;
    // It passes over the other partitions.
    let turned = turn().await;
    assert!(turned.claim.is_some(), "{turned:?}");
    assert!(turned.next.is_some_and(|next| next <= MAX_REST));
}

/// The answer counts the sessions that are idle in all partitions. While many are, each rests for longer.
#[tokio::test]
async fn many_idle_sessions_rest_for_longer() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open_divided(&server.url()).await);
    let rest_of = |worker: &Worker, partition| {
        let idle = store.inner.sessions.get(worker.session).idle;
        let rest = idle.get(partition).expect("the session is idle");
        rest.until.saturating_sub(since_boot())
    };
    let mut longer = 0;
    for nth in 1..=150 {
        let worker = Worker::of(&store).await;
        let turned = worker.turn(Vec::new(), 1).await;
        assert_eq!(turned.idle_sessions, nth);
        for partition in 0..PARTITIONS {
            let rest = rest_of(&worker, partition);
            assert!(rest <= 8 * LEASE, "{rest:?}");
            longer += usize::from(rest > LEASE);
            assert!(nth >= 64 || rest <= LEASE, "{nth}: {rest:?}");
        }
        assert_eq!(worker.turn(Vec::new(), 0).await.idle_sessions, 0);
        assert_eq!(worker.turn(Vec::new(), 1).await.idle_sessions, nth);
    }
    assert!(longer > PARTITIONS, "{longer}");
}

/// Most idle sessions belong to processes that have died, or have looked for tasks before the clock was set back.
#[tokio::test]
async fn sessions_that_have_not_looked_for_a_minute_do_not_count_as_idle() {
    needs_redis!();
    const ADD: &str = "local key = redis.call('KEYS', '*:idle:*')[1]
        local now = redis.call('TIME')[1] * 1000
        for i = 1, 100 do
            redis.call('ZADD', key, now - 70000 - i, 'dead' .. i, now + 60000 + i, 'ahead' .. i)
        end";
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let (first, second) = (Worker::of(&store).await, Worker::of(&store).await);
    for (worker, idle) in [(&first, 1), (&second, 2)] {
        assert_eq!(worker.turn(Vec::new(), 1).await.idle_sessions, idle);
    }
    server.ask(&["EVAL", ADD, "0"]);
    for worker in [&first, &second] {
        assert_eq!(worker.turn(Vec::new(), 1).await.idle_sessions, 2);
    }
}

/// The session has ended in one partition. The others wake no worker that has replaced it.
#[tokio::test]
async fn a_session_that_has_ended_is_idle_in_no_partition() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    let other = Worker::new(open_divided(&server.url()).await).await;
    let mut events = worker.store.events();
    assert_eq!(worker.turn(Vec::new(), 1).await.claim, None);
    server.ask(&["DEL", &key(2, "sessions")]);
    let producer = Worker::of(&other.store).await;
    producer.enqueue([task_in(2)]).await;
    until(&mut events, &Event::Wake(None)).await;
    let turned = worker.store.turn(worker.new_turn(Vec::new(), 1)).await;
    assert_eq!(turned.unwrap_err().cause, Cause::NoSession);
    for partition in 0..PARTITIONS {
        let none = redis::Value::Array(Vec::new());
        assert_eq!(idle_in(&server, partition), none, "{partition}");
    }
}

/// After the time of a tick, the next one is not known from the earlier answer.
#[tokio::test]
async fn a_tick_of_a_partition_that_is_passed_over_is_reported_once() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let change = ScheduleChange {
        name: ScheduleName::new("ticks").unwrap(),
        before: None,
        after: Some(ScheduleRow {
            version: 7,
            needs: 1,
            time: Some(since_1970.as_millis() as u64 + 5_000),
            started: 0,
            skipped: 0,
            last_task: None,
            body: b"body".to_vec(),
        }),
        queue: QueueName::DEFAULT,
        tasks: Vec::new(),
    };
    let changed = worker.store.change_schedule(Arc::new(change)).await;
    assert!(changed.unwrap().is_some());
    for is_reported in [true, false] {
        let turned = worker.turn(Vec::new(), 1).await;
        assert_eq!(turned.next_tick.is_some(), is_reported);
    }
}

#[derive(Serialize, Deserialize)]
struct Job(u64);

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = ();
}

impl Run<()> for Job {
    async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
        sleep(Duration::from_micros(self.0)).await;
        Ok(())
    }
}

/// Workers of one or two queues, and of one or more permits, which find a task without a wake-up only after minutes.
#[tokio::test]
async fn no_wake_up_is_lost_among_partitions() {
    needs_redis!();
    const TASKS: u64 = 2_000;
    let server = Server::start();
    let client = async || DurableClient::open(open_divided(&server.url()).await);
    let mut executors = Vec::new();
    for permits in [1, 1, 2, 3] {
        let mut builder = DurableExecutor::builder(client().await);
        builder.register::<Job>().max_running(permits);
        builder.lease(Duration::from_secs(600));
        if permits > 1 {
            builder
                .serve(ServedQueue::default_queue())
                .serve(ServedQueue::new("named"));
        }
        executors.push(builder.start(()).await.unwrap());
    }
    let producer = client().await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut handles = std::collections::VecDeque::new();
    for _ in 0..TASKS {
        let options = match random.u8(..4) {
            0 => SpawnOptions::new().queue("named"),
            _ => SpawnOptions::new(),
        };
        let spawned = producer.spawn_with(Job(random.u64(..4_000)), options).await;
        handles.push_back(spawned.unwrap());
        // The workers are idle again and again.
        if handles.len() > random.usize(1..12) {
            let oldest = handles.pop_front().expect("there are some");
            timeout(DEADLINE, oldest)
                .await
                .expect("it is claimed in time")
                .unwrap();
        }
    }
    for handle in handles {
        timeout(DEADLINE, handle)
            .await
            .expect("it is claimed in time")
            .unwrap();
    }
}
