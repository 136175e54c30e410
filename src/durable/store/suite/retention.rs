//! The tests of how long, and how many, ended tasks are kept, which run on each store.

use super::{Harness, process};

pub mod retention_tests;

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_retention {
    ($harness:ty) => {
        $crate::__store_cases! { retention of $harness;
            retention_tests {
                a_retention_applies_to_all_processes
                a_shorter_time_hides_dead_letters_at_once
                a_shorter_time_frees_keys_and_ids_at_once
                a_longer_time_keeps_what_has_not_expired
                dead_letters_that_have_expired_do_not_come_back
                the_oldest_dead_letters_in_excess_are_removed
                all_dead_letters_can_be_in_excess
                the_ends_in_excess_that_expire_first_are_removed
                all_ends_can_be_in_excess
                a_higher_maximum_keeps_what_is_left
            }
        }
    };
}
