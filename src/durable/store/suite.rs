//! The contract of a store: cases that run on each store, and a [comparison](machine_tests) of each store
//! with the model.
//!
//! A new store needs a [`Harness`], and one use of the macro [`suite!`](crate::__store_suite) such as those at the end of this file.

#[cfg(all(test, feature = "sqlite-unbundled"))]
pub(super) use self::harness::contents_of;
use self::harness::runtime;
#[cfg(all(test, feature = "sqlite-unbundled"))]
pub(super) use self::harness::temp_folder;
pub use self::harness::{Case, Harness, run};
#[cfg(all(
    test,
    any(feature = "redis", feature = "postgres", feature = "sqlite-unbundled")
))]
pub(super) use self::observers::look;
#[cfg(all(test, feature = "redis"))]
pub(super) use self::process::with_key;
#[cfg(all(test, any(feature = "redis", feature = "postgres")))]
pub(super) use self::process::{id, task};

pub mod baseline_tests;
pub mod cancel_tests;
mod cases;
pub mod changes;
pub mod claims_tests;
pub mod clock_tests;
pub mod dead_letters_tests;
pub mod details;
pub mod draining_groups_tests;
pub mod enqueue_tests;
pub mod errors_tests;
pub mod events_tests;
pub mod fences_tests;
pub mod group_holds_tests;
pub mod grouped_keys_tests;
pub mod groups;
pub mod groups_tests;
mod harness;
pub mod held_keys_tests;
pub mod key_conflicts_tests;
pub mod keys;
pub mod keys_tests;
pub mod leases_tests;
pub mod limits_tests;
pub mod lists;
pub mod machine_tests;
mod memory;
pub mod observers;
pub mod overview;
pub mod paused_types_tests;
#[cfg(all(test, feature = "postgres"))]
mod postgres;
pub mod priorities_tests;
mod process;
pub mod progress;
pub mod queue_wakes_tests;
pub mod queues;
pub mod queues_tests;
pub mod rates_tests;
#[cfg(all(test, feature = "redis"))]
mod redis;
pub mod retention;
mod scheduler;
pub mod schedules;
pub mod sessions_tests;
#[cfg(all(test, feature = "sqlite-unbundled"))]
mod sqlite;
pub mod stats;
pub mod status_tests;
pub mod steps;
pub mod types;
pub mod types_tests;
pub mod unserved_tests;
pub mod verdicts_tests;
pub mod versions_tests;
pub mod workers;

#[cfg(test)]
mod in_memory {
    crate::__store_suite!(super::memory::Memory, 256);
}
// Fewer sequences, since each request waits for the disk.
#[cfg(all(test, feature = "postgres"))]
mod in_postgres {
    crate::__store_suite!(super::postgres::Postgres, 16);
}
#[cfg(all(test, feature = "redis"))]
mod in_redis {
    crate::__store_suite!(super::redis::Redis, 128);
}
// `scripts/test-fleet` runs these.
#[cfg(all(test, feature = "redis"))]
mod in_redis_fleet {
    crate::__store_suite!(super::redis::RedisCluster, 32);
}
#[cfg(all(test, feature = "sqlite-unbundled"))]
mod in_sqlite {
    crate::__store_suite!(super::sqlite::Sqlite, 64);
}
