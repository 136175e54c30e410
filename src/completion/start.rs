//! How futures that were accepted begin: where they lie, and who polls them for the first time.
//!
//! - A small one lies in its cell, and is left to the [runners](super::runners).
//! - A larger one would make of its cell memory that is not used again, and stays until the item is read. It
//!   lies in a task of Tokio's instead, and its cell is a promise: see [`Wrapped`].

use std::future::Future;
use std::pin::pin;

use tokio::runtime::Handle;

use super::shared::{Place, Shared};
use crate::join::{Entry, Id, TrySpawnError, Work, Wrapped};
use crate::task::Polled;

const NO_RUNTIME: &str = "there is no Tokio runtime to run the future on";

/// Runs a future in this place, on the current runtime.
pub(super) fn start<T, K, F>(
    place: Place<'_, T, K>,
    tag: K,
    future: F,
) -> Result<Id, TrySpawnError<(K, F)>>
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let shared = place.shared();
    if is_small::<T, K, F>() {
        let (id, work) = work(place, tag, future)?;
        let pending = match shared.in_place {
            true => work.poll_in_place(),
            false => Some(work),
        };
        if let Some(work) = pending {
            run_here(shared, work);
        }
        return Ok(id);
    }
    let job = place.wrap(tag, future).map_err(TrySpawnError::closed)?;
    let id = job.id();
    match shared.in_place {
        true => begin_in_place(job),
        false => spawn_here(job),
    }
    Ok(id)
}

/// Runs a future in this place, on this runtime.
pub(super) fn start_on<T, K, F>(
    place: Place<'_, T, K>,
    runtime: &Handle,
    tag: K,
    future: F,
) -> Result<Id, TrySpawnError<(K, F)>>
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let shared = place.shared();
    if is_small::<T, K, F>() {
        let (id, work) = work(place, tag, future)?;
        shared.run(runtime, work);
        return Ok(id);
    }
    let job = place.wrap(tag, future).map_err(TrySpawnError::closed)?;
    let id = job.id();
    drop(runtime.spawn(job));
    Ok(id)
}

/// Runs a job on the current runtime, as a task of its own.
pub(super) fn spawn_here<F, K>(job: Wrapped<F, K>)
where
    F: Future<Output: Send> + Send + 'static,
    K: Send + 'static,
{
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(job)),
        Err(_) => pin!(job).reject(NO_RUNTIME),
    }
}

/// Polls a job once on this thread; runs it on the current runtime if it is pending.
fn begin_in_place<F, K>(job: Wrapped<F, K>)
where
    F: Future<Output: Send> + Send + 'static,
    K: Send + 'static,
{
    let Some(mut pending) = Box::pin(job).poll_in_place() else {
        return;
    };
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(pending)),
        Err(_) => pending.as_mut().reject(NO_RUNTIME),
    }
}

/// Runs a future that lies in its cell on the current runtime.
fn run_here<T, K>(shared: &Shared<T, K>, work: Work) {
    match Handle::try_current() {
        Ok(runtime) => shared.run(&runtime, work),
        Err(_) => work.reject(NO_RUNTIME),
    }
}

/// Whether a future lies in its cell.
fn is_small<T, K, F>() -> bool
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    Entry::<T, K>::is_small::<Polled<F>>()
}

/// Puts a future into its cell.
fn work<T, K, F>(
    place: Place<'_, T, K>,
    tag: K,
    future: F,
) -> Result<(Id, Work), TrySpawnError<(K, F)>>
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    match place.job(tag, Polled(future)) {
        Ok((id, task)) => Ok((id, Work::new(task))),
        Err((tag, Polled(future))) => Err(TrySpawnError::closed((tag, future))),
    }
}
