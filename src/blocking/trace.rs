//! The span of a task.

#[cfg(feature = "tracing")]
pub(super) use with_tracing::TaskSpan;
#[cfg(not(feature = "tracing"))]
pub(super) use without_tracing::TaskSpan;

#[cfg(feature = "tracing")]
mod with_tracing {
    use std::panic::Location;

    use tracing::Span;
    use tracing::span::EnteredSpan;

    use crate::join::Id;

    /// The span that a task runs in, as Tokio's console reads it: a child of the caller's span, named `runtime.spawn`.
    /// If no subscriber records that, the caller's span itself.
    pub(in crate::blocking) struct TaskSpan(Span);

    impl TaskSpan {
        /// The span of the closure `F`, which was submitted at `location`.
        #[inline]
        pub(in crate::blocking) fn new<F>(pool: &str, id: Id, location: &Location<'_>) -> Self {
            let span = tracing::trace_span!(
                target: "tokio::task::blocking",
                "runtime.spawn",
                kind = "blocking",
                task.name = pool,
                task.id = id.number(),
                "fn" = std::any::type_name::<F>(),
                original_size.bytes = size_of::<F>(),
                loc.file = location.file(),
                loc.line = location.line(),
                loc.col = location.column(),
            );
            Self(if span.is_disabled() {
                Span::current()
            } else {
                span
            })
        }

        #[inline]
        pub(in crate::blocking) fn enter(self) -> EnteredSpan {
            self.0.entered()
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod without_tracing {
    use std::panic::Location;

    use crate::join::Id;

    /// Without the feature `tracing`, a task has no span.
    pub(in crate::blocking) struct TaskSpan;

    impl TaskSpan {
        #[inline]
        #[expect(clippy::extra_unused_type_parameters, reason = "spans have it")]
        pub(in crate::blocking) fn new<F>(_: &str, _: Id, _: &Location<'_>) -> Self {
            Self
        }

        #[inline]
        pub(in crate::blocking) fn enter(self) -> Self {
            self
        }
    }
}
