//! Removes what need not be kept any longer.

use super::error::{Fault, unwritten};
use super::transaction::Transaction;

/// Removes at most `budget` things. Returns `true` if there are more.
pub(super) async fn maintain(_tx: &mut Transaction, _budget: usize) -> Result<bool, Fault> {
    Err(unwritten("maintain"))
}
