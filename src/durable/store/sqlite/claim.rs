//! Claims: takes the next tasks out of the ready queue.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::{CachedStatement, Row, Rows, params};

use super::claimed_tasks::ClaimedTasks;
use super::error::Fault;
use super::groups::TaskGroup;
use super::queues::{QueueRow, queue_column};
use super::ready_queue::{self, NO_GROUP};
use super::ring::{Groups, Ring, Sublist};
use super::state::State;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::queue::Priority;
use crate::durable::queue::group::GroupName;
use crate::durable::queue::name::QueueName;
use crate::durable::queue::priority::PriorityTurns;
use crate::durable::store::kind::SetId;
use crate::durable::store::routes::ListId;
use crate::durable::store::{Claim, Claimed, Epoch, Turn, is_quarantined};

/// Claims tasks of the types of a set, within the limits of the request and of the queue.
pub(super) fn claim(
    tx: &mut Transaction<'_>,
    set: Option<SetId>,
    request: &Turn,
) -> Result<Option<Claim>, Fault> {
    let Some(set) = set else {
        return Ok(None);
    };
    tx.drain(set)?;
    let queue = tx.routes.queue(set);
    let next = match queue.is_default() && !tx.routes.uses_priorities() {
        true => next_tasks(
            tx,
            set,
            request,
            &queue,
            request.want,
            PriorityTurns::default(),
        )?,
        false => next_tasks_of_queue(tx, set, request, &queue)?,
    };
    if next.tasks.is_empty() {
        return Ok(None);
    }
    for (&(list, sublist), positions) in &next.positions {
        ready_queue::remove_all(tx.db, list, sublist, positions)?;
        tx.notices.add_ready(list, -(positions.len() as i64));
    }
    next.record_groups(tx, &queue)?;
    for _ in &next.tasks {
        tx.decrement(State::Waiting);
        tx.increment(State::Running);
    }
    tx.meta.counts.claimed += next.tasks.len() as u64;
    for &id in &next.keyed {
        tx.free_key(id)?;
    }
    let epoch = insert_claim(tx, request, &queue, &next.claimed)?;
    Ok(Some(Claim {
        epoch,
        tasks: next.tasks,
    }))
}

/// Stores a claim. Returns its epoch.
fn insert_claim(
    tx: &mut Transaction<'_>,
    request: &Turn,
    queue: &QueueName,
    tasks: &ClaimedTasks,
) -> Result<Epoch, rusqlite::Error> {
    let epoch = tx.new_epoch(request.floor);
    let lease = millis(request.lease) as i64;
    let (session, until) = (request.session as i64, tx.now.boot + lease);
    tx.execute(
        "INSERT INTO throng_claim (epoch, session, until, lease, held, queue, claimed_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            epoch,
            session,
            until,
            lease,
            tasks,
            queue_column(queue),
            tx.now.wall
        ],
    )?;
    Ok(epoch as Epoch)
}

/// The tasks to claim, and where they are in the ready queue.
#[derive(Default)]
struct NextTasks {
    tasks: Vec<Claimed>,
    /// The positions in each sublist of a list.
    positions: BTreeMap<(ListId, i64), Vec<i64>>,
    /// The sublists that were served, in this order.
    served: Vec<(ListId, i64)>,
    claimed: ClaimedTasks,
    /// The tasks that hold keys only until they are claimed.
    keyed: Vec<TaskId>,
    /// The turns of the priorities after the claim.
    turns: PriorityTurns,
    /// The size of the payloads.
    bytes: usize,
    /// `true` if the claim may have a quarantined task.
    quarantined: bool,
    /// `true` if the next task is too large.
    is_full: bool,
}

// The join order is fixed: the ready queue comes first, whatever SQLite estimates. An entry without a task cannot be
// read, and is removed by the repair that follows.
const READY_TASKS: &str = "
    SELECT task.id, name, payload, failures, crashes, lost, max_crashes,
        ready.place, endpoint, key_since, group_name, failing_since, ready_at
    FROM throng_ready AS ready LEFT JOIN throng_task AS task ON task.id = ready.id
    WHERE ready.list = ?2 AND ready.sublist = ?3 AND ready.place > ?4
        AND (?1 OR NOT (crashes + lost > 0 AND crashes + min(lost, 1) + 1 >= max_crashes))
    ORDER BY ready.place";

/// Returns the next tasks, also within the limits of the queue, and records in its row that they start.
fn next_tasks_of_queue(
    tx: &Transaction<'_>,
    set: SetId,
    request: &Turn,
    queue: &QueueName,
) -> Result<NextTasks, rusqlite::Error> {
    let before = QueueRow::load(tx.db, queue)?;
    let allowed = match queue.is_default() {
        true => usize::MAX,
        false => before.allowance(tx.db, queue, tx.now)?.tasks,
    };
    let next = next_tasks(
        tx,
        set,
        request,
        queue,
        request.want.min(allowed),
        before.turns,
    )?;
    let mut row = before;
    row.started(tx.now, next.tasks.len());
    // Without priorities, no turns are counted.
    if tx.routes.uses_priorities() {
        row.turns = next.turns;
    }
    if row != before {
        row.save(tx.db, queue)?;
    }
    Ok(next)
}

