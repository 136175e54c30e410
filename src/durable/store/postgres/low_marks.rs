//! [`LowMarks`]: where the lines of the default queue begin, as far as the sessions of this process know.
//!
//! While a transaction of the database is old, the entries of tasks that were claimed remain at the head of their lines, and a claim that
//! begins there reads all of them. So a session begins behind the last task that it has claimed. Such a mark is a hint, which may be too
//! high: a transaction that has taken a low place may be committed after one that has taken a higher place, and a claim passes over tasks
//! that others have locked. Nothing but the order depends on it:
//!
//! - a session looks from the start whenever it finds fewer tasks than it wants, and when it reports whether tasks are left. So no task is
//!   forgotten, and no worker rests while one waits;
//! - it also looks from the start once a second, so no task waits behind others for longer than that;
//! - tasks that were given back have negative places, which no mark excludes;
//! - a mark is set with the claim of the tasks before it. If that is rolled back, all marks are removed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::sync::{Mutex, lock};

/// The time after which a session looks from the start of the lines.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The marks of the sessions of this process.
#[derive(Debug, Default)]
pub(super) struct LowMarks(Mutex<HashMap<i64, LowMark>>);

#[derive(Debug)]
struct LowMark {
    /// The lines: no other line has this mark.
    kinds: Vec<i64>,
    place: i64,
    /// The time at which the session has last looked from the start.
    looked: Instant,
}

impl LowMarks {
    /// Returns the place behind which a session looks for tasks of these kinds: 0 if it looks from the start.
    pub(super) fn get(&self, session: i64, kinds: &[i64]) -> i64 {
        let marks = lock(&self.0);
        let mark = marks.get(&session);
        let mark = mark.filter(|it| it.kinds == kinds && it.looked.elapsed() < LOOK_INTERVAL);
        mark.map_or(0, |it| it.place)
    }

    /// Sets the mark of a session that has looked behind `low`, and has claimed as many tasks as it wanted, the last one at `place`.
    pub(super) fn set(&self, session: i64, kinds: &[i64], low: i64, place: i64) {
        let mut marks = lock(&self.0);
        let looked = marks.get(&session).filter(|_| low > 0).map(|it| it.looked);
        let mark = LowMark {
            kinds: kinds.to_vec(),
            place: place.max(0),
            looked: looked.unwrap_or_else(Instant::now),
        };
        marks.insert(session, mark);
    }

    /// Has a session look from the start.
    pub(super) fn remove(&self, session: i64) {
        lock(&self.0).remove(&session);
    }

    /// Has all sessions look from the start, since claims may have been rolled back.
    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_that_of_a_session_and_its_kinds() {
        let marks = LowMarks::default();
        marks.set(1, &[7], 0, 30);
        assert_eq!(marks.get(1, &[7]), 30);
        assert_eq!(marks.get(1, &[7, 8]), 0);
        assert_eq!(marks.get(2, &[7]), 0);
        marks.set(1, &[7], 30, -5);
        assert_eq!(marks.get(1, &[7]), 0);
        marks.set(1, &[7], 0, 40);
        marks.remove(1);
        assert_eq!(marks.get(1, &[7]), 0);
    }

    #[test]
    fn a_mark_ends_a_second_after_the_last_look_from_the_start() {
        let marks = LowMarks::default();
        marks.set(1, &[7], 0, 30);
        let mut all = lock(&marks.0);
        let mark = all.get_mut(&1).unwrap();
        mark.looked = mark.looked.checked_sub(LOOK_INTERVAL).unwrap();
        drop(all);
        assert_eq!(marks.get(1, &[7]), 0);
        // A look behind the mark does not extend it.
        marks.set(1, &[7], 30, 40);
        assert_eq!(marks.get(1, &[7]), 0);
        marks.set(1, &[7], 0, 50);
        assert_eq!(marks.get(1, &[7]), 50);
    }
}
