//! [`SmallValue`]: a value of any type that fits into two words.

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop, MaybeUninit};

use crate::drops::drop_nested;
use crate::sync::Unshared;
use crate::unwind::contain;

/// The words that a value may take.
type Words = [usize; 2];

/// A value of at most two words, in memory whose layout does not depend on the type of the value.
///
/// It owns the value, and is [`Send`] if the value is. It gives no shared access to the value, so it is [`Sync`].
pub(super) struct SmallValue<T> {
    /// Holds a `T`, which is only read when this is consumed or dropped.
    words: MaybeUninit<Words>,
    value: PhantomData<Unshared<T>>,
}

/// The value owns all that it refers to (`'static`), since its drop may be deferred.
impl<T: 'static> SmallValue<T> {
    const FITS: bool =
        size_of::<T>() <= size_of::<Words>() && align_of::<T>() <= align_of::<Words>();

    /// Stores a value. Returns the value itself if it does not fit.
    #[inline]
    pub(super) fn new(value: T) -> Result<Self, T> {
        if !Self::FITS {
            return Err(value);
        }
        let mut words = MaybeUninit::<Words>::uninit();
        // SAFETY: the words are large enough for a `T`, and aligned for one, as was checked above.
        unsafe { words.as_mut_ptr().cast::<T>().write(value) };
        Ok(Self {
            words,
            value: PhantomData,
        })
    }
}

impl<T> SmallValue<T> {
    #[inline]
    pub(super) fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: `new` has written a `T`. It is read once, because `this` is consumed and not dropped.
        unsafe { this.words.as_ptr().cast::<T>().read() }
    }
}

/// Drops the value. Deep in a chain of values that hold one another, the drop is deferred, and a panic in it is
/// contained: the value is dropped as if it were in the cell of its task.
impl<T> Drop for SmallValue<T> {
    fn drop(&mut self) {
        if !mem::needs_drop::<T>() {
            return;
        }
        // SAFETY: `new` has written a `T`, which is read once: this is the end of `self`.
        let value = unsafe { self.words.as_ptr().cast::<T>().read() };
        // SAFETY: `new` only accepts values that are `'static`, whatever lifetime `T` has by now.
        unsafe { drop_nested(move || contain(|| drop(value))) };
    }
}

#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests {
    //! Miri runs these tests, too: they cover what the unsafe blocks rely on.

    use std::sync::Arc;

    use super::*;

    /// Stores a value, moves it, and takes it out again.
    fn round_trip<T: 'static>(value: T) -> Option<T> {
        let stored = Box::new(SmallValue::new(value).ok()?);
        let moved = [*stored];
        moved.into_iter().next().map(SmallValue::into_inner)
    }

    #[repr(align(32))]
    struct Aligned;

    #[test]
    fn values_of_up_to_two_words_fit() {
        assert_eq!(round_trip(()), Some(()));
        assert_eq!(round_trip(7_u8), Some(7));
        assert_eq!(round_trip((1_u64, 2_u32)), Some((1, 2)));
        assert_eq!(round_trip("two words"), Some("two words"));
        assert_eq!(round_trip(Some(Box::new(7))), Some(Some(Box::new(7))));
        let text: Box<str> = "on the heap".into();
        assert_eq!(round_trip(text.clone()), Some(text));
    }

    #[test]
    fn a_larger_value_is_returned() {
        let large = SmallValue::new(String::from("three words"));
        assert_eq!(large.err().as_deref(), Some("three words"));
        assert!(round_trip([0_u8; 17]).is_none());
        assert!(round_trip(Aligned).is_none());
    }

    #[test]
    fn a_value_is_dropped_once() {
        let value = Arc::new(());
        let stored = SmallValue::new(Arc::clone(&value)).ok();
        assert_eq!(Arc::strong_count(&value), 2);
        drop(stored);
        assert_eq!(Arc::strong_count(&value), 1);
        drop(round_trip(Arc::clone(&value)));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn the_layout_does_not_depend_on_the_type() {
        assert_eq!(size_of::<SmallValue<u8>>(), size_of::<Words>());
        assert_eq!(size_of::<SmallValue<[u8; 4096]>>(), size_of::<Words>());
        assert_eq!(align_of::<SmallValue<Aligned>>(), align_of::<Words>());
    }

    /// A value that holds another one, in place.
    #[allow(dead_code, reason = "it is only dropped")]
    struct Link(Option<Box<SmallValue<Self>>>);

    #[test]
    fn a_long_chain_is_dropped_with_little_stack() {
        let length = if cfg!(miri) { 100 } else { 100_000 };
        let mut first = Link(None);
        for _ in 0..length {
            first = Link(SmallValue::new(first).ok().map(Box::new));
        }
        let dropped = std::thread::Builder::new()
            .stack_size(128 * 1024)
            .spawn(move || drop(first));
        dropped.unwrap().join().unwrap();
    }
}
