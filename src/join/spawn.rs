//! How one part runs its work on another.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
// Wakers, and pointers to traits, are made of the standard library's, also where `sync` has another.
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use tokio::runtime::Handle;

use crate::semaphore::Semaphore;
use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, Number};
use crate::task::{Fault, Lend, Polled, Ran, Task};
use crate::unwind::contain;

/// Something that runs [`Work`]: a Tokio runtime, or a pool of this crate.
///
/// It is how a [`SerialExecutor`](crate::SerialExecutor) is told where to drain, and how a
/// [`CompletionStream`](crate::CompletionStream) is told where to run its jobs. It is sealed:
/// this crate implements it for [`tokio::runtime::Handle`] and for its pools.
pub trait Spawn: sealed::Sealed + Send + Sync + 'static {
    /// Runs the work, at some time, somewhere else than on this thread.
    ///
    /// # Errors
    ///
    /// Hands the work back if it is not accepted. Dropping it then cancels what is in it.
    fn spawn(&self, work: Work) -> Result<(), Work>;
}

pub(crate) mod sealed {
    /// Keeps the trait to this crate.
    #[allow(unnameable_types, reason = "that is how a trait is sealed")]
    pub trait Sealed {}
}

impl sealed::Sealed for Handle {}

/// Work that blocks runs on the runtime's blocking threads, all other on its workers.
impl Spawn for Handle {
    fn spawn(&self, work: Work) -> Result<(), Work> {
        if work.is_blocking() {
            drop(self.spawn_blocking(move || work.run()));
        } else {
            drop(Self::spawn(self, work));
        }
        Ok(())
    }
}

/// A piece of work on its way to whoever runs it: one cell.
///
/// It is a future, for a runtime, and can be [run](Self::run) to its end, by a pool. Dropping it
/// cancels what is in it.
#[must_use = "dropping work cancels it"]
pub struct Work {
    /// `None`: the work has ended.
    task: Option<Task<RunContext>>,
    /// The job is claimed: nobody but this value may touch it.
    started: bool,
}

impl Work {
    pub(crate) fn new(task: Task<RunContext>) -> Self {
        Self {
            task: Some(task),
            started: false,
        }
    }

    /// A future that nobody waits for.
    pub(crate) fn future(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::new(Task::detached(Polled(future)))
    }

    /// Whether the work may block its thread.
    pub(crate) fn is_blocking(&self) -> bool {
        self.task.as_ref().is_some_and(Task::is_blocking)
    }

    /// Runs the work to its end on this thread, which it may block.
    pub fn run(self) {
        self.run_in(&mut RunContext::default());
    }

    /// As `run`, in a context; says how the work ended.
    pub(crate) fn run_in(mut self, context: &mut RunContext) -> Ran {
        if self.is_blocking() {
            return self
                .task
                .take()
                .map_or(Ran::Cancelled, |task| task.run(context));
        }
        let parker = Parker::new();
        let mut cx = Context::from_waker(parker.waker());
        loop {
            match self.advance(context, &mut cx) {
                Poll::Ready(ran) => return ran,
                Poll::Pending => parker.park(),
            }
        }
    }

    /// The task of work that nobody has polled yet.
    pub(crate) fn into_task(mut self) -> Result<Task<RunContext>, Self> {
        match self.task.take() {
            Some(task) if !self.started => Ok(task),
            task => {
                self.task = task;
                Err(self)
            }
        }
    }

    /// Polls a future for the first time, on this thread, with a waker that does nothing. Returns it if it is pending.
    pub(crate) fn poll_once(mut self) -> Option<Self> {
        let mut cx = Context::from_waker(Waker::noop());
        match self.advance(&mut RunContext::default(), &mut cx) {
            Poll::Ready(_) => None,
            Poll::Pending => Some(self),
        }
    }

    /// Ends the work, which goes no further: whoever waits for it is told why.
    pub(crate) fn reject(mut self, why: &'static str) {
        let Some(task) = self.task.take() else { return };
        let fault = Fault::rejected(io::Error::other(why));
        if self.started {
            // SAFETY: claimed at the first poll, and not used again.
            unsafe { task.fail_claimed(fault) };
        } else {
            task.fail(fault);
        }
    }

    fn advance(&mut self, context: &mut RunContext, cx: &mut Context<'_>) -> Poll<Ran> {
        let Some(task) = self.task.take() else {
            return Poll::Ready(Ran::Cancelled);
        };
        if !self.started && !task.claim() {
            return Poll::Ready(Ran::Cancelled);
        }
        self.started = true;
        // SAFETY: claimed above, now or at an earlier poll.
        match unsafe { task.poll_claimed_or_return(context, cx) } {
            Ok(ran) => Poll::Ready(ran),
            Err(task) => {
                self.task = Some(task);
                Poll::Pending
            }
        }
    }
}

impl Future for Work {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.advance(&mut RunContext::default(), cx).map(drop)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        if self.started {
            // SAFETY: claimed at the first poll, and not used again.
            unsafe { task.fail_claimed(Fault::cancelled()) };
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("started", &self.started)
            .field("ended", &self.task.is_none())
            .finish()
    }
}

