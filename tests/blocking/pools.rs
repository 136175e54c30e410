//! Pools in a certain state.

use std::future::Future;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use throng::blocking::Metrics;
use throng::{BlockingPool, JoinHandle};

use crate::support::{Gate, Numbers, TEST_TIMEOUT, current_thread, join, receive, rounds, within};

/// Counts the rounds of a test that looks for a race, for this many seconds: five times as long with
/// `THRONG_LONG=1`.
pub(crate) fn rounds_for(seconds: f64) -> impl Iterator<Item = usize> {
    let end = Instant::now() + Duration::from_secs_f64(seconds) * rounds(1, 5) as u32;
    (0..).take_while(move |_| Instant::now() < end)
}

/// Lets less than `micros` microseconds pass, asleep or spinning.
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

/// Waits until the metrics meet the condition.
#[track_caller]
pub(crate) fn when(pool: &BlockingPool, mut condition: impl FnMut(&Metrics) -> bool) -> Metrics {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        let metrics = pool.metrics();
        if condition(&metrics) {
            return metrics;
        }
        assert!(
            Instant::now() < end,
            "the condition is not met: {metrics:?}"
        );
        thread::sleep(Duration::from_micros(200));
    }
}

/// Waits until nothing is queued and all threads are idle.
#[track_caller]
pub(crate) fn when_idle(pool: &BlockingPool) -> Metrics {
    when(pool, |metrics| {
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

/// Keeps threads of a pool busy.
pub(crate) struct Busy {
    gate: Gate,
    handles: Vec<JoinHandle<()>>,
}

impl Busy {
    /// Submits tasks that run until the release. They run when this returns.
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

    /// Ends the tasks, and waits for them.
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
