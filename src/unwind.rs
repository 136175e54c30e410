//! Contains the panics of user code that has no caller to report to: drops of captures and outputs, and wakers.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

/// Runs code that must not unwind into its caller. The panic hook has reported the panic.
pub(crate) fn contain(f: impl FnOnce()) {
    if cfg!(all(test, throng_loom)) {
        // Loom reports a race by a panic, which must not be contained.
        return f();
    }
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(f)) {
        discard(payload);
    }
}

/// Returns the message of a panic, if its payload is a string.
pub(crate) fn message(payload: &(dyn Any + Send)) -> Option<&str> {
    match payload.downcast_ref::<&'static str>() {
        Some(message) => Some(*message),
        None => payload.downcast_ref::<String>().map(String::as_str),
    }
}

/// Drops the payload of a panic. This drop may panic, too.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // A payload whose drop panics twice may do so for ever: leak it.
        std::mem::forget(second);
    }
}
