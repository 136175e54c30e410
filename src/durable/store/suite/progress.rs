//! The tests of progress, which run on each store.

use super::{Harness, process, run};

mod progress_tests;

/// Defines one test for each case, on one store.
macro_rules! progress_suite {
    ($store:ident, $harness:ty) => {
        mod $store {
            store_suite! { of $harness;
                progress_tests {
                    the_last_report_is_stored
                    an_earlier_report_never_replaces_a_later_one
                    only_the_run_that_holds_the_task_reports
                    progress_is_kept_until_the_next_run
                    progress_is_kept_when_a_worker_dies
                    an_end_removes_progress
                    a_death_of_crashes_removes_progress
                    a_replayed_or_new_task_has_no_progress
                    a_full_batch_of_large_reports_is_stored
                }
            }
        }
    };
}

progress_suite!(in_memory, crate::durable::store::suite::memory::Memory);
#[cfg(feature = "postgres")]
progress_suite!(
    in_postgres,
    crate::durable::store::suite::postgres::Postgres
);
#[cfg(feature = "sqlite-unbundled")]
progress_suite!(in_sqlite, crate::durable::store::suite::sqlite::Sqlite);
#[cfg(feature = "redis")]
progress_suite!(in_redis, crate::durable::store::suite::redis::Redis);
