//! Drops nested values with bounded stack depth.
//!
//! A task may capture, or return, the handle of another task. The drop of that handle drops what the other task
//! captured or returned, which may be a handle again. Each such drop is *nested* in the one before, and a long
//! chain would overflow the stack. So a drop that is nested too deep is *put off*: the outermost drop on
//! the thread runs it after the drop of its own value and before it returns.

use std::cell::{Cell, RefCell};

use crate::sync::{plain_thread_local, thread_local};
use crate::unwind::contain;

/// The maximum number of nested drops.
const MAX_NESTED: u32 = 16;

plain_thread_local! {
    // How many drops are nested on this thread.
    static NESTED: Cell<u32> = Cell::new(0);
}

type PutOff = Box<dyn FnOnce()>;

thread_local! {
    /// The last one is run first, so that a tree of values has few entries here at a time.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom knows no such form")]
    static PUT_OFF: RefCell<Vec<PutOff>> = RefCell::new(Vec::new());
}

/// Drops a value, which may hold other values that are dropped by this function. If the call is nested too
/// deep, the value is dropped later, before the outermost call on this thread returns. The panic of a drop
/// that was put off is contained.
///
/// # Safety
///
/// The value owns all that it refers to, even if its type has a lifetime: it may be dropped after that
/// lifetime has ended.
pub(crate) unsafe fn drop_nested<'a>(drop_value: impl FnOnce() + 'a) {
    if let Some(_level) = Level::enter() {
        return drop_value();
    }
    let drop_value: Box<dyn FnOnce() + 'a> = Box::new(drop_value);
    // SAFETY: only the lifetime changes, which the caller says does not matter.
    put_off(unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'a>, PutOff>(drop_value) });
}

#[cold]
fn put_off(drop_value: PutOff) {
    let mut drop_value = Some(drop_value);
    // In the destructors of a thread's locals it may be too late.
    let _ = PUT_OFF.try_with(|put_off| put_off.borrow_mut().extend(drop_value.take()));
    if let Some(drop_value) = drop_value {
        drop_value();
    }
}

/// One level of nested drops. The end of the outermost level runs the drops that were put off, also when it
/// unwinds.
struct Level(());

impl Level {
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

impl Drop for Level {
    fn drop(&mut self) {
        let level = NESTED.with(Cell::get);
        if level == 1 {
            while let Some(drop_value) = next_put_off() {
                contain(drop_value);
            }
        }
        NESTED.with(|nested| nested.set(level - 1));
    }
}

fn next_put_off() -> Option<PutOff> {
    PUT_OFF
        .try_with(|put_off| put_off.borrow_mut().pop())
        .ok()
        .flatten()
}

#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
