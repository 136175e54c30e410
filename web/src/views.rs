//! Computes what pages and the API show. Each function asks a store and returns an [`Answer`], which [`html`](crate::html) prints as a page
//! and [`api`](crate::api) as JSON. So the pages and the API show the same.
//!
//! Confidential data is removed here, before either of them can print it.

pub(crate) mod charts;
pub(crate) mod find;
pub(crate) mod overview;
pub(crate) mod process;
pub(crate) mod queues;
pub(crate) mod schedules;
pub(crate) mod task;
pub(crate) mod tasks;
pub(crate) mod workers;
pub(crate) mod workflow;

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use throng::durable::TaskInfo;

use crate::visit::StoreVisit;

/// The data of a page.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    /// The time at which the store has answered, by its clock, if it says so.
    pub(crate) now: Option<SystemTime>,
    pub(crate) data: T,
    /// `true` if this is no page of a list, or the first one.
    pub(crate) is_first: bool,
    /// The position of the next page, or `None` if this is the last page.
    pub(crate) next: Option<String>,
    /// The number of tasks that the store has examined, if the view is a list of tasks.
    pub(crate) examined: Option<usize>,
}

impl<T> Answer<T> {
    /// Returns an answer that is no list.
    pub(crate) fn whole(now: Option<SystemTime>, data: T) -> Self {
        Self {
            now,
            data,
            is_first: true,
            next: None,
            examined: None,
        }
    }
}

/// Serialises a duration as `throng` does: as a number of milliseconds.
pub(crate) fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    (time.as_millis() as u64).serialize(serializer)
}

pub(crate) fn optional_millis<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_millis() as u64)
        .serialize(serializer)
}

/// Serialises a time as the number of milliseconds since 1970.
pub(crate) fn optional_since_1970<S: Serializer>(
    time: &Option<SystemTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(since_1970).serialize(serializer)
}

/// Returns the milliseconds since 1970, or 0 for earlier times.
pub(crate) fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as u64
}

impl StoreVisit {
    /// Removes confidential data from the errors of listed tasks.
    pub(crate) fn redact_errors(&self, tasks: &mut [TaskInfo]) {
        let redactor = &self.visit.shared.redactor;
        for task in tasks {
            let name = task.name.as_deref();
            let error = task.error.as_deref();
            task.error = error.map(|error| redactor.error(task.id, name, error));
        }
    }
}
