//! Jobs that leave no trace if they fail: the state is rolled back.
//!
//! They run on the state itself, not on a draft of it, and everything of the user's runs under a net:
//! what is dropped when a job has failed must not panic while a panic is under way.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::core::Lent;
use super::executor::SerialExecutor;
use super::job::Run;
use super::level::Level;
use crate::join::JoinHandle;
use crate::unwind::contain;

/// A state that can be brought back to how it was: what [`SerialExecutor::transact`] needs.
///
/// [`ByClone`] makes one of any state that is [`Clone`]. Where a copy is dear, write down what undoes
/// each change instead:
///
/// ```
/// use std::collections::HashMap;
/// use throng::SerialExecutor;
/// use throng::serial::Checkpoint;
///
/// #[derive(Default)]
/// struct Stock {
///     pieces: HashMap<&'static str, u32>,
///     /// What each change since the checkpoint has replaced.
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
    /// What [`save`](Self::save) keeps. It is dropped if the transaction succeeds.
    type Saved;

    /// Called before each transaction. It may change what nobody sees, as a log of what to undo.
    ///
    /// If it panics, the job does not run, and its handle says
    /// [`is_panic`](crate::JoinError::is_panic). The state is not poisoned: a `save` that panics must
    /// leave it as it was.
    fn save(&mut self) -> Self::Saved;

    /// Brings the state back to how it was when `saved` was made.
    ///
    /// If it panics, the state is poisoned, whatever [`OnPanic`](super::OnPanic) says, and the job's
    /// handle tells of this panic.
    fn restore(&mut self, saved: Self::Saved);
}

/// Makes a [`Checkpoint`] of a state by cloning it before each transaction.
///
/// ```
/// use throng::SerialExecutor;
/// use throng::serial::ByClone;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let list = SerialExecutor::new(ByClone::new(vec![1, 2]));
/// let failed = list.transact(|list| {
///     list.clear();
///     Err::<(), _>("not today")
/// });
/// assert_eq!(failed.await?, Err("not today"));
/// assert_eq!(list.into_inner().await?.into_inner(), [1, 2]);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByClone<S>(S);

impl<S> ByClone<S> {
    /// Wraps a state.
    pub fn new(state: S) -> Self {
        Self(state)
    }

    /// The state.
    pub fn into_inner(self) -> S {
        self.0
    }
}

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
    /// Runs a job as [`submit`](Self::submit) does; if it returns `Err` or panics, the state is rolled
    /// back to how it was before.
    ///
    /// The job runs on the state itself, between [`Checkpoint::save`] and, if it fails,
    /// [`Checkpoint::restore`]. Nobody sees the state in between. A panic poisons nothing, as the state
    /// is whole again: the handle tells of it, and later jobs run. Jobs that are submitted from inside
    /// are not part of the transaction, and run whatever becomes of it.
    ///
    /// # Errors
    ///
    /// The handle ends as that of [`submit`](Self::submit); `Ok(Err(..))` is what the job returned.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    /// use throng::serial::ByClone;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let accounts = SerialExecutor::new(ByClone::new([100_u32, 0]));
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

    /// Runs jobs one after the other as one [transaction](Self::transact): all of them, or none.
    ///
    /// The first that returns `Err` or panics ends the batch: the state is rolled back to how it was
    /// before the first of them, the jobs behind it are dropped, and the handle tells of its error. One
    /// checkpoint is made for the whole batch. No other job runs in between.
    ///
    /// The iterator is read before anything runs.
    ///
    /// # Errors
    ///
    /// As those of [`transact`](Self::transact).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    /// use throng::serial::ByClone;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let total = SerialExecutor::new(ByClone::new(0_u8));
    /// let add = |n: u8| {
    ///     move |total: &mut ByClone<u8>| {
    ///         **total = total.checked_add(n).ok_or("too much")?;
    ///         Ok(**total)
    ///     }
    /// };
    /// let fits = total.transact_all([100, 50].map(add));
    /// assert_eq!(fits.await?, Ok(vec![100, 150]));
    /// let does_not = total.transact_all([50, 100].map(add));
    /// assert_eq!(does_not.await?, Err("too much"));
    /// assert_eq!(total.submit(|total| **total).await?, 150);
    /// # Ok(()) }
    /// ```
    pub fn transact_all<I, F, R, E>(&self, jobs: I) -> JoinHandle<Result<Vec<R>, E>>
    where
        I: IntoIterator<Item = F>,
        F: FnOnce(&mut S) -> Result<R, E> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        let jobs: Vec<F> = jobs.into_iter().collect();
        self.transact(move |state| run_all(state, jobs))
    }
}

/// A job whose changes are undone if it fails.
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
    /// Runs a job as a transaction. If it panics, so does this, when the state is as it was.
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
    /// The state is as it was.
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

/// Runs jobs one after the other, up to the first that fails.
fn run_all<S, F, R, E>(state: &mut S, jobs: Vec<F>) -> Result<Vec<R>, E>
where
    F: FnOnce(&mut S) -> Result<R, E>,
{
    let mut outputs = Vec::with_capacity(jobs.len());
    let mut jobs = jobs.into_iter();
    let ended = caught(|| {
        for job in jobs.by_ref() {
            outputs.push(job(state)?);
        }
        Ok(())
    });
    let failed = match ended {
        Ok(Ok(())) => return Ok(outputs),
        Ok(Err(error)) => Ok(error),
        Err(payload) => Err(payload),
    };
    drop_each(jobs);
    drop_each(outputs);
    Err(failed.unwrap_or_else(|payload| resume_unwind(payload)))
}

/// Drops values one by one, so that of two whose drops panic neither meets the other's panic.
fn drop_each<T>(values: impl IntoIterator<Item = T>) {
    values.into_iter().for_each(|value| contain(|| drop(value)));
}

fn caught<R>(f: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(f))
}
