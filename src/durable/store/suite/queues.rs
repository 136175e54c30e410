//! The tests of named queues, which run on each store.

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_queues {
    ($harness:ty) => {
        $crate::__store_cases! { of $harness;
            queues_tests {
                a_session_claims_only_tasks_of_its_queue
                a_task_of_a_queue_that_nobody_serves_waits
                tasks_of_a_queue_start_in_the_order_of_storing
                a_released_task_is_first_in_its_queue
                a_task_returns_to_its_queue_and_priority
                a_waiting_task_of_a_queue_is_cancelled
                a_stored_id_stays_in_its_queue
                a_paused_queue_starts_nothing
                a_queue_keeps_its_pause_and_its_limits
                a_store_describes_a_queue
                settings_of_an_earlier_revision_are_ignored
                workers_of_a_queue_may_know_different_types
                a_paused_type_waits_in_every_queue_and_priority
                nothing_is_left_of_a_queue
            }
            limits_tests {
                no_more_tasks_run_than_the_limit
                each_queue_has_a_limit_of_its_own
                a_verdict_of_any_kind_frees_one_permit
                a_verdict_that_is_sent_twice_frees_one_permit
                a_repeated_claim_takes_its_permits_once
                a_turn_reuses_the_permits_that_it_frees
                a_lowered_limit_lets_tasks_end
                the_tasks_of_a_dead_worker_keep_to_the_limit
                a_late_verdict_frees_no_permit
                a_dead_letter_of_a_crash_frees_its_permit
                a_closed_session_frees_its_permits
                a_cancelled_run_frees_its_permit_when_it_ends
                a_paused_type_does_not_count_as_running
            }
            rates_tests {
                a_burst_starts_and_then_one_task_per_interval
                a_rate_is_shared_by_all_workers
                a_repeated_turn_uses_the_rate_once
                only_a_start_uses_the_rate
                a_rate_and_a_limit_hold_together
                a_rate_outlasts_maintenance
                a_changed_rate_holds_at_once
                a_clock_that_is_put_back_stops_no_queue
            }
            priorities_tests {
                a_higher_priority_starts_first
                a_higher_priority_starts_first_within_a_limit
                a_late_claim_delays_no_other_priority
                a_claim_of_some_bytes_keeps_the_order_of_priorities
                a_task_keeps_its_place_in_its_priority
                lower_priorities_get_their_share
                priorities_wait_while_their_type_is_paused
                the_first_priority_keeps_the_order_of_a_backlog
                priorities_of_an_unknown_type_wait_for_a_worker
                the_first_task_of_a_priority_wakes_a_worker
            }
            queue_wakes_tests {
                a_new_task_wakes_a_session_of_its_queue
                a_new_task_wakes_nobody_while_its_queue_is_full
                a_new_task_wakes_nobody_while_its_queue_is_paused
                a_freed_permit_wakes_a_session
                a_cancelled_run_that_ends_wakes_a_session
                a_raised_limit_wakes_a_session
                a_turn_that_leaves_tasks_and_room_wakes_another
                a_freed_permit_wakes_a_session_of_each_type
                verdicts_of_a_worker_wake_workers_of_other_types
                a_dead_worker_wakes_a_session
                a_claim_that_is_taken_back_wakes_a_session
                a_task_that_ends_with_its_worker_wakes_a_session
                a_closed_session_wakes_a_session
                a_due_task_wakes_a_session_of_its_queue
                a_session_that_must_wait_for_the_rate_is_woken
                a_full_worker_has_another_one_wait_for_the_rate
                a_resumed_type_wakes_a_session_of_each_queue
                no_wake_up_of_a_limited_queue_is_lost
            }
        }
    };
}
