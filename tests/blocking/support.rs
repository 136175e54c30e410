//! What the tests share: conditions with a deadline, gates, and threads that are kept busy.

use std::env;
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use throng::blocking::Metrics;
use throng::{BlockingPool, JoinError, JoinHandle};

/// When a test gives up. Nothing that works comes near it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// How long a test that hunts for a race goes on: longer if `THRONG_LONG` is set.
pub(crate) fn hunt(seconds: f64) -> impl Iterator<Item = usize> {
    let seconds = match env::var_os("THRONG_LONG") {
        Some(_) => 5.0 * seconds,
        None => seconds,
    };
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    (0..).take_while(move |_| Instant::now() < end)
}

/// Waits until the condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "it did not come to this: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Waits until the metrics are as the condition wants them.
#[track_caller]
pub(crate) fn settle(pool: &BlockingPool, mut condition: impl FnMut(&Metrics) -> bool) -> Metrics {
    let end = Instant::now() + DEADLINE;
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

/// Waits until the task has ended, and says how.
#[track_caller]
pub(crate) fn outcome<T>(handle: JoinHandle<T>) -> Result<T, JoinError> {
    eventually("the task has ended", || handle.is_finished());
    handle.blocking_join()
}

/// The output of a task that returns.
#[track_caller]
pub(crate) fn output<T>(handle: JoinHandle<T>) -> T {
    outcome(handle).expect("the task returns")
}

/// What the future comes to.
#[track_caller]
pub(crate) fn soon<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let future = tokio::time::timeout(DEADLINE, future);
    async { future.await.expect("the future becomes ready") }
}

/// Runs a future on a runtime of its own.
#[track_caller]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async { soon(future).await })
}

/// Held shut until it is opened.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().expect("nobody panics with it") = true;
        self.0.1.notify_all();
    }

    /// Blocks until the gate is open.
    pub(crate) fn pass(&self) {
        let open = self.0.0.lock().expect("nobody panics with it");
        drop(self.0.1.wait_while(open, |open| !*open));
    }

    /// As `pass`, but gives up after some time.
    pub(crate) fn pass_within(&self, time: Duration) {
        let open = self.0.0.lock().expect("nobody panics with it");
        drop(self.0.1.wait_timeout_while(open, time, |open| !*open));
    }
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
        let gate = Gate::default();
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
            starts.recv_timeout(DEADLINE).expect("the task starts");
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

/// Pseudo-random numbers, for jitter.
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Passes less than `micros` microseconds, some of the time asleep.
    pub(crate) fn pass(&mut self, micros: u64) {
        let time = Duration::from_micros(self.below(micros));
        if self.below(2) == 0 {
            thread::sleep(time);
        } else {
            let end = Instant::now() + time;
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        }
    }
}