/// A list of tasks of a priority, from which the next tasks are read.
struct Source<'a> {
    priority: Priority,
    list: ListId,
    rows: Rows<'a>,
}

/// Begins to read lists.
fn sources<'a>(
    lists: &[(Priority, ListId)],
    statements: &'a mut [CachedStatement<'_>],
    quarantined: bool,
) -> Result<Vec<Source<'a>>, rusqlite::Error> {
    let sources = lists.iter().zip(statements);
    let sources = sources.map(|(&(priority, list), statement)| {
        let params = params![quarantined, list.number(), NO_GROUP, i64::MIN];
        let mut rows = statement.query(params)?;
        rows.advance()?;
        Ok(Source {
            priority,
            list,
            rows,
        })
    });
    sources.collect()
}

/// Returns the next tasks, at most `want`. This merges the lists of the set that have the same priority: the task that has waited
/// longest comes first.
fn next_tasks(
    tx: &Transaction<'_>,
    set: SetId,
    request: &Turn,
    queue: &QueueName,
    want: usize,
    turns: PriorityTurns,
) -> Result<NextTasks, rusqlite::Error> {
    let mut next = NextTasks {
        turns,
        quarantined: request.quarantined,
        ..NextTasks::default()
    };
    if want == 0 {
        return Ok(next);
    }
    let lists = lists(tx, set)?;
    let statements = lists.iter().map(|_| tx.db.prepare_cached(READY_TASKS));
    let mut statements = statements.collect::<Result<Vec<_>, _>>()?;
    let mut sources = sources(&lists, &mut statements, request.quarantined)?;
    let groups = Groups::of(tx, queue)?;
    for (priority, most) in turns.order() {
        if let Some(groups) = &groups {
            let lists = lists.iter().filter(|(at, _)| *at == priority);
            let ring = Ring::new(tx.db, lists.map(|(_, list)| *list));
            next.take_from_groups(tx, request, groups, ring, want.min(most))?;
        }
        next.take(tx, request, &mut sources, priority, want.min(most))?;
        if !next.tasks.is_empty() {
            next.turns.started(priority, next.tasks.len() as u64);
            break;
        }
    }
    Ok(next)
}

/// Returns the lists from which the sessions of a set claim, with their priorities.
fn lists(tx: &Transaction<'_>, set: SetId) -> Result<Vec<(Priority, ListId)>, rusqlite::Error> {
    let routes = &tx.routes;
    let at =
        |priority, lists: BTreeSet<ListId>| lists.into_iter().map(move |list| (priority, list));
    if !routes.uses_priorities() {
        return Ok(at(Priority::Normal, routes.leaves(set)).collect());
    }
    let priorities = Priority::ALL.into_iter();
    let lists = priorities.flat_map(|priority| at(priority, routes.leaves_at(set, priority)));
    // Most priorities have no tasks, and a statement that reads a list is prepared anew for each list but one.
    let mut found = Vec::new();
    for (priority, list) in lists {
        if !ready_queue::is_empty(tx.db, list)? {
            found.push((priority, list));
        }
    }
    Ok(found)
}

