//! [`PoolView`]: a part of a pool, with limits of its own.

use std::fmt;
use std::panic::Location;

use super::shared::{Comes, Shared};
use super::state::sweep;
use super::ticket::{Body, Closure, Queued, Ticket};
use super::{BlockingPool, refusal};
use crate::inbox::FifoList;
use crate::join::{Id, JoinHandle, Origin, RunContext, TrySpawnError, Work};
use crate::semaphore::Semaphore;
use crate::sync::{Arc, Mutex, lock};
use crate::task::{Fault, Ran, Task};

/// A bulkhead: the threads of a pool, of which it takes a limited number at a time, and a queue of its
/// own.
///
/// Several kinds of work share the threads of one pool, and none can use up all of them, nor fill the
/// queue for the others. A task of a view that may run joins the tail of the pool; when it has ended, the
/// next of the view does. The tasks of a view count in the [metrics](BlockingPool::metrics) of the pool
/// from then on.
///
/// It keeps the pool open, as a clone of it does. A task of the pool that waits for one of a view, with
/// [`blocking_join`](JoinHandle::blocking_join), runs it itself if nobody has begun it, whatever the limit.
/// [`shutdown_now`](BlockingPool::shutdown_now) drops what waits in a view as soon as one of its tasks ends,
/// or at once if the pool has begun none.
///
/// # Examples
///
/// ```
/// use throng::BlockingPool;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BlockingPool::builder().max_threads(16).build()?;
/// // Reports may be slow: at most two at a time, and ten that wait.
/// let reports = pool.view(2, 10);
/// let report = reports.spawn_blocking(|| "a slow report").await?;
/// # assert_eq!(report, "a slow report");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PoolView {
    core: Arc<Core>,
}

/// What the clones of a view and its tasks share.
struct Core {
    pool: BlockingPool,
    max_concurrency: usize,
    room: Semaphore,
    line: Mutex<Line>,
}

/// The tasks of a view that its pool does not know yet.
struct Line {
    queue: FifoList<Task<RunContext>>,
    /// How many are in the queue, with those that need not run any more.
    linked: usize,
    /// How many need not run any more, in the queue or in what the pool has, where nobody has come across
    /// them yet. For a moment it is too small: who aborts a task counts it after the fact.
    gone: isize,
    /// How many the pool has.
    out: usize,
    /// The number of those that have run, counted before their outcomes were visible.
    ended: usize,
}

impl BlockingPool {
    /// A part of this pool that runs at most `max_concurrency` tasks at a time, and lets at most
    /// `queue_capacity` more wait.
    ///
    /// # Panics
    ///
    /// Panics if `max_concurrency` is 0.
    #[track_caller]
    pub fn view(&self, max_concurrency: usize, queue_capacity: usize) -> PoolView {
        assert!(
            max_concurrency > 0,
            "a view needs room for at least one task"
        );
        PoolView {
            core: Arc::new(Core {
                pool: self.clone(),
                max_concurrency,
                room: Semaphore::new(max_concurrency.saturating_add(queue_capacity)),
                line: Mutex::new(Line {
                    queue: FifoList::new(),
                    linked: 0,
                    gone: 0,
                    out: 0,
                    ended: 0,
                }),
            }),
        }
    }
}

impl PoolView {
    /// Runs a closure that may block on a thread of the pool.
    ///
    /// # Errors
    ///
    /// As [`BlockingPool::spawn_blocking`]; [`is_rejected`](crate::JoinError::is_rejected) if the view is
    /// full, or the pool is.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.try_spawn_blocking(f)
            .unwrap_or_else(JoinHandle::refused)
    }

    /// Runs a closure that may block on a thread of the pool, or hands it back.
    ///
    /// # Errors
    ///
    /// As [`BlockingPool::try_spawn_blocking`]; [`is_full`](TrySpawnError::is_full) if the view is full, or the
    /// pool is.
    #[track_caller]
    pub fn try_spawn_blocking<F, R>(&self, f: F) -> Result<JoinHandle<R>, TrySpawnError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        if let Err(no_room) = self.core.room.try_acquire() {
            self.core.pool.shared().reject(1);
            return Err(refusal(no_room, f));
        }
        let (shared, id) = (self.core.pool.shared(), Id::next());
        let body = Closure::new(f, &shared.options.name, id, Location::caller());
        let ticket = InView(Some(Arc::clone(&self.core)));
        let (task, join_ref) = Task::joinable(Queued { body, ticket });
        let handle = JoinHandle::with_origin(id, join_ref, Origin::pool(Shared::name(shared)));
        match Core::submit(&self.core, task) {
            Ok(()) => Ok(handle),
            // SAFETY: of such a job the task was made above.
            Err(refused) => Err(refused.map(|task| unsafe { take_back(task) })),
        }
    }

    /// Returns how many of the view's tasks run, or wait for a thread of the pool. A task no longer counts
    /// once its handle is ready.
    pub fn running(&self) -> usize {
        let line = lock(&self.core.line);
        line.out - line.ended
    }

    /// How many of its tasks wait for one of those to end.
    pub fn queued(&self) -> usize {
        lock(&self.core.line).queued()
    }

    /// The pool.
    pub fn pool(&self) -> &BlockingPool {
        &self.core.pool
    }
}

