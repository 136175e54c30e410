//! What whoever knows a scheduler that borrows its callers' threads expects of it, as `SerialExecutor`
//! keeps it: one test for each expectation.
//!
//! Where an expectation has no place here, the test shows what is promised instead, and says so.

mod support;

#[path = "support/occupied.rs"]
mod occupied;

#[path = "serial_contract/ends.rs"]
mod ends;
#[path = "serial_contract/jobs.rs"]
mod jobs;
#[path = "serial_contract/together.rs"]
mod together;
#[path = "serial_contract/under_load.rs"]
mod under_load;
#[path = "serial_contract/whose_thread.rs"]
mod whose_thread;
