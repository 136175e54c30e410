//! Summarises the store. Each query reads at most a fixed number of waiting tasks of each kind.

use std::collections::{BTreeMap, BTreeSet};

use super::error::Fault;
use super::kind_sizes::KindSizes;
use super::kinds::all_kinds;
use super::queues::QueueRow;
use super::stats;
use super::text;
use super::view::View;
use super::waiting_kinds::WaitingKind;
use crate::durable::admin::overview::{MAX_OVERVIEW_ROWS, OverviewDraft, QueueDraft, TypeDraft};
use crate::durable::queue::name::QueueName;
use crate::durable::queue::{Priority, QueueInfo};
use crate::durable::store::kind::{Kind, TypeSet};
use crate::durable::store::{ReadStats, RunType, StatsPage};
use crate::durable::{Counts, Overview};

const RUNNING: &str =
    "SELECT coalesce(queue, '') AS name, sum(cardinality(held))::bigint AS running
    FROM throng.claim GROUP BY queue";

/// The data from which an overview is made.
struct Reading<'a> {
    view: &'a View,
    counts: Counts,
    kinds: Vec<WaitingKind>,
    sizes: KindSizes,
    /// The sets of live sessions, with the numbers of these.
    sets: BTreeMap<TypeSet, u64>,
    /// The kinds that live sessions know.
    known: BTreeSet<i64>,
    /// The first queues that have a row, with these rows.
    rows: BTreeMap<QueueName, QueueRow>,
    running: BTreeMap<QueueName, u64>,
    stats: StatsPage,
}

/// Returns a summary of the store.
pub(super) async fn overview(view: &View) -> Result<Overview, Fault> {
    let (counts, kinds) = (view.totals().await?, view.waiting_kinds().await?);
    let sets = view.live_sets().await?;
    let reading = Reading {
        view,
        counts,
        sizes: KindSizes::load(view, &kinds, counts.waiting).await?,
        kinds,
        known: sets.keys().flat_map(all_kinds).collect(),
        sets,
        rows: QueueRow::first(view, MAX_OVERVIEW_ROWS + 1).await?,
        running: running(view).await?,
        stats: stats::read(view, &ReadStats::last_hour()).await?,
    };
    Ok(reading.finish())
}

/// Returns the numbers of running tasks by queue.
async fn running(view: &View) -> Result<BTreeMap<QueueName, u64>, Fault> {
    let rows = view.rows(RUNNING, &[]).await?;
    let running = rows.iter().map(|row| {
        let name = text::loaded(row.try_get("name")?);
        let name = QueueName::from(Some(name).filter(|name| !name.is_empty()));
        Ok((name, row.try_get::<_, i64>("running")? as u64))
    });
    running.collect()
}

impl Reading<'_> {
    fn finish(self) -> Overview {
        let names = self.queue_names();
        let unserved = self.unserved().map(|it| self.sizes.size(it.kind)).sum();
        let mut draft = OverviewDraft {
            now: self.view.now.wall as u64,
            counts: Counts {
                unserved,
                ..self.counts
            },
            has_more_queues: names.len() > MAX_OVERVIEW_ROWS,
            ..OverviewDraft::default()
        };
        for name in names.into_iter().take(MAX_OVERVIEW_ROWS) {
            let queue = self.queue(&name);
            draft.queues.insert(name, queue);
        }
        self.add_types(&mut draft);
        draft.finish()
    }

    fn add_types(self, draft: &mut OverviewDraft) {
        for it in self.unserved() {
            let run_type = RunType::new(&it.name.as_str().into(), &it.queue);
            draft.types.entry(run_type).or_default();
        }
        draft.add_stats(self.stats);
        draft.add_paused(self.view.paused.iter().map(String::as_str));
        mark_served(&mut draft.types, &self.known);
    }

    /// Returns the default queue, the first queues that have a row, and those that live sessions serve.
    fn queue_names(&self) -> BTreeSet<QueueName> {
        let served = self.sets.keys().map(|set| set.queue().clone());
        let mut names: BTreeSet<_> = self.rows.keys().cloned().chain(served).collect();
        names.insert(QueueName::DEFAULT);
        names
    }

    fn queue(&self, name: &QueueName) -> QueueDraft {
        let row = self.rows.get(name).copied().unwrap_or_default();
        let sets = self.sets.iter().filter(|(set, _)| set.queue() == name);
        let kinds = self.kinds.iter().filter(|it| it.queue == *name);
        let first = kinds.clone().filter(|it| self.known.contains(&it.kind));
        let first = first.filter(|it| !it.is_grouped);
        QueueDraft {
            info: QueueInfo {
                settings: row.settings,
                is_paused: row.is_paused,
                waiting: kinds.map(|it| self.sizes.size(it.kind)).sum(),
                running: self.running.get(name).copied().unwrap_or_default(),
            },
            sessions: sets.map(|(_, sessions)| sessions).sum(),
            oldest_waiting: first.map(|it| it.ready_for).max(),
        }
    }

    /// Returns the kinds of waiting tasks that no live session knows.
    fn unserved(&self) -> impl Iterator<Item = &WaitingKind> {
        let kinds = self.kinds.iter();
        kinds.filter(|it| !self.known.contains(&it.kind))
    }
}

/// Marks the types that live sessions know.
fn mark_served(types: &mut BTreeMap<RunType, TypeDraft>, known: &BTreeSet<i64>) {
    for (run_type, it) in types {
        let kinds = Kind::all_of(run_type.name());
        it.is_served = kinds.iter().any(|kind| {
            let placed = kind.placed(run_type.queue(), Priority::Normal);
            known.contains(&placed.number())
        });
    }
}
