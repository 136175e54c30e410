//! [`Observe`]: reads the numbers of a part without keeping it alive. The parts make the observers, and `watch` uses them.

use std::any::Any;

use crate::sync::{Arc, Weak};
use crate::unwind::contain;

/// Reads the numbers of a part without keeping it alive.
pub(crate) trait Observe<M>: Send + Sync {
    /// Reads the numbers, or returns `None` if the part is gone. The caller may now be the last owner of the part.
    fn observe(&self) -> Option<(M, Owned)>;

    /// Returns `true` if the part is not gone.
    fn is_alive(&self) -> bool;

    /// Identifies the part. No other part has this number while the observer exists.
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
pub(crate) struct Observer<T, M> {
    part: Weak<T>,
    read: fn(&T) -> M,
}

impl<T, M> Observer<T, M> {
    pub(crate) fn new(part: &Arc<T>, read: fn(&T) -> M) -> Self {
        Self {
            part: Arc::downgrade(part),
            read,
        }
    }
}

impl<T: Send + Sync + 'static, M> Observe<M> for Observer<T, M> {
    fn observe(&self) -> Option<(M, Owned)> {
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

    /// The observer may be the last owner: then it drops the part, and no panic leaves it.
    #[test]
    fn the_last_owner_drops_the_part_once() {
        let part = Arc::new(Part(7));
        let observer = Observer::new(&part, |part| part.0);
        assert_eq!(observer.id(), Arc::as_ptr(&part).addr());
        let (number, owned) = observer.observe().unwrap();
        assert_eq!(number, 7);
        drop(part);
        assert!(observer.is_alive());
        assert_eq!(DROPS.get(), 0);
        drop(owned);
        assert_eq!(DROPS.get(), 1);
        assert!(!observer.is_alive() && observer.observe().is_none());
    }
}
