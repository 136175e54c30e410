//! Stores tasks.

use std::collections::HashSet;

use tokio::try_join;
use uuid::Uuid;

use super::error::Fault;
use super::queues::queue_column;
use super::session;
use super::state::State;
use super::text;
use super::transaction::Transaction;
use super::view::{task_id, uuid, uuids};
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::failure::Cause;
use crate::durable::queue::Priority;
use crate::durable::store::key_answer;
use crate::durable::store::{Enqueue, Enqueued, NewTask};

/// Records a request, so that a repetition is detected.
const RECORD: &str =
    "UPDATE throng.session SET number = $2, first = $3, claim = NULL WHERE id = $1";

const RECORD_ANSWER: &str = "UPDATE throng.session SET answer = $2 WHERE id = $1";

const ANSWER: &str = "SELECT answer FROM throng.session WHERE id = $1";

/// Stores tasks, in the order of the arrays, except those whose ids exist. Returns the ids of those that were stored.
const INSERT: &str = "WITH new AS MATERIALIZED (
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bytea[], $5::text[], $6::smallint[],
            $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::uuid[]) WITH ORDINALITY
            AS new (id, name, kind, payload, queue, priority, group_name, at, max_crashes, retention,
                parent, number)
    ), placed AS MATERIALIZED (
        SELECT *, CASE WHEN at IS NULL THEN nextval('throng.back') END AS place
        FROM (SELECT * FROM new ORDER BY number) AS new
    ), stored AS (
        INSERT INTO throng.task (id, state, place, at, ready_at, name, kind, max_crashes, retention,
            queue, group_name, priority, parent, payload)
        SELECT id, CASE WHEN at IS NULL THEN 0 ELSE 1 END, place, at, coalesce(at, $12), name, kind,
            max_crashes, retention, queue, group_name, priority, parent, payload
        FROM placed ORDER BY number
        ON CONFLICT (id) DO NOTHING
        RETURNING id, kind, group_name, place, queue, priority, name
    ), lined AS (
        INSERT INTO throng.ready (kind, group_name, place, id)
        SELECT kind, coalesce(group_name, ''), place, id FROM stored WHERE place IS NOT NULL
    )
    SELECT * FROM stored ORDER BY place";

pub(super) const EARLIEST_DUE: &str =
    "SELECT at FROM throng.task WHERE state = 1 AND at IS NOT NULL ORDER BY at LIMIT 1";

const USE_PRIORITIES: &str = "UPDATE throng.meta SET uses_priorities = true";

/// Returns `true` if the transaction that stores these tasks needs the store for itself.
pub(super) fn needs_store(tasks: &[NewTask]) -> bool {
    tasks
        .iter()
        .any(|task| task.key.is_some() || task.group.is_some())
}

pub(super) async fn enqueue(tx: &mut Transaction, request: &Enqueue) -> Result<Enqueued, Fault> {
    let session = session::find(tx, request.session).await?;
    let tasks = request.batch.close();
    let first = tasks.first().map(|task| uuid(task.id));
    if session.is_last(request.number)? {
        // The first answer was lost, and perhaps also the notices.
        for task in tasks {
            tx.add_ready(task.kind().number(), &task.queue, &task.name, 0);
        }
        // The same number with other tasks means that two processes use this session.
        return match session.first == first {
            true => remembered_answer(tx, request).await,
            false => Err(Fault::Refused(Cause::NoSession)),
        };
    }
    if first.is_none() {
        return Ok(Enqueued::default());
    }
    let (db, number) = (tx.connection(), request.number as i64);
    let record = async {
        db.execute(RECORD, &[&session.id, &number, &first]).await?;
        Ok::<_, Fault>(())
    };
    let ((), enqueued) = try_join!(biased; record, store_all(tx, tasks))?;
    if !enqueued.conflicts.is_empty() {
        let answer = key_answer::answer_column(request.number, &enqueued);
        tx.execute(RECORD_ANSWER, &[&session.id, &answer]).await?;
    }
    Ok(enqueued)
}

/// Stores tasks, except those whose keys other tasks hold. Returns the conflicts.
pub(super) async fn store_all(tx: &mut Transaction, tasks: &[NewTask]) -> Result<Enqueued, Fault> {
    if needs_store(tasks) {
        tx.require_exclusive()?;
    }
    prepare_priorities(tx, tasks).await?;
    check_earliest(tx, tasks).await?;
    let (mut enqueued, mut position) = (Enqueued::default(), 0);
    // Tasks with keys may meet one another, so each is stored before the next one is looked at.
    for tasks in tasks.chunk_by(|one, next| one.key.is_none() && next.key.is_none()) {
        match tx.resolve_conflict(position, &tasks[0]).await? {
            Some(conflict) => enqueued.conflicts.push(conflict),
            None => store(tx, tasks).await?,
        }
        position += tasks.len();
    }
    Ok(enqueued)
}

/// Returns the answer to the last request of a session, for a request that is sent again.
async fn remembered_answer(tx: &Transaction, request: &Enqueue) -> Result<Enqueued, Fault> {
    if request.batch.close().iter().all(|task| task.key.is_none()) {
        return Ok(Enqueued::default());
    }
    let answer: Option<Option<Vec<u8>>> = tx.value(ANSWER, &[&(request.session as i64)]).await?;
    Ok(key_answer::read_answer(
        request.number,
        answer.flatten().as_deref(),
    ))
}