impl fmt::Debug for PoolView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolView")
            .field("pool", &self.core.pool)
            .field("running", &self.running())
            .field("queued", &self.queued())
            .finish()
    }
}

impl Core {
    /// Gives a task to the pool, or has it wait.
    fn submit(
        this: &Arc<Self>,
        task: Task<RunContext>,
    ) -> Result<(), TrySpawnError<Task<RunContext>>> {
        let mut line = lock(&this.line);
        let shared = this.pool.shared();
        if line.out == this.max_concurrency {
            if shared.state().is_closed() {
                drop(line);
                shared.reject(1);
                return Err(TrySpawnError::closed(task));
            }
            line.queue.push_back(task);
            line.linked += 1;
            return Ok(());
        }
        line.out += 1;
        drop(line);
        let sent = match shared.try_acquire() {
            Ok(()) => Self::send(this, task, Comes::Anew),
            Err(no_room) => {
                shared.reject(1);
                Err(refusal(no_room, task))
            }
        };
        sent.inspect_err(|_| Self::next(this, false))
    }

    /// Sends a task to the pool, where it has a place.
    fn send(
        this: &Arc<Self>,
        task: Task<RunContext>,
        comes: Comes,
    ) -> Result<(), TrySpawnError<Task<RunContext>>> {
        let shared = this.pool.shared();
        let carrier = Queued {
            body: Carried::new(this, task),
            ticket: Carriage(Some(Arc::clone(shared))),
        };
        let (carrier, _) = Task::joinable(carrier);
        Shared::accept(shared, carrier.into(), 1, comes).map_err(|unaccepted| {
            // SAFETY: of such a job the carrier was made above.
            unaccepted.one(|task| unsafe { unload(task) })
        })
    }

    /// A task of the pool is over, and is already counted if it `has_run`: the next one joins the pool.
    fn next(this: &Arc<Self>, mut has_run: bool) {
        loop {
            let mut line = lock(&this.line);
            line.ended -= usize::from(std::mem::take(&mut has_run));
            let Some(task) = line.queue.pop_front() else {
                line.out -= 1;
                return;
            };
            line.linked -= 1;
            drop(line);
            // It was accepted, so it is not refused for want of room.
            this.pool.shared().acquire_over_limit();
            match Self::send(this, task, Comes::After) {
                Ok(()) => return,
                Err(refused) => {
                    let (task, fault) = match refused {
                        // It was accepted, and the pool has dropped since all that waits.
                        refused if refused.is_closed() => {
                            (refused.into_inner(), Fault::cancelled())
                        }
                        refused => refused.into_fault(),
                    };
                    task.fail(fault);
                    this.found_withdrawn();
                }
            }
        }
    }

    /// The pool, or the line, need not run a task any more.
    fn withdraw(&self) {
        let mut line = lock(&self.line);
        line.gone += 1;
        let (swept, lost) = line.sweep();
        drop(line);
        if lost > 0 {
            self.pool.shared().state().totals().submitted += lost as u64;
        }
        drop(swept);
    }

    /// Whoever was to run a task has come across one of those.
    fn found_withdrawn(&self) {
        lock(&self.line).gone -= 1;
    }
}

impl Line {
    fn queued(&self) -> usize {
        self.linked.saturating_add_signed(-self.gone)
    }

