//! Summarises the store.

use std::collections::BTreeSet;
use std::time::Duration;

use super::row::{Row, State};
use super::state::{Model, Session};
use crate::durable::Overview;
use crate::durable::admin::overview::{MAX_OVERVIEW_ROWS, OverviewDraft, QueueDraft};
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::{Kind, TypeSet};
use crate::durable::store::{ReadStats, RunType};

impl Model {
    pub(in super::super) fn overview(&self) -> Overview {
        let names = self.known_queues();
        let mut draft = OverviewDraft {
            now: self.wall(),
            counts: self.counts(),
            has_more_queues: names.len() > MAX_OVERVIEW_ROWS,
            ..OverviewDraft::default()
        };
        let queues = names.into_iter().take(MAX_OVERVIEW_ROWS);
        draft.queues = queues
            .map(|name| (name.clone(), self.queue_draft(&name)))
            .collect();
        draft.add_stats(self.stats(&ReadStats::last_hour()));
        for row in self.tasks.values().filter(|row| self.is_unserved(row)) {
            let run_type = RunType::new(&(*row.task.name).into(), &row.task.queue);
            draft.types.entry(run_type).or_default();
        }
        draft.add_paused(self.paused.keys().map(String::as_str));
        for (run_type, it) in &mut draft.types {
            it.is_served = self.is_served(run_type);
        }
        draft.finish()
    }

    /// Returns the default queue, the queues that have limits, are or were paused, and those that live sessions serve.
    fn known_queues(&self) -> BTreeSet<QueueName> {
        let served = self.live_sets().map(|set| set.queue().clone());
        let mut names: BTreeSet<_> = self.queues.keys().cloned().chain(served).collect();
        names.insert(QueueName::DEFAULT);
        names
    }

    fn live_sets(&self) -> impl Iterator<Item = &TypeSet> {
        let live = self.sessions.values().filter(|session| !session.is_dead);
        live.filter_map(|session: &Session| session.set.as_ref())
    }

    fn queue_draft(&self, name: &QueueName) -> QueueDraft {
        let of_queue = |row: &&Row| row.task.queue == *name;
        let is_known = |row: &&Row| row.state == State::Waiting && !self.is_unserved(row);
        let mut waiting = self.ready_queue.iter().filter_map(|id| self.tasks.get(id));
        let first = waiting.find(|row| of_queue(row) && is_known(row));
        let waited = first.map(|row| self.wall().saturating_sub(row.stored_at));
        QueueDraft {
            info: self.queue(name),
            sessions: self.live_sets().filter(|set| set.queue() == name).count() as u64,
            oldest_waiting: waited.map(Duration::from_millis),
        }
    }

    fn is_served(&self, run_type: &RunType) -> bool {
        let kinds = Kind::all_of(run_type.name());
        let kinds = kinds.map(|kind| kind.placed(run_type.queue(), Priority::Normal));
        self.live_sets()
            .any(|set| kinds.iter().any(|&kind| set.knows(kind)))
    }
}
