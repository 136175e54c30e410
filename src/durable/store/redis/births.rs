//! [`Births`]: tells the store of a process from another one at the same address.

use crate::sync::{Mutex, lock};

/// The field `birth` of each partition, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Births(Mutex<Vec<Option<Vec<u8>>>>);

impl Births {
    /// Records the birth of the store in a partition, which is empty if there is none. Returns `true` if it was another one before.
    pub(super) fn replace(&self, partition: usize, birth: Vec<u8>) -> bool {
        let mut births = lock(&self.0);
        if births.len() <= partition {
            births.resize(partition + 1, None);
        }
        let birth = Some(birth).filter(|birth| !birth.is_empty());
        let is_same = births[partition] == birth;
        let before = std::mem::replace(&mut births[partition], birth);
        !is_same && before.is_some()
    }

    /// Returns `true` if the store was opened.
    pub(super) fn is_any_known(&self) -> bool {
        !lock(&self.0).is_empty()
    }
}
