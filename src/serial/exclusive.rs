//! Jobs that have the state across await points.
//!
//! Such a job is a future in a cell, as any task, and is queued as a closure is. When it is its turn,
//! the owner keeps it beside the queue and polls it, before anything else, until it has ended. It polls
//! it only where it can wait: in a drain on a runtime or a pool. So a submitter that has captured it
//! hands the queue over, and a submitter that stops polling its handle holds nobody up.
//!
//! The job has the state through its [`Exclusive`], which may go elsewhere and stay there when the
//! future has ended. What the two agree on is one word:
//!
//! | word | meaning | set by |
//! |---|---|---|
//! | `FREE` | nobody but the owner has the state | the `Exclusive`, when it is dropped |
//! | `HELD` | there is an `Exclusive`; the owner waits for it | the owner, when it makes it |
//! | `ORPHANED` | there is an `Exclusive`, and the owner's ownership is now its own | the owner, when its drain is dropped |

use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::SerialExecutor;
use super::core::{Core, Owner, Queued, THERE};
use super::drain::Target;
use super::queue::Level;
use super::submit::{Place, not_entered};
use crate::join::{ExecutorScope, JoinHandle};
use crate::sync::thread::panicking;
use crate::sync::{Arc, AtomicBool, AtomicU32, Mutex, Ordering, UnsafeCell, lock};
use crate::task::{Fault, Polled, Task};
use crate::waker::WakerCell;

const FREE: u32 = 0;
const HELD: u32 = 1;
const ORPHANED: u32 = 2;

/// The state of a [`SerialExecutor`], for as long as this value exists: what a job of
/// [`submit_async`](SerialExecutor::submit_async) is given.
///
/// The state is given free when this is dropped, never earlier, wherever it went: a job may move it
/// into another task or to another thread. No other job runs before that, also when the job that was
/// given it has ended. If it is leaked, the executor is busy for ever.
///
/// If it is dropped by a panic, [`OnPanic`](super::OnPanic) is followed, as for a job that panics. If the
/// runtime that polled the job was shut down meanwhile, what has come since is handed over as by
/// [`post`](SerialExecutor::post), when this is dropped, or cancelled: no job runs in the drop.
///
/// It is [`Send`] if the state is, and [`Sync`] only if the state is:
///
/// ```
/// fn shared<T: Sync>() {}
/// shared::<throng::serial::Exclusive<u8>>();
/// ```
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<throng::serial::Exclusive<std::cell::Cell<u8>>>();
/// ```
///
/// ```
/// fn sent<T: Send>() {}
/// sent::<throng::serial::Exclusive<std::cell::Cell<u8>>>();
/// ```
///
/// ```compile_fail,E0277
/// fn sent<T: Send>() {}
/// sent::<throng::serial::Exclusive<std::rc::Rc<u8>>>();
/// ```
#[must_use = "the state is given free when this is dropped"]
pub struct Exclusive<S: Send + 'static> {
    core: Arc<Core<S>>,
    /// A panic was under way when this was made: it is not about this.
    panicking: bool,
    /// Shared as a state is, and not as an executor is.
    state: PhantomData<S>,
}

impl<S: Send + 'static> Exclusive<S> {
    /// The caller owns the executor, waits until this is dropped, and runs no job meanwhile.
    fn new(core: Arc<Core<S>>) -> Self {
        // Relaxed is enough: the owner sets it, and whoever gets this value has it from the owner.
        core.turn.lease.store(HELD, Ordering::Relaxed);
        Self {
            core,
            panicking: panicking(),
            state: PhantomData,
        }
    }
}

impl<S: Send + 'static> Deref for Exclusive<S> {
    type Target = S;

    fn deref(&self) -> &S {
        // SAFETY: while this value exists the owner of the executor does not touch the state, and
        // `&mut self` is needed to change it.
        self.core
            .state
            .with(|state| unsafe { (*state).as_ref() })
            .expect(THERE)
    }
}

impl<S: Send + 'static> DerefMut for Exclusive<S> {
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: as above; `&mut self` shows that nobody has a reference from this value.
        self.core
            .state
            .with_mut(|state| unsafe { (*state).as_mut() })
            .expect(THERE)
    }
}

impl<S: Send + 'static> Drop for Exclusive<S> {
    fn drop(&mut self) {
        if panicking() && !self.panicking {
            self.core.poison_if_asked();
        }
        let turn = &self.core.turn;
        // Ordering: Release publishes what was done to the state to the Acquire of `is_held` and of
        // `orphan`; Acquire pairs with the Release of `orphan`, for whoever is now the owner.
        if turn.lease.swap(FREE, Ordering::AcqRel) == ORPHANED {
            // SAFETY: the owner has put its ownership down for this value.
            unsafe { Owner::resume(&self.core) }.leave();
        } else {
            turn.waker.wake();
        }
    }
}

