//! [`Harness`]: what the suite needs to know of a store.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::durable::clock::Clock;
use crate::durable::store::Store;

/// A store of one kind, for one test of the [suite](crate::durable::store#the-suite), and the processes that use it.
///
/// The suite creates a harness for each test, often several at once, so each has a store of its own. All processes of a harness use that
/// store, and its clock. A process is a [`Store`] that [`connect`](Self::connect) has returned.
pub trait Harness {
    /// Returns `true` if stores of this kind can be tested on this machine. Otherwise, each test passes without a check, so another test
    /// should fail and give the reason.
    fn is_available() -> bool
    where
        Self: Sized,
    {
        true
    }

    /// Creates an empty store with a clock that stands still: [`Clock::manual`].
    fn new() -> Self
    where
        Self: Sized;

    /// Returns the clock of the store and of its processes. When it is advanced, workers that wait for a time are
    /// [woken](crate::durable::store::Event::Wake).
    fn clock(&self) -> &Clock;

    /// Connects one more process.
    fn connect(&self) -> Store;

    /// Opens the store read-only: see [`Observer`](crate::durable::store::Observer).
    fn observe(&self) -> Store;

    /// Returns everything that is stored, as names and values. Two results are equal exactly if nothing has been written in between.
    fn contents(&self) -> Vec<(String, Vec<u8>)>;

    /// Kills a process as by `kill -9`, in such a way that the store can detect it before the next request. The process is one that
    /// [`connect`](Self::connect) has returned; its [`backend`](Store::backend) identifies it.
    fn kill(&self, process: Store);

    /// Advances the clock, and store time as regular maintenance does, but removes nothing.
    fn age(&self, time: Duration) {
        self.clock().advance(time);
    }

    /// Returns the number of rows or keys in the store, except for the totals, the statistics, the settings and the layout. It is zero
    /// when all tasks have ended and expired, and no session is open.
    fn leftovers(&self) -> u64;

    /// Returns the number of rows or fields in the statistics.
    fn statistics(&self) -> u64;

    /// Returns the number of rows or fields of this number of buckets, which have this number of types in total.
    fn rows_of_buckets(&self, _buckets: u64, types: u64) -> u64 {
        types
    }

    /// Returns the invariants of the rows that are broken. The comparison with the model calls this after each request.
    fn broken_invariants(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns `true` if the order of claims is that of the model even if sessions or tasks have different types.
    fn knows_types(&self) -> bool {
        true
    }

    /// Returns `true` if the store outlives the machine's clock, so that it needs a store time of its own.
    fn outlives_clock(&self) -> bool {
        true
    }
}

/// The future of a case.
pub type Case<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs a case on an empty store.
pub fn run<H: Harness>(case: fn(&dyn Harness) -> Case<'_>) {
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
#[cfg(all(test, feature = "sqlite-unbundled"))]
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
#[cfg(all(test, feature = "sqlite-unbundled"))]
pub(in crate::durable::store) fn temp_folder() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory
        .or_else(|_| tempfile::tempdir())
        .expect("a folder can be created")
}
