//! Pools in the state that a test wants.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use throng::compute::Metrics;
use throng::{ComputePool, JoinHandle};

use crate::support::{self, Gate, Numbers, TEST_TIMEOUT, current_thread, join, receive, rounds};

/// A pool of so many threads.
pub(crate) fn of(threads: usize) -> ComputePool {
    ComputePool::builder().threads(threads).build().unwrap()
}

/// A pool with this number of threads and this bound.
pub(crate) fn bounded(threads: usize, capacity: usize) -> ComputePool {
    let mut builder = ComputePool::builder();
    builder
        .threads(threads)
        .max_outstanding(capacity)
        .build()
        .unwrap()
}

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
pub(crate) fn settle(pool: &ComputePool, mut condition: impl FnMut(&Metrics) -> bool) -> Metrics {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        let metrics = pool.metrics();
        if condition(&metrics) {
            return metrics;
        }
        assert!(Instant::now() < end, "it did not settle: {metrics:?}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Waits until nothing is queued and all threads sleep.
#[track_caller]
pub(crate) fn rest(pool: &ComputePool) -> Metrics {
    settle(pool, |metrics| {
        metrics.queued == 0 && metrics.lanes.iter().all(|lane| lane.is_parked)
    })
}

/// The output of a task that returns.
#[track_caller]
pub(crate) fn output<T>(handle: JoinHandle<T>) -> T {
    join(handle).expect("the task returns")
}

/// Awaits what must become ready, and must say so: one that is ready and was not woken has failed.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    let begun = Instant::now();
    let output = support::within(future).await;
    assert!(begun.elapsed() < TEST_TIMEOUT, "nobody woke the future");
    output
}

/// Runs a future, with what it spawns, on a runtime of one thread.
#[track_caller]
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    current_thread().block_on(async { within(future).await })
}

/// Takes all places that are free, and says how many they were. They are free again afterwards.
pub(crate) fn free_places(pool: &ComputePool) -> usize {
    let mut permits = Vec::new();
    while let Some(reserved) = futures::FutureExt::now_or_never(pool.reserve()) {
        permits.push(reserved.expect("the pool is open"));
    }
    permits.len()
}

/// Counts, from many threads.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// A closure that counts being called.
    pub(crate) fn adder(&self) -> impl FnOnce() + Send + 'static {
        let this = self.clone();
        move || this.add()
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
    pub(crate) fn keep(pool: &ComputePool, threads: usize) -> Self {
        Self::keep_with(threads, |task| pool.spawn(task))
    }

    /// The same, with tasks of one key.
    #[track_caller]
    pub(crate) fn keep_key(pool: &ComputePool, key: &str) -> Self {
        Self::keep_with(1, |task| pool.spawn_keyed(key, task))
    }

    #[track_caller]
    fn keep_with(
        threads: usize,
        spawn: impl Fn(Box<dyn FnOnce() + Send>) -> JoinHandle<()>,
    ) -> Self {
        let gate = Gate::new();
        let (started, starts) = mpsc::channel();
        let handles = (0..threads)
            .map(|_| {
                let (gate, started) = (gate.clone(), started.clone());
                spawn(Box::new(move || {
                    started.send(()).expect("the test waits");
                    gate.pass();
                }))
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

/// A process of its own for a test that others would disturb.
#[cfg(target_os = "linux")]
pub(crate) mod process {
    use std::env;
    use std::process::{Command, Output};

    const IN_CHILD: &str = "THRONG_TEST_IN_CHILD";

    /// Runs a test again in a process of its own, after some shell commands; `true`: this is that
    /// process.
    #[track_caller]
    pub(crate) fn is_own(test: &str, commands: &str) -> bool {
        if env::var_os(IN_CHILD).is_some() {
            return true;
        }
        // A sanitizer, for one, may not like the commands.
        if !start(&["--list"], commands).status.success() {
            eprintln!("NOT RUN: the tests do not start after {commands:?}");
            return false;
        }
        let child = start(
            &["--exact", test, "--test-threads=1", "--nocapture"],
            commands,
        );
        let said = String::from_utf8_lossy(&child.stdout);
        let complained = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{said}{complained}");
        assert!(said.contains("1 passed"), "it did not run: {said}");
        false
    }

    fn start(args: &[&str], commands: &str) -> Output {
        Command::new("sh")
            .arg("-c")
            .arg(format!("{commands}\nexec \"$0\" \"$@\""))
            .arg(env::current_exe().unwrap())
            .args(args)
            .env(IN_CHILD, "1")
            .output()
            .unwrap()
    }
}
