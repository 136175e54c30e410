//! A long task: other threads take over the tasks behind it, and the metrics report it.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use throng::ComputePool;
use throng::compute::Metrics;

use crate::pools::{Busy, Count, of, output, rest, settle};
use crate::support::{Gate, TEST_TIMEOUT, receive, wait_until};

/// The longest time that a tiny task may wait behind a long one. Generous, because other tests load the machine.
const BAR: Duration = Duration::from_secs(2);

/// A task that holds its thread, and ten tiny ones behind it, in one batch; all ten must be done while
/// it is held.
#[track_caller]
fn assert_tiny_tasks_get_past(pool: &ComputePool) {
    let (gate, done) = (Gate::new(), Count::default());
    let (held, holds) = mpsc::channel();
    let long = {
        let gate = gate.clone();
        move || {
            held.send(()).unwrap();
            gate.pass();
        }
    };
    let mut closures: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(long)];
    closures.extend((0..10).map(|_| Box::new(done.adder()) as Box<_>));
    let submitted = Instant::now();
    pool.execute_batch(closures);
    receive(&holds);
    wait_until("the tiny tasks are done", || done.get() == 10);
    let elapsed = submitted.elapsed();
    gate.open();
    println!("ten tiny tasks got past a long one in {elapsed:?}");
    assert!(elapsed < BAR, "{elapsed:?}");
}

#[test]
fn tiny_tasks_get_past_a_long_one() {
    assert_tiny_tasks_get_past(&of(2));
    let pool = of(2);
    rest(&pool);
    assert_tiny_tasks_get_past(&pool);
    rest(&pool);
    assert_tiny_tasks_get_past(&pool);
}

/// The pool has learnt then that tasks are tiny, and takes many in hand.
#[test]
fn tiny_tasks_get_past_a_long_one_also_when_all_before_were_tiny() {
    let pool = of(2);
    for _ in 0..3 {
        let done = Count::default();
        pool.execute_batch((0..100_000).map(|_| done.adder()));
        wait_until("the first ones are done", || done.get() == 100_000);
        assert_tiny_tasks_get_past(&pool);
    }
}

#[test]
fn tiny_tasks_get_past_a_long_one_of_a_key_and_one_from_inside() {
    let pool = of(2);
    let busy = Busy::keep_key(&pool, "key");
    for n in 0..200_u32 {
        assert_eq!(output(pool.spawn(move || n)), n);
    }
    busy.release();

    let (own, gate, done) = (pool.clone(), Gate::new(), Count::default());
    let (holds, tiny) = (gate.clone(), done.clone());
    let parent = pool.spawn(move || {
        own.execute_batch((0..10).map(|_| tiny.adder()));
        holds.pass();
    });
    wait_until("the children are done", || done.get() == 10);
    assert!(!parent.is_finished());
    gate.open();
    output(parent);
}

#[test]
fn what_waits_behind_several_long_ones_is_reached() {
    let pool = of(4);
    let busy = Busy::keep(&pool, 3);
    let done = Count::default();
    pool.execute_batch((0..1_000).map(|_| done.adder()));
    for _ in 0..100 {
        drop(pool.spawn_keyed("key", done.adder()));
    }
    wait_until("all have run", || done.get() == 1_100);
    busy.release();
}

#[test]
fn whoever_goes_on_submitting_is_served_while_a_thread_is_held() {
    let pool = of(2);
    let busy = Busy::keep(&pool, 1);
    let mut longest = Duration::ZERO;
    for n in 0..2_000 {
        let submitted = Instant::now();
        assert_eq!(output(pool.spawn(move || n)), n);
        longest = longest.max(submitted.elapsed());
    }
    println!("none of 2,000 waited for longer than {longest:?}");
    assert!(longest < BAR, "{longest:?}");
    // Without waiting for each, from several threads.
    let done = Count::default();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..5_000).for_each(|_| pool.execute(done.adder())));
        }
    });
    wait_until("all have run", || done.get() == 15_000);
    assert_eq!(pool.metrics().queued, 0);
    busy.release();
}

fn longest_running(metrics: &Metrics) -> Duration {
    let times = metrics.lanes.iter().map(|lane| lane.running_for);
    times.max().expect("a pool has threads")
}

#[test]
fn metrics_say_for_how_long_a_thread_has_been_held_and_what_waits() {
    let pool = of(2);
    assert!(longest_running(&rest(&pool)).is_zero());
    let busy = Busy::keep(&pool, 1);
    let grown = |than: Duration| {
        let metrics = settle(&pool, |metrics| longest_running(metrics) > than);
        let held: Vec<_> = metrics
            .lanes
            .iter()
            .filter(|lane| lane.running_for > than)
            .collect();
        assert_eq!(held.len(), 1);
        assert!(!held[0].is_parked);
        longest_running(&metrics)
    };
    let first = grown(Duration::ZERO);
    let second = grown(first + Duration::from_millis(20));
    assert!(second < TEST_TIMEOUT);

    // The other one, too: now what comes must wait.
    let other = Busy::keep(&pool, 1);
    pool.execute_batch((0..100).map(|_| || ()));
    assert_eq!(pool.metrics().queued, 100);
    let metrics = settle(&pool, |metrics| {
        metrics.lanes.iter().all(|lane| !lane.running_for.is_zero())
    });
    assert_eq!((metrics.queued, metrics.completed), (100, 2));
    other.release();
    settle(&pool, |metrics| metrics.queued == 0);
    busy.release();
    let metrics = rest(&pool);
    assert!(longest_running(&metrics).is_zero());
    assert_eq!(metrics.completed, 102);
}

/// Tasks that are short, but many, are not taken for one that is long.
#[test]
fn a_thread_that_is_merely_busy_is_not_held() {
    let pool = of(1);
    let end = Instant::now() + Duration::from_millis(200);
    let mut longest = Duration::ZERO;
    while Instant::now() < end {
        let done = Count::default();
        for _ in 0..1_000 {
            pool.execute(done.adder());
        }
        longest = longest.max(longest_running(&pool.metrics()));
        wait_until("they are done", || done.get() == 1_000);
    }
    // Unless the machine let it wait for that long.
    assert!(longest < BAR, "{longest:?}");
}
