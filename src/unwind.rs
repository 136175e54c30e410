//! Panics in code that is not ours: drops of captures and outputs, wakers.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

/// Runs what must not unwind into its caller.
///
/// The panic hook has reported the panic; there is nobody else to tell.
pub(crate) fn contain(f: impl FnOnce()) {
    if cfg!(all(test, throng_loom)) {
        // Loom reports a race by a panic, which must not be contained.
        return f();
    }
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(f)) {
        discard(payload);
    }
}

/// What a panic said.
pub(crate) fn message(payload: &(dyn Any + Send)) -> Option<&str> {
    match payload.downcast_ref::<&'static str>() {
        Some(message) => Some(*message),
        None => payload.downcast_ref::<String>().map(String::as_str),
    }
}

/// Drops a panic's payload, whose drop may itself panic.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // Whoever panics in the drop of a payload twice would do so for ever: leak it.
        std::mem::forget(second);
    }
}
