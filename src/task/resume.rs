//! The waker of a job that waits in its cell.
//!
//! A job that is pending after its first poll can be *suspended*: it stays in its cell, without a task of an executor.
//! The party that wakes it *resumes* it: it passes the runner's reference to the destination, which knows who polls the
//! job again. A job is suspended at most once.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::header::{Header, release};

/// A waker is a reference to the cell.
static WAKER: RawWakerVTable =
    RawWakerVTable::new(clone_waker, wake_by_value, wake_by_ref, drop_waker);

/// The runner's reference to a job that was suspended and has been woken.
#[must_use = "it is lost unless a task is made from it"]
pub(crate) struct Resumed(NonNull<Header>);

impl Resumed {
    /// # Safety
    ///
    /// The runner's reference is the caller's, which gives it away; the job is claimed.
    pub(super) unsafe fn new(header: NonNull<Header>) -> Self {
        Self(header)
    }

    pub(super) fn into_header(self) -> NonNull<Header> {
        self.0
    }
}

/// Returns the waker of a cell, which must not be used after the cell was freed.
///
/// # Safety
///
/// The cell is live, and its vtable resumes jobs.
pub(super) unsafe fn borrowed_waker(header: NonNull<Header>) -> ManuallyDrop<Waker> {
    let raw = RawWaker::new(header.as_ptr().cast_const().cast(), &WAKER);
    // SAFETY: the functions of the vtable keep the contract of a waker, for which the caller keeps the cell alive. The
    // waker is not dropped, so it gives no reference back.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw) })
}

/// Returns `true` if this is the waker of that cell.
pub(super) fn is_waker_of(waker: &Waker, header: NonNull<Header>) -> bool {
    std::ptr::eq(waker.vtable(), &raw const WAKER)
        && std::ptr::eq(waker.data(), header.as_ptr().cast_const().cast())
}

/// Wakes a job. If it was suspended, it is resumed.
///
/// # Safety
///
/// The caller keeps the cell alive.
pub(super) unsafe fn wake(header: NonNull<Header>) {
    // SAFETY: as the caller says (rule 2).
    let vtable = unsafe { header.as_ref() }.vtable;
    if let Some(resume) = vtable.resume
        // SAFETY: as above.
        && unsafe { header.as_ref() }.state.wake()
    {
        // SAFETY: the runner's reference is now this function's (rule 11).
        unsafe { resume(header) };
    }
}

unsafe fn clone_waker(data: *const ()) -> RawWaker {
    // SAFETY: a waker keeps its cell alive (rule 2).
    unsafe { header(data).as_ref() }.state.retain();
    RawWaker::new(data, &WAKER)
}

unsafe fn wake_by_value(data: *const ()) {
    // SAFETY: a waker keeps its cell alive, and gives its reference back when it is gone (rule 2).
    unsafe {
        wake(header(data));
        release(header(data));
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: a waker keeps its cell alive (rule 2).
    unsafe { wake(header(data)) };
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the reference is the waker's (rule 2).
    unsafe { release(header(data)) };
}

/// # Safety
///
/// The pointer is that of a waker of this module.
unsafe fn header(data: *const ()) -> NonNull<Header> {
    // SAFETY: it was made from a pointer that is not null.
    unsafe { NonNull::new_unchecked(data.cast_mut().cast()) }
}
