//! The tests of the overview and of reports, which run on each store.

use super::{Harness, process, scheduler};

pub mod overview_tests;
pub mod report_tests;

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_overview {
    ($harness:ty) => {
        $crate::__store_cases! { overview of $harness;
            overview_tests {
                an_empty_store_has_the_default_queue
                queues_add_up_to_the_counts
                an_overview_describes_queues
                a_paused_queue_without_workers_has_waiting_tasks
                an_overview_describes_types
                types_of_a_closed_session_are_not_served_although_it_was_refused
                a_type_that_no_worker_knows_is_listed
                the_oldest_task_has_waited_longest
                tasks_that_have_left_a_queue_wait_there_no_longer
                sessions_of_dead_processes_do_not_serve
                an_overview_has_a_limited_number_of_rows
                an_overview_writes_nothing
            }
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
                a_task_that_has_crashed_its_workers
                a_schedule_that_nobody_fires
                a_schedule_that_is_stuck
                a_report_writes_nothing
                a_check_of_writes_leaves_nothing
            }
        }
    };
}
