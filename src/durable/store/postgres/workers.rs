//! Lists the workers.

use super::error::{Fault, unwritten};
use super::view::View;
use crate::durable::store::SessionId;
use crate::durable::{WorkerInfo, WorkersPage};

/// Returns a page of the sessions that have a card.
pub(super) async fn list(
    _view: &View,
    _after: Option<&[u8]>,
    _limit: usize,
) -> Result<Option<WorkersPage>, Fault> {
    Err(unwritten("workers"))
}

/// Returns the worker of a session.
pub(super) async fn find(_view: &View, _session: SessionId) -> Result<Option<WorkerInfo>, Fault> {
    Err(unwritten("worker"))
}
