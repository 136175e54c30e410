//! The tests of single tasks and of the heads of queues, which run on each store.

use super::run;

mod found_tests;
mod heads_tests;

/// Defines one test for each case, on one store.
macro_rules! details_suite {
    ($store:ident, $harness:ty) => {
        mod $store {
            store_suite! { of $harness;
                found_tests {
                    an_absent_task_is_not_found
                    a_waiting_task_is_found
                    a_task_that_was_moved_back_still_names_its_parent
                    a_delayed_task_has_the_errors_of_its_attempts
                    a_running_task_shows_its_worker
                    a_suspect_is_shown_until_it_is_taken_back
                    a_cancelled_run_is_shown_until_it_ends
                    a_dead_letter_has_its_payload_and_its_whole_error
                    ends_are_found_until_they_expire
                    large_data_is_found_with_its_length
                    a_key_is_held_or_released
                    every_priority_is_known
                    finding_tasks_writes_nothing
                }
                heads_tests {
                    an_empty_queue_has_no_head
                    the_head_has_what_became_ready_first
                    a_head_has_the_tasks_of_one_queue
                    a_head_has_tasks_that_no_worker_knows
                    each_group_is_in_the_head
                    groups_that_are_held_or_full_are_in_the_head
                    cancelled_and_claimed_tasks_are_not_in_the_head
                    a_task_that_is_due_again_has_been_ready_since_then
                    a_task_that_is_given_back_has_waited_since_it_was_stored
                    a_replayed_task_has_been_ready_since_the_replay
                    a_replaced_task_is_in_the_head_once
                }
            }
        }
    };
}

details_suite!(in_memory, crate::durable::store::suite::memory::Memory);
#[cfg(feature = "postgres")]
details_suite!(
    in_postgres,
    crate::durable::store::suite::postgres::Postgres
);
#[cfg(feature = "sqlite-unbundled")]
details_suite!(in_sqlite, crate::durable::store::suite::sqlite::Sqlite);
#[cfg(feature = "redis")]
details_suite!(in_redis, crate::durable::store::suite::redis::Redis);
