//! The names of the cases: the macro `store_suite`.

/// One test for each case, on one kind of store.
macro_rules! store_suite {
    ($store:ident, $harness:ty, $sequences:expr) => {
        mod $store {
            store_suite! { of $harness;
                enqueue_tests {
                    a_claimed_task_is_as_it_was_stored
                    a_repeated_enqueue_stores_once
                    a_number_with_other_tasks_is_refused
                    an_older_number_is_refused
                    an_empty_enqueue_does_not_use_its_number
                    an_unknown_session_is_refused
                    an_id_twice_in_one_batch_is_stored_once
                    a_stored_id_changes_nothing_while_it_waits
                    a_stored_id_changes_nothing_while_it_is_delayed
                    a_stored_id_changes_nothing_while_it_runs
                    a_stored_id_changes_nothing_when_it_is_done
                    a_stored_id_changes_nothing_when_it_is_dead
                    a_stored_id_changes_nothing_when_it_is_cancelled
                    an_id_is_free_when_its_task_has_expired
                    a_full_batch_is_stored_in_its_order
                    names_and_payloads_may_be_anything
                    large_payloads_and_outputs_are_stored
                }
                claims_tests {
                    first_in_first_out_over_sessions
                    a_delayed_task_waits_for_its_time
                    due_tasks_go_to_the_tail_the_earliest_first
                    a_claim_is_limited_to_the_wanted_number
                    a_claim_is_limited_to_the_wanted_bytes_but_has_one_task
                    a_turn_that_wants_nothing_claims_nothing
                    the_next_check_is_when_a_task_is_due
                    the_next_check_is_when_the_own_lease_expires
                    epochs_rise_over_all_claims
                    a_repeated_turn_returns_the_same_claim
                    a_repeated_turn_returns_the_tasks_still_held
                    a_repeated_turn_applies_its_verdicts_once
                    a_repeated_turn_renews_its_lease
                    a_repeated_turn_only_reports_expired_leases
                    an_idle_turn_does_not_use_its_number
                    a_turn_with_verdicts_uses_its_number
                    a_claim_is_not_repeated_after_an_enqueue
                    a_session_does_not_get_the_claim_of_another
                    an_older_turn_is_refused
                    a_turn_of_no_session_is_refused
                }
                verdicts_tests {
                    done_keeps_its_output
                    done_without_retention_is_gone
                    retry_counts_and_waits
                    snooze_waits_and_counts_nothing
                    an_immediate_retry_goes_behind_waiting_tasks
                    released_tasks_come_first_by_id
                    a_dead_letter_has_its_reason
                    verdicts_count_before_the_claim_of_their_turn
                    another_session_may_report_a_verdict
                    a_full_batch_of_verdicts_is_accepted
                }
                fences_tests {
                    a_verdict_after_reap_and_claim_is_refused
                    a_verdict_after_the_end_is_refused
                    a_verdict_from_before_a_replay_is_refused
                    a_verdict_for_the_task_of_another_claim_is_refused
                    a_verdict_for_an_unknown_task_is_refused
                    an_epoch_is_above_all_that_its_process_has_received
                    valid_and_stale_verdicts_are_distinguished
                }
                leases_tests {
                    a_late_claim_is_suspected_before_it_is_reaped
                    a_renewal_clears_suspicion
                    a_renewal_extends_a_lease
                    verdicts_on_a_suspect_claim_are_accepted
                    an_unconfirmed_claim_is_lost
                    a_claim_confirmed_by_a_renewal_has_crashed
                    a_claim_confirmed_by_a_later_turn_has_crashed
                    too_many_crashes_make_a_dead_letter
                    a_loss_counts_as_one_death
                    a_loss_after_a_crash_can_be_the_last_death
                    a_late_copy_of_an_idle_turn_costs_nothing
                    a_claim_that_a_live_worker_does_not_renew_has_not_crashed
                    a_worker_that_suspects_itself_has_not_crashed
                    a_worker_that_was_last_active_in_its_lease_has_crashed
                    lost_claims_never_make_a_dead_letter
                    a_renewal_reports_lost_claims
                    reaped_tasks_go_before_waiting_tasks
                    a_worker_holds_one_quarantined_task
                }
                sessions_tests {
                    the_tasks_of_a_dead_process_return_at_once
                    a_live_process_keeps_its_claims
                    a_closed_session_returns_its_tasks
                    a_closed_session_is_unknown
                    a_session_is_issued_once
                    a_new_process_never_repeats_the_claim_of_a_dead_one
                }
                cancel_tests {
                    a_waiting_task_is_cancelled_at_once
                    a_delayed_task_is_cancelled_at_once
                    an_ended_task_is_not_cancelled
                    a_cancelled_task_without_retention_is_gone
                    a_running_task_is_cancelled_by_its_worker
                    a_cancelled_run_that_is_done_is_done
                    a_cancelled_run_that_is_dead_is_cancelled
                    a_cancelled_task_does_not_survive_its_worker
                    a_renewal_reports_tasks_to_cancel
                    a_cancel_request_ends_with_its_task
                }
                status_tests {
                    status_reports_every_state
                    status_is_in_the_order_of_the_ids
                    status_writes_nothing
                    a_result_is_retained_to_the_millisecond
                }
                dead_letters_tests {
                    the_newest_dead_letter_is_first
                    a_list_of_dead_letters_has_at_most_its_limit
                    filters_select_dead_letters
                    a_dead_letter_has_its_payload
                    only_a_dead_letter_has_a_payload
                    a_replayed_or_deleted_dead_letter_has_no_payload
                    a_replayed_dead_letter_starts_afresh
                    replayed_dead_letters_wait_in_the_order_of_their_ids
                    a_deleted_dead_letter_is_gone
                    a_dead_letter_expires
                    maintenance_keeps_to_its_budget
                    maintenance_keeps_the_newest_dead_letters
                }
                errors_tests {
                    errors_are_kept_until_the_task_succeeds
                    the_last_errors_are_kept
                    a_dead_letter_has_the_errors_of_earlier_attempts
                    a_claim_says_how_long_its_task_has_been_failing
                    a_repeated_claim_says_how_long_its_task_has_been_failing
                    a_replayed_dead_letter_starts_to_fail_anew
                    another_task_with_the_same_id_has_not_failed
                    a_crash_keeps_errors
                    a_cancelled_task_has_no_errors
                }
                events_tests {
                    the_first_event_is_ready
                    an_end_is_reported_to_a_producer_that_awaits_it
                    an_end_is_reported_to_any_process_that_awaits_it
                    every_kind_of_end_is_reported
                    a_cancellation_is_reported_to_the_worker
                    a_stored_task_wakes_a_worker
                    a_delayed_task_wakes_a_worker_in_time
                    the_clock_wakes_workers
                    a_replayed_dead_letter_wakes_a_worker
                    a_released_task_wakes_a_worker
                    a_dead_process_wakes_a_worker
                    no_wake_up_is_lost
                }
                clock_tests {
                    a_clock_that_runs_ahead_for_a_while_removes_nothing
                    a_clock_that_was_behind_removes_nothing
                    a_store_that_is_made_in_1970_removes_nothing
                    a_clock_step_moves_a_start_and_loses_no_task
                    maintenance_removes_expired_tasks
                    a_clock_that_is_set_back_keeps_nothing_for_longer
                }
                baseline_tests {
                    the_totals_add_up
                    nothing_is_left
                }
            }

            #[test]
            fn it_behaves_like_the_model() {
                super::machine_tests::compare_sequences::<$harness>($sequences);
            }
        }
    };
    (types of $harness:ty) => {
        store_suite! { of $harness;
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
    (queues of $harness:ty) => {
        store_suite! { of $harness;
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
    (of $harness:ty; $($file:ident { $($case:ident)+ })+) => {
        $($(
            #[test]
            fn $case() {
                super::run::<$harness>(|it| Box::pin(super::$file::$case(it)));
            }
        )+)+
    };
}
