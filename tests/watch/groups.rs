//! Names: parts that share one are added up, and their number is bounded.

use throng::watch::{PartKind, Registry, Value};
use throng::{BlockingPool, SerialExecutor};

use crate::exposition::Exposition;
use crate::support::{block_on, join};

#[test]
fn parts_with_one_name_are_added_up() {
    let registry = Registry::new();
    let pools = [1, 2, 3].map(|threads| {
        let mut builder = BlockingPool::builder();
        let pool = builder
            .max_threads(threads)
            .queue_capacity(10)
            .build()
            .unwrap();
        registry.watch("db", &pool);
        for _ in 0..threads {
            join(pool.spawn_blocking(|| ())).unwrap();
        }
        pool
    });
    let shown = Exposition::parse(&registry.prometheus());
    let get = |name: &str| shown.get(name, &[("pool", "db")]);
    assert_eq!(get("throng_blocking_submitted_total"), Some(6.0));
    assert_eq!(get("throng_blocking_threads_max"), Some(6.0));
    assert_eq!(get("throng_blocking_queue_capacity"), Some(30.0));
    assert_eq!(registry.snapshot().parts()[0].live(), 3);
    drop(pools);
}

#[test]
fn a_sum_of_bounds_is_absent_if_one_part_has_none() {
    let bounded = BlockingPool::builder().queue_capacity(10).build().unwrap();
    let unbounded = BlockingPool::new();
    for order in [[&bounded, &unbounded], [&unbounded, &bounded]] {
        let registry = Registry::new();
        for pool in order {
            registry.watch("db", pool);
        }
        let shown = Exposition::parse(&registry.prometheus());
        assert_eq!(
            shown.get("throng_blocking_queue_capacity", &[("pool", "db")]),
            None
        );
        assert!(
            shown
                .get("throng_blocking_queue_length", &[("pool", "db")])
                .is_some()
        );
    }
}

#[test]
fn a_part_that_is_watched_twice_counts_once_for_each_name() {
    let executor = SerialExecutor::new(0);
    let registry = Registry::new();
    registry.watch("a", &executor);
    registry.watch("a", &executor.clone());
    registry.watch("b", &executor);
    block_on(executor.submit(|n| *n += 1)).unwrap();
    for name in ["a", "b"] {
        let snapshot = registry.snapshot();
        let part = snapshot.part(PartKind::SerialExecutor, name).unwrap();
        assert_eq!(part.live(), 1);
        assert_eq!(
            part.value("throng_serial_jobs_total", "completed"),
            Some(&Value::Count(1))
        );
    }
}

#[test]
fn kinds_and_registries_are_apart() {
    let (pool, executor) = (BlockingPool::new(), SerialExecutor::new(0));
    let (registry, other) = (Registry::new(), Registry::new());
    registry.watch("same", &pool);
    registry.clone().watch("same", &executor);
    let kinds: Vec<_> = registry
        .snapshot()
        .parts()
        .iter()
        .map(|part| part.kind())
        .collect();
    assert_eq!(kinds, [PartKind::BlockingPool, PartKind::SerialExecutor]);
    assert!(other.snapshot().parts().is_empty());
    assert_eq!(format!("{other:?}"), "{}");
    assert!(format!("{registry:?}").contains("(BlockingPool, \"same\")"));
}

/// The numbers of names that are one too many are not lost.
#[test]
fn further_names_are_added_up_as_one() {
    let registry = Registry::new();
    let executors: Vec<_> = (0..100).map(SerialExecutor::new).collect();
    for (n, executor) in executors.iter().enumerate() {
        registry.watch(format!("tenant {n}"), executor);
    }
    // A name that is known already is used as it is, and another kind has names of its own.
    let known = SerialExecutor::new(0);
    registry.watch("tenant 0", &known);
    registry.watch("pool", &BlockingPool::new());
    let snapshot = registry.snapshot();
    let live = |name| {
        snapshot
            .part(PartKind::SerialExecutor, name)
            .map(|part| part.live())
    };
    let names = snapshot
        .parts()
        .iter()
        .filter(|it| it.kind() == PartKind::SerialExecutor);
    assert_eq!(names.count(), 65);
    assert_eq!(live("tenant 0"), Some(2));
    assert_eq!(live("other"), Some(36));
    assert_eq!(live("tenant 99"), None);
}
