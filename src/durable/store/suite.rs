//! The contract of a store: cases that run on each store, and a [comparison](machine_tests) of each store
//! with the model.
//!
//! A new store needs a [`Harness`], and one line at the end of this file.

use self::harness::{Harness, run, runtime};
#[cfg(feature = "sqlite-unbundled")]
pub(super) use self::harness::{contents_of, temp_folder};
#[cfg(any(feature = "redis", feature = "postgres", feature = "sqlite-unbundled"))]
pub(super) use self::observers::look;
#[cfg(feature = "redis")]
pub(super) use self::process::with_key;
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(super) use self::process::{id, task};

mod baseline_tests;
mod cancel_tests;
#[macro_use]
mod cases;
mod claims_tests;
mod clock_tests;
mod dead_letters_tests;
mod draining_groups_tests;
mod enqueue_tests;
mod errors_tests;
mod events_tests;
mod fences_tests;
mod group_holds_tests;
mod grouped_keys_tests;
mod groups_tests;
mod harness;
mod held_keys_tests;
mod key_conflicts_tests;
mod keys_tests;
mod leases_tests;
mod limits_tests;
mod machine_tests;
mod memory;
mod paused_types_tests;
#[cfg(feature = "postgres")]
mod postgres;
mod priorities_tests;
mod process;
mod queue_wakes_tests;
mod queues_tests;
mod rates_tests;
#[cfg(feature = "redis")]
mod redis;
mod scheduler;
mod sessions_tests;
#[cfg(feature = "sqlite-unbundled")]
mod sqlite;
mod status_tests;
mod types_tests;
mod unserved_tests;
mod verdicts_tests;
mod versions_tests;

mod types_in_memory {
    store_suite!(types of super::memory::Memory);
}
#[cfg(feature = "postgres")]
mod types_in_postgres {
    store_suite!(types of super::postgres::Postgres);
}
#[cfg(feature = "sqlite-unbundled")]
mod types_in_sqlite {
    store_suite!(types of super::sqlite::Sqlite);
}
#[cfg(feature = "redis")]
mod types_in_redis {
    store_suite!(types of super::redis::Redis);
}

mod queues_in_memory {
    store_suite!(queues of super::memory::Memory);
}
#[cfg(feature = "postgres")]
mod queues_in_postgres {
    store_suite!(queues of super::postgres::Postgres);
}
#[cfg(feature = "sqlite-unbundled")]
mod queues_in_sqlite {
    store_suite!(queues of super::sqlite::Sqlite);
}
#[cfg(feature = "redis")]
mod queues_in_redis {
    store_suite!(queues of super::redis::Redis);
}

// These tests do not apply to a store in memory. It does not outlive the machine's clock, which is its store time.
#[cfg(feature = "sqlite-unbundled")]
mod time_in_sqlite {
    store_suite! { of super::sqlite::Sqlite;
        clock_tests { maintenance_advances_store_time_by_a_minute_at_most }
    }
}
#[cfg(feature = "postgres")]
mod time_in_postgres {
    store_suite! { of super::postgres::Postgres;
        clock_tests { maintenance_advances_store_time_by_a_minute_at_most }
    }
}
#[cfg(feature = "redis")]
mod time_in_redis {
    store_suite! { of super::redis::Redis;
        clock_tests { maintenance_advances_store_time_by_a_minute_at_most }
    }
}

store_suite!(in_memory, crate::durable::store::suite::memory::Memory, 256);
// Fewer sequences, since each request waits for the disk.
#[cfg(feature = "postgres")]
store_suite!(
    in_postgres,
    crate::durable::store::suite::postgres::Postgres,
    16
);
#[cfg(feature = "sqlite-unbundled")]
store_suite!(in_sqlite, crate::durable::store::suite::sqlite::Sqlite, 64);
#[cfg(feature = "redis")]
store_suite!(in_redis, crate::durable::store::suite::redis::Redis, 128);

// These modules use the macro `store_suite`, so they must come after it.
pub(super) mod changes;
mod details;
mod groups;
mod keys;
mod lists;
mod observers;
mod overview;
mod progress;
mod retention;
mod schedules;
mod stats;
mod steps;
mod workers;
