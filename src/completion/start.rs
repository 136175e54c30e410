//! The start of accepted futures: where they are stored, and which task polls them for the first time.
//!
//! - A small future is stored in its cell and left to the [runners](super::runners). It stays there while it waits for
//!   the first time.
//! - A larger future would need a cell that is not recycled, and that stays until the item is read. It is stored in a
//!   Tokio task instead, and its cell is a promise: see [`Wrapped`].

use std::future::Future;
use std::pin::pin;

use tokio::runtime::Handle;

use super::in_place::poll_in_place;
use super::queue::QueueEntry;
use super::shared::{Receipt, Reservation, Shared};
use super::wrapped::Wrapped;
use crate::join::{Closed, Spawn, Work};
use crate::task::{Polled, Thunk};

const NO_RUNTIME: &str = "there is no Tokio runtime to run the future on";

/// Runs a future on the current runtime.
pub(super) fn start<R, T, K, F>(
    reservation: Reservation<'_, T, K>,
    tag: K,
    future: F,
) -> Result<R, Closed<(K, F)>>
where
    R: Receipt,
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let shared = reservation.shared();
    if is_small::<T, K, F>() {
        let (receipt, work) = work(reservation, tag, future)?;
        let pending = match shared.poll_in_place {
            true => poll_in_place(work),
            false => Some(work),
        };
        if let Some(work) = pending {
            run_here(shared, work);
        }
        return Ok(receipt);
    }
    let (receipt, job) = reservation.wrap(tag, future).map_err(Closed::new)?;
    match shared.poll_in_place {
        true => start_in_place(job),
        false => spawn_here(job),
    }
    Ok(receipt)
}

/// Runs a future on this runtime.
pub(super) fn start_on<R, T, K, F>(
    reservation: Reservation<'_, T, K>,
    runtime: &Handle,
    tag: K,
    future: F,
) -> Result<R, Closed<(K, F)>>
where
    R: Receipt,
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let shared = reservation.shared();
    if is_small::<T, K, F>() {
        let (receipt, work) = work(reservation, tag, future)?;
        shared.queue.run(runtime, work);
        return Ok(receipt);
    }
    let (receipt, job) = reservation.wrap(tag, future).map_err(Closed::new)?;
    drop(runtime.spawn(job));
    Ok(receipt)
}

/// Runs a closure on a pool.
pub(super) fn start_blocking<R, T, K, F>(
    reservation: Reservation<'_, T, K>,
    pool: &impl Spawn,
    tag: K,
    f: F,
) -> Result<R, Closed<(K, F)>>
where
    R: Receipt,
    T: Send + 'static,
    K: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (receipt, task) = reservation
        .job(tag, Thunk(f))
        .map_err(|(tag, Thunk(f))| Closed::new((tag, f)))?;
    if let Err(work) = pool.spawn_work(Work::new(task)) {
        work.reject("the pool did not accept the job: it is full, closed, or has no thread");
    }
    Ok(receipt)
}

/// Runs a job on the current runtime, as a task of its own.
fn spawn_here<F, K>(job: Wrapped<F, K>)
where
    F: Future<Output: Send> + Send + 'static,
    K: Send + 'static,
{
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(job)),
        Err(_) => pin!(job).reject(NO_RUNTIME),
    }
}

/// Polls a job once on this thread, and runs it on the current runtime if it is pending.
fn start_in_place<F, K>(job: Wrapped<F, K>)
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

/// Runs a future that is stored in its cell on the current runtime.
fn run_here<T, K>(shared: &Shared<T, K>, work: Work)
where
    T: Send + 'static,
    K: Send + 'static,
{
    match Handle::try_current() {
        Ok(runtime) => shared.queue.run(&runtime, work),
        Err(_) => work.reject(NO_RUNTIME),
    }
}

/// Returns `true` if the future is stored in its cell.
fn is_small<T, K, F>() -> bool
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    QueueEntry::<T, K>::is_small::<Polled<F>>()
}

/// Puts a future into its cell.
fn work<R, T, K, F>(
    reservation: Reservation<'_, T, K>,
    tag: K,
    future: F,
) -> Result<(R, Work), Closed<(K, F)>>
where
    R: Receipt,
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    match reservation.job(tag, Polled(future)) {
        Ok((receipt, task)) => Ok((receipt, Work::new(task))),
        Err((tag, Polled(future))) => Err(Closed::new((tag, future))),
    }
}
