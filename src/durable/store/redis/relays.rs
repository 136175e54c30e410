//! [`Relays`]: which partitions have their [notes](super::notes) relayed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::sync::{Mutex, lock};

/// The partitions whose notes this process relays now. The value is `true` if the partition may have new ones since it was read.
#[derive(Default)]
pub(super) struct Relays(Mutex<BTreeMap<usize, bool>>);

impl Relays {
    /// Returns `true` if the caller is to relay the notes of the partition, and `false` if another does.
    pub(super) fn begin(&self, partition: usize) -> bool {
        match lock(&self.0).entry(partition) {
            Entry::Vacant(entry) => {
                entry.insert(false);
                true
            }
            Entry::Occupied(mut entry) => {
                entry.insert(true);
                false
            }
        }
    }

    /// Returns `true` if the caller has finished.
    pub(super) fn end(&self, partition: usize, has_failed: bool) -> bool {
        let mut all = lock(&self.0);
        match all.get_mut(&partition) {
            Some(has_new) if *has_new && !has_failed => {
                *has_new = false;
                false
            }
            _ => {
                all.remove(&partition);
                true
            }
        }
    }
}
