//! Pauses types.

use super::error::{Fault, unwritten};
use super::transaction::Transaction;

/// Pauses or resumes the type with this name.
pub(super) async fn set_paused(
    _tx: &mut Transaction,
    _name: &str,
    _is_paused: bool,
) -> Result<(), Fault> {
    Err(unwritten("set_paused"))
}
