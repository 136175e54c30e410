//! Models of an asynchronous job: its guard, its drain, and its end.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::JoinHandle;
use crate::join::{Spawn, Work, sealed};
use crate::serial::{Exclusive, SerialExecutor};
use crate::sync::Plain;

/// Threads that a model joins at its end.
#[derive(Clone)]
struct Threads(Arc<Mutex<Vec<thread::JoinHandle<()>>>>);

impl Threads {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())))
    }

    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        let thread = thread::spawn(f);
        self.0.lock().unwrap().push(thread);
    }

    fn join(&self) {
        loop {
            let Some(thread) = self.0.lock().unwrap().pop() else {
                return;
            };
            thread.join().unwrap();
        }
    }
}

/// Runs each drain on a thread of its own: to its end, or for one poll before it is dropped.
struct OnThread {
    threads: Threads,
    to_its_end: bool,
}

impl sealed::Sealed for OnThread {}
impl Spawn for OnThread {
    fn spawn_work(&self, mut work: Work) -> Result<(), Work> {
        let to_its_end = self.to_its_end;
        self.threads.spawn(move || {
            if to_its_end {
                work.run();
            } else {
                let mut cx = Context::from_waker(Waker::noop());
                let _ = Pin::new(&mut work).poll(&mut cx);
            }
        });
        Ok(())
    }
}

fn executor(threads: &Threads, to_its_end: bool) -> SerialExecutor<Plain> {
    SerialExecutor::builder()
        .capture_jobs(0)
        .drain_on(OnThread {
            threads: threads.clone(),
            to_its_end,
        })
        .build(Plain::new(0))
        .unwrap()
}

/// A job that has its guard dropped on another thread, while its drain looks for it.
fn drop_elsewhere(executor: &SerialExecutor<Plain>, threads: &Threads) -> JoinHandle<()> {
    let threads = threads.clone();
    executor.submit_async(move |state: Exclusive<Plain>| async move {
        threads.spawn(move || state.add(1));
    })
}

#[test]
fn loom_a_guard_elsewhere_against_its_drain() {
    loom::model(|| {
        let threads = Threads::new();
        let executor = executor(&threads, true);
        drop(drop_elsewhere(&executor, &threads));
        let seen = executor.submit(|number| number.get());
        assert_eq!(seen.blocking_join().unwrap(), 1);
        threads.join();
    });
}

#[test]
fn loom_a_guard_elsewhere_against_into_inner() {
    loom::model(|| {
        let threads = Threads::new();
        let executor = executor(&threads, true);
        drop(drop_elsewhere(&executor, &threads));
        let state = block_on(executor.into_inner()).ok().unwrap();
        assert_eq!(state.get(), 1);
        threads.join();
    });
}

/// A drain is dropped, and a guard is dropped on another thread: the last of the two releases the executor.
#[test]
fn loom_a_guard_elsewhere_against_a_dropped_drain() {
    loom::model(|| {
        let threads = Threads::new();
        let executor = executor(&threads, false);
        let job = drop_elsewhere(&executor, &threads);
        job.blocking_join().unwrap();
        threads.join();
        assert_eq!(executor.try_run(|number| number.get()).unwrap(), 1);
    });
}

/// The same, with a submitter whose handle ends.
#[test]
fn loom_submit_against_a_guard_and_a_dropped_drain() {
    loom::model(|| {
        let threads = Threads::new();
        let executor = executor(&threads, false);
        drop(drop_elsewhere(&executor, &threads));
        let ran = executor.submit(|number| number.add(1)).blocking_join();
        threads.join();
        let total = executor.try_run(|number| number.get()).unwrap();
        assert_eq!(total, 1 + u32::from(ran.is_ok()));
    });
}

/// A drain is dropped while its job is suspended.
#[test]
fn loom_a_dropped_drain_of_a_suspended_job_against_submit() {
    loom::model(|| {
        let threads = Threads::new();
        let executor = executor(&threads, false);
        let job = executor.submit_async(|state| async move {
            state.add(1);
            pending::<()>().await;
            drop(state);
        });
        let ran = executor.submit(|number| number.add(1)).blocking_join();
        assert!(job.blocking_join().unwrap_err().is_cancelled());
        threads.join();
        let total = executor.try_run(|number| number.get()).unwrap();
        assert_eq!(total, 1 + u32::from(ran.is_ok()));
    });
}

#[test]
fn loom_abort_against_the_drain() {
    loom::model(|| {
        let threads = Threads::new();
        let executor = executor(&threads, true);
        let job = executor.submit_async(|state| async move {
            state.add(1);
            pending::<()>().await;
            drop(state);
        });
        job.abort();
        assert!(job.blocking_join().unwrap_err().is_cancelled());
        let state = block_on(executor.into_inner()).ok().unwrap();
        assert!(state.get() <= 1);
        threads.join();
    });
}

/// The last handle is dropped while a job is suspended.
#[test]
fn loom_the_last_handle_is_dropped_before_a_suspended_job_ends() {
    loom::model(|| {
        let threads = Threads::new();
        let executor = executor(&threads, true);
        let job = executor.submit_async(|state| async move {
            let mut waited = false;
            poll_fn(|cx| match std::mem::replace(&mut waited, true) {
                true => Poll::Ready(()),
                false => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
            state.add(1);
            state.get()
        });
        drop(executor);
        assert_eq!(job.blocking_join().unwrap(), 1);
        threads.join();
    });
}

/// A submitter that cannot hand over reaches an asynchronous job.
#[test]
fn loom_an_asynchronous_job_without_a_target() {
    loom::model(|| {
        let executor = SerialExecutor::new(Plain::new(0));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || {
                let job = executor.submit_async(|state| async move { state.add(1) });
                assert!(job.blocking_join().unwrap_err().is_rejected());
            })
        };
        let here = executor.submit(|number| number.add(1));
        here.blocking_join().unwrap();
        other.join().unwrap();
        assert_eq!(executor.try_run(|number| number.get()).unwrap(), 1);
    });
}
