//! The tests of changes of single tasks, which run on each store.

use super::{Harness, process};

pub mod changes_tests;
pub mod moves_tests;

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_changes {
    ($harness:ty) => {
        $crate::__store_cases! { changes of $harness;
            changes_tests {
                a_delayed_task_is_due_now
                tasks_are_made_due_in_the_order_of_the_request
                a_task_that_is_due_now_wakes_a_worker
                only_delayed_tasks_are_made_due
                limits_and_holds_apply_to_a_task_that_is_due_now
                a_task_that_is_due_now_can_still_be_replaced
                a_waiting_task_moves_behind_those_that_wait_there
                a_delayed_task_moves_and_stays_delayed
                a_task_moves_back
                a_moved_task_whose_old_entry_differs_moves_as_it_is
                only_waiting_and_delayed_tasks_move
                a_moved_task_is_as_before
                a_moved_task_keeps_its_priority_and_its_group
                a_moved_task_keeps_its_key
                a_task_that_a_spawn_may_replace_does_not_move
                a_moved_task_wakes_a_worker_of_its_queue
                a_moved_task_is_cancelled_and_counted_once
                a_moved_task_is_listed_in_its_queue
                a_moved_task_keeps_to_the_limit_of_its_queue
                a_group_whose_tasks_have_moved_takes_no_turn
                a_task_in_a_long_queue_is_found
                dead_letters_are_replayed_and_deleted_one_by_one
                a_change_answers_for_each_task
            }
            moves_tests {
                all_waiting_tasks_move
                tasks_move_by_name_and_queue
                tasks_that_came_later_do_not_move
                tasks_that_cannot_move_are_refused_once
                tasks_move_while_others_come_and_go
                foreign_positions_of_moves_are_refused
            }
        }
    };
}
