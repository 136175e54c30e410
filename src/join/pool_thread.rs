//! [`PoolThread`]: what a thread of a pool does, when it is about to wait for a task of that pool.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;

use super::nesting::run_what_was_left;
use super::{Name, RunContext, prepare_to_wait};
use crate::sync::thread_local;
use crate::task::{Abort, Fault, Held, JoinRef};

/// The pool whose thread this is.
pub(crate) trait PoolThread {
    /// Which one: as in the handles of its tasks.
    fn name(&self) -> NonZeroUsize;
    /// The context on which this thread runs tasks.
    fn context(&self) -> RunContext;
    /// This thread is about to wait for a task that another thread runs. Returns `false` if it must not: because
    /// `must_compensate` is set and no compensating thread is allowed, or because the wait would never end.
    fn waits(&self, awaited: Abort, must_compensate: bool) -> bool;
}

/// Whom a task belongs to: whose threads, or whose jobs, must not wait for it in vain.
#[derive(Clone, Copy)]
pub(crate) struct Origin(NonZeroUsize);

impl Origin {
    /// In the name of a serial executor. Names are addresses, and the last bits of those are clear.
    const SERIAL: usize = 1;
    /// In the name of one whose jobs are short.
    const SOON: usize = 2;

    /// A pool that is the pool of its threads.
    pub(crate) fn pool(name: NonZeroUsize) -> Self {
        debug_assert_eq!(name.get() & (Self::SERIAL | Self::SOON), 0, "an address");
        Self(name)
    }

    /// A serial executor; `soon`: the task will have ended before long.
    #[inline]
    pub(crate) fn serial(name: Name, soon: bool) -> Self {
        let soon = if soon { Self::SOON } else { 0 };
        Self(name | Self::SERIAL | soon)
    }

    fn as_serial(self) -> Option<Name> {
        let name = NonZeroUsize::new(self.0.get() & !(Self::SERIAL | Self::SOON))?;
        (self.0.get() & Self::SERIAL != 0).then_some(name)
    }

    /// Whether it pays to wait awake.
    pub(super) fn is_soon(self) -> bool {
        self.0.get() & Self::SOON != 0
    }
}

/// How a thread waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// For this task and nothing else.
    Blocked,
    /// It polls this task, and others perhaps, one of which may be what this one waits for.
    Polling,
}

/// How many tasks a thread runs inside of one another at most: each takes of its stack.
const MAX_DEPTH: usize = 64;

/// What a thread of a pool knows.
struct Here {
    pool: Rc<dyn PoolThread>,
    depth: Cell<usize>,
}

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "loom knows no such form")]
    static HERE: RefCell<Option<Rc<Here>>> = RefCell::new(None);
}

/// Makes this a thread of a pool.
pub(crate) fn enter_pool(pool: Rc<dyn PoolThread>) {
    let depth = Cell::new(0);
    HERE.with(|here| here.replace(Some(Rc::new(Here { pool, depth }))));
}

/// Makes it a thread of nobody again.
pub(crate) fn exit_pool() {
    let here = HERE.with(RefCell::take);
    drop(here);
}

/// Whether this is a thread of some pool.
pub(crate) fn is_pool_thread() -> bool {
    here().is_some()
}

/// The handle of a task of `origin` is about to wait. On a thread of that pool, this may be the only thread
/// to run the task: so it does, if nobody has begun it, or another stands in for it. Inside a job of that
/// executor it must not wait; inside a job of others, it first runs what was left to the outermost one,
/// whatever it waits for: that may wait in its turn.
///
/// For a poll, a compensating thread is better: the task may wait for a future that is polled next. If another
/// thread has begun the task, a thread may wait even without a compensating thread.
pub(super) fn help<T>(
    origin: Option<Origin>,
    join_ref: &JoinRef<T>,
    wait: Wait,
) -> Result<(), Fault> {
    if join_ref.is_complete() {
        return Ok(());
    }
    let Some(origin) = origin else {
        // Of a task that has no origin nobody is told that it must not wait.
        let _ = run_what_was_left();
        return Ok(());
    };
    if let Some(name) = origin.as_serial() {
        return prepare_to_wait(name);
    }
    run_what_was_left()?;
    let Some(here) = here().filter(|here| here.pool.name() == origin.0) else {
        return Ok(());
    };
    let waits = |must_compensate| here.pool.waits(join_ref.abort_ref(), must_compensate);
    let helped = match wait {
        Wait::Blocked => here.run(join_ref) || waits(false),
        Wait::Polling => waits(true) || here.run(join_ref) || waits(false),
    };
    match helped || join_ref.is_complete() {
        true => Ok(()),
        false => Err(Fault::would_deadlock(Held::Thread)),
    }
}

fn here() -> Option<Rc<Here>> {
    // Not while thread-locals are dropped: there the thread belongs to nobody.
    HERE.try_with(|here| here.borrow().clone()).ok().flatten()
}

impl Here {
    /// Runs a task on this thread, if nobody has begun it.
    fn run<T>(&self, join_ref: &JoinRef<T>) -> bool {
        let depth = self.depth.get();
        if depth == MAX_DEPTH {
            return false;
        }
        self.depth.set(depth + 1);
        // SAFETY: `help`, the one caller, returns early with handles that have no origin, or a serial executor
        // for one. What is left are the handles of pools, whose tasks are made for a `RunContext`.
        let ran = unsafe { join_ref.run_here(&mut self.pool.context().beside()) };
        self.depth.set(depth);
        ran.is_some()
    }
}

