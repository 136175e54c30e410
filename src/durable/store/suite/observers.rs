//! The tests of observers, which run on each store.

#[cfg(any(feature = "redis", feature = "postgres", feature = "sqlite-unbundled"))]
pub(in crate::durable::store) use self::looks::look;
use super::{Harness, process, run, scheduler};

mod looks;
mod observers_tests;

/// Defines one test for each case, on one store.
macro_rules! observers_suite {
    ($store:ident, $harness:ty) => {
        mod $store {
            store_suite! { of $harness;
                observers_tests {
                    an_observer_reads_what_others_read
                    an_observer_sees_changes
                    an_observer_writes_nothing
                    an_observer_is_refused_all_changes
                }
            }
        }
    };
}

observers_suite!(in_memory, crate::durable::store::suite::memory::Memory);
#[cfg(feature = "postgres")]
observers_suite!(
    in_postgres,
    crate::durable::store::suite::postgres::Postgres
);
#[cfg(feature = "sqlite-unbundled")]
observers_suite!(in_sqlite, crate::durable::store::suite::sqlite::Sqlite);
#[cfg(feature = "redis")]
observers_suite!(in_redis, crate::durable::store::suite::redis::Redis);
