//! Jobs that run long, which a registry notices from look to look.

use std::time::Duration;

use throng::watch::{PartKind, Registry, Value};
use throng::{ComputePool, SerialExecutor};

use crate::support::{Gate, join, multi_thread, wait_until};

fn value(registry: &Registry, kind: PartKind, metric: &str, label_value: &str) -> Value {
    let snapshot = registry.snapshot();
    let part = snapshot.part(kind, "it").expect("it is watched");
    part.value(metric, label_value)
        .expect("it is measured")
        .clone()
}

fn busy(registry: &Registry) -> Duration {
    match value(
        registry,
        PartKind::SerialExecutor,
        "throng_serial_busy_seconds",
        "",
    ) {
        Value::Seconds(time) => time,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_that_runs_long_is_noticed() {
    let runtime = multi_thread(1, "runs");
    let _entered = runtime.enter();
    let (registry, executor, gate) = (Registry::new(), SerialExecutor::new(()), Gate::new());
    registry.watch("it", &executor);
    assert_eq!(busy(&registry), Duration::ZERO);
    let running = gate.clone();
    let job = executor.post(move |()| running.pass());
    wait_until("the job runs", || executor.metrics().is_busy);
    wait_until("it has been found running twice", || {
        busy(&registry) > Duration::ZERO
    });
    let longer = busy(&registry);
    wait_until("the time grows", || busy(&registry) > longer);
    gate.open();
    join(job).unwrap();
    wait_until("the executor is idle", || busy(&registry) == Duration::ZERO);
}

/// The time of each job counts, not the time for which the executor is busy.
#[test]
fn short_jobs_that_follow_one_another_are_not_one_long_job() {
    let runtime = multi_thread(1, "runs");
    let _entered = runtime.enter();
    let (registry, executor) = (Registry::new(), SerialExecutor::new(()));
    registry.watch("it", &executor);
    let (first, second) = (Gate::new(), Gate::new());
    let gates = [first.clone(), second.clone()];
    let jobs = gates.map(|gate| executor.post(move |()| gate.pass()));
    wait_until("the first job is found running", || {
        busy(&registry) > Duration::ZERO
    });
    let of_first = busy(&registry);
    let runs = executor.metrics().queued + executor.metrics().completed;
    first.open();
    wait_until("the first job has ended", || {
        let metrics = executor.metrics();
        metrics.queued + metrics.completed > runs && metrics.completed == 1
    });
    // The first look after that finds another job.
    while executor.metrics().queued < 2 {
        std::thread::yield_now();
    }
    assert_eq!(busy(&registry), Duration::ZERO, "after {of_first:?}");
    second.open();
    for job in jobs {
        join(job).unwrap();
    }
}

/// A task that runs counts as completed. If it panics, the pool counts one completed task less.
#[test]
fn a_counter_does_not_fall_when_a_task_panics() {
    let (registry, gate) = (Registry::new(), Gate::new());
    let pool = ComputePool::builder().threads(1).build().unwrap();
    registry.watch("it", &pool);
    let completed = || {
        value(
            &registry,
            PartKind::ComputePool,
            "throng_compute_tasks_total",
            "completed",
        )
    };
    let running = gate.clone();
    let task = pool.spawn(move || {
        running.pass();
        panic!("on purpose");
    });
    wait_until("the task runs", || pool.metrics().completed == 1);
    assert_eq!(completed(), Value::Count(1));
    gate.open();
    assert!(join::<()>(task).is_err());
    assert_eq!(pool.metrics().completed, 0);
    assert_eq!(completed(), Value::Count(1));
    join(pool.spawn(|| ())).unwrap();
    join(pool.spawn(|| ())).unwrap();
    assert_eq!(completed(), Value::Count(2));
}

#[test]
fn a_long_task_of_a_compute_pool_is_shown() {
    let (registry, gate) = (Registry::new(), Gate::new());
    let pool = ComputePool::builder().threads(1).build().unwrap();
    registry.watch("it", &pool);
    let running = gate.clone();
    let task = pool.spawn(move || running.pass());
    let longest = || {
        value(
            &registry,
            PartKind::ComputePool,
            "throng_compute_longest_running_seconds",
            "",
        )
    };
    wait_until("the task was found running", || {
        longest() != Value::Seconds(Duration::ZERO)
    });
    gate.open();
    join(task).unwrap();
}
