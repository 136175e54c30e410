//! Schedules on a store that loses requests and answers.

use std::time::UNIX_EPOCH;

use super::*;
use crate::durable::store::HAND_OUT_INTERVAL;
use crate::durable::{Clock, Every, Missed, Overlap, ScheduleOptions};

/// Counts the runs of its tick.
#[derive(Serialize, Deserialize)]
struct Tick;

impl DurableTask for Tick {
    const NAME: &'static str = "tick";
    type Output = ();
}

impl Run<StdArc<Runs>> for Tick {
    async fn run(self, cx: TaskContext<StdArc<Runs>>) -> Result<(), TaskError> {
        let tick = cx
            .tick()
            .and_then(|tick| tick.duration_since(UNIX_EPOCH).ok());
        let minute = tick.expect("a schedule has stored it").as_secs() / 60;
        *lock(cx.app()).entry(minute).or_default() += 1;
        Ok(())
    }
}

/// The store loses requests for due schedules, changes of schedules, and the answers to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tick_fires_once_on_a_store_that_loses_requests_and_answers() {
    const TICKS: u64 = 60;
    let clock = Clock::manual();
    let memory = MemoryStore::with_clock(&clock);
    let client = DurableClient::open(memory.clone());
    let all = ScheduleOptions::new()
        .missed(Missed::All(64))
        .overlap(Overlap::Allow)
        .spawn(SpawnOptions::new().max_crashes(1_000));
    let minute = Every::new(Duration::from_secs(60));
    client.schedule_with("a", minute, Tick, all).await.unwrap();
    let runs = StdArc::new(Runs::default());
    let worker = DurableClient::open(Faulty::store(&memory, 50, 7));
    let executor = DurableExecutor::builder(worker)
        .register::<Tick>()
        .retry(Retry::exponential().base(Duration::from_millis(1)))
        .start(StdArc::clone(&runs))
        .await
        .expect("the store answers in time");
    let end = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let counts = client.counts().await.unwrap();
        if counts.done >= TICKS {
            break;
        }
        assert!(std::time::Instant::now() < end, "{counts:?}");
        // If a worker did not receive a schedule that it was handed, the schedule is handed out again.
        clock.advance(HAND_OUT_INTERVAL);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    executor.shutdown(Duration::from_secs(5)).await;
    let info = client.schedules().get("a").await.unwrap().unwrap();
    let stored = client.counts().await.unwrap().stored;
    assert_eq!((info.started, info.skipped), (stored, 0));
    let runs = lock(&runs);
    let first = *runs.keys().min().expect("some have run");
    for minute in first..first + TICKS {
        assert!(runs.contains_key(&minute), "{}", minute - first);
    }
    let ticks = info
        .last_tick
        .and_then(|tick| tick.duration_since(UNIX_EPOCH).ok());
    assert_eq!(stored, ticks.unwrap().as_secs() / 60 - first + 1);
}

/// A change takes effect, its answer is lost, and the schedule changes before the request is sent again.
#[tokio::test]
async fn a_call_of_fire_now_stores_one_task_at_most() {
    const CALLS: u64 = 30;
    let memory = MemoryStore::new();
    let client = DurableClient::open(Faulty::store(&memory, 60, 3));
    let other = DurableClient::open(memory.clone());
    let options = ScheduleOptions::new().overlap(Overlap::Allow);
    let daily = Every::new(Duration::from_secs(24 * 3600));
    let defined = other.schedule_with("a", daily, Tick, options);
    assert!(defined.await.unwrap());
    let changing = async {
        loop {
            assert!(other.schedules().pause("a").await.unwrap());
            assert!(other.schedules().resume("a").await.unwrap());
            // The store answers at once, so this would not let the other future continue.
            tokio::task::yield_now().await;
        }
    };
    let firing = async {
        let mut succeeded = 0;
        for _ in 0..CALLS {
            succeeded += u64::from(client.schedules().fire_now("a").await.is_ok());
        }
        succeeded
    };
    let succeeded = tokio::select! {
        () = changing => unreachable!(),
        succeeded = firing => succeeded,
    };
    let stored = other.counts().await.unwrap().stored;
    assert!(
        (succeeded..=CALLS).contains(&stored),
        "{succeeded} {stored}"
    );
}
