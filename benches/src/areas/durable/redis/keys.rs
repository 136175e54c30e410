//! Measures tasks with keys in Redis: what a key costs a thousand spawners.

use throng::durable::{Key, SpawnOptions};

use super::ours::spawn_by_1000;
use crate::measure::{Rules, Sample};

/// The number of keys that many tasks share.
const KEYS: u64 = 1_000;

/// Each task has a key of its own, so all are stored.
pub(super) fn spawn_new(rules: &Rules) -> Sample {
    let options = |number| SpawnOptions::new().key(key(number));
    spawn_by_1000(rules, options, |spawned| spawned)
}

/// All tasks have one of a thousand keys. Each but the first of a key joins it.
pub(super) fn spawn_joining(rules: &Rules) -> Sample {
    let options = |number| SpawnOptions::new().key(key(number % KEYS));
    spawn_by_1000(rules, options, |_| KEYS)
}

/// The same, but each replaces the payload of the first.
pub(super) fn spawn_replacing(rules: &Rules) -> Sample {
    let options = |number| SpawnOptions::new().key(key(number % KEYS).replace());
    spawn_by_1000(rules, options, |_| KEYS)
}

fn key(number: u64) -> Key {
    Key::new(format!("user {number}"))
}
