//! What every store has to do, as cases that run on each of them, and a [machine](machine_tests)
//! that holds a store to the model.
//!
//! A new store needs a [`Harness`], and one line at the end of this file.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::Store;
use crate::durable::clock::Clock;

mod awaiting_tests;
mod baseline_tests;
mod cancel_tests;
mod claims_tests;
mod clock_tests;
mod dead_letters_tests;
mod enqueue_tests;
mod errors_tests;
mod events_tests;
mod fences_tests;
mod leases_tests;
mod machine_tests;
mod memory;
mod process;
#[cfg(feature = "redis")]
mod redis;
mod sessions_tests;
#[cfg(feature = "sqlite-unbundled")]
mod sqlite;
mod types_tests;
mod unserved_tests;
mod verdicts_tests;

/// A store of one kind, for one test, and the processes that use it.
trait Harness {
    /// Returns `true` if stores of this kind can be tested on this machine.
    fn is_available() -> bool
    where
        Self: Sized,
    {
        true
    }

    /// An empty store, on a clock that stands still.
    fn new() -> Self
    where
        Self: Sized;

    fn clock(&self) -> &Clock;

    /// One more process that uses the store.
    fn connect(&self) -> Store;

    /// A process dies as by `kill -9`: it says nothing, and the store can know that it is dead.
    fn kill(&self, process: Store);

    /// Advances the clock, and store time as regular maintenance does, but removes nothing.
    fn age(&self, time: Duration) {
        self.clock().advance(time);
    }

    /// How many things of any kind the store holds, except for its counts and its layout: for a
    /// store that can tell.
    fn leftovers(&self) -> u64;

    /// Returns `true` if its claims are those of the model also where sessions or tasks differ in their types.
    fn knows_types(&self) -> bool {
        true
    }
}

