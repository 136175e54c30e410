//! [`Events`]: the kinds of events that a torture must bring about, so that its checks prove something.

use std::fmt;

use throng::durable::Counts;

use super::chore::{Kind, Lane, MAX_RUNNING, Origin};
use super::fleet::Record;
use super::producers::{Produced, Spawned};
use super::runs::{History, Run};

/// Each kind of event, and the number of times that it has happened.
pub(super) struct Events(Vec<(String, usize)>);

impl Events {
    pub(super) fn of(
        counts: &Counts,
        produced: &Produced,
        history: &History,
        record: &Record,
    ) -> Self {
        let spawned = |is: fn(&&Spawned) -> bool| produced.spawned.iter().filter(is).count();
        let taken_back = counts.crashed + counts.lost;
        let events = [
            ("frozen", record.freezes.len()),
            ("joined", spawned(|it| it.handle.was_joined())),
            ("replaced", spawned(|it| it.handle.has_replaced())),
            ("rejected", produced.rejected.len()),
            ("cancelled", produced.cancelled.len()),
            ("taken back", taken_back as usize),
            ("retried", counts.retried as usize),
            ("snoozed", counts.snoozed as usize),
            ("died", counts.died as usize),
            ("at the limit", times_at_limit(history)),
        ];
        let events = events.map(|(name, times)| (name.to_owned(), times));
        let keys = Kind::ALL.map(|kind| (format!("keyed {kind:?}"), runs_of(history, kind)));
        Self(events.into_iter().chain(keys).collect())
    }

    /// Returns the kinds of which there was no event.
    pub(super) fn missing(&self) -> Vec<&str> {
        let missing = self.0.iter().filter(|(_, times)| *times == 0);
        missing.map(|(name, _)| name.as_str()).collect()
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.0.iter().map(|(name, times)| format!("{times} {name}"));
        f.write_str(&each.collect::<Vec<_>>().join(", "))
    }
}

/// Returns 1 if the queue that has a limit has reached it.
fn times_at_limit(history: &History) -> usize {
    let is_limited = |run: &Run| (run.note.chore.lane == Lane::Limited).then_some(());
    usize::from(history.most_at_once(is_limited) == MAX_RUNNING)
}

fn runs_of(history: &History, kind: Kind) -> usize {
    let is_of = |run: &&Run| matches!(run.note.chore.origin, Origin::Keyed(of, _) if of == kind);
    history.runs.iter().filter(is_of).count()
}
