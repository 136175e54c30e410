//! The steward: the one timer thread of the process.
//!
//! Pools have it look after what cannot look after itself: a thread that runs a long task cannot see
//! what waits behind it. It is created when the first pool asks for it, looks after those that have
//! asked, in turns, and parks when there is nobody left to look after: an idle process has no timer.

#[cfg(not(any(miri, all(test, any(throng_loom, throng_shuttle)))))]
mod office;

use std::io;

use crate::sync::Arc;

/// Somebody who is looked after.
pub(crate) trait Ward: Send + Sync + 'static {
    /// The steward's visit; `false`: it need not come again. Must not block.
    fn visit(&self) -> bool;
}

/// Has the steward visit somebody, every 5 ms, for as long as it is wanted and alive.
///
/// # Errors
///
/// The system gives no thread for the steward.
pub(crate) fn watch(ward: &Arc<impl Ward>) -> io::Result<()> {
    #[cfg(not(any(miri, all(test, any(throng_loom, throng_shuttle)))))]
    return office::watch(ward);
    // In models there is no time: they visit by themselves. And Miri wants all threads to end.
    #[cfg(any(miri, all(test, any(throng_loom, throng_shuttle))))]
    {
        let _ = ward;
        Ok(())
    }
}
