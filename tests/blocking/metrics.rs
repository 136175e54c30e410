//! The metrics of a pool.

use std::panic::resume_unwind;
use std::sync::{Arc, Barrier, Mutex};
use std::task::Wake;
use std::thread;
use std::time::{Duration, Instant};

use throng::blocking::{Bulkhead, Histogram, Metrics, Overflow};
use throng::{BlockingPool, CompletionStream, JoinHandle};

use crate::pools::{Busy, jitter, output, rounds_for, when_idle};
use crate::support::{Gate, Numbers, block_on, join, poll_with, wait_until};

fn of(threads: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(threads)
        .build()
        .unwrap()
}

/// The share of the tasks that are in the sample must be near 1 in 16.
#[track_caller]
fn assert_sampled(metrics: &Metrics, tasks: u64) {
    let sampled = metrics.run_time.count();
    assert_eq!(metrics.queue_wait.count(), sampled);
    let expected = tasks / 16;
    let deviation = sampled.abs_diff(expected);
    // Six standard deviations.
    assert!(
        deviation * deviation <= 36 * expected,
        "{sampled} of {tasks}"
    );
}

#[test]
fn one_task_in_sixteen_is_in_the_histograms() {
    let pool = of(2);
    for _ in 0..3_200 {
        output(pool.spawn_blocking(|| ()));
    }
    assert_sampled(&when_idle(&pool), 3_200);
    let handles = pool.spawn_batch(vec![|| (); 32_000]);
    handles.into_iter().for_each(output);
    let metrics = when_idle(&pool);
    assert_sampled(&metrics, 35_200);
    let buckets = metrics.run_time.buckets().map(|(_, count)| count);
    assert_eq!(buckets.sum::<u64>(), metrics.run_time.count());
    assert!(metrics.run_time.sum() > Duration::ZERO);
}

/// Every 16th task is long, as if one of sixteen clients had slow requests. A sample that goes by position would see
/// only long tasks, or none.
#[test]
fn a_periodic_load_is_sampled_in_both_halves() {
    const TASKS: usize = 16_000;
    const LONG: Duration = Duration::from_micros(200);
    for period in [2, 16] {
        let pool = of(1);
        let handles = pool.spawn_batch((0..TASKS / period).flat_map(|_| 0..period).map(|n| {
            move || {
                let end = Instant::now() + LONG;
                while n == 0 && Instant::now() < end {}
            }
        }));
        handles.into_iter().for_each(output);
        let run_time = when_idle(&pool).run_time;
        let long = run_time.buckets().filter(|(bound, _)| *bound > LONG);
        let share = long.map(|(_, count)| count).sum::<u64>() as f64 / run_time.count() as f64;
        // About one in `period`: of 1,000 samples, six standard deviations are 0.1 or less. A busy machine makes
        // short tasks long, which the upper bound allows for.
        let expected = 1.0 / period as f64;
        assert!(
            share > expected - 0.1 && share > expected / 4.0 && share < expected + 0.2,
            "{share} of {expected}"
        );
    }
}

#[test]
fn the_maximum_is_exact_even_if_the_task_is_not_in_the_sample() {
    const RUN: Duration = Duration::from_millis(20);
    let pool = of(1);
    let began = Instant::now();
    // The long task is in the sample with a probability of 1 in 16.
    for n in 0..300 {
        output(pool.spawn_blocking(move || {
            if n == 150 {
                thread::sleep(RUN)
            }
        }));
    }
    let total = began.elapsed();
    let run_time = when_idle(&pool).run_time;
    assert!((RUN..=total).contains(&run_time.max()), "{run_time:?}");
}

#[test]
fn a_task_that_does_not_run_has_no_times() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let aborted: Vec<_> = (0..1_000).map(|_| pool.spawn_blocking(|| ())).collect();
    aborted.iter().for_each(JoinHandle::abort);
    busy.release();
    let metrics = when_idle(&pool);
    assert!(metrics.run_time.count() <= 1);
    assert_eq!(metrics.cancelled, 1_000);
}

#[test]
fn waits_and_runs_are_about_as_long_as_they_were() {
    const WAIT: Duration = Duration::from_millis(40);
    const RUN: Duration = Duration::from_millis(10);
    let pool = of(1);
    let began = Instant::now();
    let handles: Vec<_> = {
        let _busy = Busy::keep(&pool, 1);
        let queued = (0..16).map(|_| pool.spawn_blocking(|| thread::sleep(RUN)));
        let queued = queued.collect();
        // The tasks wait for this time, which is what is measured.
        thread::sleep(WAIT);
        queued
    };
    handles.into_iter().for_each(output);
    let metrics = when_idle(&pool);
    let total = began.elapsed();
    // The last task has waited for fifteen others.
    let waited = metrics.queue_wait.max();
    assert!((WAIT + 15 * RUN..=total).contains(&waited), "{waited:?}");
    let ran = metrics.run_time.max();
    assert!((WAIT..=total).contains(&ran), "{ran:?}");
}

