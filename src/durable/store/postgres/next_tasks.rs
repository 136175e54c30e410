//! [`Next`]: the tasks to claim, and where they wait.
//!
//! A claim locks the first entries of its lines, and skips those that others have locked, so claims do not wait for one another. It removes
//! the entries that it takes, and does not change the rows of their tasks.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::claimed_tasks::{read_task, read_tasks};
use super::connection::Params;
use super::error::Fault;
use super::queues::QueueRow;
use super::transaction::Transaction;
use super::view::task_id;
use crate::durable::TaskId;
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::queue::priority::PriorityTurns;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{Claimed, Turn};

/// Locks the first `$2` entries of the lines of the kinds `$1` and of the group `$5` that come after the place `$4`, and after the place
/// `$7` unless their places are negative. Quarantined tasks are skipped unless `$3`. Reads the payloads of the first tasks, up to `$6`
/// bytes.
const LOCK_NEXT: &str =
    "SELECT next.kind, next.group_name, next.place, next.row, next.id, next.bytes,
        frees_key, quarantined, is_cut, name, failures, crashes, lost, max_crashes, failing_since,
        ready_at, steps, until, CASE WHEN NOT is_cut THEN payload END AS payload
    FROM (
        SELECT entry.*, sum(bytes) OVER (ORDER BY place) > $6 AS is_cut
        FROM unnest($1::bigint[]) AS own (kind)
        CROSS JOIN (VALUES ($4::bigint, 0::bigint), ($7::bigint, 9223372036854775807))
            AS part (after, before)
        CROSS JOIN LATERAL (
            SELECT ready.kind, ready.group_name, ready.place, ready.id, ready.ctid::text AS row,
                coalesce(length(payload), 0) AS bytes, key_since IS NOT NULL AS frees_key,
                crashes + lost > 0 AND crashes + least(lost, 1) + 1 >= max_crashes AS quarantined,
                name, failures, crashes, lost, max_crashes, failing_since, ready_at, payload
            FROM throng.ready JOIN throng.task ON task.id = ready.id
            WHERE ready.kind = own.kind AND ready.group_name = $5
                AND ready.place > part.after AND ready.place < part.before
                AND ($3 OR NOT (crashes + lost > 0 AND crashes + least(lost, 1) + 1 >= max_crashes))
            ORDER BY ready.place LIMIT $2 FOR UPDATE OF ready SKIP LOCKED
        ) AS entry
        ORDER BY place LIMIT $2
    ) AS next LEFT JOIN throng.workflow ON workflow.id = next.id
    ORDER BY next.place";

/// Removes entries that this transaction has locked. Nobody updates entries, and nobody rewrites the table while a transaction uses it, so
/// they stay where they are.
pub(super) const REMOVE_ENTRIES: &str =
    "DELETE FROM throng.ready WHERE ctid = ANY ($1::text[]::tid[])";

/// An entry in a line.
pub(super) struct Entry {
    pub(super) group: String,
    place: i64,
    /// Where the row is.
    row: String,
    pub(super) id: TaskId,
    /// The task, if it has been read.
    task: Option<Claimed>,
}

/// The tasks to claim, and where they wait.
pub(super) struct Next<'a> {
    request: &'a Turn,
    pub(super) entries: Vec<Entry>,
    /// The groups that were served, in this order, as they are stored.
    pub(super) served: Vec<String>,
    /// The tasks that hold keys only until they are claimed.
    pub(super) keyed: Vec<TaskId>,
    /// The place behind which the tasks wait, except for those with negative places.
    low: i64,
    /// The size of the payloads.
    bytes: usize,
    /// `true` if the claim may have a quarantined task.
    pub(super) quarantined: bool,
    /// `true` if the next task is too large.
    pub(super) is_full: bool,
}

impl<'a> Next<'a> {
    pub(super) fn new(request: &'a Turn) -> Self {
        Self {
            request,
            entries: Vec::new(),
            served: Vec::new(),
            keyed: Vec::new(),
            low: 0,
            bytes: 0,
            quarantined: request.quarantined,
            is_full: false,
        }
    }

    /// Returns the number of tasks that the session still wants.
    pub(super) fn wanted(&self) -> usize {
        self.request.want - self.entries.len()
    }

    pub(super) fn ids(&self) -> Vec<TaskId> {
        self.entries.iter().map(|entry| entry.id).collect()
    }

    /// Takes the next tasks of the default queue, behind the mark of the session. If there are too few, takes those from the start.
    pub(super) async fn take_behind_mark(
        &mut self,
        tx: &Transaction,
        kinds: &[i64],
    ) -> Result<(), Fault> {
        if self.request.want == 0 {
            return Ok(());
        }
        let (marks, session) = (&tx.shared.low_marks, self.request.session as i64);
        self.low = marks.get(session, kinds);
        self.take(tx, kinds, "", self.request.want).await?;
        if self.low > 0 && self.wants_more() {
            *self = Self::new(self.request);
            self.take(tx, kinds, "", self.request.want).await?;
        }
        Ok(())
    }

    /// Sets the mark of the session behind the tasks, which are to be claimed now.
    pub(super) fn set_mark(&self, tx: &Transaction, kinds: &[i64]) {
        let (marks, session) = (&tx.shared.low_marks, self.request.session as i64);
        match self.entries.last().filter(|_| !self.wants_more()) {
            Some(last) => marks.set(session, kinds, self.low, last.place),
            None => marks.remove(session),
        }
    }

    /// Returns `true` if the session would have got further tasks, had others not locked them.
    pub(super) fn wants_more(&self) -> bool {
        self.wanted() > 0 && !self.is_full
    }

