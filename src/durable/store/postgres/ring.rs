//! The ring of groups: a claim serves those first whose turn it is.

use std::collections::VecDeque;

use tokio_postgres::Row;

use super::error::Fault;
use super::next_tasks::Next;
use super::text;
use super::transaction::Transaction;
use crate::durable::queue::Groups;
use crate::durable::queue::name::QueueName;

/// Selects up to `$4` groups after the turn `$2` and the name `$3` that have tasks of the kinds `$1`. Each comes with the number of its
/// running tasks, and with its first `$7` tasks, or without a task. Quarantined tasks are skipped unless `$6`.
pub(super) const NEXT_GROUPS: &str = "WITH ring AS MATERIALIZED (
        SELECT DISTINCT turn, name FROM unnest($1::bigint[]) AS own (kind) CROSS JOIN LATERAL (
            SELECT turn, name FROM throng.group_line AS line
            WHERE line.kind = own.kind AND turn IS NOT NULL
                AND (turn, name) > ($2::bigint, $3::text)
            ORDER BY turn, name LIMIT $4
        ) AS line
        ORDER BY turn, name LIMIT $4
    )
    SELECT ring.turn, ring.name, (
            SELECT count(*) FROM throng.group_run AS run
            WHERE run.queue = $5 AND run.name = ring.name
        ) AS running, entry.*
    FROM ring LEFT JOIN LATERAL (
        SELECT first.* FROM unnest($1::bigint[]) AS own (kind) CROSS JOIN LATERAL (
            SELECT ready.kind, ready.group_name, ready.place, ready.id, ready.ctid::text AS row,
                coalesce(length(payload), 0) AS bytes, key_since IS NOT NULL AS frees_key,
                crashes + lost > 0 AND crashes + least(lost, 1) + 1 >= max_crashes AS quarantined
            FROM throng.ready JOIN throng.task ON task.id = ready.id
            WHERE ready.kind = own.kind AND ready.group_name = ring.name
                AND ($6 OR NOT (crashes + lost > 0 AND crashes + least(lost, 1) + 1 >= max_crashes))
            ORDER BY ready.place LIMIT $7
        ) AS first
        ORDER BY first.place LIMIT $7
    ) AS entry ON true
    ORDER BY ring.turn, ring.name, entry.place";

/// The number of groups that are read at once, at most.
const MAX_GROUPS: usize = 64;

/// The groups of a priority of which tasks may start, in the order of their turns.
struct Ring<'a> {
    queue: &'a QueueName,
    limits: Groups,
    kinds: &'a [i64],
    /// The turn and the name of the last group that was read.
    after: (i64, String),
    read: VecDeque<ReadGroup>,
    is_at_end: bool,
}

/// A group, and its first tasks.
struct ReadGroup {
    name: String,
    turn: i64,
    /// The number of its tasks that may start.
    permits: usize,
    tasks: VecDeque<Row>,
    /// The place of the last task that was read.
    after: i64,
    is_at_end: bool,
}

