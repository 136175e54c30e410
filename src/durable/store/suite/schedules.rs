//! The tests of schedules, on each store.

use super::{Harness, process, scheduler};

#[cfg(feature = "cron")]
pub mod cron_tests;
pub mod definitions_tests;
pub mod hand_outs_tests;
pub mod ticks_tests;

/// One test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_schedules {
    ($harness:ty) => {
        $crate::__store_cases! { schedules of $harness;
            hand_outs_tests {
                a_due_schedule_is_handed_out_to_one_worker
                a_schedule_is_handed_out_only_to_builds_that_compute_it
                many_due_schedules_are_handed_out_in_several_steps
                an_earlier_schedule_wakes_a_worker
                a_schedule_that_is_not_the_first_wakes_no_worker
                each_tick_is_stored_once_if_workers_die
                a_change_that_is_sent_again_fires_once
                only_one_of_two_workers_with_a_schedule_fires_it
                a_schedule_that_is_handed_out_early_does_not_fire
                a_paused_schedule_that_is_handed_out_does_not_fire
                a_task_is_in_the_queue_of_its_schedule
                nothing_is_left_of_a_removed_schedule
            }
            definitions_tests {
                a_definition_that_is_repeated_changes_nothing
                a_definition_that_changes_at_a_tick_loses_no_tick
                a_removed_schedule_does_not_repeat_a_tick
                a_new_schedule_whose_tick_has_passed_is_refused
                the_highest_revision_wins
                schedules_are_listed_in_pages
                an_unknown_schedule_cannot_be_changed
                fire_now_stores_a_task_and_keeps_the_ticks
                a_definition_that_cannot_be_read_is_listed_as_stuck
                a_definition_of_a_later_release_is_kept
                a_clock_that_was_far_ahead_does_not_silence_a_schedule
                a_definition_of_a_clock_that_was_ahead_is_replaced
                maintenance_corrects_a_hand_out_of_a_clock_that_was_ahead
                a_repeated_change_tells_which_task_holds_the_key
            }
            ticks_tests {
                missed_ticks_are_handled_as_the_option_says
                a_tick_is_not_repeated_if_the_clock_is_put_back
                a_schedule_that_is_computed_again_repeats_no_tick
                a_tick_is_skipped_while_an_earlier_task_has_not_ended
                a_dead_letter_does_not_block_the_next_tick
                a_waiting_task_takes_over_the_next_tick
                overlapping_tasks_are_allowed
                a_schedule_that_is_resumed_makes_up_for_missed_ticks
                jitter_delays_a_tick
            }
        }
    };
}

/// The cases of cron expressions.
#[cfg(feature = "cron")]
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_cron {
    ($harness:ty) => {
        $crate::__store_cases! { schedules of $harness;
            cron_tests {
                ticks_that_were_missed_at_night_are_made_up_for
                a_schedule_without_a_tick_is_stuck
            }
        }
    };
}

/// Without the feature `cron`, there are no such cases.
#[cfg(not(feature = "cron"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_cron {
    ($harness:ty) => {};
}
