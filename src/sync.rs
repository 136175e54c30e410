//! The one file that names atomics, cells, locks and threads.
//!
//! All other files take them from here, so that the same code runs on the standard library, under [loom](https://docs.rs/loom) (`--cfg throng_loom`) and under
//! [shuttle](https://docs.rs/shuttle) (`--cfg throng_shuttle`). The cfgs are private to the crate:
//! the global `--cfg loom` would change our dependencies too.

#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
mod imp {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard, Weak};
    pub(crate) use std::thread_local;
    pub(crate) use tokio::sync::Notify;

    pub(crate) mod thread {
        use std::time::Instant;

        pub(crate) use std::thread::{
            Builder, Thread, available_parallelism, current, panicking, park,
        };

        /// Parks until `deadline`, or until unparked, or for less. Returns `true` if the deadline has passed.
        pub(crate) fn park_until(deadline: Instant) -> bool {
            let left = deadline.saturating_duration_since(Instant::now());
            std::thread::park_timeout(left);
            Instant::now() >= deadline
        }
    }
}

#[cfg(all(test, throng_loom))]
mod imp {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use loom::thread_local;

    pub(crate) mod thread {
        pub(crate) use loom::thread::{Builder, Thread, current, park};
        pub(crate) use std::thread::{available_parallelism, panicking};

        /// Loom has no time. A time-out may come at any point, and the scheduler explores where it comes relative to the
        /// steps of other threads: so this returns at once. It does not yield, after which loom would let another thread
        /// take a step first.
        pub(crate) fn park_until(_: std::time::Instant) -> bool {
            true
        }
    }
}

#[cfg(all(test, throng_shuttle, not(throng_loom)))]
mod imp {
    pub(crate) use shuttle::hint::spin_loop;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
    pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use shuttle::thread_local;
    pub(crate) use tokio::sync::Notify;

    pub(crate) mod thread {
        pub(crate) use shuttle::thread::{Builder, Thread, current, park};
        pub(crate) use std::thread::{available_parallelism, panicking};

        /// Shuttle has no time either. Here this yields: idle threads should last a while, so that some tasks find one.
        pub(crate) fn park_until(_: std::time::Instant) -> bool {
            shuttle::thread::yield_now();
            true
        }
    }
}

pub(crate) use imp::*;

/// A thread-local that has a constant initial value and needs no destructor: access costs as much as to a static. The
/// models have no such form.
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
macro_rules! plain_thread_local {
    (static $name:ident: $type:ty = $value:expr;) => {
        std::thread_local! {
            static $name: $type = const { $value };
        }
    };
}

#[cfg(all(test, any(throng_loom, throng_shuttle)))]
macro_rules! plain_thread_local {
    (static $name:ident: $type:ty = $value:expr;) => {
        $crate::sync::thread_local! {
            static $name: $type = $value;
        }
    };
}

pub(crate) use plain_thread_local;

/// `true` in a model, which has few steps and no time.
pub(crate) const MODEL: bool = cfg!(all(test, any(throng_loom, throng_shuttle)));

/// Makes a value that holds a weak reference to itself.
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
pub(crate) fn cyclic<T>(make: impl FnOnce(Weak<T>) -> T) -> Arc<T> {
    Arc::new_cyclic(|this| make(Weak::clone(this)))
}

#[cfg(all(test, any(throng_loom, throng_shuttle)))]
pub(crate) fn cyclic<T>(make: impl FnOnce(Weak<T>) -> T) -> Arc<T> {
    Arc::new(make(Weak(std::marker::PhantomData)))
}

/// A stand-in for models, which have none: it acts as if its value had been dropped.
#[cfg(all(test, any(throng_loom, throng_shuttle)))]
pub(crate) struct Weak<T>(std::marker::PhantomData<fn() -> T>);

#[cfg(all(test, any(throng_loom, throng_shuttle)))]
impl<T> Clone for Weak<T> {
    fn clone(&self) -> Self {
        Self(std::marker::PhantomData)
    }
}

