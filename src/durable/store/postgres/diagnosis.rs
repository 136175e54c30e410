//! Examines what an overview does not show.

use super::error::{Fault, unwritten};
use super::view::View;
use crate::durable::store::Diagnoses;

/// Examines the store.
pub(super) async fn diagnose(_view: &View) -> Result<Diagnoses, Fault> {
    Err(unwritten("diagnose"))
}
