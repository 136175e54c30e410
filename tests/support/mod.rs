//! What the tests share: conditions to wait for, and things that tell what was done with them.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::any::Any;
use std::fmt::Debug;
#[cfg(target_os = "linux")]
use std::fs;
use std::future::Future;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use throng::{JoinError, JoinHandle};
use tokio::runtime::{self, Runtime};

/// How long a test waits for what must happen. It says when a test has failed, and nothing else.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How often to repeat what depends on timing: more with `THRONG_LONG=1`.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    match std::env::var("THRONG_LONG") {
        Ok(value) if value == "1" => long,
        _ => short,
    }
}

// ===== waiting =====

/// Waits on this thread until the condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::park_timeout(Duration::from_micros(100));
    }
}

/// Waits until the condition holds, and lets other tasks run meanwhile.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::task::yield_now().await;
    }
}

/// Awaits what must become ready.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    match tokio::time::timeout(TEST_TIMEOUT, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited in vain for a future"),
    }
}

/// Receives what must come.
#[track_caller]
pub(crate) fn receive<T>(receiver: &Receiver<T>) -> T {
    receiver
        .recv_timeout(TEST_TIMEOUT)
        .expect("a message comes")
}

/// Waits on this thread for what must become ready.
#[track_caller]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let deadline = Instant::now() + TEST_TIMEOUT;
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "waited in vain for a future");
        thread::park_timeout(left);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How a task ended that must end.
#[track_caller]
pub(crate) fn join<T>(handle: JoinHandle<T>) -> Result<T, JoinError> {
    wait_until("the task has ended", || handle.is_finished());
    handle.blocking_join()
}

/// Polls once, with a waker that does nothing.
pub(crate) fn poll<F: Future + Unpin + ?Sized>(future: &mut F) -> Poll<F::Output> {
    poll_with(Waker::noop(), future)
}

/// Polls once.
pub(crate) fn poll_with<F>(waker: &Waker, future: &mut F) -> Poll<F::Output>
where
    F: Future + Unpin + ?Sized,
{
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// The output of a future that must be ready at its first poll.
#[track_caller]
pub(crate) fn ready<F: Future + Unpin>(mut future: F) -> F::Output {
    match poll(&mut future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("not ready at the first poll"),
    }
}

// ===== runtimes =====

/// A runtime that runs only inside `block_on`.
pub(crate) fn current_thread() -> Runtime {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A runtime with threads of this name.
pub(crate) fn multi_thread(workers: usize, name: &str) -> Runtime {
    runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name(name)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// The name of this thread.
pub(crate) fn thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

/// Returns the status files of the threads of this process whose names begin with this text.
///
/// A thread that is no longer listed has released its stack.
#[cfg(target_os = "linux")]
pub(crate) fn threads_called(name: &str) -> Vec<PathBuf> {
    threads()
        .into_iter()
        .filter(|task| {
            fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with(name))
        })
        .map(|task| task.join("status"))
        .collect()
}

/// Returns the folders of the threads of this process.
///
/// If a thread exits while the system lists it, the list may end there. So a list counts only if its length is the number of threads both
/// before and after it was read.
#[cfg(target_os = "linux")]
fn threads() -> Vec<PathBuf> {
    loop {
        let before = thread_count();
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let tasks: Vec<_> = tasks.filter_map(|task| Some(task.ok()?.path())).collect();
        if [before, thread_count()] == [tasks.len(); 2] {
            return tasks;
        }
    }
}

/// The number of threads of this process.
#[cfg(target_os = "linux")]
pub(crate) fn thread_count() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"));
    line.and_then(|count| count.trim().parse().ok())
        .expect("a number of threads")
}

// ===== gates =====

/// Holds up who passes it, until it is opened.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn open(&self) {
        let (open, changed) = &*self.0;
        *open.lock().expect("nobody panics here") = true;
        changed.notify_all();
    }

    /// Blocks this thread until the gate is open.
    pub(crate) fn pass(&self) {
        let (open, changed) = &*self.0;
        let open = open.lock().expect("nobody panics here");
        let (open, _) = changed
            .wait_timeout_while(open, TEST_TIMEOUT, |open| !*open)
            .expect("nobody panics here");
        let opened = *open;
        drop(open);
        assert!(opened, "waited in vain for a gate to open");
    }
}

// ===== wakers =====

/// Counts how often it is woken.
#[derive(Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let wakes = Arc::new(Self::default());
        (Arc::clone(&wakes), Waker::from(wakes))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("the waker panics");
    }
}

/// A waker that panics when it is used.
pub(crate) fn panicking_waker() -> Waker {
    Waker::from(Arc::new(PanickingWaker))
}

// ===== values =====

/// Counts values, and those of them that were dropped.
#[derive(Clone, Default)]
pub(crate) struct Drops(Arc<[AtomicUsize; 2]>);

impl Drops {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns the number of values that were dropped.
    pub(crate) fn count(&self) -> usize {
        self.0[1].load(Ordering::SeqCst)
    }

    /// Returns the number of values.
    pub(crate) fn made(&self) -> usize {
        self.0[0].load(Ordering::SeqCst)
    }

    /// A value whose drop is counted.
    pub(crate) fn value(&self) -> Dropped {
        self.0[0].fetch_add(1, Ordering::SeqCst);
        Dropped(Self::clone(self))
    }
}

/// Tells its [`Drops`] when it is dropped.
pub(crate) struct Dropped(Drops);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.0[1].fetch_add(1, Ordering::SeqCst);
    }
}

impl Debug for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dropped")
    }
}

/// Panics when it is dropped, and counts that.
#[derive(Debug)]
pub(crate) struct PanicsOnDrop(pub(crate) Dropped);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("the drop panics");
    }
}

/// What a panic said.
#[track_caller]
pub(crate) fn message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => payload
            .downcast_ref::<&str>()
            .copied()
            .expect("the payload is a message")
            .to_owned(),
    }
}

/// Numbers that look random, and are the same in each run.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}
