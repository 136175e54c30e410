//! The tests of statistics and of waiting times, which run on each store.

pub mod stats_tests;
pub mod waits_tests;

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_stats {
    ($harness:ty) => {
        $crate::__store_cases! { stats of $harness;
            stats_tests {
                reports_are_added_up
                a_repeated_report_counts_once
                the_clock_of_the_store_decides_the_minute
                minutes_are_kept_for_a_day_and_hours_for_a_month
                maintenance_removes_old_statistics
                a_clock_that_ran_ahead_leaves_nothing
                queues_and_names_are_told_apart
                a_minute_has_a_limited_number_of_types
                pages_follow_each_other
                a_filter_selects_a_type
                large_numbers_are_kept
            }
            waits_tests {
                a_claim_says_how_long_its_tasks_have_waited
                the_wait_of_a_task_that_has_crashed_is_not_known
            }
        }
    };
}