#[cfg(all(test, any(throng_loom, throng_shuttle)))]
impl<T> Weak<T> {
    #[allow(
        clippy::unused_self,
        reason = "the signature is that of the standard library"
    )]
    pub(crate) fn upgrade(&self) -> Option<Arc<T>> {
        None
    }
}

use std::sync::atomic::AtomicUsize as StdAtomic;

#[cfg(all(test, throng_loom))]
std::thread_local! {
    /// Set while the model on this thread recycles cells.
    pub(crate) static RECYCLING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Tokio's `Notify`, with a step before each operation that loom sees: a point at which other threads may run, with the
/// ordering of Tokio's own atomics.
#[cfg(all(test, throng_loom))]
#[derive(Debug, Default)]
pub(crate) struct Notify {
    inner: tokio::sync::Notify,
    steps: AtomicUsize,
}

#[cfg(all(test, throng_loom))]
impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notified(&self) -> tokio::sync::futures::Notified<'_> {
        self.step().notified()
    }

    pub(crate) fn notify_one(&self) {
        self.step().notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        self.step().notify_waiters();
    }

    fn step(&self) -> &tokio::sync::Notify {
        // Ordering: AcqRel, each operation with the next, as Tokio's are sequentially consistent.
        self.steps.fetch_add(1, Ordering::AcqRel);
        &self.inner
    }
}

/// Locks `mutex`, also if a thread panicked while it held the lock.
///
/// No lock of this crate is held while user code runs, so a poisoned lock means that the process is out of memory or that
/// this crate has a bug. In both cases it is better to go on.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A value that gives no access through a shared reference, and is therefore `Sync` whatever its type is.
pub(crate) struct Unshared<T>(T);

// SAFETY: a shared reference to it gives no access to the value.
unsafe impl<T> Sync for Unshared<T> {}

impl<T> Unshared<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }

    #[inline]
    pub(crate) fn into_inner(self) -> T {
        self.0
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A number that publishes nothing: an id, a count or an estimate. For models, an access is not a step; and unlike their
/// atomics, it can be a static.
#[derive(Debug, Default)]
pub(crate) struct Number(StdAtomic);

impl Number {
    pub(crate) const fn new(number: usize) -> Self {
        Self(StdAtomic::new(number))
    }

    #[inline]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, number: usize) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Adds, and returns the previous number.
    #[inline]
    pub(crate) fn add(&self, number: usize) -> usize {
        self.0.fetch_add(number, Ordering::Relaxed)
    }

    /// Subtracts, and returns the previous number.
    #[inline]
    pub(crate) fn subtract(&self, number: usize) -> usize {
        self.0.fetch_sub(number, Ordering::Relaxed)
    }

    /// Adds to a number that only this thread changes, which is cheaper.
    #[inline]
    pub(crate) fn add_own(&self, number: usize) {
        self.set(self.get().wrapping_add(number));
    }
}

/// A cell whose accesses loom can check: a closure has the pointer while it runs.
#[cfg(not(all(test, throng_loom)))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T: ?Sized>(std::cell::UnsafeCell<T>);

#[cfg(not(all(test, throng_loom)))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Lends a pointer for reading.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Lends a pointer for reading and writing.
    #[inline]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

#[cfg(all(test, throng_loom))]
pub(crate) use loom::cell::UnsafeCell;

/// A plain number for models: loom reports accesses that are not ordered by synchronisation.
#[cfg(all(test, throng_loom))]
#[derive(Debug)]
pub(crate) struct Plain(UnsafeCell<u32>);

// SAFETY: the models check that this does not race; loom panics if it does.
#[cfg(all(test, throng_loom))]
unsafe impl Sync for Plain {}

#[cfg(all(test, throng_loom))]
impl Plain {
    pub(crate) fn new(number: u32) -> Self {
        Self(UnsafeCell::new(number))
    }

    pub(crate) fn get(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|number| unsafe { *number })
    }

    pub(crate) fn add(&self, n: u32) {
        // SAFETY: as above.
        self.0.with_mut(|number| unsafe { *number += n });
    }
}
