//! Pools in the state that a test wants.

use std::future::Future;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use throng::blocking::Metrics;
use throng::{BlockingPool, JoinHandle};

use crate::support::{Gate, Numbers, PATIENCE, current_thread, join, receive, rounds, within};

/// Counts for so many seconds: how long a test hunts for a race. Five times as long with
/// `THRONG_LONG=1`.
pub(crate) fn hunt(seconds: f64) -> impl Iterator<Item = usize> {
    let end = Instant::now() + Duration::from_secs_f64(seconds) * rounds(1, 5) as u32;
    (0..).take_while(move |_| Instant::now() < end)
}

/// Passes less than `micros` microseconds, half of the times asleep.
pub(crate) fn jitter(numbers: &mut Numbers, micros: u64) {
    let time = Duration::from_micros(numbers.below(micros));
    if numbers.below(2) == 0 {
        thread::sleep(time);
    } else {
        let end = Instant::now() + time;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
}

/// Waits until the metrics are as the condition wants them.
#[track_caller]
pub(crate) fn settle(pool: &BlockingPool, mut condition: impl FnMut(&Metrics) -> bool) -> Metrics {
    let end = Instant::now() + PATIENCE;
    loop {
        let metrics = pool.metrics();
        if condition(&metrics) {
            return metrics;
        }
        assert!(Instant::now() < end, "it did not settle: {metrics:?}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Waits until nothing is queued and all threads are idle.
#[track_caller]
pub(crate) fn rest(pool: &BlockingPool) -> Metrics {
    settle(pool, |metrics| {
        metrics.queued == 0 && metrics.idle == metrics.threads
    })
}

/// The output of a task that returns.
#[track_caller]
pub(crate) fn output<T>(handle: JoinHandle<T>) -> T {
    join(handle).expect("the task returns")
}

/// Runs a future, with what it spawns, on a runtime of one thread.
#[track_caller]
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    current_thread().block_on(async { within(future).await })
}

/// Threads of a pool that run tasks until they are let go.
pub(crate) struct Busy {
    gate: Gate,
    handles: Vec<JoinHandle<()>>,
}

impl Busy {
    /// Keeps so many threads busy. They are when this returns.
    #[track_caller]
    pub(crate) fn keep(pool: &BlockingPool, threads: usize) -> Self {
        let gate = Gate::new();
        let (started, starts) = mpsc::channel();
        let handles = (0..threads)
            .map(|_| {
                let (gate, started) = (gate.clone(), started.clone());
                pool.spawn_blocking(move || {
                    started.send(()).expect("the test waits");
                    gate.pass();
                })
            })
            .collect();
        for _ in 0..threads {
            receive(&starts);
        }
        Self { gate, handles }
    }

    /// Lets the threads go, and waits until the tasks have ended.
    #[track_caller]
    pub(crate) fn release(mut self) {
        self.gate.open();
        for handle in self.handles.drain(..) {
            output(handle);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.gate.open();
    }
}
