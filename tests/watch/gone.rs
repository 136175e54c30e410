//! Parts that go away while they are watched.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use throng::watch::{PartKind, Registry, Value};
use throng::{BlockingPool, CompletionStream, ComputePool, SerialExecutor};

use crate::exposition::Exposition;
use crate::support::{Gate, block_on, current_thread, join, rounds, wait_until};

/// A state that counts its drops, and may panic or watch something in them.
struct State {
    drops: Arc<AtomicUsize>,
    panics: bool,
    registry: Option<Registry>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        if let Some(registry) = &self.registry {
            registry.watch("in a drop", &SerialExecutor::new(()));
            drop(registry.snapshot());
        }
        assert!(!self.panics, "on purpose");
    }
}

/// Counts the jobs of an executor that is made for it.
fn completed(registry: &Registry, name: &str) -> Option<u64> {
    let snapshot = registry.snapshot();
    let part = snapshot.part(PartKind::SerialExecutor, name)?;
    match part.value("throng_serial_jobs_total", "completed")? {
        Value::Count(count) => Some(*count),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_watched_part_is_dropped_as_if_nobody_watched_it() {
    let drops = Arc::new(AtomicUsize::new(0));
    let state = State {
        drops: Arc::clone(&drops),
        panics: false,
        registry: None,
    };
    let registry = Registry::new();
    let executor = SerialExecutor::new(state);
    registry.watch("state", &executor);
    drop(registry.snapshot());
    drop(executor);
    assert_eq!(
        drops.load(Ordering::Relaxed),
        1,
        "the registry does not keep it"
    );
    let snapshot = registry.snapshot();
    assert_eq!(snapshot.parts()[0].live(), 0);
}

#[test]
fn a_watched_pool_closes_with_its_last_handle() {
    let registry = Registry::new();
    let gate = Gate::new();
    let (blocking, compute) = (
        BlockingPool::new(),
        ComputePool::builder().threads(1).build().unwrap(),
    );
    registry.watch("blocking", &blocking);
    registry.watch("compute", &compute);
    let running = gate.clone();
    let task = blocking.spawn_blocking(move || running.pass());
    drop(registry.snapshot());
    drop((blocking, compute));
    let live = |kind, name| {
        registry
            .snapshot()
            .part(kind, name)
            .map_or(0, |part| part.live())
    };
    // Its thread has a task, and is still shown.
    assert_eq!(live(PartKind::BlockingPool, "blocking"), 1);
    gate.open();
    join(task).unwrap();
    wait_until("the threads have exited", || {
        live(PartKind::BlockingPool, "blocking") + live(PartKind::ComputePool, "compute") == 0
    });
}

#[test]
fn counters_of_a_part_that_is_gone_stay_and_gauges_go() {
    let registry = Registry::new();
    let mut before = 0;
    for round in 1..=5 {
        let executor = SerialExecutor::new(0);
        registry.watch("session", &executor);
        for _ in 0..round {
            block_on(executor.submit(|n| *n += 1)).unwrap();
        }
        let now = completed(&registry, "session").unwrap();
        assert_eq!(now, before + round);
        before = now;
        drop(executor);
        assert_eq!(completed(&registry, "session"), Some(before));
    }
    let shown = Exposition::parse(&registry.prometheus());
    let get = |name: &str| shown.get(name, &[("executor", "session")]);
    assert_eq!(get("throng_serial_executors"), None);
    assert_eq!(get("throng_serial_captured_total"), Some(0.0));
}

#[test]
fn histograms_of_a_part_that_is_gone_stay() {
    let registry = Registry::new();
    let count = || {
        let shown = Exposition::parse(&registry.prometheus());
        shown
            .get("throng_blocking_run_seconds_count", &[("pool", "db")])
            .unwrap()
    };
    let mut before = 0.0;
    for _ in 0..2 {
        let pool = BlockingPool::builder().max_threads(1).build().unwrap();
        registry.watch("db", &pool);
        wait_until("a task was sampled", || {
            join(pool.spawn_blocking(|| ())).unwrap();
            pool.metrics().run_time.count() > 0
        });
        let now = count();
        assert!(now > before, "{now}");
        before = now;
    }
    wait_until("both pools are gone", || {
        registry.snapshot().parts()[0].live() == 0
    });
    assert!(count() >= before);
}

/// A program that watches many short-lived parts and never looks does not keep an entry for each.
#[test]
fn parts_that_come_and_go_leave_no_entries() {
    let registry = Registry::new();
    let kept = SerialExecutor::new(0);
    registry.watch("session", &kept);
    drop(registry.snapshot());
    for n in 0..rounds(20_000, 1_000_000) {
        registry.watch("session", &SerialExecutor::new(n));
    }
    let snapshot = registry.snapshot();
    assert_eq!(snapshot.parts()[0].live(), 1);
}

#[test]
fn a_state_may_use_the_registry_while_it_is_dropped() {
    let drops = Arc::new(AtomicUsize::new(0));
    let registry = Registry::new();
    let state = State {
        drops: Arc::clone(&drops),
        panics: false,
        registry: Some(registry.clone()),
    };
    let executor = SerialExecutor::new(state);
    registry.watch("state", &executor);
    drop(executor);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

/// Handles are dropped on one thread while another reads: the state is dropped once, by one of them, even if it panics and
/// uses the registry, and no counter falls.
#[test]
fn the_last_handle_may_go_while_it_is_read() {
    let registry = Registry::new();
    let drops = Arc::new(AtomicUsize::new(0));
    let parts = rounds(3_000, 100_000);
    let owner = thread::spawn({
        let (registry, drops) = (registry.clone(), Arc::clone(&drops));
        move || {
            for n in 0..parts {
                let state = State {
                    drops: Arc::clone(&drops),
                    panics: n % 3 == 0,
                    registry: (n % 64 == 1).then(|| registry.clone()),
                };
                let executor = SerialExecutor::new(state);
                registry.watch("state", &executor);
                block_on(executor.submit(|_| ())).unwrap();
                // On this thread, the panic of the state is the caller's.
                catch_unwind(AssertUnwindSafe(|| drop(executor))).ok();
            }
        }
    });
    let mut before = 0;
    while !owner.is_finished() {
        let now = completed(&registry, "state").unwrap_or_default();
        assert!(now >= before, "{now} after {before}");
        before = now;
    }
    owner.join().unwrap();
    drop(registry.snapshot());
    assert_eq!(drops.load(Ordering::Relaxed), parts);
    assert!(before <= parts as u64);
}

/// Parts of all kinds come, work and go on several threads, while two others read: no series of a counter falls.
#[test]
fn no_counter_falls_while_parts_come_and_go() {
    let registry = Registry::new();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let registry = registry.clone();
            thread::spawn(move || {
                current_thread().block_on(async {
                    for _ in 0..rounds(30, 1_000) {
                        come_and_go(&registry).await;
                    }
                });
            })
        })
        .collect();
    let look = || {
        let mut before = BTreeMap::new();
        while !workers.iter().all(|worker| worker.is_finished()) {
            let shown = Exposition::parse(&registry.prometheus());
            for (series, value) in shown.counters() {
                let earlier = before.insert(series.clone(), value).unwrap_or_default();
                assert!(value >= earlier, "{series:?}: {value} after {earlier}");
            }
            let now: Vec<_> = shown.counters().map(|(series, _)| series).collect();
            assert!(
                before.keys().all(|series| now.contains(&series)),
                "a counter is gone"
            );
        }
    };
    thread::scope(|scope| {
        scope.spawn(look);
        scope.spawn(look);
    });
    for worker in workers {
        worker.join().unwrap();
    }
}

async fn come_and_go(registry: &Registry) {
    let blocking = BlockingPool::builder().max_threads(2).build().unwrap();
    let compute = ComputePool::builder().threads(1).build().unwrap();
    let bulkhead = blocking.bulkhead(1, 10).unwrap();
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    registry.watch("pool", &blocking);
    registry.watch("pool", &compute);
    registry.watch("part", &bulkhead);
    registry.watch("stream", &jobs);
    for n in 0..4 {
        bulkhead.spawn_blocking(|| ()).await.unwrap();
        compute
            .spawn(move || assert!(n < 3, "on purpose"))
            .await
            .ok();
        jobs.submit((), async {}).await.unwrap();
        done.next().await;
    }
}