    /// What need not run any more, and how many those are, if it is most of what is in the queue: it is
    /// memory for nothing.
    fn sweep(&mut self) -> (FifoList<Task<RunContext>>, usize) {
        sweep(&mut self.queue, &mut self.linked, &mut self.gone)
    }
}

/// The ticket of a task of a view: its place there.
struct InView(Option<Arc<Core>>);

/// Of one that runs.
struct RunningInView {
    view: Arc<Core>,
    /// It has the place in the pool that its carrier had.
    is_carried: bool,
}

impl InView {
    /// The task was not accepted.
    fn void(mut self) {
        if let Some(view) = self.0.take() {
            view.room.release();
        }
    }
}

impl Ticket for InView {
    type Place = Option<RunningInView>;

    fn start(mut self, context: &RunContext) -> Self::Place {
        let view = self.0.take()?;
        let is_carried = !context.is_by_waiter();
        if !is_carried {
            view.withdraw();
        }
        view.pool.shared().options.before_task.call();
        Some(RunningInView { view, is_carried })
    }
}

/// The task will not run any more that was accepted.
impl Drop for InView {
    fn drop(&mut self) {
        if let Some(view) = self.0.take() {
            view.room.release();
            view.pool.shared().state().cancelled();
            view.withdraw();
        }
    }
}

impl Drop for RunningInView {
    fn drop(&mut self) {
        let shared = self.view.pool.shared();
        shared.options.after_task.call();
        if self.is_carried {
            shared.give_back();
            lock(&self.view.line).ended += 1;
        }
        self.view.room.release();
    }
}

/// A task of a view, as the pool has it.
struct Carried {
    task: Option<Task<RunContext>>,
    /// Told when it is over; `None`: the pool has not accepted it.
    view: Option<Arc<Core>>,
    has_run: bool,
}

impl Carried {
    fn new(view: &Arc<Core>, task: Task<RunContext>) -> Self {
        Self {
            task: Some(task),
            view: Some(Arc::clone(view)),
            has_run: false,
        }
    }

    fn unpack(mut self) -> Task<RunContext> {
        self.view = None;
        self.task
            .take()
            .expect("it is taken when it is run, or here")
    }
}

impl Body for Carried {
    type Output = ();

    fn run(mut self, context: &mut RunContext) {
        let (Some(task), Some(view)) = (self.task.take(), &self.view) else {
            return;
        };
        // In the same context, which counts the task before anybody can see how it ended.
        if Work::new(task).run_in(context) == Ran::Cancelled {
            // Whoever claimed it has counted it, and could not know where it was.
            view.found_withdrawn();
            view.pool.shared().give_back();
        } else {
            self.has_run = true;
        }
        context.skip_accounting();
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let Some(view) = &self.view else { return };
        if let Some(task) = self.task.take() {
            drop(task);
            view.found_withdrawn();
        }
        Core::next(view, self.has_run);
    }
}

/// The ticket of a carrier: its place in the pool, which the task takes over that it carries.
struct Carriage(Option<Arc<Shared>>);

impl Ticket for Carriage {
    type Place = ();

    fn start(mut self, _: &RunContext) {
        self.0 = None;
    }
}

/// The pool has dropped it. The task in it has been counted.
impl Drop for Carriage {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.give_back();
            shared.state().withdraw();
        }
    }
}

/// Takes the task of a view back out of a carrier that was not accepted.
///
/// # Safety
///
/// The carrier was made by `Task::joinable`, of a `Queued<Carried, Carriage>`.
unsafe fn unload(carrier: Task<RunContext>) -> Task<RunContext> {
    // SAFETY: as the caller says.
    let queued = unsafe { carrier.take_back::<Queued<Carried, Carriage>>() };
    let Queued { body, mut ticket } = queued.expect("nobody has a handle of a carrier");
    ticket.0 = None;
    body.unpack()
}

/// Takes the closure of a task that was not accepted back out of its cell.
///
/// # Safety
///
/// The task was made by `Task::joinable`, of a `Queued<Closure<F>, InView>`.
unsafe fn take_back<F, R>(task: Task<RunContext>) -> F
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    // SAFETY: as the caller says.
    let queued = unsafe { task.take_back::<Queued<Closure<F>, InView>>() };
    let Queued { body, ticket } = queued.expect("nobody has a handle with which to abort it yet");
    ticket.void();
    body.into_inner()
}
