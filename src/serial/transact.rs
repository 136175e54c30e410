//! Transactions: jobs whose changes are rolled back if they fail.
//!
//! They run on the state itself, not on a copy. All code of the user runs under `catch_unwind`, because a drop that
//! panics while another panic unwinds would end the process.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::core::Lent;
use super::executor::SerialExecutor;
use super::job::Run;
use super::level::Level;
use crate::join::JoinHandle;
use crate::unwind::contain;

/// A state that can be rolled back, as [`SerialExecutor::transact`] needs it.
///
/// [`ByClone`] implements it for any state that is [`Clone`]. If a copy is expensive, record how to undo each change
/// instead.
///
/// # Examples
///
/// ```
/// use std::collections::HashMap;
/// use throng::SerialExecutor;
/// use throng::serial::Checkpoint;
///
/// #[derive(Default)]
/// struct Stock {
///     pieces: HashMap<&'static str, u32>,
///     /// The values that were replaced since the checkpoint.
///     undo: Vec<(&'static str, Option<u32>)>,
/// }
///
/// impl Stock {
///     fn set(&mut self, item: &'static str, pieces: u32) {
///         let before = self.pieces.insert(item, pieces);
///         self.undo.push((item, before));
///     }
/// }
///
/// impl Checkpoint for Stock {
///     type Saved = ();
///
///     fn save(&mut self) {
///         self.undo.clear();
///     }
///
///     fn restore(&mut self, (): ()) {
///         while let Some((item, before)) = self.undo.pop() {
///             match before {
///                 Some(pieces) => self.pieces.insert(item, pieces),
///                 None => self.pieces.remove(item),
///             };
///         }
///     }
/// }
///
/// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
/// let stock = SerialExecutor::new(Stock::default());
/// let sold = stock.transact(|stock| {
///     stock.set("bolt", 7);
///     Err::<(), _>("no nuts")
/// });
/// assert_eq!(sold.await?, Err("no nuts"));
/// assert!(stock.submit(|stock| stock.pieces.is_empty()).await?);
/// # Ok(()) }
/// ```
pub trait Checkpoint {
    /// The type that [`save`](Self::save) returns. The value is dropped if the transaction succeeds.
    type Saved;

    /// Called before each transaction. It may change what is not visible, such as an undo log.
    ///
    /// If it panics, the job does not run, and its handle ends with [`is_panic`](crate::JoinError::is_panic). The state
    /// is not poisoned: a `save` that panics must leave it unchanged.
    ///
    /// # Examples
    ///
    /// See [`Checkpoint`].
    fn save(&mut self) -> Self::Saved;

    /// Restores the state as it was when `saved` was created.
    ///
    /// If it panics, the state is poisoned, even with
    /// [`poison_on_panic(false)`](super::Builder::poison_on_panic), and the handle of the job ends with
    /// this panic.
    ///
    /// # Examples
    ///
    /// See [`Checkpoint`].
    fn restore(&mut self, saved: Self::Saved);
}

/// Implements [`Checkpoint`] by cloning the state before each transaction.
///
/// # Examples
///
/// ```
/// use throng::SerialExecutor;
/// use throng::serial::ByClone;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let list = SerialExecutor::new(ByClone(vec![1, 2]));
/// let failed = list.transact(|list| {
///     list.clear();
///     Err::<(), _>("not today")
/// });
/// assert_eq!(failed.await?, Err("not today"));
/// let list = list.into_inner().await.expect("the state is not poisoned");
/// assert_eq!(list.0, [1, 2]);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByClone<S>(
    /// The state.
    pub S,
);

impl<S: Clone> Checkpoint for ByClone<S> {
    type Saved = S;

    fn save(&mut self) -> S {
        self.0.clone()
    }

    fn restore(&mut self, saved: S) {
        self.0 = saved;
    }
}

impl<S> Deref for ByClone<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S> DerefMut for ByClone<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0
    }
}

impl<S> From<S> for ByClone<S> {
    fn from(state: S) -> Self {
        Self(state)
    }
}

impl<S: Checkpoint + Send + 'static> SerialExecutor<S> {
    /// Runs a job as [`submit`](Self::submit) does, and rolls the state back if the job returns `Err` or panics.
    ///
    /// The job runs on the state itself, between [`Checkpoint::save`] and, if it fails, [`Checkpoint::restore`]. No other
    /// job sees the state in between. A panic does not poison the state, because it is restored: the handle ends with the
    /// panic, and later jobs run. Jobs that are submitted inside the transaction are not part of it, and run even if it
    /// fails.
    ///
    /// # Errors
    ///
    /// The handle ends as that of [`submit`](Self::submit). `Ok(Err(..))` is an error that the job returned.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    /// use throng::serial::ByClone;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let accounts = SerialExecutor::new(ByClone([100_u32, 0]));
    /// let transfer = accounts.transact(|accounts| {
    ///     accounts[1] += 120;
    ///     accounts[0] = accounts[0].checked_sub(120).ok_or("too little")?;
    ///     Ok(())
    /// });
    /// assert_eq!(transfer.await?, Err("too little"));
    /// assert_eq!(accounts.submit(|accounts| **accounts).await?, [100, 0]);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn transact<F, R, E>(&self, job: F) -> JoinHandle<Result<R, E>>
    where
        F: FnOnce(&mut S) -> Result<R, E> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        self.run_or_queue(Level::NORMAL, Transaction(job))
    }
}

/// A job whose changes are rolled back if it fails.
struct Transaction<F>(F);

impl<S, F, R, E> Run<S> for Transaction<F>
where
    S: Checkpoint,
    F: FnOnce(&mut S) -> Result<R, E> + Send + 'static,
    R: Send + 'static,
    E: Send + 'static,
{
    type Output = Result<R, E>;

    fn run(self, lent: &mut Lent<S>) -> Result<R, E> {
        lent.transact(self.0)
    }
}

impl<S: Checkpoint> Lent<S> {
    /// Runs a job as a transaction. A panic is propagated after the state is restored.
    #[inline]
    fn transact<R, E>(&mut self, job: impl FnOnce(&mut S) -> Result<R, E>) -> Result<R, E> {
        match self.run(|state| attempt(state, job)) {
            Ok(result) => result,
            Err(failed) => {
                self.core().counters.panicked.add(1);
                if !failed.restored {
                    self.core().poison();
                }
                resume_unwind(failed.payload)
            }
        }
    }
}

/// A transaction that panicked.
struct Failed {
    payload: Box<dyn Any + Send>,
    /// The state was restored.
    restored: bool,
}

/// Runs a job between `save` and `restore`. Does not unwind.
fn attempt<S, R, E>(
    state: &mut S,
    job: impl FnOnce(&mut S) -> Result<R, E>,
) -> Result<Result<R, E>, Failed>
where
    S: Checkpoint,
{
    let saved = match caught(|| state.save()) {
        Ok(saved) => saved,
        Err(payload) => {
            contain(|| drop(job));
            return Err(Failed {
                payload,
                restored: true,
            });
        }
    };
    let ended = caught(|| job(state));
    if let Ok(Ok(_)) = ended {
        contain(|| drop(saved));
    } else if let Err(payload) = caught(|| state.restore(saved)) {
        contain(|| drop(ended));
        return Err(Failed {
            payload,
            restored: false,
        });
    }
    ended.map_err(|payload| Failed {
        payload,
        restored: true,
    })
}

fn caught<R>(f: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(f))
}
