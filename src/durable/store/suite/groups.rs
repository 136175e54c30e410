//! The tests of groups, which run on each store.

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_groups {
    ($harness:ty) => {
        $crate::__store_cases! { of $harness;
            groups_tests {
                groups_take_turns
                a_claimed_task_has_its_group
                a_group_starts_its_quantum_before_the_next
                a_group_that_gets_a_task_goes_behind_the_others
                tasks_without_a_group_come_last
                groups_take_turns_in_each_priority
                a_group_with_many_tasks_delays_no_other
                tasks_of_a_group_of_one_start_in_the_order_of_storing
                no_more_tasks_of_a_group_run_than_its_limit
                a_group_has_one_limit_for_all_its_tasks
                a_verdict_of_any_kind_frees_one_permit_of_its_group
                the_group_of_a_dead_worker_waits_until_its_task_is_taken_back
                a_released_task_is_the_first_of_its_group
                a_limit_of_groups_is_lowered_and_raised
                cancelled_tasks_may_be_all_of_a_group
                tasks_of_a_group_change_their_lists
                nothing_is_left_of_a_group
                a_group_keeps_its_turn_while_its_list_drains
                quarantined_tasks_of_many_groups_delay_no_other_group
                quarantined_tasks_of_many_groups_delay_no_other_list
                a_group_is_held_in_a_list_that_no_worker_reads
            }
            draining_groups_tests {
                groups_that_wait_for_the_first_worker_take_turns
                groups_of_several_draining_lists_take_turns
                groups_take_turns_after_a_type_is_paused
                more_groups_than_a_turn_drains_take_turns
                groups_of_two_draining_lists_are_served_in_one_order
                full_groups_drain_after_tasks_without_a_group
                tasks_without_a_group_drain_beside_a_group
                nothing_is_left_of_groups_that_have_drained
                a_group_of_cancelled_tasks_has_no_turn_in_a_draining_list
            }
            grouped_keys_tests {
                a_replaced_task_stays_in_its_group
                a_replaced_task_keeps_its_place_in_its_group
                the_group_of_a_postponed_task_loses_its_turn
                a_group_with_tasks_before_and_after_a_request_keeps_its_turn
                a_delayed_task_of_a_group_becomes_ready_by_a_replacement
                a_task_that_joins_or_is_rejected_is_in_no_group
                nothing_is_left_of_groups_with_keys
                a_task_of_a_held_group_can_be_replaced
                a_replaced_task_of_a_full_group_wakes_nobody
                a_replaced_task_of_another_envelope_stays_in_its_group
            }
            group_holds_tests {
                a_held_group_starts_nothing_until_its_hold_is_over
                a_group_that_is_held_goes_behind_the_others
                a_verdict_of_any_kind_can_hold_its_group
                a_hold_may_be_over_while_its_group_is_empty
                a_hold_may_be_over_while_its_group_is_full
                a_later_hold_replaces_an_earlier_one
                holds_of_many_groups_end_at_the_same_time
                a_shorter_hold_wakes_a_session
                a_full_worker_has_another_one_wait_for_a_hold
                a_freed_permit_of_a_group_wakes_a_session
                a_raised_limit_of_groups_wakes_a_session
                a_worker_that_wants_nothing_waits_for_a_hold
                a_worker_that_a_claim_fills_hands_a_hold_on
            }
        }
    };
}