#[test]
fn the_start_hook_of_a_thread_is_a_wait_of_its_first_task() {
    const HOOK: Duration = Duration::from_millis(100);
    // The thread may run before the task is in the queue, so the hook begins once the task has been submitted.
    let submitted = Arc::new(Barrier::new(2));
    let hook = submitted.clone();
    let pool = BlockingPool::builder()
        .max_threads(1)
        .on_thread_start(move || {
            hook.wait();
            thread::sleep(HOOK);
        })
        .build()
        .unwrap();
    let task = pool.spawn_blocking(|| ());
    submitted.wait();
    output(task);
    let metrics = when_idle(&pool);
    assert!(metrics.queue_wait.max() >= HOOK, "{metrics:?}");
    assert!(metrics.run_time.max() < HOOK, "{metrics:?}");
}

#[test]
fn a_long_task_after_many_short_ones_is_in_the_maximum() {
    const RUN: Duration = Duration::from_millis(20);
    // It is a matter of chance whether the long one is in the sample.
    for _ in 0..20 {
        let pool = of(1);
        let short = pool.spawn_batch((0..5_000).map(|_| || ()));
        output(pool.spawn_blocking(|| thread::sleep(RUN)));
        short.into_iter().for_each(output);
        let longest = when_idle(&pool).run_time.max();
        assert!(longest >= RUN, "{longest:?}");
    }
}

/// Tasks that stay in the queue while others are swept out of it keep their times.
#[test]
fn waits_are_exact_after_many_tasks_were_aborted() {
    const WAIT: Duration = Duration::from_millis(30);
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let before: Vec<_> = (0..200).map(|_| pool.spawn_blocking(|| ())).collect();
    let kept = pool.spawn_blocking(|| ());
    // The tasks wait for this time, which is what is measured.
    thread::sleep(WAIT);
    before.iter().for_each(JoinHandle::abort);
    busy.release();
    output(kept);
    assert!(when_idle(&pool).queue_wait.max() >= WAIT);
}

#[test]
fn histograms_belong_to_their_pool() {
    let (pool, other) = (of(1), of(1));
    output(pool.spawn_blocking(|| ()));
    assert!(when_idle(&pool).run_time.max() > Duration::ZERO);
    assert_eq!(other.metrics().run_time, Histogram::default());
    assert_eq!(other.metrics().queue_wait, Histogram::default());
}

/// Everything that can happen to a task, on several threads at a time: each is counted once.
#[test]
fn all_tasks_are_accounted_for_once_the_pool_is_idle() {
    for round in rounds_for(1.5) {
        let drop_newest = Overflow::Custom(Arc::new(drop));
        let overflow = [Overflow::Reject, Overflow::DropOldest, drop_newest];
        let pool = BlockingPool::builder()
            .max_threads(2)
            .queue_capacity(8)
            .overflow(overflow[round % 3].clone())
            .build()
            .unwrap();
        let submitters = thread::scope(|scope| {
            let submitters = [0, 1, 2].map(|n| {
                let pool = &pool;
                let numbers = Numbers::new((3 * round + n + 1) as u64);
                scope.spawn(move || submit_at_random(pool, numbers))
            });
            submitters.map(|submitter| submitter.join().unwrap())
        });
        let sum = |of: fn(&Ends) -> u64| submitters.iter().map(of).sum::<u64>();
        let metrics = when_idle(&pool);
        assert_eq!(metrics.completed, sum(|ends| ends.returned), "{metrics:?}");
        assert_eq!(metrics.panicked, sum(|ends| ends.panicked), "{metrics:?}");
        let ended = metrics.completed + metrics.panicked + metrics.cancelled;
        assert_eq!(ended, metrics.submitted, "{metrics:?}");
        match round % 3 {
            0 => {
                assert_eq!(metrics.rejected, sum(|ends| ends.rejected));
                assert_eq!(metrics.cancelled, sum(|ends| ends.cancelled));
            }
            // Each rejected task has replaced another one, unless none was queued.
            1 => assert!(metrics.rejected >= sum(|ends| ends.rejected)),
            // The dropped tasks had not been accepted.
            _ => {
                let cancelled = metrics.cancelled + metrics.rejected;
                assert_eq!(cancelled, sum(|ends| ends.cancelled));
            }
        }
        assert!(metrics.run_time.count() <= metrics.completed + metrics.panicked);
    }
}

/// Returns how many tasks the metrics do not count yet when their handles are ready.
fn late(pool: &BlockingPool, spawn: impl Fn(usize) -> JoinHandle<()>) -> usize {
    let before = pool.metrics();
    let tasks = (0..2_000).filter(|&n| {
        let panicked = spawn(n)
            .blocking_join()
            .is_err_and(|error| error.is_panic());
        assert_eq!(panicked, n % 4 == 3);
        let (metrics, n) = (pool.metrics(), n as u64 + 1);
        let (completed, panicked) = (before.completed + n - n / 4, before.panicked + n / 4);
        (metrics.completed, metrics.panicked, metrics.busy) != (completed, panicked, 0)
    });
    tasks.count()
}

