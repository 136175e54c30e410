//! [`Failure`]: the failure of a request to a store: its cause, and whether the request may have taken effect.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The failure of a request to a store.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The effect that the request may have had.
    pub effect: Effect,
    /// The problem.
    pub cause: Cause,
    /// The store has answered with this failure, and would answer the same again.
    pub answered: bool,
    /// The store reports this failure itself, so it can be reached.
    pub by_store: bool,
    /// The error of the library or of the server that the store uses.
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The effect that a failed request may have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The request has had no effect, and never will.
    None,
    /// The request may have taken effect: its answer is lost.
    Unknown,
}

/// A problem with a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(all(feature = "redis", feature = "sqlite-unbundled")),
    allow(dead_code, reason = "a store in memory does not fail")
)]
pub enum Cause {
    /// Other processes keep the store locked.
    Busy,
    /// Others kept changing what the request changes.
    Contended,
    /// The store has no space left.
    Full,
    /// The store cannot be written.
    ReadOnly,
    /// The store was opened read-only: see [`Observer`](super::store::observer::Observer).
    Observed,
    /// The store's user lacks a permission.
    Denied,
    /// The address of the store is invalid. The text names the remedy.
    Invalid(String),
    /// The store cannot keep tasks, because of its version or its configuration, or it has no outbox. The text names the problem and the
    /// remedy.
    Unfit(String),
    /// The store has a newer layout than this version of the crate knows.
    NewerLayout {
        /// The layout of the store.
        found: i64,
        /// The nearest layout that this version of the crate knows.
        known: i64,
    },
    /// The store has an older layout than this version of the crate knows.
    OlderLayout {
        /// The layout of the store.
        found: i64,
        /// The nearest layout that this version of the crate knows.
        known: i64,
    },
    /// Processes that do not know the newest layout use the store.
    OldProcesses(Vec<String>),
    /// The file was removed or replaced after it was opened.
    Replaced,
    /// The stored data cannot be read.
    Corrupt,
    /// The store has no such session, or has received a later request of it.
    NoSession,
    /// The store cannot be reached, or has reported another error.
    Unavailable,
}

impl Failure {
    /// Returns a failure without a source. The engine sends the request again if it may succeed soon, or may have taken effect.
    pub fn new(effect: Effect, cause: Cause) -> Self {
        Self {
            effect,
            cause,
            answered: false,
            by_store: false,
            source: None,
        }
    }

    /// Marks the failure as an answer of the store, so the request is not sent again.
    #[cfg(any(feature = "redis", feature = "unstable-store"))]
    pub fn answered(mut self) -> Self {
        self.answered = true;
        self
    }

    /// Marks the failure as reported by the store itself.
    #[cfg(any(
        test,
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "unstable-store"
    ))]
    pub fn reported_by_store(mut self) -> Self {
        self.by_store = true;
        self
    }

    /// Returns the failure for another request, which was not sent.
    pub fn without_effect(mut self) -> Self {
        self.effect = Effect::None;
        self
    }

    /// Returns the failure for a request that may have taken effect.
    #[cfg(any(
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "unstable-store"
    ))]
    pub fn with_unknown_effect(mut self) -> Self {
        self.effect = Effect::Unknown;
        self
    }

    /// Adds the error that has caused the failure.
    #[cfg(any(
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "unstable-store"
    ))]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Busy => f.write_str(
                "others keep the store locked: try again, or find out which process does",
            ),
            Cause::Contended => {
                f.write_str("others keep changing the same thing: find out which processes do, and try again")
            }
            Cause::Full => {
                f.write_str("there is no room left for the store: make some, and try again")
            }
            Cause::ReadOnly => f.write_str("the store cannot be written: check its permissions"),
            Cause::Observed => f.write_str(
                "this client only observes the store: to change the store, open it with `open` instead of `observe`",
            ),
            Cause::Denied => f.write_str(
                "the store does not allow its user to do that: check the password and the permissions",
            ),
            Cause::Invalid(instead) => write!(f, "the address is not valid: {instead}"),
            Cause::Unfit(how) => write!(f, "the database is unsuitable: {how}"),
            Cause::NewerLayout { found, known } => write!(
                f,
                "layout {found} of the store is newer than layout {known}, the newest that this version of throng knows: \
                 update throng"
            ),
            Cause::OlderLayout { found, known } => write!(
                f,
                "layout {found} of the store is too old for this version of throng, which knows layout {known}: let the \
                 version that wrote it finish its tasks, or delete the store"
            ),
            Cause::OldProcesses(processes) => write!(
                f,
                "processes with an older version of throng still use the store: update or stop {}, then try again",
                processes.join(", ")
            ),
            Cause::Replaced => f.write_str(
                "the file of the store was removed or replaced: put it back, or open the store again",
            ),
            Cause::Corrupt => f.write_str(
                "the stored data cannot be read and cannot be repaired: put a copy of the store in its place, unless \
                 another remedy follows",
            ),
            Cause::NoSession => f.write_str("the store has ended this session"),
            Cause::Unavailable => f.write_str("the store is not available"),
        }?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        match self.effect {
            Effect::None => Ok(()),
            Effect::Unknown => f.write_str("; the request may have taken effect"),
        }
    }
}
