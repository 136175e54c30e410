//! The tests of progress, which run on each store.

use super::{Harness, process};

pub mod progress_tests;

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_progress {
    ($harness:ty) => {
        $crate::__store_cases! { progress of $harness;
            progress_tests {
                the_last_report_is_stored
                an_earlier_report_never_replaces_a_later_one
                only_the_run_that_holds_the_task_reports
                progress_is_kept_until_the_next_run
                progress_is_kept_when_a_worker_dies
                an_end_removes_progress
                a_death_of_crashes_removes_progress
                a_replayed_or_new_task_has_no_progress
                a_full_batch_of_large_reports_is_stored
            }
        }
    };
}
