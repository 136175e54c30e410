//! Spans of tasks, as Tokio's console reads them: named `runtime.spawn`, entered while the task runs.

use std::panic::Location;

use crate::join::Id;

/// A closure that runs in a span, if anybody listens.
pub(super) struct Traced<F> {
    f: F,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl<F> Traced<F> {
    #[inline]
    #[cfg_attr(
        not(feature = "tracing"),
        allow(unused_variables, reason = "the span has them")
    )]
    pub(super) fn new(f: F, pool: &str, id: Id, place: &Location<'_>) -> Self {
        Self {
            #[cfg(feature = "tracing")]
            span: tracing::trace_span!(
                target: "tokio::task::blocking",
                parent: None,
                "runtime.spawn",
                kind = "blocking",
                task.name = pool,
                task.id = id.number(),
                "fn" = std::any::type_name::<F>(),
                original_size.bytes = size_of::<F>(),
                loc.file = place.file(),
                loc.line = place.line(),
                loc.col = place.column(),
            ),
            f,
        }
    }

    pub(super) fn into_inner(self) -> F {
        self.f
    }

    #[inline]
    pub(super) fn run<R>(self) -> R
    where
        F: FnOnce() -> R,
    {
        #[cfg(feature = "tracing")]
        let _entered = self.span.entered();
        (self.f)()
    }
}
