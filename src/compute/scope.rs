//! [`Scope`]: closures that borrow from the caller's stack.
//!
//! A scope has a queue of its own. Each closure goes into that queue, and a *ticket* into the pool: a task that runs one
//! closure of the queue, if there is one left. The thread that waits for the scope runs closures of the queue, too. So a
//! scope needs no thread of the pool to end: it may be used on a thread of the pool, inside another scope, and while the
//! pool is full or closed. A waiting thread runs only closures of its own scope, and waits for others only while they run.
//!
//! **Soundness.** A closure may borrow data that lives for `'scope`, and its type is erased to `'static` while it is in the
//! queue. It leaves the queue only to run, and running it consumes it. [`ComputePool::scope`] returns, or unwinds, only
//! after the queue is empty and no closure runs, which the destructor of `Waiter` ensures; and `'scope` ends after that. If
//! that destructor unwound, the process would abort.
//! Tickets that are left in the pool own the state of the scope, and find the queue empty.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::pool::ComputePool;
use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use crate::unwind::{AbortOnUnwind, contain};

type PanicPayload = Box<dyn Any + Send>;
type ScopedClosure = Box<dyn FnOnce() + Send>;

/// A scope in which closures may borrow: see [`ComputePool::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    pool: &'env ComputePool,
    state: Arc<ScopeState>,
    // Invariant, as in `std::thread::Scope`: closures must not borrow from a shorter scope.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl ComputePool {
    /// Runs closures that borrow, and waits until all of them have ended. Blocks the calling thread, which runs closures of
    /// the scope meanwhile.
    ///
    /// This is for synchronous code, as [`std::thread::scope`]. It may be called on a thread of this pool and inside other
    /// scopes: it needs no free thread to make progress. If the pool is full or closed, the calling thread runs the closures.
    /// [`shutdown_now`](Self::shutdown_now) does not drop closures of a scope.
    ///
    /// Each closure costs an allocation and a lock. For loops over single items, pass chunks of them.
    ///
    /// # Panics
    ///
    /// If `f` or a closure panics, this panics after all closures have ended, with the payload of the first panic of a
    /// closure, or else that of `f`.
    ///
    /// # Examples
    ///
    /// ```
    /// let pool = throng::ComputePool::new();
    /// let mut numbers = vec![1, 2, 3, 4];
    /// pool.scope(|scope| {
    ///     for chunk in numbers.chunks_mut(2) {
    ///         scope.spawn(|| chunk.iter_mut().for_each(|n| *n *= 10));
    ///     }
    /// });
    /// assert_eq!(numbers, [10, 20, 30, 40]);
    /// ```
    pub fn scope<'env, F, R>(&'env self, f: F) -> R
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    {
        let scope = Scope {
            pool: self,
            state: Arc::new(ScopeState::new()),
            scope: PhantomData,
            env: PhantomData,
        };
        let waiter = Waiter {
            state: Arc::clone(&scope.state),
            thread: thread::current(),
        };
        let output = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        let state = Arc::clone(&scope.state);
        drop(waiter);
        let panic = state.lock().panic.take();
        match (panic, output) {
            (Some(payload), _) | (None, Err(payload)) => resume_unwind(payload),
            (None, Ok(output)) => output,
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Runs a closure on a thread of the pool, or on the thread that waits for the scope.
    ///
    /// The closure may spawn others in the same scope.
    ///
    /// # Examples
    ///
    /// ```
    /// let pool = throng::ComputePool::new();
    /// let (mut left, mut right) = (0, 0);
    /// pool.scope(|scope| {
    ///     scope.spawn(|| left = (1..=10).sum());
    ///     scope.spawn(|| right = (1..=10).product());
    /// });
    /// assert_eq!((left, right), (55, 3_628_800));
    /// ```
    pub fn spawn<F>(&'scope self, f: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        let closure: Box<dyn FnOnce() + Send + 'scope> = Box::new(f);
        // SAFETY: only the lifetime changes. The closure is consumed before `'scope` ends: see the head of the file.
        let closure =
            unsafe { mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, ScopedClosure>(closure) };
        self.state.push(closure);
        let state = Arc::clone(&self.state);
        // If the pool does not accept the ticket, the thread that waits runs the closure.
        if !self.pool.is_closed() && self.pool.shared().try_acquire().is_ok() {
            drop(self.pool.execute_with_permit(move || _ = state.run_one()));
        }
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// Waits for all closures when it is dropped.
struct Waiter {
    state: Arc<ScopeState>,
    /// The thread that waits. Taken before there are closures, so that nothing that might panic is left for the wait.
    thread: Thread,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // The closures borrow from this stack. Nothing below unwinds; if it did, closures that still run would use
        // frames that are gone.
        let must_not_unwind = AbortOnUnwind;
        self.state.wait(&self.thread);
        mem::forget(must_not_unwind);
    }
}

struct ScopeState(Mutex<Tasks>);

struct Tasks {
    queue: VecDeque<ScopedClosure>,
    /// The number of closures that run.
    running: usize,
    /// The payload of the first panic.
    panic: Option<PanicPayload>,
    /// The thread that waits, while it sleeps.
    sleeper: Option<Thread>,
}

impl ScopeState {
    fn new() -> Self {
        Self(Mutex::new(Tasks {
            queue: VecDeque::new(),
            running: 0,
            panic: None,
            sleeper: None,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        lock(&self.0)
    }

    fn push(&self, closure: ScopedClosure) {
        let mut tasks = self.lock();
        tasks.queue.push_back(closure);
        wake(tasks);
    }

    /// Runs the oldest closure of the queue. Returns `false` if there is none.
    fn run_one(&self) -> bool {
        let mut tasks = self.lock();
        let Some(closure) = tasks.queue.pop_front() else {
            return false;
        };
        tasks.running += 1;
        drop(tasks);
        let panic = catch_unwind(AssertUnwindSafe(closure)).err();
        let mut tasks = self.lock();
        tasks.running -= 1;
        let other = match panic {
            Some(payload) if tasks.panic.is_none() => tasks.panic.replace(payload),
            panic => panic,
        };
        wake(tasks);
        // The payload of a further panic may panic when it is dropped: without the lock.
        contain(|| drop(other));
        true
    }

    /// Runs closures until the queue is empty and no closure runs. `waiting` is the current thread.
    fn wait(&self, waiting: &Thread) {
        loop {
            while self.run_one() {}
            let mut tasks = self.lock();
            if !tasks.queue.is_empty() {
                continue;
            }
            if tasks.running == 0 {
                return;
            }
            tasks.sleeper = Some(waiting.clone());
            drop(tasks);
            // A wake-up takes the sleeper out. A park token that a closure has left only costs another round.
            thread::park();
            self.lock().sleeper = None;
        }
    }
}

/// Wakes the thread that waits, if it sleeps.
fn wake(mut tasks: MutexGuard<'_, Tasks>) {
    let sleeper = tasks.sleeper.take();
    drop(tasks);
    if let Some(thread) = sleeper {
        thread.unpark();
    }
}
