//! The serialised form of the types of [`Admin`](crate::durable::Admin): times are numbers of milliseconds. Numbers that identify something
//! are texts, since JavaScript rounds integers above 2^53.

use std::time::{Duration, SystemTime};

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

/// Serialises a time as the number of milliseconds since 1970.
pub(crate) fn since_1970<S: Serializer>(
    time: &SystemTime,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    millis(&since.unwrap_or_default(), serializer)
}

/// Serialises a time as the number of milliseconds since 1970, if there is one.
pub(crate) fn optional_since_1970<S: Serializer>(
    time: &Option<SystemTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let since = time.map(|time| time.duration_since(SystemTime::UNIX_EPOCH));
    optional_millis(&since.map(Result::unwrap_or_default), serializer)
}

/// Serialises a number that identifies something.
pub(crate) fn number<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// Serialises a number that identifies something, if there is one.
pub(crate) fn optional_number<S: Serializer>(
    number: &Option<u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => serializer.serialize_some(&number.to_string()),
        None => serializer.serialize_none(),
    }
}
