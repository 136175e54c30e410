//! The tests of lists, which run on each store.

use super::{Harness, process};

pub mod lists_tests;

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_lists {
    ($harness:ty) => {
        $crate::__store_cases! { lists of $harness;
            lists_tests {
                an_empty_store_has_empty_lists
                a_task_is_in_the_list_of_its_status
                dead_and_cancelled_tasks_are_listed
                cancelled_tasks_keep_their_names
                only_a_run_that_has_ended_has_a_duration
                pages_follow_each_other
                delayed_tasks_are_in_the_order_of_their_times
                the_newest_dead_letters_are_listed_first
                expired_ends_are_in_no_list
                filters_select_tasks
                the_default_queue_can_be_selected
                a_filter_selects_tasks_that_wait_for_another_attempt
                a_filter_selects_the_tasks_of_a_worker
                types_that_no_worker_knows_are_listed
                a_task_that_was_replaced_is_listed_by_its_name
                a_task_that_waits_throughout_is_listed
                foreign_positions_are_refused
                pages_from_any_position_come_to_an_end
                a_list_writes_nothing
            }
        }
    };
}
