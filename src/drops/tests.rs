//! Drops that are nested, deferred, and panic; Miri runs them too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{MAX_NESTED, NESTED, drop_nested};
use crate::sync::{AtomicUsize, Ordering};

/// A value that holds another, and counts its drop.
struct Holder {
    inner: Option<Box<Self>>,
    dropped: Arc<AtomicUsize>,
    deepest: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
        let inner = self.inner.take();
        let deepest = Arc::clone(&self.deepest);
        // SAFETY: the value owns all that it refers to.
        unsafe {
            drop_nested(move || {
                let nested = NESTED.with(std::cell::Cell::get) as usize;
                deepest.fetch_max(nested, Ordering::SeqCst);
                drop(inner);
            });
        }
        assert!(!self.panics, "dropped");
    }
}

/// Makes `length` nested values, of which every `panics`th panics.
fn chain(length: usize, panics: usize) -> (Box<Holder>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (dropped, deepest) = (Arc::default(), Arc::default());
    let mut inner = None;
    for at in 1..=length {
        inner = Some(Box::new(Holder {
            inner,
            dropped: Arc::clone(&dropped),
            deepest: Arc::clone(&deepest),
            panics: at.is_multiple_of(panics),
        }));
    }
    (inner.expect("there is one"), dropped, deepest)
}

#[test]
fn a_long_chain_is_dropped_before_the_drop_of_the_first_returns() {
    let length = if cfg!(miri) { 100 } else { 1_000_000 };
    let (first, dropped, deepest) = chain(length, usize::MAX);
    drop(first);
    assert_eq!(dropped.load(Ordering::SeqCst), length);
    assert_eq!(deepest.load(Ordering::SeqCst), MAX_NESTED as usize);
}

#[test]
fn deferred_drops_run_although_others_panic() {
    const LENGTH: usize = 100;
    // The first one panics too, and that panic reaches its owner.
    let (first, dropped, _) = chain(LENGTH, 20);
    catch_unwind(AssertUnwindSafe(|| drop(first))).unwrap_err();
    assert_eq!(dropped.load(Ordering::SeqCst), LENGTH);
    assert_eq!(NESTED.with(std::cell::Cell::get), 0);
}

#[test]
fn a_drop_while_unwinding_drops_all() {
    let (first, dropped, _) = chain(3 * MAX_NESTED as usize, usize::MAX);
    let held = first;
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _held = held;
        panic!("while it is held");
    }));
    unwound.unwrap_err();
    assert_eq!(dropped.load(Ordering::SeqCst), 3 * MAX_NESTED as usize);
}
