//! The tests of how long, and how many, ended tasks are kept, which run on each store.

use super::{Harness, process, run};

mod retention_tests;

/// Defines one test for each case, on one store.
macro_rules! retention_suite {
    ($store:ident, $harness:ty) => {
        mod $store {
            store_suite! { of $harness;
                retention_tests {
                    a_retention_applies_to_all_processes
                    a_shorter_time_hides_dead_letters_at_once
                    a_shorter_time_frees_keys_and_ids_at_once
                    a_longer_time_keeps_what_has_not_expired
                    dead_letters_that_have_expired_do_not_come_back
                    the_oldest_dead_letters_in_excess_are_removed
                    all_dead_letters_can_be_in_excess
                    the_ends_in_excess_that_expire_first_are_removed
                    all_ends_can_be_in_excess
                    a_higher_maximum_keeps_what_is_left
                }
            }
        }
    };
}

retention_suite!(in_memory, crate::durable::store::suite::memory::Memory);
#[cfg(feature = "postgres")]
retention_suite!(
    in_postgres,
    crate::durable::store::suite::postgres::Postgres
);
#[cfg(feature = "sqlite-unbundled")]
retention_suite!(in_sqlite, crate::durable::store::suite::sqlite::Sqlite);
#[cfg(feature = "redis")]
retention_suite!(in_redis, crate::durable::store::suite::redis::Redis);
