//! [`RecordedTypes`]: the types of tasks whose names a client has recorded.

use std::collections::HashSet;
use std::time::Duration;

use crate::durable::store::kind::Kind;
use crate::sync::{Mutex, lock};

/// The time for which a client takes it for granted that a name is recorded. Maintenance removes no name that was recorded within a day,
/// and a client that only stores tasks has no maintenance.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// The maximum number of kinds that a client remembers, for example of a program that has a queue for each of its users.
const MAX_KINDS: usize = 100_000;

/// The kinds of tasks whose names a client has recorded in each partition.
#[derive(Debug, Default)]
pub(super) struct RecordedTypes(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    kinds: HashSet<(usize, Kind)>,
    /// The time since which they were recorded.
    since: Duration,
}

impl RecordedTypes {
    pub(super) fn contains(&self, partition: usize, kind: Kind) -> bool {
        lock(&self.0).kinds.contains(&(partition, kind))
    }

    pub(super) fn insert(&self, partition: usize, kinds: impl Iterator<Item = Kind>) {
        lock(&self.0)
            .kinds
            .extend(kinds.map(|kind| (partition, kind)));
    }

    /// Removes the kinds of a partition, so that they are recorded again. This restores lost rows, and renews the times in the rows, which
    /// show that the types are still in use.
    pub(super) fn forget(&self, partition: usize) {
        let kinds = &mut lock(&self.0).kinds;
        kinds.retain(|&(other, _)| other != partition);
    }

    /// Removes all kinds if they are old or very many.
    pub(super) fn forget_old(&self, now: Duration) {
        let mut recorded = lock(&self.0);
        let is_old = now.saturating_sub(recorded.since) >= MAX_AGE;
        if is_old || recorded.kinds.len() >= MAX_KINDS {
            recorded.kinds = HashSet::new();
            recorded.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_very_many_kinds_are_forgotten() {
        let (types, kind) = (RecordedTypes::default(), Kind::of("job"));
        types.forget_old(MAX_AGE);
        types.insert(0, [kind].into_iter());
        types.forget_old(MAX_AGE * 2 - Duration::from_nanos(1));
        assert!(types.contains(0, kind));
        types.forget_old(MAX_AGE * 2);
        assert!(!types.contains(0, kind));
        for partition in 0..MAX_KINDS {
            types.forget_old(MAX_AGE * 2);
            types.insert(partition, [kind].into_iter());
        }
        assert!(types.contains(0, kind));
        types.forget_old(MAX_AGE * 2);
        assert!(!types.contains(0, kind));
    }
}
