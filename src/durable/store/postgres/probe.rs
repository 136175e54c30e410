//! How durable writes are.

use super::error::{Fault, unwritten};
use super::view::View;
use crate::durable::Durability;

/// Returns how durable a write is when the server has answered it.
pub(super) async fn probe(_view: &View) -> Result<Durability, Fault> {
    Err(unwritten("probe"))
}