impl<S: fmt::Debug + Send + 'static> fmt::Debug for Exclusive<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<S: Send + 'static> SerialExecutor<S> {
    /// Queues a job that has the state across await points.
    ///
    /// The closure gets the state as a guard, and makes a future, which is polled where the queue is
    /// handed over to: in a task of the submitter's runtime, or of what
    /// [`drain_on`](super::Builder::drain_on) says, never on this thread before `submit_async` returns,
    /// and never by the handle. So a caller may stop polling the handle, or drop it: the job goes on. A
    /// pool for jobs that block lends it a thread until it has ended.
    ///
    /// The next job runs when the future has ended and the guard was dropped. Until then others wait, in
    /// the order in which they came: while a job waits for a slow server, so does everybody else. It must
    /// not wait for another job of its own executor, which waits for it. A job that is aborted leaves the
    /// state as it is at the await point that it had come to.
    ///
    /// # Errors
    ///
    /// The handle ends as that of [`post`](Self::post): with
    /// [`is_rejected`](crate::JoinError::is_rejected) if there is nothing to hand over to, when it is
    /// submitted or when its turn has come. A panic of the closure or of the future is treated as that
    /// of any job.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (client, mut server) = tokio::io::duplex(64);
    /// # tokio::spawn(async move {
    /// #     let mut request = [0; 4];
    /// #     server.read_exact(&mut request).await?;
    /// #     server.write_all(b"pong").await
    /// # });
    /// let connection = SerialExecutor::new(client);
    /// // No other request is written before this one has been answered.
    /// let answer = connection.submit_async(|mut connection| async move {
    ///     connection.write_all(b"ping").await?;
    ///     let mut answer = [0; 4];
    ///     connection.read_exact(&mut answer).await?;
    ///     std::io::Result::Ok(answer)
    /// });
    /// assert_eq!(&answer.await??, b"pong");
    /// # Ok(()) }
    /// ```
    pub fn submit_async<F, Fut>(&self, job: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce(Exclusive<S>) -> Fut + Send + 'static,
        Fut: Future<Output: Send> + Send + 'static,
    {
        let place = match self.enter().transpose() {
            Ok(place) => place,
            Err(no_room) => return JoinHandle::failed(not_entered(job, no_room).drop_task()),
        };
        self.core.turn.comes_from_here();
        let target = self.target();
        let core = Arc::clone(&self.core);
        let guarded = Guarded {
            core: Arc::clone(&core),
            future: async move { job(Exclusive::new(core)).await },
            place,
        };
        let (task, watch) = Task::joinable_with_bits(Level::NORMAL.mark(), Polled(guarded));
        if let Err((task, why)) = self.post_to(Level::NORMAL, task, target) {
            task.fail(why.into_fault());
        }
        self.handle(Ok(watch))
    }
}

/// The future of a job: its panic is the executor's business before its handle is told.
struct Guarded<S, F> {
    core: Arc<Core<S>>,
    future: F,
    /// Given back when the job begins; or dropped after it: who learns of the free place finds the
    /// captures gone.
    place: Option<Place>,
}

impl<S, F: Future> Future for Guarded<S, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future stays where it is; the other fields need not.
        let (core, future, place) = unsafe {
            let this = self.get_unchecked_mut();
            (
                &this.core,
                Pin::new_unchecked(&mut this.future),
                &mut this.place,
            )
        };
        drop(place.take());
        core.guard(|| future.poll(cx))
    }
}

/// What an executor knows of the job whose turn it is, if that is one that may wait.
pub(super) struct Turn<S> {
    /// The owner's: the job, until its future has ended.
    job: UnsafeCell<Option<Waiting<S>>>,
    /// Who has the state: see the module.
    lease: AtomicU32,
    /// The drain's, while the future has ended and the state is held.
    waker: WakerCell,
    /// What the queue was handed over to has refused it: nobody waits. Written by the owner, and read
    /// by the drain to which it hands over.
    refused: AtomicBool,
    /// Where the last such job came from. Who comes to it may be a thread without a runtime.
    runtime: Mutex<Option<Handle>>,
}

/// A job that has begun, or is the next to begin.
struct Waiting<S> {
    task: Queued<S>,
    begun: bool,
}

impl<S> Turn<S> {
    pub(super) fn new() -> Self {
        Self {
            job: UnsafeCell::new(None),
            lease: AtomicU32::new(FREE),
            waker: WakerCell::new(),
            refused: AtomicBool::new(false),
            runtime: Mutex::new(None),
        }
    }

    /// A job that may wait is submitted on this thread.
    fn comes_from_here(&self) {
        if let Ok(here) = Handle::try_current() {
            let before = lock(&self.runtime).replace(here);
            drop(before);
        }
    }

    /// The runtime that the last job came from which may wait.
    pub(super) fn runtime(&self) -> Option<Handle> {
        lock(&self.runtime).clone()
    }