#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests {
    //! One thread, whose pool is a pretence. Miri runs these, too.

    use std::sync::mpsc;

    use futures::FutureExt;

    use super::*;
    use crate::join::{Id, JoinHandle, Tally};
    use crate::sync::{Arc, Mutex, lock};
    use crate::task::{Ran, Task, Thunk};

    // As addresses are.
    const HERE: NonZeroUsize = NonZeroUsize::new(0x10).unwrap();
    const ELSEWHERE: NonZeroUsize = NonZeroUsize::new(0x20).unwrap();

    /// Counts what it is told and what it is asked.
    struct Inn {
        may_wait: bool,
        tally: Arc<Tally>,
        waited: Cell<usize>,
    }

    impl PoolThread for Inn {
        fn name(&self) -> NonZeroUsize {
            HERE
        }

        fn context(&self) -> RunContext {
            RunContext::default().counted_by(Arc::clone(&self.tally))
        }

        fn waits(&self, _: Abort, _: bool) -> bool {
            self.waited.set(self.waited.get() + 1);
            self.may_wait
        }
    }

    /// A thread that is at origin in an inn, for as long as this exists.
    struct Stay(Rc<Inn>);

    impl Stay {
        fn new(may_wait: bool) -> Self {
            let inn = Rc::new(Inn {
                may_wait,
                tally: Arc::default(),
                waited: Cell::new(0),
            });
            enter_pool(Rc::clone(&inn) as Rc<dyn PoolThread>);
            assert!(is_pool_thread());
            Self(inn)
        }

        /// How many tasks it has run, and how often it was asked whether it may wait.
        fn counts(&self) -> (u64, usize) {
            (self.0.tally.returned(), self.0.waited.get())
        }
    }

    impl Drop for Stay {
        fn drop(&mut self) {
            exit_pool();
        }
    }

    fn task<T: Send + 'static>(
        origin: NonZeroUsize,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> (Task<RunContext>, JoinHandle<T>) {
        let (task, join_ref) = Task::joinable(Thunk(f));
        (
            task,
            JoinHandle::hosted(Id::next(), join_ref, Origin::pool(origin)),
        )
    }

    #[test]
    fn who_blocks_runs_the_task_first() {
        let stay = Stay::new(true);
        let (runner, handle) = task(HERE, || 7);
        assert_eq!(handle.blocking_join().unwrap(), 7);
        assert_eq!(stay.counts(), (1, 0));
        assert_eq!(runner.run(&mut RunContext::default()), Ran::Cancelled);
    }

    #[test]
    fn who_polls_would_rather_wait() {
        let stay = Stay::new(true);
        let (runner, mut handle) = task(HERE, || 7);
        assert!((&mut handle).now_or_never().is_none());
        assert_eq!(stay.counts(), (0, 1));
        assert_eq!(runner.run(&mut RunContext::default()), Ran::Returned);
        assert_eq!(handle.now_or_never().unwrap().unwrap(), 7);
        assert_eq!(stay.counts(), (0, 1));
        drop(stay);

        let stay = Stay::new(false);
        let (_runner, handle) = task(HERE, || 7);
        assert_eq!(handle.now_or_never().unwrap().unwrap(), 7);
        assert_eq!(stay.counts(), (1, 1));
    }

    #[test]
    fn a_task_of_another_pool_is_not_run_here() {
        let stay = Stay::new(false);
        let (runner, mut handle) = task(ELSEWHERE, || 7);
        assert!((&mut handle).now_or_never().is_none());
        assert_eq!(stay.counts(), (0, 0));
        assert_eq!(runner.run(&mut RunContext::default()), Ran::Returned);
        assert_eq!(handle.blocking_join().unwrap(), 7);
        drop(stay);

        assert!(!is_pool_thread());
        let (_runner, mut handle) = task(HERE, || 7);
        assert!((&mut handle).now_or_never().is_none());
    }

    #[test]
    fn a_task_that_waits_for_itself_is_told() {
        let stay = Stay::new(false);
        let (give, own) = mpsc::channel::<JoinHandle<()>>();
        let (tell, told) = mpsc::channel();
        let (runner, handle) = task(HERE, move || {
            let error = own.recv().unwrap().blocking_join().unwrap_err();
            tell.send(error.is_would_deadlock()).unwrap();
        });
        give.send(handle).unwrap();
        assert_eq!(runner.run(&mut RunContext::default()), Ran::Returned);
        assert!(told.recv().unwrap());
        assert_eq!(stay.counts(), (0, 1));
    }

    #[test]
    fn tasks_are_run_inside_of_one_another_so_deep_and_no_deeper() {
        type Runners = Arc<Mutex<Vec<Task<RunContext>>>>;

        /// How many levels there are below.
        fn dive(runners: &Runners) -> usize {
            let below = Arc::clone(runners);
            let (runner, handle) = task(HERE, move || dive(&below));
            lock(runners).push(runner);
            match handle.blocking_join() {
                Ok(levels) => levels + 1,
                Err(error) => {
                    assert!(error.is_would_deadlock());
                    0
                }
            }
        }

        let stay = Stay::new(false);
        let runners = Runners::default();
        for _ in 0..2 {
            assert_eq!(dive(&runners), MAX_DEPTH);
        }
        assert_eq!(stay.counts(), (2 * MAX_DEPTH as u64, 2));
        // Those that were not run hold the list, and it them.
        let left = std::mem::take(&mut *lock(&runners));
        assert_eq!(left.len(), 2 * (MAX_DEPTH + 1));
    }
}
