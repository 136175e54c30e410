//! [`Exclusive`]: the guard that gives an asynchronous job the state. See `suspended` for its protocol.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::core::{Core, STATE_EXISTS};
use super::owner::Owner;
use super::target::Target;
use crate::join::ExecutorScope;
use crate::sync::Arc;
use crate::sync::thread::panicking;

/// The state of a [`SerialExecutor`](crate::SerialExecutor) while this guard exists. A job of
/// [`submit_async`](crate::SerialExecutor::submit_async) receives one.
///
/// The state is released when the guard is dropped, never earlier. A job may move its guard to another task or
/// thread: no other job runs before the guard is dropped, even if its own job has ended. If the guard is leaked, the
/// executor stays busy forever.
///
/// If a panic drops the guard, the state is poisoned, as if a job had panicked. If the runtime that
/// polled the job was shut down meanwhile, the drop of the guard hands over what was queued since, as
/// [`post`](crate::SerialExecutor::post) does, or aborts it if there is nothing to hand over to. No job runs inside
/// the drop.
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
#[must_use = "the state is released when the guard is dropped"]
pub struct Exclusive<S: Send + 'static> {
    core: Arc<Core<S>>,
    /// The thread was panicking already when the guard was created.
    was_panicking: bool,
    /// Shared as a state is, and not as an executor is.
    state: PhantomData<S>,
}

impl<S: Send + 'static> Exclusive<S> {
    /// Creates the guard of the job that runs. The caller owns the executor, waits until the guard is dropped, and
    /// runs no job meanwhile.
    pub(super) fn new(core: Arc<Core<S>>) -> Self {
        core.suspended.hold();
        Self {
            core,
            was_panicking: panicking(),
            state: PhantomData,
        }
    }
}

impl<S: Send + 'static> Deref for Exclusive<S> {
    type Target = S;

    fn deref(&self) -> &S {
        // SAFETY: while the guard exists, the owner of the executor does not touch the state, and `&mut self` is
        // needed to change it.
        self.core
            .state
            .with(|state| unsafe { (*state).as_ref() })
            .expect(STATE_EXISTS)
    }
}

impl<S: Send + 'static> DerefMut for Exclusive<S> {
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: as above; `&mut self` shows that there is no other reference from this guard.
        self.core
            .state
            .with_mut(|state| unsafe { (*state).as_mut() })
            .expect(STATE_EXISTS)
    }
}

impl<S: Send + 'static> Drop for Exclusive<S> {
    fn drop(&mut self) {
        if panicking() && !self.was_panicking {
            self.core.apply_on_panic();
        }
        if self.core.suspended.release() {
            // SAFETY: the owner has put its ownership down for this guard.
            unsafe { Owner::resume(&self.core) }.release_or_hand_over();
        }
    }
}

impl<S: Send + 'static> Owner<'_, S> {
    /// Releases the executor, or hands over what is queued: no job may run on a thread that drops a guard.
    fn release_or_hand_over(self) {
        self.core().cost.resume();
        let Err(owner) = self.release() else { return };
        match Target::of(owner.core()) {
            Some(target) => drop(owner.hand_over(&target)),
            None => {
                // A drop of an aborted job must not wait for the executor.
                let _inside = ExecutorScope::drain(owner.core().id());
                drop(owner);
            }
        }
    }
}

impl<S: fmt::Debug + Send + 'static> fmt::Debug for Exclusive<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
