//! [`RecordedTypes`]: the types of tasks whose names a client has recorded.

use std::collections::HashSet;

use crate::durable::store::kind::Kind;
use crate::sync::{Mutex, lock};

/// The kinds of tasks whose names a client has recorded in each partition.
#[derive(Debug, Default)]
pub(super) struct RecordedTypes(Mutex<HashSet<(usize, Kind)>>);

impl RecordedTypes {
    pub(super) fn contains(&self, partition: usize, kind: Kind) -> bool {
        lock(&self.0).contains(&(partition, kind))
    }

    pub(super) fn insert(&self, partition: usize, kinds: impl Iterator<Item = Kind>) {
        lock(&self.0).extend(kinds.map(|kind| (partition, kind)));
    }

    /// Removes the kinds of a partition, so that they are recorded again. This restores lost rows, and renews the times in the rows, which
    /// show that the types are still in use.
    pub(super) fn forget(&self, partition: usize) {
        lock(&self.0).retain(|&(other, _)| other != partition);
    }
}
