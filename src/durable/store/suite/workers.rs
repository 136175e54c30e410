//! The tests of the list of workers, which run on each store.

use super::{Harness, process};

pub mod workers_tests;

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_workers {
    ($harness:ty) => {
        $crate::__store_cases! { workers of $harness;
            workers_tests {
                a_worker_is_listed_with_its_card
                a_session_without_a_card_is_not_listed
                a_worker_is_found_by_its_session
                a_closed_session_is_no_worker
                a_dead_worker_is_gone
                a_worker_whose_lease_has_expired_is_suspect
                pages_of_workers_follow_each_other
                foreign_positions_in_workers_are_refused
                a_card_stays_as_it_was_written
            }
        }
    };
}
