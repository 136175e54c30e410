//! The tests of steps, signals and suspended tasks.

use super::{Harness, process};

pub mod children_tests;
pub mod explorer_tests;
pub mod repeated_replays_tests;
pub mod replay_from_tests;
pub mod steps_tests;
pub mod suspensions_tests;

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_steps {
    ($harness:ty) => {
        $crate::__store_cases! { steps of $harness;
            steps_tests {
                the_first_value_of_a_step_stands
                steps_are_read_in_the_order_in_which_they_were_stored
                only_the_run_that_holds_the_task_stores_steps
                a_claim_says_how_many_steps_its_task_has
                steps_are_kept_when_the_task_runs_again
                steps_are_kept_when_a_worker_dies
                a_success_and_a_cancellation_remove_steps
                a_dead_letter_keeps_its_steps
                a_dead_letter_of_crashes_keeps_its_steps
                another_task_with_the_same_id_has_no_steps
                a_task_has_a_limited_number_of_steps
                the_steps_of_a_task_have_a_limited_size
                a_full_batch_of_steps_is_stored
                steps_say_how_old_they_are
            }
            explorer_tests {
                no_order_of_events_loses_a_wake_up
            }
            suspensions_tests {
                a_suspended_task_is_due_after_its_time
                a_signal_makes_a_suspended_task_ready
                a_signal_before_the_suspension_makes_the_task_ready_at_once
                a_task_waits_for_several_signals
                a_repeated_signal_wakes_nobody
                a_signal_is_for_a_task_that_has_not_ended
                a_signal_hastens_no_other_delay
                a_signal_waits_for_a_task_that_waits_or_runs
                a_suspension_forgets_failures
                a_suspension_forgets_crashes_and_lost_claims
                a_suspended_task_is_cancelled_at_once
                a_cancelled_run_that_is_suspended_is_cancelled
                a_repeated_suspension_takes_effect_once
                a_suspended_task_frees_its_permit
                a_suspended_task_of_a_group_returns_to_its_group
                a_signal_wakes_a_worker
                a_suspended_task_can_be_moved
                a_claim_says_how_the_wait_has_ended
                nothing_is_left_of_suspended_tasks
            }
            replay_from_tests {
                a_dead_letter_is_replayed_from_a_step
                a_suspended_task_is_replayed_from_a_step
                a_task_that_waits_keeps_its_place
                a_replay_has_an_effect_once
                only_tasks_that_do_not_run_are_replayed_from_a_step
                no_wake_up_is_lost_after_a_replay
                a_replay_from_a_step_needs_the_key
                a_replay_from_a_step_wakes_a_worker
                a_replay_makes_room_for_steps
                many_steps_are_removed_at_once
                nothing_is_left_of_replayed_tasks
                what_a_task_waits_for_is_found
            }
            repeated_replays_tests {
                a_replay_that_is_sent_again_has_one_effect
                a_replay_is_known_after_the_task_has_run_again
                each_replay_from_the_same_step_removes_it
                the_same_step_again_makes_a_delayed_task_due
                the_last_replay_decides_which_step_is_the_same
                the_replay_of_an_expired_dead_letter_is_not_known
                the_same_step_again_keeps_later_signals
                the_same_step_again_changes_no_task_that_waits
                a_replay_may_begin_before_the_step_that_it_names
                the_first_request_is_known_after_another_one
                the_same_record_again_keeps_later_signals
            }
        }
    };
}

/// Defines one test for each case with children, on one store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_children {
    ($harness:ty) => {
        $crate::__store_cases! { steps of $harness;
            children_tests {
                every_kind_of_end_is_a_step_of_the_parent
                the_last_child_wakes_its_parent
                a_child_that_ends_before_the_suspension_counts
                the_first_end_of_a_child_counts
                a_dead_letter_is_told_of_ends
                a_parent_that_has_ended_is_not_told
                an_end_is_stored_even_if_there_is_no_room
                outputs_of_children_leave_room
            }
        }
    };
}
