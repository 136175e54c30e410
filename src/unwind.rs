//! Contains the panics of user code that has no caller to report to: drops of captures and outputs, and wakers. Stops the
//! process where unwinding would be unsound.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::process;

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

/// Aborts the process if it is dropped. A function whose stack frame another thread uses keeps it until that has ended, and
/// then forgets it.
#[must_use]
pub(crate) struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        // Loom reports a race or a deadlock by a panic.
        if !cfg!(all(test, throng_loom)) {
            process::abort();
        }
    }
}

#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests {
    use super::*;
    use std::env;

    /// Set in the process that aborts.
    const ABORTS: &str = "THRONG_TEST_ABORTS";

    #[test]
    #[cfg_attr(miri, ignore = "needs a second process")]
    fn a_frame_that_must_not_unwind_aborts_the_process() {
        if env::var_os(ABORTS).is_some() {
            let unwound = panic::catch_unwind(|| {
                let _must_not_unwind = AbortOnUnwind;
                panic!("on purpose");
            });
            panic!("not aborted: {unwound:?}");
        }
        let name = "unwind::tests::a_frame_that_must_not_unwind_aborts_the_process";
        let status = process::Command::new(env::current_exe().unwrap())
            .args(["--exact", name])
            .env(ABORTS, "1")
            .stdout(process::Stdio::null())
            .stderr(process::Stdio::null())
            .status()
            .unwrap();
        // The test harness exits with 0 or 101.
        assert!(!matches!(status.code(), Some(0 | 101)), "{status}");
    }
}
