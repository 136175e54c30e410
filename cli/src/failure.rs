//! [`Failure`]: why the command has not done what it was asked to do, and its exit status.

use std::fmt;
use std::io;

use throng::durable::DurableError;

/// The reason why the command has not done what it was asked to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store, the system or this program could not do it.
    Failed(String),
    /// The arguments are wrong, or a confirmation was not given.
    Usage(String),
    /// Something was not found, or was not changed.
    Nothing(String),
    /// The store cannot be reached.
    Unreachable(String),
    /// A condition does not hold.
    Unmet(String),
    /// The reader of the output has closed it, which is no error.
    ClosedPipe,
}

impl Failure {
    /// Returns the exit status. `README.md` lists them.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::ClosedPipe => 0,
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Nothing(_) => 3,
            Self::Unreachable(_) => 4,
            Self::Unmet(_) => 5,
        }
    }

    /// Returns the failure of opening a store.
    pub(crate) fn to_open(error: &DurableError) -> Self {
        let is_refused = error.is_denied()
            || error.is_read_only()
            || error.is_unfit()
            || error.is_corrupt()
            || error.is_newer_layout()
            || error.is_older_layout();
        let text = with_sources(error);
        match (is_refused, error.is_invalid()) {
            (true, _) => Self::Failed(text),
            // The message names the remedy.
            (false, true) => Self::Unreachable(text),
            (false, false) => Self::Unreachable(format!(
                "{text}: check that the store runs, and that `--store` is its address"
            )),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClosedPipe => f.write_str("the output is closed"),
            Self::Failed(text)
            | Self::Usage(text)
            | Self::Nothing(text)
            | Self::Unreachable(text)
            | Self::Unmet(text) => f.write_str(text),
        }
    }
}

impl From<DurableError> for Failure {
    fn from(error: DurableError) -> Self {
        let text = with_sources(&error);
        match () {
            () if error.is_invalid() => Self::Usage(text),
            () if error.is_expired() => Self::Nothing(text),
            () if error.is_dead() || error.is_cancelled() => Self::Unmet(text),
            () => Self::Failed(text),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(kind) => io::Error::from(kind).into(),
            None => Self::Failed(error.to_string()),
        }
    }
}

/// Returns the message of an error, followed by those of its causes.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
