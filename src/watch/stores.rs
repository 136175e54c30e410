//! Watched stores: what this process knows of them, and the numbers of the whole store, which are asked for at most every
//! five seconds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::names::durable::{COUNTS, QUEUES, STORE};
use super::numbers::Numbers;
use super::watched::Watched;
use crate::durable::Overview;
use crate::weak_part::{Owned, ReadPart};

pub(super) use crate::durable::weak_parts::OverviewAnswer;
use crate::durable::weak_parts::StoreState;

/// A store is asked for its overview at most once in this time, however often it is read.
const OVERVIEW_INTERVAL: Duration = Duration::from_secs(5);

/// The store of a client.
pub(super) struct WatchedStore<O, C> {
    state: O,
    overview: C,
}

impl<O, C> WatchedStore<O, C> {
    pub(super) fn new(state: O, overview: C) -> Self {
        Self { state, overview }
    }
}

impl<O: ReadPart<StoreState>, C: ReadPart<OverviewAnswer>> Watched for WatchedStore<O, C> {
    fn read(&mut self, _: Instant) -> Option<(Numbers, Owned)> {
        let (state, owned) = self.state.read()?;
        Some((Numbers::read(&STORE, &state), owned))
    }

    fn is_alive(&self) -> bool {
        self.state.is_alive()
    }

    fn id(&self) -> usize {
        self.state.id()
    }

    fn ask_overview(&self) -> Option<(OverviewAnswer, Owned)> {
        self.overview.read()
    }
}

/// The last question to the clients of a store. All snapshots within [`OVERVIEW_INTERVAL`] share its answers, whether the
/// store has answered or not.
#[derive(Default)]
pub(super) struct Question {
    asked: Option<Instant>,
    answers: Vec<OverviewAnswer>,
}

impl Question {
    /// Returns `true` if it is time to ask again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let passed = |asked| now.saturating_duration_since(asked) >= OVERVIEW_INTERVAL;
        self.asked.is_none_or(passed)
    }

    pub(super) fn new(asked: Instant, answers: Vec<OverviewAnswer>) -> Self {
        let asked = Some(asked);
        Self { asked, answers }
    }

    pub(super) fn answers(&self) -> Vec<OverviewAnswer> {
        self.answers.clone()
    }
}

/// Waits for the first client that gets an answer. `None` if no client does, after two seconds at most.
pub(super) async fn answer_of(answers: Vec<OverviewAnswer>) -> Option<Overview> {
    for mut answer in answers {
        if let Ok(overview) = answer.wait_for(Option::is_some).await
            && let Some(Some(overview)) = &*overview
        {
            return Some(overview.clone());
        }
    }
    None
}

/// The values of a store and its queues.
pub(super) fn numbers_of(overview: Overview) -> Numbers {
    let queues = overview.queues.into_iter().map(|queue| {
        // The parentheses distinguish it from a queue that has this name.
        let name = queue.name.as_deref().unwrap_or("(default)");
        (Arc::from(name), queue)
    });
    let mut numbers = Numbers::read(&COUNTS, &overview.counts).with_items(&QUEUES, queues);
    // The default queue is the first, and the others are sorted.
    numbers.limit_items(&mut BTreeSet::new());
    numbers
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
        assert!(!asked.is_due(now + OVERVIEW_INTERVAL - Duration::from_nanos(1)));
        assert!(asked.is_due(now + OVERVIEW_INTERVAL));
    }
}
