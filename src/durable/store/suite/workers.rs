//! The tests of the list of workers, which run on each store.

use super::{Harness, process, run};

pub(super) mod workers_tests;

/// Defines one test for each case, on one store.
macro_rules! workers_suite {
    ($store:ident, $harness:ty) => {
        mod $store {
            store_suite! { of $harness;
                workers_tests {
                    a_worker_is_listed_with_its_card
                    a_session_without_a_card_is_not_listed
                    a_worker_is_found_by_its_session
                    a_closed_session_is_no_worker
                    a_dead_worker_is_gone
                    a_worker_whose_lease_has_expired_is_suspect
                    pages_of_workers_follow_each_other
                    foreign_positions_in_workers_are_refused
                    a_card_stays_as_it_was_written
                }
            }
        }
    };
}

workers_suite!(in_memory, crate::durable::store::suite::memory::Memory);
#[cfg(feature = "postgres")]
workers_suite!(
    in_postgres,
    crate::durable::store::suite::postgres::Postgres
);
#[cfg(feature = "sqlite-unbundled")]
workers_suite!(in_sqlite, crate::durable::store::suite::sqlite::Sqlite);
#[cfg(feature = "redis")]
workers_suite!(in_redis, crate::durable::store::suite::redis::Redis);
