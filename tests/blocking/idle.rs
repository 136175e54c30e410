//! Idle threads: which one is woken, and which exit.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use throng::BlockingPool;

use crate::pools::{Busy, jitter, output, rounds_for, when, when_idle};
use crate::support::{Numbers, TEST_TIMEOUT};

#[test]
fn idle_threads_exit_after_the_keep_alive_and_core_threads_stay() {
    let pool = BlockingPool::builder()
        .core_threads(2)
        .max_threads(6)
        .keep_alive(Duration::from_millis(20))
        .build()
        .unwrap();
    for _ in 0..3 {
        Busy::keep(&pool, 6).release();
        when(&pool, |metrics| metrics.threads == 2 && metrics.idle == 2);
        // Several keep-alives pass in which they could exit.
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            assert_eq!(pool.metrics().threads, 2);
            thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(pool.metrics().largest, 6);
}

#[test]
fn without_core_threads_all_threads_exit_and_new_ones_start() {
    let pool = BlockingPool::builder()
        .keep_alive(Duration::from_millis(1))
        .build()
        .unwrap();
    for _ in 0..20 {
        Busy::keep(&pool, 3).release();
        when(&pool, |metrics| metrics.threads == 0);
    }
}

/// If the threads took turns, each would have a task within the keep-alive.
#[test]
fn idle_threads_exit_under_a_trickle_of_tasks() {
    const THREADS: usize = 16;
    const BETWEEN: Duration = Duration::from_millis(20);
    let keep_alive = 2 * THREADS as u32 * BETWEEN;
    let pool = BlockingPool::builder()
        .core_threads(1)
        .keep_alive(keep_alive)
        .build()
        .unwrap();
    Busy::keep(&pool, THREADS).release();
    when_idle(&pool);
    let mut served_by = HashSet::new();
    let end = Instant::now() + TEST_TIMEOUT;
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    let mut left = None;
    // For another keep-alive, to check that the thread stays.
    while left.is_none_or(|left: Instant| left.elapsed() < keep_alive) {
        served_by.insert(output(pool.spawn_blocking(|| thread::current().id())));
        longest = longest.max(last.elapsed());
        last = Instant::now();
        thread::sleep(BETWEEN);
        let threads = when_idle(&pool).threads;
        if left.is_some() {
            assert!(threads <= 2, "{threads} threads again");
        } else if threads <= 2 {
            left = Some(Instant::now());
        }
        assert!(Instant::now() < end, "{threads} threads are still there");
    }
    // One thread takes all tasks. There are two exceptions: a thread whose keep-alive has just passed takes a task that
    // is queued then, and on a slow machine the thread itself may exit.
    let served_by = served_by.len();
    assert!(
        served_by <= THREADS / 4 || longest > keep_alive / 2,
        "{served_by} threads"
    );
}

#[test]
fn the_thread_that_went_idle_last_is_woken_first() {
    let pool = BlockingPool::builder().build().unwrap();
    let busy: Vec<_> = (0..4).map(|_| Busy::keep(&pool, 1)).collect();
    for busy in busy {
        busy.release();
    }
    when_idle(&pool);
    let serve = || output(pool.spawn_blocking(|| thread::current().id()));
    let last = serve();
    for _ in 0..100 {
        when_idle(&pool);
        assert_eq!(serve(), last);
    }
}

/// Submits a task whenever the only thread may be about to exit, or has just been created.
#[track_caller]
fn submit_against_the_keep_alive(keep_alive: Duration, seconds: f64) {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .keep_alive(keep_alive)
        .build()
        .unwrap();
    let mut numbers = Numbers::new(1);
    let (ran, runs) = mpsc::channel();
    let mut submitted = 0;
    for n in rounds_for(seconds) {
        let ran = ran.clone();
        drop(pool.spawn_blocking(move || ran.send(n)));
        let run = runs.recv_timeout(TEST_TIMEOUT);
        assert_eq!(run, Ok(n), "stranded: {:?}", pool.metrics());
        jitter(&mut numbers, 300);
        submitted += 1;
    }
    let metrics = when(&pool, |metrics| metrics.threads == 0);
    assert_eq!(
        (metrics.submitted, metrics.completed),
        (submitted, submitted)
    );
}

#[test]
fn no_task_is_stranded_by_a_keep_alive_that_passes() {
    submit_against_the_keep_alive(Duration::from_micros(150), 10.0);
}

#[test]
fn no_task_is_stranded_by_a_thread_that_exits_at_once() {
    submit_against_the_keep_alive(Duration::ZERO, 2.0);
}

#[test]
fn no_task_is_stranded_by_one_of_several_threads_that_exit_at_once() {
    let pool = BlockingPool::builder()
        .max_threads(2)
        .keep_alive(Duration::ZERO)
        .build()
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut numbers = Numbers::new(1);
                for n in rounds_for(1.0) {
                    assert_eq!(output(pool.spawn_blocking(move || n)), n);
                    jitter(&mut numbers, 100);
                }
            });
        }
    });
    when(&pool, |metrics| metrics.threads == 0);
}

