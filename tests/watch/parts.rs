//! Each kind of parts: the numbers that a registry shows are those of the part.

use std::thread;
use std::time::{Duration, Instant};

use throng::watch::{PartKind, Registry, Value};
use throng::{BlockingPool, CompletionStream, ComputePool, JoinError, SerialExecutor};

use crate::exposition::Exposition;
use crate::support::{Gate, block_on, current_thread, join, wait_until};

/// The numbers that the registry shows of the only part.
fn shown(registry: &Registry) -> Exposition {
    Exposition::parse(&registry.prometheus())
}

#[test]
fn a_blocking_pool_shows_its_threads_its_queue_and_its_tasks() {
    let pool = BlockingPool::builder()
        .core_threads(1)
        .max_threads(2)
        .queue_capacity(3)
        .build()
        .unwrap();
    let registry = Registry::new();
    registry.watch("db", &pool);
    let gate = Gate::new();
    let mut tasks: Vec<_> = (0..5)
        .map(|_| {
            let gate = gate.clone();
            pool.spawn_blocking(move || gate.pass())
        })
        .collect();
    assert!(join(pool.spawn_blocking(|| ())).is_err_and(|error| error.is_rejected()));
    wait_until("both threads run a task", || pool.metrics().queued == 3);

    let full = shown(&registry);
    let get = |name: &str| full.get(name, &[("pool", "db")]);
    assert_eq!(get("throng_blocking_threads_core"), Some(1.0));
    assert_eq!(get("throng_blocking_threads_max"), Some(2.0));
    assert_eq!(get("throng_blocking_queue_capacity"), Some(3.0));
    assert_eq!(get("throng_blocking_queue_length"), Some(3.0));
    assert_eq!(get("throng_blocking_submitted_total"), Some(5.0));
    let busy = [("pool", "db"), ("state", "busy")];
    assert_eq!(full.get("throng_blocking_threads", &busy), Some(2.0));

    tasks.pop().expect("five tasks").abort();
    gate.open();
    for task in tasks {
        join(task).unwrap();
    }
    let panicked: Result<(), JoinError> = join(pool.spawn_blocking(|| panic!("on purpose")));
    assert!(panicked.is_err());
    wait_until("all threads are idle", || pool.metrics().busy == 0);
    let after = shown(&registry);
    for (outcome, count) in [
        ("completed", 4.0),
        ("panicked", 1.0),
        ("cancelled", 1.0),
        ("rejected", 1.0),
    ] {
        let labels = [("pool", "db"), ("outcome", outcome)];
        assert_eq!(
            after.get("throng_blocking_tasks_total", &labels),
            Some(count),
            "{outcome}"
        );
    }
}

#[test]
fn a_limit_that_is_changed_is_shown() {
    let pool = BlockingPool::builder().max_threads(4).build().unwrap();
    let registry = Registry::new();
    registry.watch("db", &pool);
    pool.set_max_threads(8).unwrap();
    pool.set_core_threads(3).unwrap();
    let shown = shown(&registry);
    let get = |name: &str| shown.get(name, &[("pool", "db")]);
    assert_eq!(get("throng_blocking_threads_max"), Some(8.0));
    assert_eq!(get("throng_blocking_threads_core"), Some(3.0));
    assert_eq!(
        get("throng_blocking_queue_capacity"),
        None,
        "there is no bound"
    );
}

#[test]
fn histograms_hold_what_the_pool_has_timed() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let registry = Registry::new();
    registry.watch("db", &pool);
    for _ in 0..400 {
        join(pool.spawn_blocking(|| ())).unwrap();
    }
    wait_until("a task was sampled", || pool.metrics().run_time.count() > 0);
    wait_until("the thread is idle", || pool.metrics().idle == 1);
    let (metrics, shown) = (pool.metrics(), shown(&registry));
    let get = |name: &str| shown.get(name, &[("pool", "db")]).unwrap();
    assert_eq!(
        get("throng_blocking_run_seconds_count"),
        metrics.run_time.count() as f64
    );
    assert_eq!(
        get("throng_blocking_run_seconds_sum"),
        metrics.run_time.sum().as_secs_f64()
    );
    assert_eq!(
        get("throng_blocking_wait_seconds_count"),
        metrics.queue_wait.count() as f64
    );
}

#[test]
fn a_bulkhead_shows_its_own_limits() {
    let pool = BlockingPool::builder().max_threads(4).build().unwrap();
    let reports = pool.bulkhead(2, 7).unwrap();
    let registry = Registry::new();
    registry.watch("reports", &reports);
    join(reports.spawn_blocking(|| ())).unwrap();
    let shown = shown(&registry);
    let get = |name: &str| shown.get(name, &[("bulkhead", "reports")]);
    assert_eq!(get("throng_bulkhead_max_running"), Some(2.0));
    assert_eq!(get("throng_bulkhead_queue_capacity"), Some(7.0));
    assert_eq!(get("throng_bulkhead_submitted_total"), Some(1.0));
    let completed = [("bulkhead", "reports"), ("outcome", "completed")];
    assert_eq!(
        shown.get("throng_bulkhead_tasks_total", &completed),
        Some(1.0)
    );
}

