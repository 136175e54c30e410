//! Drops nested values with bounded stack depth.
//!
//! A task may capture, or return, the handle of another task. The drop of that handle drops what the other task captured
//! or returned, which may be a handle again. Each such drop is *nested* in the one before, and a long chain would overflow
//! the stack. So a drop that is nested too deep is *deferred*: the outermost drop on the thread runs it after the drop of
//! its own value and before it returns.

use std::cell::{Cell, RefCell};

use crate::sync::{plain_thread_local, thread_local};
use crate::unwind::contain;

/// The maximum number of nested drops.
const MAX_NESTED: u32 = 16;

plain_thread_local! {
    // The number of nested drops on this thread.
    static NESTED: Cell<u32> = Cell::new(0);
}

type Deferred = Box<dyn FnOnce()>;

thread_local! {
    /// The last one runs first, so that a tree of values has few entries here at a time.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom has no such form")]
    static DEFERRED: RefCell<Vec<Deferred>> = RefCell::new(Vec::new());
}

/// Drops a value, which may hold other values that this function drops. If the call is nested too deep, the value is
/// dropped later, before the outermost call on this thread returns. The panic of a deferred drop is contained.
///
/// # Safety
///
/// The value owns everything that it refers to, even if its type has a lifetime: it may be dropped after that lifetime has
/// ended.
pub(crate) unsafe fn drop_nested<'a>(drop_value: impl FnOnce() + 'a) {
    if let Some(_level) = NestedDrop::enter() {
        return drop_value();
    }
    let drop_value: Box<dyn FnOnce() + 'a> = Box::new(drop_value);
    // SAFETY: only the lifetime changes, and the caller says that the value does not depend on it.
    defer(unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'a>, Deferred>(drop_value) });
}

/// As [`drop_nested`], for a value without a lifetime.
pub(crate) fn drop_nested_owned(drop_value: impl FnOnce() + 'static) {
    // SAFETY: the value owns everything that it refers to.
    unsafe { drop_nested(drop_value) };
}

#[cold]
fn defer(drop_value: Deferred) {
    let mut drop_value = Some(drop_value);
    // This fails in the destructors of a thread's locals, if this local is gone.
    let _ = DEFERRED.try_with(|deferred| deferred.borrow_mut().extend(drop_value.take()));
    if let Some(drop_value) = drop_value {
        drop_value();
    }
}

/// One level of nested drops. The end of the outermost level runs the deferred drops, also when it unwinds.
struct NestedDrop(());

impl NestedDrop {
    /// Returns `None` at the maximum of nested drops.
    fn enter() -> Option<Self> {
        NESTED.with(|nested| {
            let level = nested.get();
            (level < MAX_NESTED).then(|| {
                nested.set(level + 1);
                Self(())
            })
        })
    }
}

impl Drop for NestedDrop {
    fn drop(&mut self) {
        let level = NESTED.with(Cell::get);
        if level == 1 {
            while let Some(drop_value) = next_deferred() {
                contain(drop_value);
            }
        }
        NESTED.with(|nested| nested.set(level - 1));
    }
}

fn next_deferred() -> Option<Deferred> {
    DEFERRED
        .try_with(|deferred| deferred.borrow_mut().pop())
        .ok()
        .flatten()
}

#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
