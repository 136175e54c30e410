//! [`PartKind`]: the kinds of parts that can be watched.

/// A kind of parts that can be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PartKind {
    /// [`BlockingPool`](crate::BlockingPool).
    BlockingPool,
    /// [`Bulkhead`](crate::blocking::Bulkhead).
    Bulkhead,
    /// [`ComputePool`](crate::ComputePool).
    ComputePool,
    /// [`SerialExecutor`](crate::SerialExecutor).
    SerialExecutor,
    /// [`CompletionStream`](crate::CompletionStream), or its [`Submitter`](crate::completion::Submitter).
    CompletionStream,
    /// [`DurableExecutor`](crate::durable::DurableExecutor).
    #[cfg(feature = "durable")]
    DurableExecutor,
    /// The store of a [`DurableClient`](crate::durable::DurableClient).
    #[cfg(feature = "durable")]
    DurableStore,
}

impl PartKind {
    /// All kinds, in the order in which snapshots list them.
    pub(super) const ALL: &'static [Self] = &[
        Self::BlockingPool,
        Self::Bulkhead,
        Self::ComputePool,
        Self::SerialExecutor,
        Self::CompletionStream,
        #[cfg(feature = "durable")]
        Self::DurableExecutor,
        #[cfg(feature = "durable")]
        Self::DurableStore,
    ];

    /// The label that has the names of the parts.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::BlockingPool | Self::ComputePool => "pool",
            Self::Bulkhead => "bulkhead",
            Self::SerialExecutor => "executor",
            Self::CompletionStream => "stream",
            #[cfg(feature = "durable")]
            Self::DurableExecutor => "executor",
            #[cfg(feature = "durable")]
            Self::DurableStore => "store",
        }
    }
}
