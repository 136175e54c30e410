//! [`RoutesCache`]: the routes that a client has read.

use std::collections::HashMap;
use std::sync::Arc;

use crate::durable::store::routes::Routes;
use crate::sync::{Mutex, lock};

/// The routes of a partition as a client has read them. They may have changed since.
#[derive(Debug, Default)]
pub(super) struct KnownRoutes {
    /// Empty if the routes are unknown.
    pub(super) version: Vec<u8>,
    pub(super) routes: Routes,
}

/// The routes of each partition that enqueueing has needed.
#[derive(Debug, Default)]
pub(super) struct RoutesCache(Mutex<HashMap<usize, Arc<KnownRoutes>>>);

impl RoutesCache {
    pub(super) fn get(&self, partition: usize) -> Option<Arc<KnownRoutes>> {
        lock(&self.0).get(&partition).cloned()
    }

    pub(super) fn insert(&self, partition: usize, known: &Arc<KnownRoutes>) {
        lock(&self.0).insert(partition, Arc::clone(known));
    }

    /// Removes the routes of a partition, which have changed.
    pub(super) fn remove(&self, partition: usize) {
        lock(&self.0).remove(&partition);
    }
}
