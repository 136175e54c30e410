//! A thread of a pool: takes tasks while there are any, waits, and ends.

use std::cell::Cell;
use std::io;
use std::mem;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Instant;

use super::samples::Sample;
use super::shared::Shared;
use super::state::State;
use crate::join::{PoolThread, RunContext, RunCounts, Work, enter_pool};
use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, AtomicBool, MutexGuard, Number, Ordering};
use crate::task::{Abort, Task, flush};

/// Where a thread lies when it is idle.
pub(super) struct Parker {
    thread: Thread,
    /// Set by whoever has taken the bed off the state; cleared by the thread before it lies down.
    woken: AtomicBool,
    /// 1 if it has lain down since it last got up. Only debug builds write it, under the lock.
    lying: Number,
}

impl Parker {
    pub(super) fn new() -> Self {
        Self {
            thread: thread::current(),
            woken: AtomicBool::new(false),
            lying: Number::new(0),
        }
    }

    /// `false`: it did already.
    pub(super) fn set_lying(&self, lying: bool) -> bool {
        let before = self.lying.get();
        self.lying.set(usize::from(lying));
        before != usize::from(lying)
    }
}

/// Creates a thread, which was counted as starting.
pub(super) fn start(shared: &Arc<Shared>, number: usize) -> io::Result<()> {
    let mut builder = thread::Builder::new().name(format!("{}-{number}", shared.options.name));
    if let Some(bytes) = shared.options.stack_size {
        builder = builder.stack_size(bytes);
    }
    let shared = Arc::clone(shared);
    builder.spawn(move || work(&shared, number)).map(drop)
}

/// Wakes threads that were taken off the state.
pub(super) fn wake(beds: impl IntoIterator<Item = Arc<Parker>>) {
    for bed in beds {
        // Relaxed is enough: unparking publishes it, and all else is under the lock.
        bed.woken.store(true, Ordering::Relaxed);
        bed.thread.unpark();
    }
}

/// The life of a thread.
fn work(shared: &Arc<Shared>, number: usize) {
    if let Some(runtime) = &shared.options.runtime {
        // Never left: a guard that a task leaks would make leaving panic, and the thread ends with
        // the context anyway.
        mem::forget(runtime.enter());
    }
    let post = Rc::new(Post::new(shared, number));
    let in_pool = enter_pool(Rc::clone(&post) as Rc<dyn PoolThread>);
    take_tasks(shared, &post);
    shared.options.on_thread_stop.call();
    drop(in_pool);
    let mut state = shared.state();
    post.unblock(&mut state);
    state.gone(&post.tally);
    shared.leave(state);
}

/// Comes back when the thread is off the state.
fn take_tasks(shared: &Arc<Shared>, post: &Post) {
    let bed = Arc::new(Parker::new());
    let mut context = post.run_context();
    let mut state = shared.state();
    state.stand_up(&post.tally);
    state = Shared::grow(shared, state);
    if shared.options.on_thread_start.is_set() {
        drop(state);
        shared.options.on_thread_start.call();
        state = shared.state();
        post.unblock(&mut state);
    }
    state.arrive();
    // Wherever it comes from: one that is beyond the maximum takes no task.
    while !state.has_surplus() {
        if let Some((task, sample)) = state.pop() {
            state = run(shared, post, &mut context, state, task, sample);
        } else if state.is_closed() {
            break;
        } else if let Some(up) = rest(shared, state, &bed) {
            state = up;
        } else {
            return;
        }
    }
    state.depart();
    let woken = state.wake_some();
    drop(state);
    wake(woken.into_iter().flatten());
}

/// Runs a task without the lock, after waking others if there is more to do.
fn run<'a>(
    shared: &'a Shared,
    post: &Post,
    context: &mut RunContext,
    mut state: MutexGuard<'a, State>,
    task: Task<RunContext>,
    sample: Option<Sample>,
) -> MutexGuard<'a, State> {
    let woken = state.wake_some();
    drop(state);
    wake(woken.into_iter().flatten());
    post.tally.begin();
    let ran = Work::new(task).run_in(context);
    post.tally.end();
    let mut state = shared.ran(context, ran, sample);
    post.unblock(&mut state);
    state
}

/// Waits to be woken, and comes back with the lock; `None`: the keep-alive has passed, nothing was
/// queued, and the thread is off the state.
fn rest<'a>(
    shared: &'a Shared,
    mut state: MutexGuard<'a, State>,
    bed: &Arc<Parker>,
) -> Option<MutexGuard<'a, State>> {
    let mut deadline = deadline(&state);
    bed.woken.store(false, Ordering::Relaxed);
    state.park(bed);
    drop(state);
    // What it has freed is somebody's home: an idle thread holds nothing back.
    flush();
    loop {
        let woken = sleep(bed, deadline);
        let mut state = shared.state();
        // Whoever wakes takes the bed off the state under the lock: look there, not at the clock.
        if woken || !state.is_parked(bed) || state.has_queued() || state.is_closed() {
            state.unpark(bed);
            return Some(state);
        }
        if state.patience().is_some() {
            state.unpark(bed);
            state.depart();
            return None;
        }
        deadline = None;
    }
}

/// When a thread that goes idle now will end; `None`: never, it is one of those that stay.
fn deadline(state: &State) -> Option<Instant> {
    Instant::now().checked_add(state.patience()?)
}

/// Sleeps until woken (`true`), or until the deadline has passed.
fn sleep(bed: &Parker, deadline: Option<Instant>) -> bool {
    // What a task left of park tokens makes this loop turn once more, nothing else.
    while !bed.woken.load(Ordering::Relaxed) {
        match deadline {
            None => thread::park(),
            Some(deadline) if thread::park_until(deadline) => {
                return bed.woken.load(Ordering::Relaxed);
            }
            Some(_) => {}
        }
    }
    true
}

/// A thread of a pool, as its tasks see it.
struct Post {
    shared: Arc<Shared>,
    /// The number of the thread.
    number: usize,
    tally: Arc<RunCounts>,
    /// The address of the job that the running task has waited for last, if it has waited. The state keeps
    /// that job, so its address is not used again.
    awaited: Cell<Option<NonZeroUsize>>,
}

impl Post {
    fn new(shared: &Arc<Shared>, number: usize) -> Self {
        Self {
            shared: Arc::clone(shared),
            number,
            tally: Arc::default(),
            awaited: Cell::new(None),
        }
    }

    /// The task that may have waited has ended.
    fn unblock(&self, state: &mut State) {
        if self.awaited.take().is_some() {
            state.unblock(self.number);
        }
    }
}

impl PoolThread for Post {
    fn pool_id(&self) -> NonZeroUsize {
        Shared::name(&self.shared)
    }

    fn run_context(&self) -> RunContext {
        RunContext::default().counting(Arc::clone(&self.tally))
    }

    fn prepare_to_wait(&self, awaited: Abort, must_compensate: bool) -> bool {
        let address = awaited.address();
        if self.awaited.get() == Some(address) {
            return true;
        }
        let mut state = self.shared.state();
        let may = state.block(self.number, awaited, must_compensate);
        if may {
            self.awaited.set(Some(address));
            drop(Shared::grow(&self.shared, state));
        }
        may
    }
}
