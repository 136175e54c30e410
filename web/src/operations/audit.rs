//! [`Audit`]: records who changes what.

use crate::error::WebError;
use crate::visit::StoreVisit;

/// The record of an operation: two events of `tracing` with the target `throng.audit`, one before the operation and one after it. If the
/// first one has no second one, the process was killed or the client has disconnected, and the operation may or may not have taken effect.
#[derive(Debug)]
pub(crate) struct Audit<'a> {
    visit: &'a StoreVisit,
    operation: &'a str,
    subject: &'a str,
}

impl<'a> Audit<'a> {
    /// Records that an operation begins. The subject is what it changes.
    pub(crate) fn begin(visit: &'a StoreVisit, operation: &'a str, subject: &'a str) -> Self {
        // As `Debug`, since a line break in a name must not look like another event.
        tracing::info!(
            target: "throng.audit",
            user = visit.visit.user.as_deref(),
            store = visit.store.name,
            operation,
            subject = ?subject,
            "begins"
        );
        Self {
            visit,
            operation,
            subject,
        }
    }

    /// Records the effect of the operation, or its error.
    pub(crate) fn end(self, effect: &Result<String, &WebError>) {
        let effect = match effect {
            Ok(effect) => effect,
            Err(error) => &error.detail,
        };
        tracing::info!(
            target: "throng.audit",
            user = self.visit.visit.user.as_deref(),
            store = self.visit.store.name,
            operation = self.operation,
            subject = ?self.subject,
            effect = ?effect,
            "ends"
        );
    }
}
