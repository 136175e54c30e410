//! Summarises the store. Each query reads at most a fixed number of waiting tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};

use super::error::Fault;
use super::list_sizes::ListSizes;
use super::meta::Meta;
use super::queues::{self, QueueRow};
use super::reader::ReadConnection;
use super::stats;
use super::time::Now;
use super::{ready_queue, unserved};
use crate::durable::admin::overview::{MAX_OVERVIEW_ROWS, OverviewDraft, QueueDraft};
use crate::durable::queue::name::QueueName;
use crate::durable::queue::{Priority, QueueInfo};
use crate::durable::store::kind::{Kind, SetId};
use crate::durable::store::routes::{ListId, Routes};
use crate::durable::store::{ReadStats, RunType};
use crate::durable::{Counts, Overview, TaskId};

/// Returns a summary of the store.
pub(super) fn overview(reader: &ReadConnection) -> Result<Overview, Fault> {
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| {
        let shared = &reader.shared;
        shared.damage.load(db, now)?;
        let counts = Meta::load(db, shared.layouts)?.counts;
        let sizes = ListSizes::load(db, counts.waiting)?;
        let reading = Reading {
            db,
            now,
            routes: shared.routes.load(db)?,
            sessions: unserved::live_sets(db, &shared.endpoint)?,
            waiting: sizes.by_queue(db)?,
            sizes,
        };
        reading.overview(counts)
    })
}

/// Selects the first task of a list that has no group.
pub(super) const FIRST: &str =
    "SELECT id FROM throng_ready WHERE list = ?1 AND sublist = 0 ORDER BY place LIMIT 1";

/// Selects the type of the first task of a list.
pub(super) const FIRST_TYPE: &str = "
    SELECT name, queue FROM throng_ready AS ready
    CROSS JOIN throng_task AS task ON task.id = ready.id
    WHERE ready.list = ?1 ORDER BY ready.sublist, ready.place LIMIT 1";

/// The data that all parts of the overview need.
struct Reading<'a> {
    db: &'a Connection,
    now: Now,
    routes: Arc<Routes>,
    /// The number of live sessions of each set.
    sessions: BTreeMap<SetId, u64>,
    sizes: ListSizes,
    /// The number of waiting tasks of each queue.
    waiting: BTreeMap<QueueName, u64>,
}

impl Reading<'_> {
    fn overview(&self, counts: Counts) -> Result<Overview, Fault> {
        let size = |list| Ok(self.sizes.of(list));
        let live = self.sessions.keys().copied();
        let unserved = unserved::count_with(self.db, &self.routes, live, size)?;
        let names = self.queue_names()?;
        let mut draft = OverviewDraft {
            now: self.now.wall as u64,
            counts: Counts { unserved, ..counts },
            has_more_queues: names.len() > MAX_OVERVIEW_ROWS,
            ..OverviewDraft::default()
        };
        for name in names.into_iter().take(MAX_OVERVIEW_ROWS) {
            let queue = self.queue(&name)?;
            draft.queues.insert(name, queue);
        }
        draft.add_stats(stats::read_from(
            self.db,
            self.now,
            &ReadStats::last_hour(),
        )?);
        for run_type in self.unserved_types()? {
            draft.types.entry(run_type).or_default();
        }
        draft.add_paused(self.routes.paused());
        let known = self.known_kinds();
        for (run_type, it) in &mut draft.types {
            let kinds = Kind::all_of(run_type.name());
            let mut kinds = kinds
                .iter()
                .map(|kind| kind.placed(run_type.queue(), Priority::Normal));
            it.is_served = kinds.any(|kind| known.contains(&kind));
        }
        Ok(draft.finish())
    }

    /// Returns the default queue, the first queues that have a row, and those that live sessions serve.
    fn queue_names(&self) -> Result<BTreeSet<QueueName>, rusqlite::Error> {
        let sql = "SELECT name FROM throng_queue WHERE name <> '' ORDER BY name LIMIT ?1";
        let mut statement = self.db.prepare_cached(sql)?;
        let named = statement.query_map([MAX_OVERVIEW_ROWS as i64 + 1], |row| {
            Ok(QueueName::from(row.get::<_, Option<String>>(0)?))
        })?;
        let mut names = named.collect::<Result<BTreeSet<_>, _>>()?;
        names.extend(self.sessions.keys().map(|&set| self.routes.queue(set)));
        names.insert(QueueName::DEFAULT);
        Ok(names)
    }

    fn queue(&self, name: &QueueName) -> Result<QueueDraft, Fault> {
        let sets = self.sessions.iter();
        let sets = sets.filter(|&(&set, _)| self.routes.queue(set) == *name);
        let sets: Vec<_> = sets.collect();
        let row = QueueRow::load(self.db, name)?;
        let kinds = sets.iter().flat_map(|&(&set, _)| self.routes.kinds(set));
        let lists: BTreeSet<_> = kinds.flat_map(|kind| self.routes.path(kind)).collect();
        let mut oldest_waiting = None;
        for &list in lists {
            oldest_waiting = oldest_waiting.max(self.first_waiting(list)?);
        }
        Ok(QueueDraft {
            info: QueueInfo {
                settings: row.settings,
                is_paused: row.is_paused,
                waiting: self.waiting.get(name).copied().unwrap_or_default(),
                running: queues::running(self.db, name)?,
            },
            sessions: sets.iter().map(|(_, count)| **count).sum(),
            oldest_waiting,
        })
    }

    /// Returns the time since the first task of a list was spawned, if its id contains that time.
    fn first_waiting(&self, list: ListId) -> Result<Option<Duration>, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(FIRST)?;
        let first = statement.query_row([list.number()], |row| row.get(0).map(TaskId::from_bytes));
        let created = first.optional()?.and_then(TaskId::created);
        Ok(created.map(|at| Duration::from_millis(self.now.wall as u64).saturating_sub(at)))
    }

    /// Returns the kinds that live sessions know.
    fn known_kinds(&self) -> BTreeSet<Kind> {
        let sets = self.sessions.keys();
        sets.flat_map(|&set| self.routes.kinds(set)).collect()
    }

    /// Returns the types of the first tasks in the lists that no live session reads. Each of these lists contains one type.
    fn unserved_types(&self) -> Result<Vec<RunType>, rusqlite::Error> {
        let known = self.known_kinds();
        let lists = known.iter().flat_map(|&kind| self.routes.path(kind));
        let read: BTreeSet<_> = lists.collect();
        let mut statement = self.db.prepare_cached(FIRST_TYPE)?;
        let mut types = Vec::new();
        for list in ready_queue::lists(self.db)? {
            if read.contains(&list) {
                continue;
            }
            let found = statement.query_row([list.number()], |row| {
                let name: String = row.get(0)?;
                Ok(RunType::new(
                    &name.into(),
                    &row.get::<_, Option<String>>(1)?.into(),
                ))
            });
            types.extend(found.optional()?);
        }
        Ok(types)
    }
}
