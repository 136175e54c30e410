//! The executor without a runtime, and what only its inside shows. Miri runs these tests.

mod abort_queued_tests;
mod exclusive_tests;
mod spinning_tests;
