//! [`Forgetting`]: a defect that a store can have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throng::durable::store::{Enqueue, Turn};

/// Hides from a store that a turn is sent again: each copy of a turn has a number of its own, between those of the session's requests.
#[derive(Clone, Default)]
pub(crate) struct Forgetting(Option<Arc<AtomicU64>>);

/// The factor between the numbers that a session sends and those that the store sees. No test sends so many turns to one store.
const FACTOR: u64 = 1 << 32;

impl Forgetting {
    pub(crate) fn always() -> Self {
        Self(Some(Arc::default()))
    }

    /// Returns the turn as the store sees it.
    pub(crate) fn read(&self, turn: Arc<Turn>) -> Arc<Turn> {
        let Some(copies) = &self.0 else { return turn };
        let copy = copies.fetch_add(1, Ordering::Relaxed);
        Arc::new(Turn {
            number: turn.number * FACTOR + copy,
            ..(*turn).clone()
        })
    }

    /// Returns a request that stores tasks as the store sees it. The store recognizes its copies.
    pub(crate) fn widen(&self, request: Arc<Enqueue>) -> Arc<Enqueue> {
        if self.0.is_none() {
            return request;
        }
        Arc::new(Enqueue {
            number: request.number * FACTOR,
            ..(*request).clone()
        })
    }
}