/// Of two idle threads one is woken, while the keep-alive of both may pass. The second task relies on the other one,
/// which must not exit while a task is queued.
#[test]
fn an_idle_thread_that_a_task_relies_on_does_not_exit() {
    let pool = BlockingPool::builder()
        .max_threads(2)
        .keep_alive(Duration::from_micros(150))
        .build()
        .unwrap();
    let mut numbers = Numbers::new(1);
    for _ in rounds_for(1.0) {
        let (second_runs, first_waits) = mpsc::channel();
        let first = pool.spawn_blocking(move || first_waits.recv());
        let second = pool.spawn_blocking(move || second_runs.send(()));
        output(second).unwrap();
        output(first).unwrap();
        jitter(&mut numbers, 300);
    }
}

#[test]
fn tasks_may_park_and_unpark_their_thread() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let mut served_by = HashSet::new();
    for n in 0..200 {
        // The task leaves a park token behind.
        let worker = output(pool.spawn_blocking(|| {
            thread::park_timeout(Duration::from_micros(10));
            thread::current().unpark();
            thread::park();
            thread::current().unpark();
            thread::current()
        }));
        // Tokens arrive while the thread is parked.
        for _ in 0..10 {
            worker.unpark();
            thread::yield_now();
        }
        served_by.insert(worker.id());
        assert_eq!(output(pool.spawn_blocking(move || n)), n);
    }
    let metrics = when_idle(&pool);
    assert_eq!((metrics.threads, served_by.len()), (1, 1));
    assert_eq!(metrics.completed, 400);
}

#[cfg(target_os = "linux")]
mod switches {
    use std::fs;
    use std::path::PathBuf;
    use std::thread;
    use std::time::Duration;

    use throng::BlockingPool;

    use crate::pools::{Busy, when_idle};
    use crate::support::{threads_called, wait_until};

    /// Returns the number of context switches to the threads.
    fn switches(threads: &[PathBuf]) -> u64 {
        let statuses = threads.iter().map(|file| fs::read_to_string(file).unwrap());
        statuses
            .flat_map(|status| {
                let counts = status.lines().filter_map(|line| {
                    let (key, count) = line.split_once(':')?;
                    let counts = key.ends_with("ctxt_switches");
                    counts.then(|| count.trim().parse::<u64>().unwrap())
                });
                counts.collect::<Vec<_>>()
            })
            .sum()
    }

    #[test]
    fn idle_threads_use_no_processor_time() {
        // Threads with a keep-alive, and threads without.
        let pools = [0, 2].map(|core_threads| {
            let mut builder = BlockingPool::builder();
            builder.name("quiet").core_threads(core_threads);
            let pool = builder.build().unwrap();
            Busy::keep(&pool, 2).release();
            when_idle(&pool);
            pool
        });
        let mut threads = Vec::new();
        wait_until("all four are found", || {
            threads = threads_called("quiet-");
            threads.len() == 4
        });
        // More than once, since a thread that just became idle is not parked yet.
        wait_until("no thread is switched to for a while", || {
            let before = switches(&threads);
            thread::sleep(Duration::from_millis(300));
            switches(&threads) == before
        });
        drop(pools);
    }
}