impl NextTasks {
    /// Takes up to `most` tasks of a priority.
    fn take(
        &mut self,
        tx: &Transaction<'_>,
        request: &Turn,
        sources: &mut [Source<'_>],
        priority: Priority,
        most: usize,
    ) -> Result<(), rusqlite::Error> {
        while self.tasks.len() < most
            && !self.is_full
            && let Some(first) = first_of(sources, priority)?
            && let Some(row) = first.rows.get()
        {
            self.take_row(tx, request, (first.list, NO_GROUP), row)?;
            first.rows.advance()?;
        }
        Ok(())
    }

    /// Takes up to `most` tasks of groups, in the order of their turns.
    fn take_from_groups(
        &mut self,
        tx: &Transaction<'_>,
        request: &Turn,
        groups: &Groups<'_>,
        mut ring: Ring<'_>,
        most: usize,
    ) -> Result<(), rusqlite::Error> {
        let (mut permits, mut again) = (HashMap::new(), VecDeque::new());
        while self.tasks.len() < most && !self.is_full {
            let Some(mut sublist) = ring.next()?.or_else(|| again.pop_front()) else {
                break;
            };
            let permits = match permits.entry(sublist.group.clone()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(groups.permits(tx, &sublist.group)?),
            };
            let before = self.tasks.len();
            let most = most.min(before + groups.quantum.min(*permits));
            self.take_from_sublist(tx, request, &mut sublist, most)?;
            let given = self.tasks.len() - before;
            if given > 0 {
                *permits -= given;
                self.served.push((sublist.list, sublist.number));
                again.push_back(sublist);
            }
        }
        Ok(())
    }

    /// Takes the next tasks of a sublist, until there are `most` tasks.
    fn take_from_sublist(
        &mut self,
        tx: &Transaction<'_>,
        request: &Turn,
        sublist: &mut Sublist,
        most: usize,
    ) -> Result<(), rusqlite::Error> {
        let mut statement = tx.db.prepare_cached(READY_TASKS)?;
        let mut rows = statement.query(params![
            self.quarantined,
            sublist.list.number(),
            sublist.number,
            sublist.position
        ])?;
        while self.tasks.len() < most
            && !self.is_full
            && let Some(row) = rows.next()?
        {
            sublist.position = row.get(7)?;
            self.take_row(tx, request, (sublist.list, sublist.number), row)?;
        }
        Ok(())
    }

    /// Takes a task unless it is too large, or is quarantined while the claim has another such task.
    fn take_row(
        &mut self,
        tx: &Transaction<'_>,
        request: &Turn,
        sublist: (ListId, i64),
        row: &Row<'_>,
    ) -> Result<(), rusqlite::Error> {
        let task = read_row(tx, row, self.tasks.last())?;
        if task.quarantined && !self.quarantined {
            return Ok(());
        }
        self.bytes += task.payload.as_ref().map_or(0, Vec::len);
        self.is_full = self.bytes > request.want_bytes && !self.tasks.is_empty();
        if self.is_full {
            return Ok(());
        }
        self.quarantined &= !task.quarantined;
        self.positions.entry(sublist).or_default().push(row.get(7)?);
        self.claimed.insert(task.id, row.get(8)?);
        let key_since: Option<i64> = row.get(9)?;
        self.keyed.extend(key_since.map(|_| task.id));
        self.tasks.push(task);
        Ok(())
    }

    /// Records the turns of the groups that were served, and that their tasks run.
    fn record_groups(
        &self,
        tx: &mut Transaction<'_>,
        queue: &QueueName,
    ) -> Result<(), rusqlite::Error> {
        for (list, sublist) in &self.served {
            tx.sublist_served(list.number(), *sublist)?;
        }
        let mut groups: BTreeMap<&str, Vec<TaskId>> = BTreeMap::new();
        // The default queue has no groups, whatever a damaged row says.
        let tasks = self.tasks.iter().filter(|_| !queue.is_default());
        for task in tasks {
            if let Some(group) = &task.group {
                groups.entry(group.as_str()).or_default().push(task.id);
            }
        }
        for (name, ids) in groups {
            let group = TaskGroup {
                queue: queue.as_str().to_owned(),
                name: name.to_owned(),
            };
            tx.start_in_group(&group, &ids)?;
        }
        Ok(())
    }
}

/// Returns the list of a priority whose first task has waited longest.
fn first_of<'s, 'a>(
    sources: &'s mut [Source<'a>],
    priority: Priority,
) -> Result<Option<&'s mut Source<'a>>, rusqlite::Error> {
    let mut first = None;
    for (at, source) in sources.iter().enumerate() {
        if let Some(row) = source.rows.get().filter(|_| source.priority == priority) {
            let position: i64 = row.get(7)?;
            first = first.min(Some((position, at))).or(Some((position, at)));
        }
    }
    Ok(first.map(|(_, at)| &mut sources[at]))
}

/// Reads a task that is claimed already.
pub(super) fn read_task(
    tx: &Transaction<'_>,
    id: TaskId,
) -> Result<Option<Claimed>, rusqlite::Error> {
    let mut statement = tx.db.prepare_cached(
        "SELECT id, name, payload, failures, crashes, lost, max_crashes,
             NULL, NULL, NULL, group_name, failing_since, ready_at
         FROM throng_task WHERE id = ?1",
    )?;
    let mut rows = statement.query([id.to_bytes()])?;
    rows.next()?.map(|row| read_row(tx, row, None)).transpose()
}

/// Reads a task. It shares its name with the task `before` if both have the same, as is likely.
fn read_row(
    tx: &Transaction<'_>,
    row: &Row<'_>,
    before: Option<&Claimed>,
) -> Result<Claimed, rusqlite::Error> {
    let id = TaskId::from_bytes(row.get(0)?);
    let name = row.get_ref(1)?.as_str()?;
    let payload = match row.get(2)? {
        Some(payload) => Ok(payload),
        None => tx.large_data(id)?,
    };
    let (crashes, lost) = (row.get(4)?, row.get(5)?);
    let since = |column| -> Result<Option<Duration>, rusqlite::Error> {
        let at: Option<i64> = row.get(column)?;
        Ok(at.map(|at| tx.now.since(at)))
    };
    let (steps, wait) = tx.claimed_steps(id)?;
    let mut claimed = Claimed {
        id,
        name: match before {
            Some(before) if *before.name == *name => Arc::clone(&before.name),
            _ => Arc::from(name),
        },
        group: group_name(row)?,
        payload,
        failures: row.get(3)?,
        failing_for: since(11)?,
        waited: None,
        crashes,
        quarantined: is_quarantined(crashes, lost, row.get(6)?),
        lost,
        steps,
        wait,
    };
    claimed.set_waited(since(12)?);
    Ok(claimed)
}

fn group_name(row: &Row<'_>) -> Result<Option<GroupName>, rusqlite::Error> {
    let name = row.get_ref(10)?.as_str_or_null()?;
    // A stored name is valid.
    Ok(name.and_then(|name| GroupName::new(name).ok()))
}
