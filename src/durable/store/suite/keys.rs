//! The tests of keys, which run on each store.

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_keys {
    ($harness:ty) => {
        $crate::__store_cases! { of $harness;
            keys_tests {
                a_repeated_enqueue_is_answered_as_the_first_time
                only_one_of_many_tasks_with_the_same_key_is_stored
                a_task_that_ends_frees_its_key
                a_task_that_is_tried_again_keeps_its_key
                a_task_that_dies_of_crashes_frees_its_key
                a_dead_letter_is_not_replayed_while_its_key_is_held
                the_first_of_two_dead_letters_with_a_key_is_replayed
                a_cancelled_task_frees_its_key_at_its_end
                a_deleted_dead_letter_frees_its_key
                a_key_that_a_claim_has_freed_is_never_held_again
                a_throttled_task_is_joined_after_its_end
                a_window_that_is_over_does_not_free_the_key_of_a_running_task
                setting_the_clock_back_extends_a_window_by_as_much
                a_live_task_takes_precedence_over_an_ended_task_in_its_window
                a_key_belongs_to_a_type_and_a_queue
                maintenance_removes_all_data_about_keys
            }
            held_keys_tests {
                tasks_that_are_sent_again_do_not_conflict_with_themselves
                a_task_that_is_sent_again_after_its_claim_does_not_hold_its_key_again
                a_replayed_dead_letter_keeps_its_window
                a_dead_letter_that_has_expired_holds_no_key
            }
            key_conflicts_tests {
                a_debounced_task_runs_once_with_the_last_payload
                tasks_of_a_batch_with_the_same_key_run_once_with_the_last_payload
                a_debounced_task_starts_at_the_latest_time
                a_replaced_task_keeps_its_place
                a_replaced_task_gets_a_new_delay
                a_replaced_task_that_becomes_ready_overtakes_no_other
                a_task_that_holds_its_key_until_it_ends_is_joined_instead_of_replaced
                an_ended_task_is_joined_instead_of_replaced
                a_large_payload_is_replaced
                a_task_is_rejected
                a_replaced_task_that_is_due_earlier_wakes_a_worker
                a_task_that_at_latest_makes_due_earlier_wakes_a_worker
                a_payload_in_a_newer_envelope_waits_for_a_newer_worker
            }
        }
    };
}