/// Every fourth one panics.
fn task(n: usize) -> impl FnOnce() {
    // Without a message.
    move || {
        if n % 4 == 3 {
            resume_unwind(Box::new(()))
        }
    }
}

#[test]
fn a_task_is_counted_before_its_handle_is_ready() {
    let pool = of(2);
    assert_eq!(late(&pool, |n| pool.spawn_blocking(task(n))), 0);
}

#[test]
fn a_task_of_a_bulkhead_is_counted_before_its_handle_is_ready() {
    let pool = of(2);
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    assert_eq!(late(&pool, |n| bulkhead.spawn_blocking(task(n))), 0);
}

/// Records how many tasks of a bulkhead are running when the waker of a finished one is called.
struct Note {
    bulkhead: Bulkhead,
    running: Mutex<Vec<u64>>,
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        let running = self.bulkhead.metrics().busy;
        self.running.lock().unwrap().push(running);
    }
}

/// The waker runs on the task's thread, before that thread leaves the bulkhead.
#[test]
fn a_task_of_a_bulkhead_is_not_running_when_its_waker_is_called() {
    let note = Arc::new(Note {
        bulkhead: of(2).bulkhead(1, 1).unwrap(),
        running: Mutex::default(),
    });
    let noted = || note.running.lock().unwrap().clone();
    let gate = Gate::new();
    let task = gate.clone();
    let mut handle = note.bulkhead.spawn_blocking(move || task.pass());
    assert!(poll_with(&Arc::clone(&note).into(), &mut handle).is_pending());
    wait_until("the task runs", || note.bulkhead.metrics().busy == 1);
    gate.open();
    wait_until("the waker is called", || !noted().is_empty());
    assert_eq!(noted(), [0]);
}

/// The task is a job of a stream, which yields the job before the pool has finished with it.
#[test]
fn a_job_of_a_stream_is_counted_before_it_is_yielded() {
    let pool = of(2);
    let (jobs, mut done) = CompletionStream::<()>::builder().build().unwrap();
    let late = (1..=2_000).filter(|&n| {
        block_on(jobs.submit_blocking(&pool, (), || ())).unwrap();
        block_on(done.next()).unwrap().outcome.unwrap();
        let metrics = pool.metrics();
        (metrics.completed, metrics.busy) != (n, 0)
    });
    assert_eq!(late.count(), 0);
}

#[test]
fn a_task_that_was_waited_for_inside_is_counted() {
    let pool = of(1);
    let own = pool.clone();
    output(pool.spawn_blocking(move || {
        for n in 1..=100 {
            own.spawn_blocking(|| ()).blocking_join().unwrap();
            let metrics = own.metrics();
            assert_eq!((metrics.completed, metrics.busy), (n, 1));
        }
    }));
    assert_eq!(pool.metrics().completed, 101);
}

#[derive(Default)]
struct Ends {
    returned: u64,
    panicked: u64,
    cancelled: u64,
    rejected: u64,
}

fn submit_at_random(pool: &BlockingPool, mut numbers: Numbers) -> Ends {
    let mut handles = Vec::new();
    for _ in 0..40 {
        let panics = numbers.below(8) == 0;
        let task = move || assert!(!panics, "as it should");
        match numbers.below(4) {
            0 => handles.extend(pool.spawn_batch([task; 3])),
            _ => handles.push(pool.spawn_blocking(task)),
        }
        if numbers.below(3) == 0 {
            jitter(&mut numbers, 20);
            handles.last().expect("there is one").abort();
        }
    }
    let mut ends = Ends::default();
    for handle in handles {
        match join(handle) {
            Ok(()) => ends.returned += 1,
            Err(error) if error.is_panic() => ends.panicked += 1,
            Err(error) if error.is_cancelled() => ends.cancelled += 1,
            Err(error) if error.is_rejected() => ends.rejected += 1,
            Err(error) => panic!("{error}"),
        }
    }
    ends
}

#[test]
fn the_limits_that_are_configured_now_are_part_of_the_metrics() {
    let mut builder = BlockingPool::builder();
    builder.core_threads(1).max_threads(3).queue_capacity(7);
    let pool = builder.build().unwrap();
    let metrics = pool.metrics();
    assert_eq!((metrics.core_threads, metrics.max_threads), (1, 3));
    assert_eq!(metrics.queue_capacity, Some(7));
    pool.set_max_threads(9).unwrap();
    pool.set_core_threads(2).unwrap();
    let metrics = pool.metrics();
    assert_eq!((metrics.core_threads, metrics.max_threads), (2, 9));
    let bulkhead = pool.bulkhead(4, 5).unwrap().metrics();
    assert_eq!(
        (bulkhead.max_threads, bulkhead.queue_capacity),
        (4, Some(5))
    );
    assert_eq!(BlockingPool::new().metrics().queue_capacity, None);
}
