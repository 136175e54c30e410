//! The example itself, and the two indexers that its test compares it with.
//!
//! They are formatted and checked where they belong; here only a part of them is used.

#[allow(dead_code, reason = "it is written for the example")]
#[path = "../../../../examples/indexer/mod.rs"]
#[rustfmt::skip]
pub(super) mod indexer;

#[allow(dead_code, reason = "it is written for the test of the example")]
#[path = "../../../../examples/indexer/reference.rs"]
#[rustfmt::skip]
pub(super) mod reference;

#[path = "../../../../examples/indexer/sequential.rs"]
#[rustfmt::skip]
pub(super) mod sequential;
