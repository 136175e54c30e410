//! Seals the traits that only this crate implements.

/// Cannot be named outside of this crate.
#[allow(unnameable_types, reason = "this is how a trait is sealed")]
pub trait Sealed {}
