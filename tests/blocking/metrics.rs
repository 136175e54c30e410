//! The metrics of a pool.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::task::Wake;
use std::thread;
use std::time::{Duration, Instant};

use throng::blocking::{Metrics, Overflow, PoolView};
use throng::{BlockingPool, CompletionStream, JoinHandle};

use crate::pools::{Busy, hunt, jitter, output, rest};
use crate::support::{Gate, Numbers, block_on, join, poll_with, wait_until};

fn of(threads: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(threads)
        .build()
        .unwrap()
}

#[track_caller]
fn timed(pool: &BlockingPool) -> u64 {
    let metrics = rest(pool);
    assert_eq!(metrics.queue_wait.count(), metrics.run_time.count());
    metrics.run_time.count()
}

#[test]
fn one_task_in_sixteen_is_timed() {
    let pool = of(2);
    assert_eq!(timed(&pool), 0);
    output(pool.spawn_blocking(|| ()));
    assert_eq!(timed(&pool), 1);
    for _ in 1..160 {
        output(pool.spawn_blocking(|| ()));
    }
    assert_eq!(timed(&pool), 10);
    let handles = pool.spawn_batch([|| (); 1_600]);
    handles.into_iter().for_each(output);
    assert_eq!(timed(&pool), 110);
    let buckets: u64 = rest(&pool).run_time.buckets().map(|(_, count)| count).sum();
    assert_eq!(buckets, 110);
}

#[test]
fn a_task_that_panics_is_timed_and_one_that_does_not_run_is_not() {
    let pool = of(1);
    let panicked: Result<(), _> = join(pool.spawn_blocking(|| panic!("as it should")));
    assert!(panicked.is_err());
    assert_eq!(timed(&pool), 1);
    let busy = Busy::keep(&pool, 1);
    // The 16th to the 46th: two of them would be timed.
    for _ in 0..14 {
        drop(pool.spawn_blocking(|| ()));
    }
    let aborted: Vec<_> = (16..=46).map(|_| pool.spawn_blocking(|| ())).collect();
    aborted.iter().for_each(JoinHandle::abort);
    busy.release();
    assert_eq!(timed(&pool), 1);
    assert_eq!(pool.metrics().cancelled, 31);
}

#[test]
fn times_are_about_as_long_as_they_were() {
    const WAIT: Duration = Duration::from_millis(40);
    const RUN: Duration = Duration::from_millis(10);
    let pool = of(1);
    let began = Instant::now();
    let handles: Vec<_> = {
        let _busy = Busy::keep(&pool, 1);
        let queued = (0..16).map(|_| pool.spawn_blocking(|| thread::sleep(RUN)));
        let queued = queued.collect();
        thread::sleep(WAIT);
        queued
    };
    handles.into_iter().for_each(output);
    let metrics = rest(&pool);
    let total = began.elapsed();
    assert_eq!(metrics.queue_wait.count(), 2);
    // The first task waited for its thread, and the 17th for fifteen others.
    let waited = metrics.queue_wait.max_bound().unwrap();
    assert!(
        waited >= WAIT + 15 * RUN && waited <= 2 * total,
        "{waited:?}"
    );
    let ran = metrics.run_time.quantile(0.0).unwrap();
    assert!(ran >= RUN, "{ran:?}");
}

#[test]
fn histograms_are_the_pools_own() {
    let (pool, other) = (of(1), of(1));
    output(pool.spawn_blocking(|| ()));
    assert_eq!((timed(&pool), timed(&other)), (1, 0));
    assert_eq!(other.metrics(), Metrics::default());
}

/// All that can happen to a task, on several threads at a time: each is counted once.
#[test]
fn at_rest_all_tasks_are_accounted_for() {
    for round in hunt(1.5) {
        let overflow = [Overflow::Reject, Overflow::DropOldest, Overflow::DropNewest];
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
        let metrics = rest(&pool);
        assert_eq!(metrics.completed, sum(|ends| ends.returned), "{metrics:?}");
        assert_eq!(metrics.panicked, sum(|ends| ends.panicked), "{metrics:?}");
        let ended = metrics.completed + metrics.panicked + metrics.cancelled;
        assert_eq!(ended, metrics.submitted, "{metrics:?}");
        match round % 3 {
            0 => {
                assert_eq!(metrics.rejected, sum(|ends| ends.rejected));
                assert_eq!(metrics.cancelled, sum(|ends| ends.cancelled));
            }
            // Each that was refused had another dropped, but for those that found none.
            1 => assert!(metrics.rejected >= sum(|ends| ends.rejected)),
            // What was dropped had not been accepted.
            _ => {
                let cancelled = metrics.cancelled + metrics.rejected;
                assert_eq!(cancelled, sum(|ends| ends.cancelled));
            }
        }
        assert!(metrics.run_time.count() <= metrics.submitted.div_ceil(16));
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
fn who_knows_how_a_task_ended_finds_it_counted() {
    let pool = of(2);
    assert_eq!(late(&pool, |n| pool.spawn_blocking(task(n))), 0);
}

#[test]
fn who_knows_how_a_task_of_a_view_ended_finds_it_counted() {
    let pool = of(2);
    let view = pool.view(1, 1);
    assert_eq!(late(&pool, |n| view.spawn_blocking(task(n))), 0);
}

/// Records how many tasks of a view are running when the waker of a finished one is called.
struct Note {
    view: PoolView,
    running: Mutex<Vec<usize>>,
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        let running = self.view.running();
        self.running.lock().unwrap().push(running);
    }
}

/// The waker runs on the task's thread, before that thread leaves the view.
#[test]
fn who_is_told_that_a_task_of_a_view_ended_finds_that_it_runs_no_more() {
    let note = Arc::new(Note {
        view: of(2).view(1, 1),
        running: Mutex::default(),
    });
    let noted = || note.running.lock().unwrap().clone();
    let gate = Gate::new();
    let task = gate.clone();
    let mut handle = note.view.spawn_blocking(move || task.pass());
    assert!(poll_with(&Arc::clone(&note).into(), &mut handle).is_pending());
    wait_until("the task runs", || note.view.running() == 1);
    gate.open();
    wait_until("its end is told", || !noted().is_empty());
    assert_eq!(noted(), [0]);
}

/// The task is a job of a stream, which yields the job before the pool has finished with it.
#[test]
fn who_reads_how_a_job_ended_finds_it_counted() {
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
fn a_task_knows_of_those_that_it_has_waited_for() {
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
