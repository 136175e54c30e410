//! Summarises the store.

use super::error::{Fault, unwritten};
use super::view::View;
use crate::durable::Overview;

/// Returns a summary of the store.
pub(super) async fn overview(_view: &View) -> Result<Overview, Fault> {
    Err(unwritten("overview"))
}
