//! When a worker asks for due schedules, and that it fires them.

use std::future::pending;

use super::*;
use crate::durable::{Clock, Every};

const SECOND: Duration = Duration::from_secs(1);

/// The regular interval at which workers ask, unless their lease is short.
const INTERVAL: Duration = Duration::from_secs(30);

/// A store with a clock that stands still, and the times at which workers have asked for due schedules.
struct Scene {
    clock: Clock,
    store: MemoryStore,
    /// A client that has no worker.
    definer: DurableClient,
    asked: StdArc<Mutex<Vec<Instant>>>,
}

impl Scene {
    fn new() -> Self {
        let clock = Clock::manual();
        let store = MemoryStore::with_clock(&clock);
        Self {
            definer: client_of(&store),
            store,
            clock,
            asked: StdArc::default(),
        }
    }

    /// A client that records when its worker asks. Each request takes the time that `time` returns.
    fn client(&self, time: fn(&'static str) -> Duration) -> DurableClient {
        let asked = StdArc::clone(&self.asked);
        client_with(&self.store, move |name| {
            if name == "hand out" {
                lock(&asked).push(Instant::now());
            }
            Box::pin(async move {
                sleep(time(name)).await;
                Ok(())
            })
        })
    }

    /// A client that records when its worker asks, and whose store does not answer then.
    fn failing_client(&self) -> DurableClient {
        let asked = StdArc::clone(&self.asked);
        client_with(&self.store, move |name| {
            let fails = name == "hand out";
            if fails {
                lock(&asked).push(Instant::now());
            }
            let failure = Failure::new(Effect::None, Cause::Full);
            Box::pin(async move { if fails { Err(failure) } else { Ok(()) } })
        })
    }

    /// Defines a schedule that is due after this time, as another process does.
    async fn define(&self, name: &str, after: Duration) {
        let anchor = std::time::SystemTime::UNIX_EPOCH + self.clock.wall() + after;
        let every = Every::new(1_000 * SECOND).anchor(anchor);
        let defined = self.definer.schedule(name, every, Number(7)).await;
        assert!(defined.unwrap());
    }

    /// Lets the worker do what it does at its start, and forgets when it has asked so far.
    async fn settle(&self) -> Instant {
        sleep(SECOND).await;
        lock(&self.asked).clear();
        Instant::now()
    }

    /// Waits until the worker has asked this many times. Returns when it has.
    async fn asked(&self, count: usize) -> Vec<Instant> {
        for _ in 0..500_000 {
            let asked = lock(&self.asked).clone();
            if asked.len() >= count {
                return asked;
            }
            sleep(Duration::from_millis(1)).await;
        }
        panic!("the worker does not ask");
    }
}

fn at_once(_: &'static str) -> Duration {
    Duration::ZERO
}

#[track_caller]
fn assert_about(time: Duration, expected: Duration) {
    let most = Duration::from_millis(20);
    assert!(time.abs_diff(expected) < most, "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_asks_when_the_next_schedule_is_due() {
    let scene = Scene::new();
    scene.define("a", 5 * SECOND).await;
    let start = Instant::now();
    let mut builder = builder(&scene.client(at_once));
    builder.lease(3600 * SECOND);
    let app = App::new(|number, _| async move { Ok(number) });
    let _executor = builder.start(app).await.unwrap();
    scene.settle().await;
    assert_about(scene.asked(1).await[0] - start, 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_learns_of_an_earlier_schedule() {
    let scene = Scene::new();
    let app = App::new(|number, _| async move { Ok(number) });
    let client = scene.client(at_once);
    let _executor = builder(&client).start(app).await.unwrap();
    let settled = scene.settle().await;
    scene.define("a", 5 * SECOND).await;
    assert_about(scene.asked(1).await[0] - settled, 5 * SECOND);
}

/// While all permits are taken, no worker is woken.
#[tokio::test(start_paused = true)]
async fn a_worker_learns_of_a_schedule_at_its_next_turn() {
    let scene = Scene::new();
    let client = scene.client(at_once);
    let mut builder = builder(&client);
    let app = App::new(|number, _| async move {
        sleep(3 * SECOND).await;
        Ok(number)
    });
    let executor = builder.max_running(1).start(app).await.unwrap();
    let run = spawn(&client, 1).await.unwrap();
    until("it runs", || executor.metrics().running == 1).await;
    scene.settle().await;
    scene.define("a", 5 * SECOND).await;
    assert_eq!(run.await.unwrap(), 1);
    // The store's clock stands still, so the schedule is due five seconds after the turn.
    let turned = Instant::now();
    assert_about(scene.asked(1).await[0] - turned, 5 * SECOND);
}

/// Starts an executor of runs that never end, all of whose permits are taken.
async fn start_busy(client: &DurableClient, lease: Duration) -> DurableExecutor {
    let mut builder = builder(client);
    builder.lease(lease).max_running(1);
    let app = App::new(|_, _| pending());
    let executor = builder.start(app).await.unwrap();
    _ = spawn(client, 1).await.unwrap();
    until("it runs", || executor.metrics().running == 1).await;
    executor
}

#[tokio::test(start_paused = true)]
async fn a_busy_worker_asks_at_regular_intervals() {
    for (lease, interval) in [(2 * SECOND, 6 * SECOND), (3600 * SECOND, INTERVAL)] {
        let scene = Scene::new();
        scene.define("a", 900 * SECOND).await;
        let _executor = start_busy(&scene.client(at_once), lease).await;
        scene.settle().await;
        let asked = scene.asked(4).await;
        for nth in 1..4 {
            assert_about(asked[nth] - asked[nth - 1], interval);
        }
    }
}

/// The answers to the turns of an idle worker say when the next schedule is due, so the worker does not ask.
#[tokio::test(start_paused = true)]
async fn an_idle_worker_asks_only_when_a_schedule_is_due() {
    let scene = Scene::new();
    scene.define("a", 900 * SECOND).await;
    let app = App::new(|number, _| async move { Ok(number) });
    let executor = builder(&scene.client(at_once)).start(app).await.unwrap();
    scene.settle().await;
    let before = executor.metrics().turns;
    sleep(20 * INTERVAL).await;
    let turns = executor.metrics().turns - before;
    assert!(turns >= 60, "{turns}");
    assert_eq!(scene.asked(0).await.len(), 0);
    scene.clock.advance(900 * SECOND);
    scene.asked(1).await;
}

/// Other schedules may have become due while it fired the first one, which takes two seconds here.
#[tokio::test(start_paused = true)]
async fn a_worker_that_has_fired_a_schedule_asks_again_at_once() {
    let scene = Scene::new();
    let client = scene.client(|name| match name {
        "change_schedule" => 2 * SECOND,
        _ => Duration::ZERO,
    });
    let executor = start_busy(&client, 3600 * SECOND).await;
    scene.define("a", SECOND).await;
    scene.settle().await;
    scene.clock.advance(SECOND);
    let asked = scene.asked(2).await;
    assert_about(asked[1] - asked[0], 2 * SECOND);
    assert_eq!(executor.metrics().fired, 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_not_answered_asks_again_after_an_interval() {
    let scene = Scene::new();
    let client = scene.failing_client();
    let _executor = start_busy(&client, 3600 * SECOND).await;
    let asked = scene.asked(3).await;
    assert_about(asked[2] - asked[1], HAND_OUT_INTERVAL);
}

/// Each turn says that a schedule is due.
#[tokio::test(start_paused = true)]
async fn turns_do_not_shorten_the_pause_after_a_failure() {
    let scene = Scene::new();
    scene.define("a", SECOND).await;
    scene.clock.advance(SECOND);
    let client = scene.failing_client();
    let app = App::new(|number, _| async move { Ok(number) });
    let executor = builder(&client).start(app).await.unwrap();
    for number in 0..20 {
        let ran = spawn(&client, number).await.unwrap().await.unwrap();
        assert_eq!(ran, number);
        sleep(SECOND).await;
    }
    assert!(executor.metrics().turns >= 20);
    let asked = scene.asked(3).await;
    for pair in asked.windows(2) {
        assert_about(pair[1] - pair[0], HAND_OUT_INTERVAL);
    }
}

/// While the worker asks, a turn says when a schedule is due. The answer does not contain the schedule, which is paused then.
#[tokio::test(start_paused = true)]
async fn an_answer_does_not_hide_a_schedule_that_a_turn_has_seen() {
    let scene = Scene::new();
    let client = scene.client(|name| match name {
        "hand out" => 10 * SECOND,
        _ => Duration::ZERO,
    });
    let app = App::new(|number, _| async move {
        if number == 2 {
            pending::<()>().await;
        }
        sleep(3 * SECOND).await;
        Ok(number)
    });
    let mut builder = builder(&client);
    builder.lease(3600 * SECOND).max_running(1);
    let executor = builder.start(app).await.unwrap();
    // A worker that has just started asks twice.
    let began = scene.asked(2).await[1];
    let first = spawn(&client, 1).await.unwrap();
    until("it runs", || executor.metrics().running == 1).await;
    let _second = spawn(&client, 2).await.unwrap();
    // All permits are taken, so the worker learns of the schedule only by the turn that ends the first task.
    scene.define("a", 20 * SECOND).await;
    assert_eq!(first.await.unwrap(), 1);
    let turned = Instant::now();
    let schedules = scene.definer.schedules();
    assert!(schedules.pause("a").await.unwrap());
    tokio::time::sleep_until(began + 11 * SECOND).await;
    assert!(schedules.resume("a").await.unwrap());
    assert_about(scene.asked(3).await[2] - turned, 20 * SECOND);
}

/// Meanwhile, it runs tasks, and others always wait, so each answer to a turn has a claim.
#[tokio::test(start_paused = true)]
async fn a_worker_asks_one_question_at_a_time() {
    let scene = Scene::new();
    let client = scene.client(|name| match name {
        "hand out" => 60 * SECOND,
        _ => Duration::ZERO,
    });
    let app = App::new(|number, _| async move {
        sleep(SECOND).await;
        Ok(number)
    });
    let mut runs = Vec::new();
    for number in 0..70 {
        runs.push(spawn(&scene.definer, number).await.unwrap());
    }
    let _executor = builder(&client).max_running(1).start(app).await.unwrap();
    let first = scene.asked(1).await[0];
    for (number, run) in (0..50).zip(runs) {
        assert_eq!(run.await.unwrap(), number);
    }
    // The regular interval has passed meanwhile.
    assert_about(scene.asked(2).await[1] - first, 60 * SECOND);
}

/// A run that ignores the shutdown delays it.
#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_no_longer_asks() {
    let scene = Scene::new();
    let executor = start_busy(&scene.client(at_once), 2 * SECOND).await;
    scene.settle().await;
    let before = scene.asked(2).await.len();
    executor.shutdown(100 * SECOND).await;
    assert_eq!(scene.asked(0).await.len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_schedules_that_are_being_fired() {
    let scene = Scene::new();
    scene.define("a", SECOND).await;
    scene.clock.advance(SECOND);
    let client = scene.client(|name| match name {
        "change_schedule" => SECOND,
        _ => Duration::ZERO,
    });
    let app = App::new(|number, _| async move { Ok(number) });
    let executor = builder(&client).start(app).await.unwrap();
    scene.asked(1).await;
    sleep(SECOND / 2).await;
    executor.shutdown(Duration::ZERO).await;
    let info = scene.definer.schedules().get("a").await.unwrap();
    assert_eq!(info.unwrap().started, 1);
}
