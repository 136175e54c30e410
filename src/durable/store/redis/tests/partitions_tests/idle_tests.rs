//! Sessions that are idle in some partitions.

use serde::{Deserialize, Serialize};

use super::super::idle_costs_tests::sent;
use super::super::*;
use super::{PARTITIONS, key, open_divided};
use crate::durable::store::redis::partitions::Partitions;
use crate::durable::{
    DurableClient, DurableExecutor, DurableTask, Run, ServedQueue, SpawnOptions, TaskContext,
    TaskError,
};

/// Returns a task in a partition.
fn task_in(partition: usize) -> NewTask {
    let partitions = Partitions::new(PARTITIONS);
    let mut numbers = 1_000 * partition as u64..;
    let number = numbers.find(|&number| partitions.of_task(id(number)) == partition);
    task(number.expect("some task is there"))
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
            let idle = server.ask(&["KEYS", &key(partition, "idle:*")]);
            assert_eq!(idle, redis::Value::Array(Vec::new()), "{partition}");
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
    let idle = |partition| server.ask(&["KEYS", &key(partition, "idle:*")]);
    for (want, is_idle) in [(2, true), (0, false)] {
        assert_eq!(worker.turn(Vec::new(), want).await.claim, None);
        for partition in 0..PARTITIONS {
            let is_listed = idle(partition) != redis::Value::Array(Vec::new());
            assert_eq!(is_listed, is_idle, "{partition}");
        }
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
