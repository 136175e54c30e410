//! Schedules: stores their rows, and hands out those that are due.

use std::time::Duration;

use super::error::Fault;
use super::view::View;

/// Returns the time until the next schedule is due, of those that need one of these bits.
pub(super) async fn wait(_view: &View, _computes: u8) -> Result<Option<Duration>, Fault> {
    Ok(None)
}