/// Records that the store has priorities before the first task with another priority than the normal one is stored.
async fn prepare_priorities(tx: &mut Transaction, tasks: &[NewTask]) -> Result<(), Fault> {
    let is_normal = |task: &NewTask| task.priority == Priority::Normal;
    if tx.uses_priorities || tasks.iter().all(is_normal) {
        return Ok(());
    }
    tx.require_exclusive()?;
    tx.execute(USE_PRIORITIES, &[]).await?;
    tx.reload_meta().await
}

/// Checks whether one of the tasks is due before all others that are delayed. If so, a worker that waits until the earliest of those must
/// be woken.
async fn check_earliest(tx: &mut Transaction, tasks: &[NewTask]) -> Result<(), Fault> {
    let delays = tasks.iter().map(|task| millis(task.delay) as i64);
    let Some(delay) = delays.filter(|&delay| delay != 0).min() else {
        return Ok(());
    };
    let earliest: Option<i64> = tx.value(EARLIEST_DUE, &[]).await?;
    let is_earlier = earliest.is_none_or(|earliest| tx.now.wall + delay < earliest);
    tx.notices.needs_any |= is_earlier;
    Ok(())
}

/// Stores tasks. A task with the id of another one is stored only if the retention of that one is over.
async fn store(tx: &mut Transaction, tasks: &[NewTask]) -> Result<(), Fault> {
    let stored = insert(tx, tasks).await?;
    if stored.len() == tasks.len() {
        return Ok(());
    }
    let mut left = stored.clone();
    let is_left = |task: &&NewTask| left.insert(task.id);
    let left: Vec<_> = tasks.iter().filter(is_left).cloned().collect();
    let ids: Vec<_> = left.iter().map(|task| task.id).collect();
    let old = tx.locked_tasks(&ids).await?;
    let mut expired = Vec::new();
    for new in left {
        if let Some(old) = old.get(&new.id)
            && old.state.is_expired(old.at, tx.expiry())
        {
            tx.remove(new.id, old).await?;
            expired.push(new);
        }
    }
    insert(tx, &expired).await?;
    Ok(())
}

/// Stores tasks whose ids do not exist. Returns the ids of those that were stored.
async fn insert(tx: &mut Transaction, tasks: &[NewTask]) -> Result<HashSet<TaskId>, Fault> {
    if tasks.is_empty() {
        return Ok(HashSet::new());
    }
    let now = tx.now.wall;
    let due = |task: &NewTask| match millis(task.delay) as i64 {
        0 => None,
        delay => Some(now.saturating_add(delay)),
    };
    let kinds = kinds(tasks);
    let group = |task: &NewTask| {
        let group = task.group.as_ref();
        group.map(|group| text::stored(group.as_str()).into_owned())
    };
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    let names: Vec<_> = tasks.iter().map(|task| text::stored(&task.name)).collect();
    let payloads: Vec<_> = tasks.iter().map(|task| &*task.payload).collect();
    let queues: Vec<_> = tasks.iter().map(|task| queue_column(&task.queue)).collect();
    let priorities: Vec<_> = tasks.iter().map(|task| task.priority as i16).collect();
    let groups: Vec<_> = tasks.iter().map(group).collect();
    let due: Vec<_> = tasks.iter().map(due).collect();
    let crashes: Vec<_> = tasks
        .iter()
        .map(|task| i64::from(task.max_crashes))
        .collect();
    let retentions: Vec<_> = tasks
        .iter()
        .map(|task| millis(task.retention) as i64)
        .collect();
    let parents: Vec<Option<Uuid>> = tasks.iter().map(|task| task.parent.map(uuid)).collect();
    let rows = tx
        .rows(
            INSERT,
            &[
                &uuids(&ids),
                &names,
                &kinds,
                &payloads,
                &queues,
                &priorities,
                &groups,
                &due,
                &crashes,
                &retentions,
                &parents,
                &now,
            ],
        )
        .await?;
    let mut stored = HashSet::with_capacity(rows.len());
    for row in &rows {
        stored.insert(task_id(row.try_get("id")?));
        let is_waiting = row.try_get::<_, Option<i64>>("place")?.is_some();
        let state = if is_waiting {
            State::Waiting
        } else {
            State::Delayed
        };
        tx.deltas.add(super::deltas::field_of(state), 1);
        if is_waiting {
            tx.add_ready_row(row)?;
        }
    }
    tx.deltas.add(|it| &mut it.stored, rows.len() as i64);
    for task in tasks {
        if let Some(key) = task.key.as_ref().filter(|_| stored.contains(&task.id)) {
            tx.hold_key(task.id, key).await?;
        }
    }
    Ok(stored)
}

/// Returns the kinds of tasks. Most tasks are of the same kind as the one before, and a kind is a hash.
fn kinds(tasks: &[NewTask]) -> Vec<i64> {
    let are_alike = |one: &NewTask, next: &NewTask| {
        one.name == next.name
            && one.envelope == next.envelope
            && one.version == next.version
            && one.queue == next.queue
            && one.priority == next.priority
    };
    let alike = tasks.chunk_by(are_alike);
    alike
        .flat_map(|tasks| std::iter::repeat_n(tasks[0].kind().number(), tasks.len()))
        .collect()
}
