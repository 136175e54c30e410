//! [`Part`]: what can be watched.

use super::kind::PartKind;
use super::names::{BLOCKING, BULKHEAD, COMPLETION, COMPUTE};
use super::watched::{NewPart, Plain, Serial};
use crate::blocking::{BlockingPool, Bulkhead};
use crate::completion::{CompletionStream, Submitter};
use crate::compute::ComputePool;
use crate::serial::SerialExecutor;

/// A part of this crate that a [`Registry`](super::Registry) can watch. Only types of this crate implement it.
pub trait Part: Watchable {}

impl<T: Watchable> Part for T {}

/// Seals [`Part`]: it cannot be named outside of this crate.
#[allow(unnameable_types, reason = "this is how a trait is sealed")]
pub trait Watchable {
    #[doc(hidden)]
    fn new_part(&self) -> NewPart;
}

impl Watchable for BlockingPool {
    fn new_part(&self) -> NewPart {
        let (part, rows) = (self.weak_part(), &BLOCKING);
        NewPart::new(PartKind::BlockingPool, Plain { part, rows })
    }
}

impl Watchable for Bulkhead {
    fn new_part(&self) -> NewPart {
        let (part, rows) = (self.weak_part(), &BULKHEAD);
        NewPart::new(PartKind::Bulkhead, Plain { part, rows })
    }
}

impl Watchable for ComputePool {
    fn new_part(&self) -> NewPart {
        let (part, rows) = (self.weak_part(), &COMPUTE);
        NewPart::new(PartKind::ComputePool, Plain { part, rows })
    }
}

impl<S: Send + 'static> Watchable for SerialExecutor<S> {
    fn new_part(&self) -> NewPart {
        let part = Serial::new(self.weak_part());
        NewPart::new(PartKind::SerialExecutor, part)
    }
}

impl<T: Send + 'static, K: Send + 'static> Watchable for CompletionStream<T, K> {
    fn new_part(&self) -> NewPart {
        let (part, rows) = (self.weak_part(), &COMPLETION);
        NewPart::new(PartKind::CompletionStream, Plain { part, rows })
    }
}

impl<T: Send + 'static, K: Send + 'static> Watchable for Submitter<T, K> {
    fn new_part(&self) -> NewPart {
        let (part, rows) = (self.weak_part(), &COMPLETION);
        NewPart::new(PartKind::CompletionStream, Plain { part, rows })
    }
}

#[cfg(feature = "durable")]
mod durable {
    use super::{NewPart, PartKind, Watchable};
    use crate::durable::{DurableClient, DurableExecutor};
    use crate::watch::executors::WatchedExecutor;
    use crate::watch::stores::WatchedStore;

    impl Watchable for DurableExecutor {
        fn new_part(&self) -> NewPart {
            let part = WatchedExecutor(self.weak_part());
            NewPart::new(PartKind::DurableExecutor, part)
        }
    }

    impl Watchable for DurableClient {
        fn new_part(&self) -> NewPart {
            let part = WatchedStore::new(self.weak_part(), self.weak_overview());
            NewPart::new(PartKind::DurableStore, part)
        }
    }
}
