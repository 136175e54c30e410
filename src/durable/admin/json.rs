//! Serialises the durations in the types of [`Admin`](crate::durable::Admin) as numbers of milliseconds.

use std::time::Duration;

use serde::Serializer;

use crate::durable::clock;

/// Serialises a duration in milliseconds.
pub(crate) fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(clock::millis(*time))
}

/// Serialises a duration in milliseconds, if there is one.
pub(crate) fn optional_millis<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_some(&clock::millis(*time)),
        None => serializer.serialize_none(),
    }
}
