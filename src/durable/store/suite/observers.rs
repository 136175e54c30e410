//! The tests of observers, which run on each store.

#[cfg(all(
    test,
    any(feature = "redis", feature = "postgres", feature = "sqlite-unbundled")
))]
pub(in crate::durable::store) use self::looks::look;
use super::{Harness, process, scheduler};

mod looks;
pub mod observers_tests;

/// Defines one test for each case, on one kind of store.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_observers {
    ($harness:ty) => {
        $crate::__store_cases! { observers of $harness;
            observers_tests {
                an_observer_reads_what_others_read
                an_observer_sees_changes
                an_observer_writes_nothing
                an_observer_is_refused_all_changes
            }
        }
    };
}