#[test]
fn a_compute_pool_shows_its_threads_and_its_tasks() {
    let pool = ComputePool::builder().threads(2).build().unwrap();
    let registry = Registry::new();
    registry.watch("parse", &pool);
    for _ in 0..10 {
        join(pool.spawn(|| ())).unwrap();
    }
    let panicked: Result<(), JoinError> = join(pool.spawn(|| panic!("on purpose")));
    assert!(panicked.is_err());
    pool.close();
    assert!(pool.try_execute(|| ()).is_err());
    let shown = shown(&registry);
    let state = |state| {
        shown.get(
            "throng_compute_threads",
            &[("pool", "parse"), ("state", state)],
        )
    };
    assert_eq!(state("awake").unwrap() + state("parked").unwrap(), 2.0);
    for (outcome, count) in [
        ("completed", 10.0),
        ("panicked", 1.0),
        ("cancelled", 0.0),
        ("rejected", 1.0),
    ] {
        let labels = [("pool", "parse"), ("outcome", outcome)];
        assert_eq!(
            shown.get("throng_compute_tasks_total", &labels),
            Some(count),
            "{outcome}"
        );
    }
    assert_eq!(
        shown.get("throng_compute_queue_length", &[("pool", "parse")]),
        Some(0.0)
    );
}

#[test]
fn a_serial_executor_shows_its_jobs_and_its_poison() {
    let executor = SerialExecutor::new(0);
    let registry = Registry::new();
    registry.watch("stock", &executor);
    block_on(executor.submit(|n| *n += 1)).unwrap();
    let panicked: Result<(), _> = block_on(executor.submit(|_| panic!("on purpose")));
    assert!(panicked.is_err());
    assert!(block_on(executor.submit(|n| *n)).is_err(), "it is poisoned");
    let shown = shown(&registry);
    let get = |name: &str| shown.get(name, &[("executor", "stock")]);
    assert_eq!(get("throng_serial_executors"), Some(1.0));
    assert_eq!(get("throng_serial_poisoned"), Some(1.0));
    assert_eq!(get("throng_serial_busy"), Some(0.0));
    for (outcome, count) in [("completed", 1.0), ("panicked", 1.0), ("rejected", 1.0)] {
        let labels = [("executor", "stock"), ("outcome", outcome)];
        assert_eq!(
            shown.get("throng_serial_jobs_total", &labels),
            Some(count),
            "{outcome}"
        );
    }
    let inline = [("executor", "stock"), ("path", "inline")];
    assert_eq!(shown.get("throng_serial_runs_total", &inline), Some(2.0));
}

#[test]
fn a_stream_shows_its_jobs_whichever_end_is_watched() {
    current_thread().block_on(async {
        let (jobs, mut done) = CompletionStream::builder().build().unwrap();
        let registry = Registry::new();
        registry.watch("pages", &jobs);
        registry.watch("pages", &done);
        for n in 0..3 {
            jobs.submit(n, async move { assert!(n > 0, "on purpose") })
                .await
                .unwrap();
        }
        let _open = jobs.try_slot(3).unwrap();
        assert!(done.next().await.is_some());
        while jobs.ready() < 2 {
            tokio::task::yield_now().await;
        }
        let shown = shown(&registry);
        for (name, count) in [
            ("throng_completion_running", 1.0),
            ("throng_completion_in_flight", 3.0),
            ("throng_completion_ready", 2.0),
            ("throng_completion_submitted_total", 4.0),
            ("throng_completion_read_total", 1.0),
        ] {
            assert_eq!(
                shown.get(name, &[("stream", "pages")]),
                Some(count),
                "{name}"
            );
        }
        while jobs.metrics().read < 3 {
            done.next().await;
        }
        assert_eq!(done.metrics().panicked, 1);
    });
}

#[test]
fn a_snapshot_has_the_values_by_name() {
    let pool = BlockingPool::builder().max_threads(4).build().unwrap();
    let registry = Registry::new();
    registry.watch("db", &pool);
    let snapshot = registry.snapshot();
    let [part] = snapshot.parts() else {
        panic!("one part: {snapshot:?}");
    };
    assert_eq!(
        (part.kind(), part.name(), part.live()),
        (PartKind::BlockingPool, "db", 1)
    );
    assert!(snapshot.part(PartKind::ComputePool, "db").is_none());
    assert_eq!(
        part.value("throng_blocking_threads_max", ""),
        Some(&Value::Count(4))
    );
    assert_eq!(part.value("throng_blocking_threads", ""), None);
    let outcomes = part
        .samples()
        .iter()
        .filter(|it| it.name() == "throng_blocking_tasks_total");
    let labels: Vec<_> = outcomes.filter_map(|it| it.label()).collect();
    assert!(
        labels.contains(&("outcome", "completed")) && labels.len() == 4,
        "{labels:?}"
    );
}

#[test]
fn the_registry_of_the_process_is_one() {
    let pool = BlockingPool::new();
    Registry::global().watch("the global one", &pool);
    let shown = thread::spawn(|| Registry::global().clone().prometheus());
    assert!(shown.join().unwrap().contains("{pool=\"the global one\""));
}

/// A bound that a loaded machine keeps; on an idle one, it takes a hundredth of that.
#[test]
fn a_hundred_parts_are_read_in_milliseconds() {
    let pools: Vec<_> = (0..20).map(|_| BlockingPool::new()).collect();
    let executors: Vec<_> = (0..80).map(SerialExecutor::new).collect();
    let registry = Registry::new();
    for (n, pool) in pools.iter().enumerate() {
        registry.watch(format!("pool {n}"), pool);
    }
    for (n, executor) in executors.iter().enumerate() {
        registry.watch(format!("executor {}", n % 40), executor);
    }
    let fastest = (0..200).map(|_| {
        let begun = Instant::now();
        drop(registry.snapshot());
        begun.elapsed()
    });
    let fastest = fastest.min().unwrap();
    assert!(fastest < Duration::from_millis(20), "{fastest:?}");
}
