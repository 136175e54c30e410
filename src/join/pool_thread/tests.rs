//! One thread of a simulated pool. Miri runs these tests, too.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::mpsc;

use futures::FutureExt;

use super::{MAX_NESTED_TASKS, Origin, PoolGuard, PoolThread, enter_pool, is_pool_thread};
use crate::join::counts::RunCounts;
use crate::join::handle::JoinHandle;
use crate::join::id::Id;
use crate::join::run_context::RunContext;
use crate::sync::{Arc, Mutex, lock};
use crate::task::{Abort, Ran, Task, Thunk};

// Ids are addresses, so their last bits are zero.
const POOL: NonZeroUsize = NonZeroUsize::new(0x10).unwrap();
const OTHER_POOL: NonZeroUsize = NonZeroUsize::new(0x20).unwrap();

/// A thread of `POOL` that counts the calls of its methods.
struct CountingThread {
    may_wait: bool,
    counts: Arc<RunCounts>,
    waits: Cell<usize>,
}

impl PoolThread for CountingThread {
    fn pool_id(&self) -> NonZeroUsize {
        POOL
    }

    fn run_context(&self) -> RunContext {
        RunContext::default().counting(Arc::clone(&self.counts))
    }

    fn prepare_to_wait(&self, _: Abort, _: bool) -> bool {
        self.waits.set(self.waits.get() + 1);
        self.may_wait
    }
}

/// The scope in which the test's thread is one of `POOL`.
struct InPool {
    thread: Rc<CountingThread>,
    _guard: PoolGuard,
}

impl InPool {
    fn enter(may_wait: bool) -> Self {
        let thread = Rc::new(CountingThread {
            may_wait,
            counts: Arc::default(),
            waits: Cell::new(0),
        });
        let guard = enter_pool(Rc::clone(&thread) as Rc<dyn PoolThread>);
        assert!(is_pool_thread());
        Self {
            thread,
            _guard: guard,
        }
    }

    /// The number of tasks that the thread has run, and of calls of `prepare_to_wait`.
    fn counts(&self) -> (u64, usize) {
        (self.thread.counts.completed(), self.thread.waits.get())
    }
}

fn task<T: Send + 'static>(
    pool: NonZeroUsize,
    f: impl FnOnce() -> T + Send + 'static,
) -> (Task<RunContext>, JoinHandle<T>) {
    let (task, join_ref) = Task::joinable(Thunk(f));
    let handle = JoinHandle::with_origin(Id::next(), join_ref, Origin::pool(pool));
    (task, handle)
}

#[test]
fn a_thread_that_blocks_runs_the_task() {
    let pool = InPool::enter(true);
    let (runner, handle) = task(POOL, || 7);
    assert_eq!(handle.blocking_join().unwrap(), 7);
    assert_eq!(pool.counts(), (1, 0));
    assert_eq!(runner.run(&mut RunContext::default()), Ran::Cancelled);
}

#[test]
fn a_thread_that_polls_runs_the_task_only_if_it_must_not_wait() {
    let pool = InPool::enter(true);
    let (runner, mut handle) = task(POOL, || 7);
    assert!((&mut handle).now_or_never().is_none());
    assert_eq!(pool.counts(), (0, 1));
    assert_eq!(runner.run(&mut RunContext::default()), Ran::Returned);
    assert_eq!(handle.now_or_never().unwrap().unwrap(), 7);
    assert_eq!(pool.counts(), (0, 1));
    drop(pool);

    let pool = InPool::enter(false);
    let (_runner, handle) = task(POOL, || 7);
    assert_eq!(handle.now_or_never().unwrap().unwrap(), 7);
    assert_eq!(pool.counts(), (1, 1));
}

#[test]
fn a_task_of_another_pool_is_not_run() {
    let pool = InPool::enter(false);
    let (runner, mut handle) = task(OTHER_POOL, || 7);
    assert!((&mut handle).now_or_never().is_none());
    assert_eq!(pool.counts(), (0, 0));
    assert_eq!(runner.run(&mut RunContext::default()), Ran::Returned);
    assert_eq!(handle.blocking_join().unwrap(), 7);
    drop(pool);

    assert!(!is_pool_thread());
    let (_runner, mut handle) = task(POOL, || 7);
    assert!((&mut handle).now_or_never().is_none());
}

#[test]
fn a_task_that_waits_for_itself_gets_an_error() {
    let pool = InPool::enter(false);
    let (send_handle, own_handle) = mpsc::channel::<JoinHandle<()>>();
    let (report, reported) = mpsc::channel();
    let (runner, handle) = task(POOL, move || {
        let error = own_handle.recv().unwrap().blocking_join().unwrap_err();
        report.send(error.is_would_deadlock()).unwrap();
    });
    send_handle.send(handle).unwrap();
    assert_eq!(runner.run(&mut RunContext::default()), Ran::Returned);
    assert!(reported.recv().unwrap());
    assert_eq!(pool.counts(), (0, 1));
}

#[test]
fn the_number_of_nested_tasks_is_limited() {
    type Runners = Arc<Mutex<Vec<Task<RunContext>>>>;

    /// Runs a task that does the same, and so on. Returns the number of nested tasks.
    fn nest(runners: &Runners) -> usize {
        let inner = Arc::clone(runners);
        let (runner, handle) = task(POOL, move || nest(&inner));
        lock(runners).push(runner);
        match handle.blocking_join() {
            Ok(nested) => nested + 1,
            Err(error) => {
                assert!(error.is_would_deadlock());
                0
            }
        }
    }

    let pool = InPool::enter(false);
    let runners = Runners::default();
    for _ in 0..2 {
        assert_eq!(nest(&runners), MAX_NESTED_TASKS);
    }
    assert_eq!(pool.counts(), (2 * MAX_NESTED_TASKS as u64, 2));
    // The tasks that were not run hold the list, and the list holds them.
    let left = std::mem::take(&mut *lock(&runners));
    assert_eq!(left.len(), 2 * (MAX_NESTED_TASKS + 1));
}