type Case<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs a case on an empty store.
fn run<H: Harness>(case: fn(&dyn Harness) -> Case<'_>) {
    if H::is_available() {
        runtime().block_on(case(&H::new()));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

/// One test for each case, on one kind of store.
macro_rules! store_suite {
    ($store:ident, $harness:ty, $sequences:expr) => {
        mod $store {
            store_suite! { of $harness;
                enqueue_tests {
                    what_was_stored_is_claimed_as_it_was
                    a_repeated_enqueue_stores_once
                    a_number_with_other_tasks_is_refused
                    an_older_number_is_refused
                    an_enqueue_of_nothing_does_not_burn_its_number
                    an_unknown_session_is_refused
                    an_id_twice_in_one_batch_is_stored_once
                    a_stored_id_changes_nothing_while_it_waits
                    a_stored_id_changes_nothing_while_it_is_delayed
                    a_stored_id_changes_nothing_while_it_runs
                    a_stored_id_changes_nothing_when_it_is_done
                    a_stored_id_changes_nothing_when_it_is_dead
                    a_stored_id_changes_nothing_when_it_is_cancelled
                    an_id_is_free_when_its_end_is_kept_no_longer
                    a_full_batch_is_stored_in_its_order
                    names_and_payloads_may_be_anything
                    big_payloads_and_outputs_come_back
                }
                claims_tests {
                    first_in_first_out_over_sessions
                    a_delayed_task_waits_for_its_time
                    what_is_due_goes_to_the_tail_the_earliest_first
                    a_claim_has_at_most_what_is_wanted
                    a_claim_has_at_most_the_bytes_wanted_but_one_task
                    want_nothing_get_nothing
                    next_is_the_earliest_due
                    next_is_the_end_of_the_own_lease
                    epochs_rise_over_all_claims
                    a_repeated_turn_returns_the_same_claim
                    a_repeated_turn_returns_what_is_still_held
                    a_repeated_turn_applies_its_verdicts_once
                    a_repeated_turn_renews_its_lease
                    a_repeated_turn_only_says_what_is_to_be_done
                    an_idle_turn_does_not_burn_its_number
                    a_turn_with_verdicts_burns_its_number
                    an_enqueue_ends_the_memory_of_a_claim
                    no_session_sees_the_claim_of_another
                    an_older_turn_is_refused
                    a_turn_of_no_session_is_refused
                }
                verdicts_tests {
                    done_keeps_its_output
                    done_without_retention_is_gone
                    retry_counts_and_waits
                    snooze_waits_and_counts_nothing
                    a_retry_at_once_goes_behind_those_that_wait
                    released_tasks_come_first_by_id
                    dead_is_kept_with_its_reason
                    verdicts_count_before_the_claim_of_their_turn
                    another_session_may_bring_a_verdict
                    a_full_batch_of_verdicts_is_taken
                }
                fences_tests {
                    a_verdict_after_reap_and_claim_is_refused
                    a_verdict_after_the_end_is_refused
                    a_verdict_for_an_earlier_life_is_refused
                    a_verdict_for_the_task_of_another_claim_is_refused
                    a_verdict_for_what_never_was_is_refused
                    an_epoch_is_above_what_its_process_has_received
                    good_and_stale_verdicts_are_told_apart
                }
                leases_tests {
                    a_late_claim_is_suspected_before_it_is_reaped
                    a_beat_clears_suspicion
                    a_beat_renews_a_lease
                    a_suspect_that_brings_verdicts_is_heard
                    an_unconfirmed_claim_is_lost
                    a_claim_confirmed_by_a_beat_has_crashed
                    a_claim_confirmed_by_a_later_turn_has_crashed
                    too_many_crashes_bury
                    a_loss_counts_as_one_death
                    a_loss_after_a_crash_can_be_the_last_death
                    a_late_copy_of_an_idle_turn_costs_nothing
                    what_a_living_worker_does_not_renew_has_not_crashed
                    a_worker_that_suspects_itself_has_not_crashed
                    a_worker_that_was_heard_before_has_crashed
                    lost_claims_never_bury
                    a_beat_tells_of_lost_claims
                    reaped_tasks_come_before_those_that_wait
                    of_risky_tasks_a_worker_has_one
                }
                sessions_tests {
                    the_dead_give_back_at_once
                    the_living_keep_what_they_have
                    a_closed_session_gives_back
                    a_closed_session_is_unknown
                    a_session_is_issued_once
                    a_new_process_never_repeats_the_claim_of_a_dead_one
                }
                cancel_tests {
                    a_waiting_task_is_cancelled_at_once
                    a_delayed_task_is_cancelled_at_once
                    what_has_ended_is_not_cancelled
                    a_cancelled_task_without_retention_is_gone
                    a_running_task_is_cancelled_when_its_worker_says
                    a_cancelled_run_that_is_done_is_done
                    a_cancelled_run_that_is_dead_is_cancelled
                    a_cancelled_task_does_not_survive_its_worker
                    a_beat_tells_what_is_to_be_cancelled
                    a_flag_ends_with_its_task
                }
                awaiting_tests {
                    a_look_sees_every_state
                    a_look_answers_in_the_order_of_the_ids
                    a_look_writes_nothing
                    an_end_is_kept_to_the_millisecond
                }
                dead_letters_tests {
                    the_newest_is_first
                    a_list_has_at_most_its_limit
                    filters_choose
                    a_replayed_letter_has_a_new_life
                    replayed_letters_wait_in_the_order_of_their_ids
                    a_buried_letter_is_gone
                    a_letter_is_kept_for_its_time
                    maintenance_keeps_to_its_budget
                    maintenance_keeps_the_newest_letters
                }
                errors_tests {
                    errors_are_kept_until_the_task_succeeds
                    the_last_errors_are_kept
                    a_dead_letter_has_the_errors_before
                    a_crash_keeps_errors
                    a_cancelled_task_has_no_errors
                }
                events_tests {
                    ready_comes_first
                    the_end_is_told_to_who_stored_and_looked
                    the_end_is_told_to_who_looked
                    every_kind_of_end_is_told
                    a_cancel_is_told_to_who_runs
                    a_stored_task_wakes
                    a_delayed_task_wakes_by_its_time
                    time_wakes
                    a_replayed_letter_wakes
                    a_released_task_wakes
                    a_death_wakes
                    no_wake_is_lost
                }
                clock_tests {
                    a_clock_that_runs_ahead_for_a_while_removes_nothing
                    a_clock_that_was_behind_removes_nothing
                    a_store_that_is_made_in_1970_removes_nothing
                    a_step_moves_a_start_and_loses_no_task
                    passes_of_maintenance_remove_what_is_over
                    a_clock_that_is_set_back_keeps_nothing_for_longer
                }
                baseline_tests {
                    the_ledger_adds_up
                    nothing_is_left
                }
            }

            #[test]
            fn it_does_what_the_model_does() {
                super::machine_tests::hold::<$harness>($sequences);
            }
        }
    };
    (types of $harness:ty) => {
        store_suite! { of $harness;
            types_tests {
                a_claim_has_only_types_that_its_session_knows
                a_type_that_nobody_knows_waits_for_a_worker
                a_task_in_a_newer_envelope_waits_for_a_newer_worker
                a_backlog_of_another_type_is_in_nobodys_way
                types_that_part_keep_their_order
                what_is_given_back_comes_first_among_its_type
                what_becomes_due_goes_to_those_who_know_it
                a_cancelled_task_leaves_its_list
                workers_come_and_go_and_nothing_is_lost
                a_session_keeps_its_set
                a_wake_goes_to_one_that_knows_the_type
                no_wake_for_a_type_is_lost
            }
            unserved_tests {
                tasks_that_no_live_worker_knows_are_unserved
                a_worker_that_is_killed_serves_nothing
                tasks_in_a_list_that_drains_are_told_apart
                a_cancelled_task_is_not_unserved
            }
        }
    };
    (time of $harness:ty) => {
        store_suite! { of $harness;
            clock_tests { a_pass_moves_store_time_by_a_minute_at_most }
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

mod types_in_memory {
    store_suite!(types of super::memory::Memory);
}
#[cfg(feature = "sqlite-unbundled")]
mod types_in_sqlite {
    store_suite!(types of super::sqlite::Sqlite);
}
#[cfg(feature = "redis")]
mod types_in_redis {
    store_suite!(types of super::redis::Redis);
}

// These tests do not apply to a store in memory. It does not outlive the machine's clock, which is its store time.
#[cfg(feature = "sqlite-unbundled")]
mod time_in_sqlite {
    store_suite!(time of super::sqlite::Sqlite);
}
#[cfg(feature = "redis")]
mod time_in_redis {
    store_suite!(time of super::redis::Redis);
}

store_suite!(in_memory, crate::durable::store::suite::memory::Memory, 256);
// Fewer: each request waits for the disk.
#[cfg(feature = "sqlite-unbundled")]
store_suite!(in_sqlite, crate::durable::store::suite::sqlite::Sqlite, 64);
#[cfg(feature = "redis")]
store_suite!(in_redis, crate::durable::store::suite::redis::Redis, 128);
