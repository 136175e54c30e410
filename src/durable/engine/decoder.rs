//! Where outputs are decoded for those who do not await them: not on the engine's thread.

use std::sync::OnceLock;

use crate::blocking::BlockingPool;

/// How many outputs are decoded at once.
const MAX_THREADS: usize = 4;

/// Runs what decodes an output, which is code of the user's, on a thread of its own kind. That is made when it is
/// needed, and ends some time after.
pub(crate) fn decode(work: impl FnOnce() + Send + 'static) {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let mut builder = BlockingPool::builder();
        builder.name("throng-decode").max_threads(MAX_THREADS);
        builder.build_outside()
    });
    drop(pool.spawn_blocking(work));
}
