//! How long, and how many, ended tasks are kept.

use super::error::{Fault, unwritten};
use super::transaction::Transaction;
use super::view::View;
use crate::durable::Retention;

/// Returns the limits.
pub(super) async fn read(_view: &View) -> Result<Retention, Fault> {
    Err(unwritten("retention"))
}

/// Changes the limits.
pub(super) async fn change(_tx: &mut Transaction, _retention: Retention) -> Result<(), Fault> {
    Err(unwritten("set_retention"))
}