/// What work is run on: a place in the room of a pool, or nothing.
#[derive(Default)]
pub(crate) struct RunContext {
    room: Option<Arc<Semaphore>>,
    /// The running job was not submitted: it has no place of its own, and is not counted.
    standing: bool,
    /// Told of a panic of a job that nobody waits for.
    unheard: Option<PanicHandler>,
    /// Counts the jobs that end here.
    tally: Option<Arc<Tally>>,
    /// Counts those that panic, and costs others nothing.
    panics: Option<Arc<Tally>>,
    /// The job runs on the thread of one who waits for it, and not on that of its runner.
    beside: bool,
    /// The task that the job should have run had been aborted.
    cancelled: bool,
}

/// The outcomes of the jobs of one thread. Only that thread writes to it.
///
/// A job is counted before its outcome is visible, so a caller that sees the outcome also sees the count.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Tally {
    returned: Number,
    panicked: Number,
    /// 1 while the thread runs a job.
    busy: Number,
}

impl Tally {
    pub(crate) fn returned(&self) -> u64 {
        self.returned.get() as u64
    }

    pub(crate) fn panicked(&self) -> u64 {
        self.panicked.get() as u64
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.get() > 0
    }

    /// The thread begins to run a job.
    #[inline]
    pub(crate) fn begin(&self) {
        self.busy.set(1);
    }

    /// It does not run it any more.
    #[inline]
    pub(crate) fn end(&self) {
        self.busy.set(0);
    }

    #[inline]
    fn count(&self, ran: Ran) {
        match ran {
            Ran::Returned => self.returned.add_own(1),
            Ran::Panicked => self.panicked.add_own(1),
            Ran::Cancelled => {}
        }
    }
}

/// What is told of panics that nobody else hears of.
pub(crate) type PanicHandler = StdArc<dyn Fn(Box<dyn Any + Send>) + Send + Sync>;

impl RunContext {
    /// A place that is given back when the job ends: before anybody can see its outcome, so that who
    /// waits for a task finds its place free.
    pub(crate) fn in_room(room: Arc<Semaphore>) -> Self {
        Self {
            room: Some(room),
            ..Self::default()
        }
    }

    /// Has a handler told of panics that nobody hears of.
    pub(crate) fn heard_by(self, handler: PanicHandler) -> Self {
        Self {
            unheard: Some(handler),
            ..self
        }
    }

    /// Counts the jobs that end here in `tally`.
    pub(crate) fn counted_by(self, tally: Arc<Tally>) -> Self {
        Self {
            tally: Some(tally),
            ..self
        }
    }

    /// Counts the jobs that panic here in `tally`.
    pub(crate) fn panics_counted_by(self, tally: Arc<Tally>) -> Self {
        Self {
            panics: Some(tally),
            ..self
        }
    }

    /// For a job that was not submitted, such as one that only runs another job: it gives no place back, and is
    /// not counted.
    pub(crate) fn stand(&mut self) {
        self.standing = true;
    }

    /// For a job that is run by who waits for it.
    pub(crate) fn beside(self) -> Self {
        Self {
            beside: true,
            ..self
        }
    }

    pub(crate) fn is_beside(&self) -> bool {
        self.beside
    }

    /// For a job that only runs another job, if that had been aborted: it is not counted elsewhere.
    pub(crate) fn note_cancelled(&mut self) {
        self.cancelled = true;
    }

    pub(crate) fn take_cancelled(&mut self) -> bool {
        std::mem::take(&mut self.cancelled)
    }
}

impl Lend for RunContext {
    #[inline]
    fn ended(&mut self, ran: Ran) {
        if std::mem::take(&mut self.standing) {
            return;
        }
        if let Some(tally) = &self.tally {
            tally.count(ran);
            if !self.beside {
                tally.end();
            }
        }
        if ran == Ran::Panicked
            && let Some(panics) = &self.panics
        {
            panics.count(ran);
        }
        if let Some(room) = &self.room {
            room.release();
        }
    }

    #[cold]
    fn unheard(&mut self, payload: Box<dyn Any + Send>) {
        match &self.unheard {
            Some(handler) => contain(|| handler(payload)),
            None => contain(|| drop(payload)),
        }
    }
}

/// A waker that unparks the thread which made it.
pub(super) struct Parker(Waker);

impl Parker {
    pub(super) fn new() -> Self {
        Self(Waker::from(StdArc::new(Unpark(thread::current()))))
    }

    pub(super) fn waker(&self) -> &Waker {
        &self.0
    }

    /// Returns once the waker was used, or before: the caller polls again.
    pub(super) fn park(&self) {
        thread::park();
    }
}

/// Blocks this thread until a future is ready (`true`), or the time is over.
pub(crate) fn wait_until(future: impl Future<Output = ()>, end: Option<Instant>) -> bool {
    let parker = Parker::new();
    let mut cx = Context::from_waker(parker.waker());
    let mut future = pin!(future);
    while future.as_mut().poll(&mut cx).is_pending() {
        match end {
            None => parker.park(),
            Some(end) if thread::park_until(end) => {
                return future.as_mut().poll(&mut cx).is_ready();
            }
            Some(_) => {}
        }
    }
    true
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: StdArc<Self>) {
        self.0.unpark();
    }
}
