//! The tests of the types that workers know, which run on each store.

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_types {
    ($harness:ty) => {
        $crate::__store_cases! { of $harness;
            types_tests {
                a_claim_has_only_types_that_its_session_knows
                a_task_of_an_unknown_type_waits_for_a_worker
                a_task_in_a_newer_envelope_waits_for_a_newer_worker
                a_backlog_of_another_type_delays_no_task
                types_that_are_split_keep_their_order
                a_released_task_is_first_among_its_type
                a_due_task_goes_to_workers_that_know_its_type
                a_cancelled_task_leaves_its_list
                workers_come_and_go_and_nothing_is_lost
                a_session_keeps_its_set
                a_wake_up_goes_to_a_worker_that_knows_the_type
                no_wake_up_for_a_type_is_lost
            }
            paused_types_tests {
                a_paused_type_is_not_claimed
                the_only_type_is_paused
                tasks_of_a_paused_type_keep_their_order
                a_run_of_a_paused_type_goes_on
                a_type_stays_paused_after_all_processes_exit
                a_paused_task_is_cancelled_at_once
                a_resumed_type_wakes_a_worker
                the_only_type_wakes_a_worker_when_it_is_resumed
                a_returned_task_is_claimed_with_those_that_wait
                a_task_that_returns_after_a_pause_is_claimed_at_once
                tasks_that_pass_two_lists_are_claimed_at_once
                a_backlog_of_a_paused_type_delays_no_task
                a_paused_task_is_not_unserved
                an_unknown_type_can_be_paused
            }
            versions_tests {
                a_task_of_a_newer_version_waits_for_a_newer_worker
                all_versions_of_a_type_are_paused
                a_replaced_task_has_the_version_of_its_payload
                a_worker_knows_many_versions
                a_version_that_no_worker_knows_is_unserved_while_its_type_is_paused
            }
            unserved_tests {
                tasks_that_no_live_worker_knows_are_unserved
                a_worker_that_is_killed_serves_nothing
                unserved_tasks_in_a_draining_list_are_counted
                a_cancelled_task_is_not_unserved
            }
        }
    };
}