impl Next<'_> {
    /// Takes the next tasks of the groups of a queue, in the order of their turns, until there are `most` tasks.
    pub(super) async fn take_from_groups(
        &mut self,
        tx: &Transaction,
        queue: &QueueName,
        limits: Groups,
        kinds: &[i64],
        most: usize,
    ) -> Result<(), Fault> {
        // The default queue has no groups.
        if queue.is_default() || kinds.is_empty() {
            return Ok(());
        }
        let mut ring = Ring::new(queue, limits, kinds);
        let mut again = VecDeque::new();
        while self.entries.len() < most && !self.is_full {
            let next = ring.next(tx, self, most).await?;
            let Some(mut group) = next.or_else(|| again.pop_front()) else {
                break;
            };
            let before = self.entries.len();
            let quantum = limits.quantum as usize;
            let most = most.min(before + quantum.min(group.permits));
            self.take_from_group(tx, kinds, &mut group, most).await?;
            let given = self.entries.len() - before;
            if given > 0 {
                group.permits -= given;
                self.served.push(group.name.clone());
                again.push_back(group);
            }
        }
        Ok(())
    }

    /// Takes the next tasks of a group, until there are `most` tasks.
    async fn take_from_group(
        &mut self,
        tx: &Transaction,
        kinds: &[i64],
        group: &mut ReadGroup,
        most: usize,
    ) -> Result<(), Fault> {
        while self.entries.len() < most && !self.is_full {
            if group.tasks.is_empty() && !group.is_at_end {
                // The group may be served again, so this is not read anew for each of its tasks.
                let wanted = self.wanted();
                let (name, after) = (&*group.name, group.after);
                let tasks = self.read(tx, kinds, name, after, wanted, 0).await?;
                group.add(tasks, wanted)?;
            }
            match group.tasks.pop_front() {
                Some(task) => {
                    self.take_row(&task)?;
                }
                None => break,
            }
        }
        Ok(())
    }
}

impl<'a> Ring<'a> {
    fn new(queue: &'a QueueName, limits: Groups, kinds: &'a [i64]) -> Self {
        Self {
            queue,
            limits,
            kinds,
            after: (i64::MIN, String::new()),
            read: VecDeque::new(),
            is_at_end: false,
        }
    }

    /// Returns the next group, for a claim of up to `most` tasks.
    async fn next(
        &mut self,
        tx: &Transaction,
        next: &Next<'_>,
        most: usize,
    ) -> Result<Option<ReadGroup>, Fault> {
        if self.read.is_empty() && !self.is_at_end {
            self.read_more(tx, next, most).await?;
        }
        Ok(self.read.pop_front())
    }

    async fn read_more(
        &mut self,
        tx: &Transaction,
        next: &Next<'_>,
        most: usize,
    ) -> Result<(), Fault> {
        let wanted = most - next.entries.len();
        let groups = wanted.min(MAX_GROUPS);
        let each = wanted.min(self.limits.quantum as usize);
        let rows = tx
            .rows(
                NEXT_GROUPS,
                &[
                    &self.kinds,
                    &self.after.0,
                    &self.after.1,
                    &(groups as i64),
                    &text::stored(self.queue.as_str()),
                    &next.quarantined,
                    &(each as i64),
                ],
            )
            .await?;
        for row in rows {
            self.add(row)?;
        }
        for group in &mut self.read {
            group.is_at_end = group.tasks.len() < each;
        }
        self.is_at_end = self.read.len() < groups;
        if let Some(last) = self.read.back() {
            self.after = (last.turn, last.name.clone());
        }
        Ok(())
    }

    /// Adds a row of [`NEXT_GROUPS`].
    fn add(&mut self, row: Row) -> Result<(), Fault> {
        let name: String = row.try_get("name")?;
        if self.read.back().is_none_or(|last| last.name != name) {
            let running: i64 = row.try_get("running")?;
            let most = self.limits.max_running.map_or(i64::MAX, i64::from);
            self.read.push_back(ReadGroup {
                name,
                turn: row.try_get("turn")?,
                permits: usize::try_from(most - running).unwrap_or_default(),
                tasks: VecDeque::new(),
                after: i64::MIN,
                is_at_end: false,
            });
        }
        // A group of which only quarantined tasks wait has no place.
        if let (Some(last), Some(place)) = (self.read.back_mut(), row.try_get("place")?) {
            last.after = place;
            last.tasks.push_back(row);
        }
        Ok(())
    }
}

impl ReadGroup {
    /// Adds tasks of which `wanted` were asked for.
    fn add(&mut self, tasks: Vec<Row>, wanted: usize) -> Result<(), Fault> {
        self.is_at_end = tasks.len() < wanted;
        if let Some(last) = tasks.last() {
            self.after = last.try_get("place")?;
        }
        self.tasks.extend(tasks);
        Ok(())
    }
}
