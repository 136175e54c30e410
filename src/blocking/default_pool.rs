//! [`spawn_blocking`]: the pool of the process, a drop-in for Tokio's.

use std::sync::OnceLock;

use super::options::Options;
use super::pool::BlockingPool;
use crate::join::JoinHandle;

/// Runs a closure that blocks on the default pool of the process.
///
/// This is the drop-in for [`tokio::task::spawn_blocking`]: change only the import. The pool has the default options of
/// a [`Builder`](super::Builder). It is created at the first call and lives as long as the process. The closure runs in
/// the runtime of its submitter, if any, so one pool serves any number of runtimes.
///
/// It differs from Tokio's in this: the [handle and error types](JoinHandle) are those of this crate; it may be called
/// outside of a runtime; and neither a paused test clock, nor the end of the runtime, nor that of the process waits for
/// the closure.
///
/// # Errors
///
/// The handle fails with [`is_panic`](crate::JoinError::is_panic) if the closure panics, with
/// [`is_cancelled`](crate::JoinError::is_cancelled) if the task is aborted before it starts, and with
/// [`is_rejected`](crate::JoinError::is_rejected) if there is no thread and the system refuses to create one.
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
    // No runtime of its own, which would be that of the first caller.
    let pool = POOL.get_or_init(|| BlockingPool::with_options(Options::default()));
    pool.spawn_blocking(f)
}
