//! The tests of the report, which run on each store.

use super::{Harness, process, run, scheduler};

mod report_tests;

/// Defines one test for each case, on one store.
macro_rules! report_suite {
    ($store:ident, $harness:ty) => {
        mod $store {
            store_suite! { of $harness;
                report_tests {
                    a_store_in_order_has_no_findings
                    tasks_that_wait_without_any_worker
                    a_queue_that_nobody_serves
                    a_type_that_no_worker_of_its_queue_knows
                    a_paused_type_whose_tasks_wait
                    a_paused_queue_whose_tasks_wait
                    a_worker_that_is_silent
                    leases_that_nobody_takes_back
                    many_dead_letters
                    a_schedule_that_nobody_fires
                    a_schedule_that_is_stuck
                    a_report_writes_nothing
                }
            }
        }
    };
}

report_suite!(in_memory, crate::durable::store::suite::memory::Memory);
#[cfg(feature = "sqlite-unbundled")]
report_suite!(in_sqlite, crate::durable::store::suite::sqlite::Sqlite);
#[cfg(feature = "redis")]
report_suite!(in_redis, crate::durable::store::suite::redis::Redis);