    /// Takes the next tasks of a queue with limits or priorities, and records in the row of the queue that they start.
    pub(super) async fn take_of_queue(
        &mut self,
        tx: &mut Transaction,
        set: &TypeSet,
        queue: &QueueName,
    ) -> Result<(), Fault> {
        tx.require_exclusive()?;
        let before = QueueRow::load(tx, queue).await?;
        let allowed = match queue.is_default() {
            true => usize::MAX,
            false => before.allowance(tx, queue).await?.tasks,
        };
        let want = self.request.want.min(allowed);
        let mut row = before;
        for (priority, most) in before.turns.order() {
            let kinds = tx.kinds_at(set, priority);
            let most = want.min(most);
            let groups = before.settings.groups;
            self.take_from_groups(tx, queue, groups, &kinds, most)
                .await?;
            self.take(tx, &kinds, "", most).await?;
            if !self.entries.is_empty() {
                self.start_in_groups(tx, queue, priority).await?;
                row.turns.started(priority, self.entries.len() as u64);
                break;
            }
        }
        row.started(tx.now, self.entries.len());
        // Without priorities, no turns are counted.
        if !tx.uses_priorities {
            row.turns = PriorityTurns::default();
        }
        if row != before {
            row.save(tx, queue).await?;
        }
        Ok(())
    }

    /// Takes the next tasks of some lines, until there are `most` tasks: the task that has waited longest comes first.
    pub(super) async fn take(
        &mut self,
        tx: &Transaction,
        kinds: &[i64],
        group: &str,
        most: usize,
    ) -> Result<(), Fault> {
        let mut after = i64::MIN;
        let mut names = BTreeMap::new();
        while self.entries.len() < most && !self.is_full && !kinds.is_empty() {
            let wanted = most - self.entries.len();
            let bytes = self.request.want_bytes.saturating_sub(self.bytes);
            let rows = self.read(tx, kinds, group, after, wanted, bytes).await?;
            for row in &rows {
                after = row.try_get("place")?;
                let is_cut: bool = row.try_get("is_cut")?;
                let taken = self.take_row(row)?;
                if let Some(entry) = taken.filter(|_| !is_cut) {
                    entry.task = Some(read_task(tx, row, &mut names)?);
                }
            }
            // A quarantined task may have been passed over. Then there may be others behind it.
            if rows.len() < wanted {
                break;
            }
        }
        Ok(())
    }

    /// Reads up to `wanted` tasks of some lines behind a place, with payloads of up to `bytes`.
    pub(super) async fn read(
        &self,
        tx: &Transaction,
        kinds: &[i64],
        group: &str,
        after: i64,
        wanted: usize,
        bytes: usize,
    ) -> Result<Vec<Row>, Fault> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let limit = wanted as i64;
        let low = after.max(self.low).max(0);
        let quarantined = &self.quarantined;
        let params: Params<'_> = &[&kinds, &limit, quarantined, &after, &group, &bytes, &low];
        Ok(tx.rows(LOCK_NEXT, params).await?)
    }

    /// Takes a task unless it is too large, or is quarantined while the claim has another such task. Returns the task that was taken.
    pub(super) fn take_row(&mut self, row: &Row) -> Result<Option<&mut Entry>, Fault> {
        let is_quarantined: bool = row.try_get("quarantined")?;
        if self.is_full || is_quarantined && !self.quarantined {
            return Ok(None);
        }
        let bytes: i32 = row.try_get("bytes")?;
        self.bytes += bytes as usize;
        self.is_full = self.bytes > self.request.want_bytes && !self.entries.is_empty();
        if self.is_full {
            return Ok(None);
        }
        self.quarantined &= !is_quarantined;
        let id = task_id(row.try_get("id")?);
        if row.try_get("frees_key")? {
            self.keyed.push(id);
        }
        self.entries.push(Entry {
            group: row.try_get("group_name")?,
            place: row.try_get("place")?,
            row: row.try_get("row")?,
            id,
            task: None,
        });
        Ok(self.entries.last_mut())
    }

    /// Records the turns of the groups that were served, and that their tasks run.
    async fn start_in_groups(
        &self,
        tx: &mut Transaction,
        queue: &QueueName,
        priority: Priority,
    ) -> Result<(), Fault> {
        let grouped = self.entries.iter().filter(|entry| !entry.group.is_empty());
        let started: Vec<_> = grouped.map(|entry| (entry.id, &*entry.group)).collect();
        tx.started_in_groups(queue, priority, &started, &self.served)
            .await
    }

    pub(super) async fn remove_entries(&self, tx: &Transaction) -> Result<(), Fault> {
        let rows: Vec<_> = self.entries.iter().map(|entry| &*entry.row).collect();
        tx.execute(REMOVE_ENTRIES, &[&rows]).await?;
        Ok(())
    }

    /// Returns the tasks, and reads those that have not been read yet.
    pub(super) async fn into_tasks(self, tx: &Transaction) -> Result<Vec<Claimed>, Fault> {
        let unread = self.entries.iter().filter(|entry| entry.task.is_none());
        let unread: Vec<_> = unread.map(|entry| entry.id).collect();
        let read = match unread.is_empty() {
            true => Vec::new(),
            false => read_tasks(tx, &unread).await?,
        };
        let mut read = read.into_iter().peekable();
        let tasks = self
            .entries
            .into_iter()
            .filter_map(|entry| match entry.task {
                Some(task) => Some(task),
                None => read.next_if(|task| task.id == entry.id),
            });
        Ok(tasks.collect())
    }
}
