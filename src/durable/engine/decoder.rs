//! Decodes outputs that complete slots, off the engine's thread.

use std::sync::OnceLock;

use crate::blocking::BlockingPool;

/// The maximum number of outputs that are decoded at once.
const MAX_THREADS: usize = 4;

/// Runs `work`, which decodes an output and is user code, on a thread of a pool. The pool creates threads when
/// they are needed, and they exit after a while.
pub(crate) fn decode(work: impl FnOnce() + Send + 'static) {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let mut builder = BlockingPool::builder();
        builder.name("throng-decode").max_threads(MAX_THREADS);
        builder.build_outside()
    });
    drop(pool.spawn_blocking(work));
}
