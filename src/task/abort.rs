//! [`Abort`]: a reference that can end a job.

use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use super::fault::Fault;
use super::header::{Header, release};
use super::resume::{self, Resumed};

/// A reference that can end a job, and nothing else.
pub(crate) struct Abort(NonNull<Header>);

// SAFETY: an abort changes the state word, and accesses the job only as the claimant (rule 3).
unsafe impl Send for Abort {}
// SAFETY: as above.
unsafe impl Sync for Abort {}

impl Abort {
    /// Takes over a reference.
    pub(super) fn from_header(header: NonNull<Header>) -> Self {
        Self(header)
    }

    /// Drops the job if it has not started; else asks it to end, which ends a future and not a closure.
    pub(crate) fn abort(&self) {
        // SAFETY: this reference keeps the cell alive (rule 2).
        unsafe { Self::brief(self.0) }.end();
    }

    /// Returns a reference for the duration of a call. This never fails, even at the maximum of handles.
    ///
    /// # Safety
    ///
    /// The cell is live.
    pub(super) unsafe fn brief(header: NonNull<Header>) -> Self {
        // SAFETY: as the caller says.
        unsafe { header.as_ref() }.state.retain_briefly();
        Self(header)
    }

    /// Aborts the job. If the job has not started, this reference is passed on to end it: a claimed job can always be
    /// ended.
    pub(super) fn end(self) {
        let header = self.header();
        if header.state.claim_to_drop() {
            let header = ManuallyDrop::new(self).0;
            // SAFETY: the job is claimed (rule 3), and the reference this function's to give away.
            unsafe { (header.as_ref().vtable.cancel)(header, Fault::cancelled()) };
        } else if !header.vtable.blocking && header.state.request_abort() {
            // SAFETY: this reference keeps the cell alive (rule 2).
            unsafe { (header.vtable.notify)(self.0) };
        }
    }

    /// Wakes the job, if it is a future that can be suspended.
    pub(crate) fn wake(&self) {
        // SAFETY: this reference keeps the cell alive (rule 2).
        unsafe { resume::wake(self.0) };
    }

    /// Takes the job from its cell if it is suspended. From then on, a wake-up does nothing.
    pub(crate) fn take_suspended(&self) -> Option<Resumed> {
        let header = self.header();
        let taken = header.vtable.resume.is_some() && header.state.wake();
        // SAFETY: the runner's reference, and with it the claim, is now this function's to give away (rule 11).
        taken.then(|| unsafe { Resumed::new(self.0) })
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.header().state.is_complete()
    }

    /// Returns `true` if a handle waits for a closure that has not ended, and that nobody drops instead of running it.
    pub(crate) fn is_awaited(&self) -> bool {
        self.header().state.is_awaited()
    }

    /// Returns the address of the job's cell, which identifies the job while this value exists.
    pub(crate) fn address(&self) -> NonZeroUsize {
        self.0.addr()
    }

    pub(super) fn header_ptr(&self) -> NonNull<Header> {
        self.0
    }

    fn header(&self) -> &Header {
        // SAFETY: this reference keeps the cell alive (rule 2).
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Abort {
    fn clone(&self) -> Self {
        self.header().state.retain();
        Self(self.0)
    }
}

impl Drop for Abort {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's (rule 2).
        unsafe { release(self.0) };
    }
}