    /// Says whether the drain that is handed over, or runs next, has been refused.
    pub(super) fn set_refused(&self, refused: bool) {
        // Relaxed is enough: the drain is handed over by what publishes more than this.
        self.refused.store(refused, Ordering::Relaxed);
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    fn is_held(&self) -> bool {
        // Ordering: Acquire pairs with the Release of the drop of an `Exclusive`.
        self.lease.load(Ordering::Acquire) != FREE
    }
}

/// Who drains, which says what becomes of a job that may wait.
pub(super) enum By<'a, 'b> {
    /// A submitter, who will hand over: it is left to that.
    Captor,
    /// Somebody who must not wait, and cannot hand over: it is refused.
    Last,
    /// A task, or a thread of a pool: it is polled.
    Drain(&'a mut Context<'b>),
}

impl<S> Owner<'_, S> {
    /// Makes it the turn of a job that may wait.
    pub(super) fn set_turn(&mut self, task: Queued<S>) {
        let begun = false;
        self.with_turn(|job| *job = Some(Waiting { task, begun }));
    }

    /// Whether it is the turn of a job that may wait.
    pub(super) fn is_suspended(&mut self) -> bool {
        self.with_turn(|job| job.is_some()) || self.core().turn.is_held()
    }

    /// Does for the job whose turn it is what can be done now; `true`: its turn is over.
    pub(super) fn tick(&mut self, by: &mut By<'_, '_>) -> bool {
        if !self.is_suspended() {
            return true;
        }
        match by {
            By::Captor => false,
            By::Last => {
                self.end_turn(|| Fault::rejected(io::Error::other(NOWHERE)));
                // Nobody who must not wait begins such a job, so no guard is out.
                !self.core().turn.is_held()
            }
            By::Drain(cx) => self.poll_turn(cx).is_ready(),
        }
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(job) = self.with_turn(Option::take)
            && let Err(job) = self.advance(job, cx)
        {
            self.with_turn(|turn| *turn = Some(job));
            return Poll::Pending;
        }
        let turn = &self.core().turn;
        if turn.is_held() {
            turn.waker.register(cx.waker());
            if turn.is_held() {
                return Poll::Pending;
            }
            // Nobody will use it, and it keeps the task alive.
            turn.waker.clear();
        }
        Poll::Ready(())
    }

    /// Runs a job as far as it goes; hands it back if it waits.
    fn advance(&mut self, job: Waiting<S>, cx: &mut Context<'_>) -> Result<(), Waiting<S>> {
        let Waiting { task, begun } = job;
        if !begun && self.core().is_poisoned() {
            task.fail(Fault::poisoned());
            return Ok(());
        }
        if !begun && !task.claim() {
            return Ok(());
        }
        // SAFETY: claimed above, now or at an earlier poll.
        match unsafe { task.poll_claimed_or_return(&mut self.lent(), cx) } {
            Ok(_) => Ok(()),
            Err(task) => Err(Waiting { task, begun: true }),
        }
    }

    /// Ends the job whose turn it is, and drops its future.
    pub(super) fn end_turn(&mut self, why: impl FnOnce() -> Fault) {
        match self.with_turn(Option::take) {
            // SAFETY: claimed when it began.
            Some(Waiting { task, begun: true }) => unsafe { task.fail_claimed(why()) },
            Some(Waiting { task, .. }) => drop(task.fail(why())),
            None => {}
        }
    }

    /// Leaves the ownership to the `Exclusive` that has the state; `false`: there is none.
    pub(super) fn orphan(&mut self) -> bool {
        // Ordering: Release hands what the owner did over to the Acquire of the drop of the
        // `Exclusive`; Acquire pairs with the Release of that drop, if it came first.
        let orphaned = self.core().turn.lease.compare_exchange(
            HELD,
            ORPHANED,
            Ordering::Release,
            Ordering::Acquire,
        );
        orphaned.is_ok()
    }

    fn with_turn<R>(&mut self, f: impl FnOnce(&mut Option<Waiting<S>>) -> R) -> R {
        // SAFETY: it is the owner's, and `f` does not reach it otherwise: none runs jobs.
        self.core().turn.job.with_mut(|job| f(unsafe { &mut *job }))
    }
}

impl<S: Send + 'static> Owner<'_, S> {
    /// Gives the executor free, or leaves what is queued to whoever takes it: not to this thread, on
    /// which a value is being dropped.
    fn leave(self) {
        self.core().cost.resume();
        let Err(owner) = self.release() else { return };
        match Target::of(owner.core()) {
            Some(target) => drop(owner.hand_over(&target)),
            None => {
                // What is cancelled must not wait for the executor.
                let _inside = ExecutorScope::drain(owner.core().name());
                drop(owner);
            }
        }
    }
}

/// Why a job that needs somebody to run it was rejected.
pub(super) const NOWHERE: &str =
    "a job that cannot run on its submitter's thread needs a Tokio runtime, or `drain_on`";

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
