//! [`WeakSerialExecutor`]: a handle that does not keep the executor alive.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::core::Core;
use super::executor::SerialExecutor;
use crate::sync::{Arc, Weak};

/// A handle of a [`SerialExecutor`] that does not keep the state alive. See [`SerialExecutor::downgrade`].
pub struct WeakSerialExecutor<S> {
    core: Weak<Core<S>>,
}

impl<S> SerialExecutor<S> {
    /// Returns a handle that does not keep the state alive.
    ///
    /// A state that refers to its own executor, as an actor does that sends messages to itself, needs one: with a
    /// strong handle it would never be dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    ///
    /// let executor = SerialExecutor::new(7);
    /// let weak = executor.downgrade();
    /// assert_eq!(weak.upgrade().unwrap().try_run(|n| *n).unwrap(), 7);
    ///
    /// drop(executor);
    /// assert!(weak.upgrade().is_none());
    /// ```
    pub fn downgrade(&self) -> WeakSerialExecutor<S> {
        WeakSerialExecutor {
            core: Arc::downgrade(&self.core),
        }
    }
}

impl<S> WeakSerialExecutor<S> {
    /// Returns a handle of the executor, or `None` if its state has been dropped.
    ///
    /// The state is dropped when there is no handle any more and the accepted jobs have ended.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let executor = throng::SerialExecutor::new(7);
    /// let weak = executor.downgrade();
    /// let again = weak.upgrade().expect("a handle exists");
    /// assert_eq!(again.submit(|n| *n).await?, 7);
    /// # Ok(()) }
    /// ```
    pub fn upgrade(&self) -> Option<SerialExecutor<S>> {
        let core = self.core.upgrade()?;
        Some(SerialExecutor { core })
    }
}

impl<S> Clone for WeakSerialExecutor<S> {
    fn clone(&self) -> Self {
        Self {
            core: Weak::clone(&self.core),
        }
    }
}

// As for `SerialExecutor`.
impl<S> UnwindSafe for WeakSerialExecutor<S> {}
impl<S> RefUnwindSafe for WeakSerialExecutor<S> {}

impl<S> fmt::Debug for WeakSerialExecutor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakSerialExecutor").finish_non_exhaustive()
    }
}
