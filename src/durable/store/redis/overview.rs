//! Summarises the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::each_partition::{Answers, ask_each};
use super::inner::Inner;
use super::reply::{self, Reader};
use super::scripts::Arguments;
use super::{queues, routing, stats};
use crate::durable::admin::overview::{MAX_OVERVIEW_ROWS, OverviewDraft, QueueDraft};
use crate::durable::failure::Failure;
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::Kind;
use crate::durable::store::routes::Routes;
use crate::durable::store::totals::FIELDS;
use crate::durable::store::{ReadStats, RunType, StatsPage};
use crate::durable::{Counts, Overview};

/// The answer of a partition, without the state of its queues.
struct PartitionOverview {
    now: u64,
    counts: Counts,
    routes: Routes,
    /// The named queues that have limits or are paused.
    queues: Vec<QueueName>,
    /// The types whose names clients have recorded.
    types: Vec<RunType>,
    stats: StatsPage,
}

/// Returns a summary of the store, with the partitions that do not answer.
pub(super) async fn overview(inner: Arc<Inner>) -> Result<Overview, Failure> {
    let partitions = inner.partitions;
    let read = |inner: Arc<Inner>, partition| async move { part(&inner, partition).await };
    let (parts, mut missing) = ask_each(&inner, partitions.all(), read).await?;
    let all = queue_names(&parts);
    let names: BTreeSet<_> = all.iter().take(MAX_OVERVIEW_ROWS).cloned().collect();
    let describe = |inner: Arc<Inner>, partition| {
        let of_partition = names.iter();
        let of_partition = of_partition.filter(|name| is_in(&inner, name, partition));
        let names: Vec<_> = of_partition.cloned().collect();
        let routes = parts.iter().find(|(other, _)| *other == partition);
        let arguments = routes.map(|(_, part)| arguments(&names, &part.routes));
        async move { describe(&inner, partition, names, arguments.unwrap_or_default()).await }
    };
    let answering = parts.iter().map(|(partition, _)| *partition);
    let (described, others) = ask_each(&inner, answering, describe).await?;
    missing.extend(&others);
    missing.sort_unstable();
    let mut draft = OverviewDraft {
        has_more_queues: all.len() > MAX_OVERVIEW_ROWS,
        missing_partitions: missing,
        ..OverviewDraft::default()
    };
    for (name, queue) in described.into_iter().flat_map(|(_, queues)| queues) {
        add_queue(draft.queues.entry(name).or_default(), queue);
    }
    add_parts(&mut draft, &inner, parts, &others);
    Ok(draft.finish())
}

async fn part(inner: &Inner, partition: usize) -> Result<PartitionOverview, Failure> {
    let mut arguments = Arguments::default();
    arguments.push("");
    let names = inner.run(&inner.scripts.overview, partition, arguments);
    let mut names = Reader::new(names.await?)?;
    let now = names.number()?.try_into().unwrap_or_default();
    let queues = names.list()?.rest(Reader::text)?;
    let types = names.list()?.rest(Reader::bytes)?;
    let mut counts = Counts::default();
    let counted = inner.run(&inner.scripts.counts, partition, Arguments::default());
    reply::add_counts(&mut counts, counted.await?)?;
    Ok(PartitionOverview {
        now,
        counts,
        routes: routing::read(inner, partition).await?.known.routes,
        queues: queues
            .into_iter()
            .map(|name| QueueName::from(Some(name)))
            .collect(),
        types: types.iter().filter_map(|it| stats::run_type(it)).collect(),
        stats: stats::read_in(inner, partition, &ReadStats::last_hour()).await?,
    })
}

/// Returns the names of the queues that have limits or are paused, or that workers serve.
fn queue_names(parts: &Answers<PartitionOverview>) -> BTreeSet<QueueName> {
    let mut names = BTreeSet::from([QueueName::DEFAULT]);
    for (_, part) in parts {
        names.extend(part.queues.iter().cloned());
        names.extend(part.routes.queues().into_iter().cloned());
    }
    names
}

/// Returns `true` if a partition has tasks of a queue.
fn is_in(inner: &Inner, name: &QueueName, partition: usize) -> bool {
    let queue_partition = inner.partitions.of_queue(name);
    queue_partition.is_none_or(|it| it == partition)
}

/// Returns the arguments that describe queues: see `lua/overview.lua`.
fn arguments(names: &[QueueName], routes: &Routes) -> Arguments {
    let mut arguments = Arguments::default();
    arguments.push_number(names.len());
    for name in names {
        let lists = routes.lists_of_queue(name).into_iter();
        let sets = routes.sets().filter(|&set| routes.queue(set) == *name);
        arguments.push(name.as_str());
        arguments.push(lists.map(routing::list_text).collect::<String>());
        arguments.push(sets.flat_map(|set| set.to_bytes()).collect::<Vec<_>>());
    }
    arguments
}

async fn describe(
    inner: &Inner,
    partition: usize,
    names: Vec<QueueName>,
    arguments: Arguments,
) -> Result<Vec<(QueueName, QueueDraft)>, Failure> {
    let answer = inner.run(&inner.scripts.overview, partition, arguments);
    let described = Reader::new(answer.await?)?.rest(|part| queue(part.list()?))?;
    Ok(names.into_iter().zip(described).collect())
}

fn queue(mut parts: Reader) -> Result<QueueDraft, Failure> {
    let info = queues::info(&mut parts)?;
    let (waited, sessions) = (parts.number()?, parts.number()?);
    Ok(QueueDraft {
        info,
        sessions: sessions.try_into().unwrap_or_default(),
        oldest_waiting: waited.try_into().ok().map(Duration::from_millis),
    })
}

/// Adds the part of a queue that is in another partition.
fn add_queue(sum: &mut QueueDraft, queue: QueueDraft) {
    let (waiting, running) = (sum.info.waiting, sum.info.running);
    sum.info = queue.info;
    sum.info.waiting += waiting;
    sum.info.running += running;
    // Each session is open in all partitions.
    sum.sessions = sum.sessions.max(queue.sessions);
    sum.oldest_waiting = sum.oldest_waiting.max(queue.oldest_waiting);
}

/// Adds the answers of the partitions, except for those that have not described their queues.
fn add_parts(
    draft: &mut OverviewDraft,
    inner: &Inner,
    parts: Answers<PartitionOverview>,
    others: &[usize],
) {
    let parts: Vec<_> = parts
        .into_iter()
        .filter(|(partition, _)| !others.contains(partition))
        .collect();
    let mut served = Vec::new();
    for (partition, part) in parts {
        draft.now = draft.now.max(part.now);
        add_counts(&mut draft.counts, part.counts);
        draft.add_stats(part.stats);
        for run_type in part.types {
            draft.types.entry(run_type).or_default();
        }
        draft.add_paused(part.routes.paused());
        served.push((partition, part.routes));
    }
    for (run_type, it) in &mut draft.types {
        let kinds = Kind::all_of(run_type.name())
            .map(|kind| kind.placed(run_type.queue(), Priority::Normal));
        it.is_served = served.iter().any(|(partition, routes)| {
            let is_known = kinds.iter().any(|&kind| routes.is_known(kind));
            is_known && is_in(inner, run_type.queue(), *partition)
        });
    }
}

fn add_counts(sum: &mut Counts, mut counts: Counts) {
    for (_, field) in FIELDS {
        *field(sum) += *field(&mut counts);
    }
}
