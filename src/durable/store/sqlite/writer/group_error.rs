//! [`GroupError`]: why a group of requests was not written.

use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::sqlite::error::{explained, failure, is_corrupt, is_sound};

/// Why a group of requests was not written.
pub(super) enum GroupError {
    /// Perhaps one request is the reason. None has taken effect.
    One(rusqlite::Error),
    /// The failure of all requests.
    All(Failure),
}

impl GroupError {
    /// The failure of all requests, none of which has taken effect.
    pub(super) fn without_effect(error: rusqlite::Error) -> Self {
        Self::All(failure(Effect::None, error))
    }

    /// Returns `true` if the requests of the group may succeed one by one, or must be repeated one by one.
    pub(super) fn may_be_split(&self) -> bool {
        matches!(self, Self::One(_)) || self.is_corrupt()
    }

    /// Returns `true` if what is stored could not be read. In this case, no request has taken effect.
    pub(super) fn is_corrupt(&self) -> bool {
        match self {
            Self::One(error) => is_corrupt(error),
            Self::All(failure) => {
                (&failure.cause, failure.effect) == (&Cause::Corrupt, Effect::None)
            }
        }
    }

    /// Returns the same error with the reason that the system has reported.
    pub(super) fn explained(self) -> Self {
        match self {
            Self::One(error) => Self::One(explained(error)),
            all @ Self::All(_) => all,
        }
    }

    /// Returns `true` if the connection remains usable.
    pub(super) fn is_sound(&self) -> bool {
        match self {
            Self::One(error) => is_sound(error),
            Self::All(_) => true,
        }
    }

    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::One(error) => failure(Effect::None, error),
            Self::All(failure) => failure,
        }
    }
}
