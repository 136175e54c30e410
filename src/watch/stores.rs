//! Watched stores: what this process knows of them, and the counts of the whole store, which are asked for at most every
//! five seconds.

use std::time::{Duration, Instant};

use super::names::durable::{COUNTS, STORE};
use super::numbers::Numbers;
use super::watched::Watched;
use crate::durable::{Counts, Health};
use crate::weak_part::{Owned, ReadPart};

pub(super) use crate::durable::weak_parts::CountsAnswer;

/// A store is asked for its counts at most once in this time, however often it is read.
const COUNTS_INTERVAL: Duration = Duration::from_secs(5);

/// The store of a client.
pub(super) struct WatchedStore<O, C> {
    health: O,
    counts: C,
}

impl<O, C> WatchedStore<O, C> {
    pub(super) fn new(health: O, counts: C) -> Self {
        Self { health, counts }
    }
}

impl<O: ReadPart<Health>, C: ReadPart<CountsAnswer>> Watched for WatchedStore<O, C> {
    fn read(&mut self, _: Instant) -> Option<(Numbers, Owned)> {
        let (health, owned) = self.health.read()?;
        Some((Numbers::read(&STORE, &health), owned))
    }

    fn is_alive(&self) -> bool {
        self.health.is_alive()
    }

    fn id(&self) -> usize {
        self.health.id()
    }

    fn ask_counts(&self) -> Option<(CountsAnswer, Owned)> {
        self.counts.read()
    }
}

/// The last question to the clients of a store. All snapshots within [`COUNTS_INTERVAL`] share its answers, whether the
/// store has answered or not.
#[derive(Default)]
pub(super) struct Question {
    asked: Option<Instant>,
    answers: Vec<CountsAnswer>,
}

impl Question {
    /// Returns `true` if it is time to ask again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let passed = |asked| now.saturating_duration_since(asked) >= COUNTS_INTERVAL;
        self.asked.is_none_or(passed)
    }

    pub(super) fn new(asked: Instant, answers: Vec<CountsAnswer>) -> Self {
        let asked = Some(asked);
        Self { asked, answers }
    }

    pub(super) fn answers(&self) -> Vec<CountsAnswer> {
        self.answers.clone()
    }
}

/// Waits for the first client that gets an answer. `None` if no client does, after two seconds at most.
pub(super) async fn answer_of(answers: Vec<CountsAnswer>) -> Option<Counts> {
    for mut answer in answers {
        if let Ok(counts) = answer.wait_for(Option::is_some).await
            && let Some(Some(counts)) = *counts
        {
            return Some(counts);
        }
    }
    None
}

/// The values of the counts of a store.
pub(super) fn numbers_of(counts: &Counts) -> Numbers {
    Numbers::read(&COUNTS, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_due_five_seconds_after_the_last_one() {
        let now = Instant::now();
        assert!(Question::default().is_due(now));
        let asked = Question::new(now, Vec::new());
        assert!(!asked.is_due(now));
        assert!(!asked.is_due(now + COUNTS_INTERVAL - Duration::from_nanos(1)));
        assert!(asked.is_due(now + COUNTS_INTERVAL));
    }
}
