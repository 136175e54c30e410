//! Tasks on a store that loses requests and answers.

use super::*;

/// Fails at its first attempt if its number can be divided by three.
impl Run<Runs> for Number {
    async fn run(self, cx: TaskContext<Runs>) -> Result<u64, TaskError> {
        if self.0.is_multiple_of(3) && cx.attempt() == 1 {
            return Err(TaskError::retry("not yet"));
        }
        *lock(cx.app()).entry(self.0).or_default() += 1;
        Ok(self.0 * 2)
    }
}

impl Number {
    fn id(&self) -> TaskId {
        TaskId::derive(Self::NAME, &self.0.to_le_bytes())
    }
}

const TASKS: u64 = 200;

/// Spawns until the store has said that the task is there.
async fn spawn(client: &DurableClient, number: u64) -> TaskId {
    loop {
        let task = Number(number);
        let id = task.id();
        // Leases are lost here, time and again: that is not what is to end a task.
        let options = SpawnOptions::new().id(id).max_crashes(1_000);
        let spawned = client.spawn_with(task, options).await;
        match spawned {
            Ok(handle) => return handle.id(),
            Err(error) => assert!(error.is_unknown() || error.is_busy(), "{error}"),
        }
    }
}

async fn everything_is_stored_and_runs(faults: u32, seed: u64) {
    let memory = MemoryStore::new();
    let producer = DurableClient::open(Faulty::store(&memory, faults, seed));
    let worker = DurableClient::open(Faulty::store(&memory, faults, seed + 1));
    let executor = DurableExecutor::builder(worker)
        .register::<Number>()
        .max_running(16)
        .retry(Retry::exponential().base(Duration::from_millis(1)))
        .lease(Duration::from_millis(400))
        .start(Runs::default())
        .await
        .expect("the store answers in time");
    let spawned = (0..TASKS).map(|number| spawn(&producer, number));
    let ids = futures::future::join_all(spawned).await;
    for (number, &id) in (0..).zip(&ids) {
        let output = producer.attach::<Number>(id).await.expect("it succeeds");
        assert_eq!(output, number * 2);
    }
    executor.shutdown(Duration::from_secs(5)).await;
    let counts = producer.counts().await.expect("it is in memory");
    assert_eq!(counts.stored, TASKS, "{counts:?}");
    let ends = counts.done + counts.retried + counts.released + counts.crashed + counts.lost;
    assert_eq!(counts.claimed, ends, "{counts:?}");
    assert_eq!((counts.done, counts.kept), (TASKS, TASKS), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_by_a_store_that_loses_requests_and_answers() {
    for seed in 0..4 {
        everything_is_stored_and_runs(30, 100 * seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_by_a_store_that_hardly_ever_answers() {
    everything_is_stored_and_runs(70, 7).await;
}
