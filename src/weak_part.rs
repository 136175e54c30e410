//! [`WeakPart`]: reads the numbers of a part without keeping it alive. Each part makes its own, and `watch` uses them.

use std::any::Any;

use crate::sync::{Arc, Weak};
use crate::unwind::contain;

/// Reads the numbers of a part without keeping it alive.
pub(crate) trait ReadPart<M>: Send + Sync {
    /// Reads the numbers, or returns `None` if the part is gone. The caller may now be the last owner of the part.
    fn read(&self) -> Option<(M, Owned)>;

    /// Returns `true` if the part is not gone.
    fn is_alive(&self) -> bool;

    /// Identifies the part. No other part has this number while this reference exists.
    fn id(&self) -> usize;
}

/// Keeps a part alive. If it is the last owner, its drop drops the values of the user that the part holds, so it must
/// happen without any lock. A panic of such a drop is contained.
pub(crate) struct Owned(Option<Arc<dyn Any + Send + Sync>>);

impl Drop for Owned {
    fn drop(&mut self) {
        contain(|| drop(self.0.take()));
    }
}

/// A weak reference to what the handles of a part share, and the function that reads its numbers. The function must not run
/// code of the user.
pub(crate) struct WeakPart<T, M> {
    part: Weak<T>,
    read: fn(&T) -> M,
}

impl<T, M> WeakPart<T, M> {
    pub(crate) fn new(part: &Arc<T>, read: fn(&T) -> M) -> Self {
        Self {
            part: Arc::downgrade(part),
            read,
        }
    }
}

impl<T: Send + Sync + 'static, M> ReadPart<M> for WeakPart<T, M> {
    fn read(&self) -> Option<(M, Owned)> {
        let part = self.part.upgrade()?;
        let numbers = (self.read)(&part);
        Some((numbers, Owned(Some(part))))
    }

    fn is_alive(&self) -> bool {
        self.part.strong_count() > 0
    }

    fn id(&self) -> usize {
        self.part.as_ptr().addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Number;

    static DROPS: Number = Number::new(0);

    struct Part(u32);

    impl Drop for Part {
        fn drop(&mut self) {
            DROPS.add(1);
            panic!("on purpose");
        }
    }

    /// The last owner may be the result of a read: then it drops the part, and no panic leaves it.
    #[test]
    fn the_last_owner_drops_the_part_once() {
        let part = Arc::new(Part(7));
        let weak = WeakPart::new(&part, |part| part.0);
        assert_eq!(weak.id(), Arc::as_ptr(&part).addr());
        let (number, owned) = weak.read().unwrap();
        assert_eq!(number, 7);
        drop(part);
        assert!(weak.is_alive());
        assert_eq!(DROPS.get(), 0);
        drop(owned);
        assert_eq!(DROPS.get(), 1);
        assert!(!weak.is_alive() && weak.read().is_none());
    }
}
