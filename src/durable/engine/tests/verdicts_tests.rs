//! Verdicts and leases on a store that is slow, or of which a part is away.

use super::*;
use crate::durable::StopReason;
use crate::sync::Ordering;

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(
            std::time::Instant::now() < end,
            "waited in vain until {what}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verdicts_that_have_not_reached_the_store_are_reported_again() {
    let memory = MemoryStore::new();
    let (store, is_away) = Faulty::divided(&memory);
    let client = DurableClient::open(memory.clone());
    let runs = StdArc::new(Runs::default());
    let executor = DurableExecutor::builder(DurableClient::open(store))
        .register::<Tripled>()
        .start(StdArc::clone(&runs))
        .await
        .unwrap();
    let handles = client.spawn_all((0..20).map(Tripled)).await.unwrap();
    eventually("all have run", || lock(&runs).len() == 20).await;
    let turns = executor.metrics().turns;
    eventually("two more turns", || executor.metrics().turns > turns + 2).await;
    assert_eq!(client.counts().await.unwrap().done, 0);
    is_away.store(false, Ordering::Relaxed);
    for (handle, number) in handles.into_iter().zip(0..) {
        assert_eq!(handle.await.unwrap(), 3 * number);
    }
    executor.shutdown(Duration::from_secs(5)).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.claimed, counts.done), (20, 20), "{counts:?}");
    assert_eq!(executor.metrics().rejected, 0);
}

#[derive(Serialize, Deserialize)]
struct Tripled(u64);

impl DurableTask for Tripled {
    const NAME: &'static str = "tripled";
    type Output = u64;
}

impl Run<StdArc<Runs>> for Tripled {
    async fn run(self, cx: TaskContext<StdArc<Runs>>) -> Result<u64, TaskError> {
        *lock(cx.app()).entry(self.0).or_default() += 1;
        Ok(self.0 * 3)
    }
}

/// Waits until it is told to stop.
#[derive(Serialize, Deserialize)]
struct Leased;

impl DurableTask for Leased {
    const NAME: &'static str = "leased";
    type Output = ();
}

/// The reasons for which runs were told to stop.
type Stops = Mutex<Vec<StopReason>>;

impl Run<StdArc<Stops>> for Leased {
    async fn run(self, cx: TaskContext<StdArc<Stops>>) -> Result<(), TaskError> {
        let reason = cx.stopped().await;
        lock(cx.app()).push(reason);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_has_not_reached_the_store_is_late() {
    let memory = MemoryStore::new();
    let (store, _) = Faulty::divided(&memory);
    let client = DurableClient::open(memory.clone());
    let stops = StdArc::new(Stops::default());
    let executor = DurableExecutor::builder(DurableClient::open(store))
        .register::<Leased>()
        .lease(Duration::from_millis(600))
        .start(StdArc::clone(&stops))
        .await
        .unwrap();
    client.spawn(Leased).await.unwrap();
    eventually("the lease is lost", || executor.metrics().leases_lost > 0).await;
    eventually("its run is told", || !lock(&stops).is_empty()).await;
    assert_eq!(lock(&stops)[0], StopReason::LeaseLost);
    executor.shutdown(Duration::ZERO).await;
}

/// Has a large output.
#[derive(Serialize, Deserialize)]
struct Large;

/// With its quotes and its envelope, half of what a request can contain.
const LEN: usize = (1 << 19) - 2 - 3 - Large::NAME.len();

impl DurableTask for Large {
    const NAME: &'static str = "large";
    type Output = String;
}

impl Run<()> for Large {
    async fn run(self, _: TaskContext<()>) -> Result<String, TaskError> {
        Ok("x".repeat(LEN))
    }
}

/// A worker keeps the lease of a task that has ended until the store has its verdict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_slower_than_its_tasks_loses_none() {
    let lease = Duration::from_millis(600);
    let memory = MemoryStore::new();
    let client = DurableClient::open(Faulty::slow(&memory, lease / 6));
    let mut executor = DurableExecutor::builder(client.clone());
    executor.register::<Large>();
    let executor = executor
        .max_running(64)
        .lease(lease)
        .start(())
        .await
        .unwrap();
    // Two in a request: it takes many requests, and several leases.
    let handles = client.spawn_all((0..64).map(|_| Large)).await.unwrap();
    for handle in handles {
        assert_eq!(handle.await.unwrap().len(), LEN);
    }
    executor.shutdown(Duration::from_secs(5)).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.claimed, counts.done), (64, 64), "{counts:?}");
    assert_eq!(executor.metrics().leases_lost, 0);
}
