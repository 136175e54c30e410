//! [`Harness`]: what the suite needs to know of a store.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::durable::clock::Clock;
use crate::durable::store::Store;

/// A store of one kind, for one test, and the processes that use it.
pub(super) trait Harness {
    /// Returns `true` if stores of this kind can be tested on this machine.
    fn is_available() -> bool
    where
        Self: Sized,
    {
        true
    }

    /// Creates an empty store with a clock that stands still.
    fn new() -> Self
    where
        Self: Sized;

    fn clock(&self) -> &Clock;

    /// Connects one more process.
    fn connect(&self) -> Store;

    /// Opens the store read-only.
    fn observe(&self) -> Store;

    /// Returns everything that is stored.
    fn contents(&self) -> Vec<(String, Vec<u8>)>;

    /// Kills a process as by `kill -9`, in such a way that the store can detect it.
    fn kill(&self, process: Store);

    /// Advances the clock, and store time as regular maintenance does, but removes nothing.
    fn age(&self, time: Duration) {
        self.clock().advance(time);
    }

    /// Returns the number of rows or keys in the store, except for the totals and the layout.
    fn leftovers(&self) -> u64;

    /// Returns the number of rows or fields in the statistics.
    fn statistics(&self) -> u64;

    /// Returns the number of rows or fields of this number of buckets, which have this number of types in total.
    fn rows_of_buckets(&self, _buckets: u64, types: u64) -> u64 {
        types
    }

    /// Returns the invariants of the rows that are broken.
    fn broken_invariants(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns `true` if the order of claims is that of the model even if sessions or tasks have different types.
    fn knows_types(&self) -> bool {
        true
    }
}

pub(super) type Case<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs a case on an empty store.
pub(super) fn run<H: Harness>(case: fn(&dyn Harness) -> Case<'_>) {
    if H::is_available() {
        runtime().block_on(case(&H::new()));
    }
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

/// Returns the paths and the contents of the files in a folder.
#[cfg(feature = "sqlite-unbundled")]
pub(in crate::durable::store) fn contents_of(folder: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            found.extend(contents_of(&path));
        }
        // A socket cannot be read.
        let bytes = std::fs::read(&path).unwrap_or_default();
        found.push((path.display().to_string(), bytes));
    }
    found.sort();
    found
}

/// Creates a folder for a database. It is in memory if the system allows it, since the tests would spend most of their
/// time waiting for the disk.
#[cfg(feature = "sqlite-unbundled")]
pub(in crate::durable::store) fn temp_folder() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory
        .or_else(|_| tempfile::tempdir())
        .expect("a folder can be created")
}
