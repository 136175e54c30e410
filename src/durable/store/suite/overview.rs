//! The tests of the overview, which run on each store.

use super::run;

mod overview_tests;

/// Defines one test for each case, on one store.
macro_rules! overview_suite {
    ($store:ident, $harness:ty) => {
        mod $store {
            store_suite! { of $harness;
                overview_tests {
                    an_empty_store_has_the_default_queue
                    queues_add_up_to_the_counts
                    an_overview_describes_queues
                    an_overview_describes_types
                    a_type_that_no_worker_knows_is_listed
                    the_oldest_task_has_waited_longest
                    tasks_that_have_left_a_queue_wait_there_no_longer
                    sessions_of_dead_processes_do_not_serve
                    an_overview_has_a_limited_number_of_rows
                    an_overview_writes_nothing
                }
            }
        }
    };
}

overview_suite!(in_memory, crate::durable::store::suite::memory::Memory);
#[cfg(feature = "sqlite-unbundled")]
overview_suite!(in_sqlite, crate::durable::store::suite::sqlite::Sqlite);
#[cfg(feature = "redis")]
overview_suite!(in_redis, crate::durable::store::suite::redis::Redis);
