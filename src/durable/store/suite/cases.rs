//! The names of the cases: the macro `suite!`, and a macro for each topic. The other topics have theirs beside their cases.

/// Tests a kind of store: it expands to one test for each case of the [suite](crate::durable::store#the-suite).
///
/// The arguments are a type that implements [`Harness`](crate::durable::store::Harness), and the number of random sequences of requests
/// in which the store is compared with the model. With the environment variable `THRONG_LONG=1`, ten times as many are tried. If a
/// harness needs a second for each store, a small number is enough.
///
/// Use it in a module of its own, since it defines a module for each topic. The features of `throng` decide which cases there are: those
/// of cron expressions need `cron`.
///
/// # Examples
///
/// ```ignore
/// #[cfg(test)]
/// mod tests {
///     throng::durable::store::suite!(super::MyHarness, 64);
/// }
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __store_suite {
    ($harness:ty, $sequences:expr) => {
        type SuiteHarness = $harness;
        $crate::__store_suite_tasks!(SuiteHarness);

        #[test]
        fn it_behaves_like_the_model() {
            use $crate::durable::store::suite::machine_tests::compare_sequences;
            compare_sequences::<SuiteHarness>($sequences);
        }

        mod changes {
            $crate::__store_suite_changes!(super::SuiteHarness);
        }
        mod children {
            $crate::__store_suite_children!(super::SuiteHarness);
        }
        mod cron {
            $crate::__store_suite_cron!(super::SuiteHarness);
        }
        mod details {
            $crate::__store_suite_details!(super::SuiteHarness);
        }
        mod groups {
            $crate::__store_suite_groups!(super::SuiteHarness);
        }
        mod keys {
            $crate::__store_suite_keys!(super::SuiteHarness);
        }
        mod lists {
            $crate::__store_suite_lists!(super::SuiteHarness);
        }
        mod observers {
            $crate::__store_suite_observers!(super::SuiteHarness);
        }
        mod overview {
            $crate::__store_suite_overview!(super::SuiteHarness);
        }
        mod progress {
            $crate::__store_suite_progress!(super::SuiteHarness);
        }
        mod queues {
            $crate::__store_suite_queues!(super::SuiteHarness);
        }
        mod retention {
            $crate::__store_suite_retention!(super::SuiteHarness);
        }
        mod schedules {
            $crate::__store_suite_schedules!(super::SuiteHarness);
        }
        mod stats {
            $crate::__store_suite_stats!(super::SuiteHarness);
        }
        mod steps {
            $crate::__store_suite_steps!(super::SuiteHarness);
        }
        mod time {
            $crate::__store_suite_time!(super::SuiteHarness);
        }
        mod types {
            $crate::__store_suite_types!(super::SuiteHarness);
        }
        mod workers {
            $crate::__store_suite_workers!(super::SuiteHarness);
        }
    };
}

/// Defines one test for each of these cases. The modules of a topic are in its module.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_cases {
    ($topic:ident of $harness:ty; $($file:ident { $($case:ident)+ })+) => {
        $($(
            #[test]
            fn $case() {
                use $crate::durable::store::suite;
                suite::run::<$harness>(|it| Box::pin(suite::$topic::$file::$case(it)));
            }
        )+)+
    };
    (of $harness:ty; $($file:ident { $($case:ident)+ })+) => {
        $($(
            #[test]
            fn $case() {
                use $crate::durable::store::suite;
                suite::run::<$harness>(|it| Box::pin(suite::$file::$case(it)));
            }
        )+)+
    };
}

/// The cases of tasks, claims, verdicts and leases.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_tasks {
    ($harness:ty) => {
        $crate::__store_cases! { of $harness;
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
                verdicts_of_several_claims_count_each_for_its_own
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
    };
}

/// The cases of store time.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_time {
    ($harness:ty) => {
        $crate::__store_cases! { of $harness;
            clock_tests {
                maintenance_advances_store_time_by_a_minute_at_most
            }
        }
    };
}
