//! [`Memory`]: the harness of the store in memory.

use super::Harness;
use crate::durable::clock::Clock;
use crate::durable::store::Store;
use crate::durable::store::memory::MemoryStore;

pub(super) struct Memory {
    clock: Clock,
    store: MemoryStore,
}

impl Harness for Memory {
    fn new() -> Self {
        let clock = Clock::manual();
        let store = MemoryStore::with_clock(&clock);
        Self { clock, store }
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn connect(&self) -> Store {
        self.store.clone().into()
    }

    fn observe(&self) -> Store {
        self.store.observe()
    }

    fn contents(&self) -> Vec<(String, Vec<u8>)> {
        vec![(self.store.summary(), Vec::new())]
    }

    /// The model does not distinguish how a process exits.
    fn kill(&self, process: Store) {
        drop(process);
    }

    /// Its store time is the machine's clock.
    fn outlives_clock(&self) -> bool {
        false
    }

    fn statistics(&self) -> u64 {
        self.store.statistics()
    }

    fn leftovers(&self) -> u64 {
        self.store.leftovers()
    }
}
