//! The pool of the process, for those who change only an import.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use tokio::runtime::Handle;

use super::BlockingPool;
use crate::join::JoinHandle;

/// Runs a closure that blocks on the default pool of the process.
///
/// The drop-in for [`tokio::task::spawn_blocking`]: change only the import. The pool has the default
/// options of a [`Builder`](super::Builder); it is created at the first call and lives as long as the
/// process. The closure runs in the runtime of its submitter, if there is one, so one pool serves
/// any number of runtimes.
///
/// What differs from Tokio's: the [handle and error types](JoinHandle) are ours; it may be called
/// outside of a runtime; a paused test clock does not wait for the closure; and neither the end of
/// the runtime nor that of the process does.
///
/// # Errors
///
/// The handle ends with [`is_panic`](crate::JoinError::is_panic),
/// [`is_cancelled`](crate::JoinError::is_cancelled) if it was aborted before it started, or
/// [`is_rejected`](crate::JoinError::is_rejected) if there is no thread and the system gives none.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let manifest = throng::spawn_blocking(|| std::fs::read_to_string("Cargo.toml")).await??;
/// assert!(manifest.contains("[package]"));
/// # Ok(()) }
/// ```
#[track_caller]
pub fn spawn_blocking<F, R>(f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    let pool = POOL.get_or_init(|| BlockingPool::builder().build_outside());
    match Handle::try_current() {
        Ok(runtime) => pool.spawn_blocking(move || run_in(&runtime, f)),
        Err(_) => pool.spawn_blocking(f),
    }
}

fn run_in<R>(runtime: &Handle, f: impl FnOnce() -> R) -> R {
    let guard = runtime.enter();
    let output = f();
    // It panics if `f` has leaked a guard of its own. That is no reason to lose the output, and the
    // panic hook has told of it.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(guard)));
    output
}
