//! [`Notices`]: those to notify after a transaction: sessions that have work, processes that await tasks, and workers of cancelled tasks.
//!
//! A transaction with data never notifies: PostgreSQL holds a lock of all databases from a `NOTIFY` until the commit is on the disk. So
//! the notifications are sent by statements that follow the commit, and that change only tables that are not logged.

use std::collections::{BTreeMap, BTreeSet};

use tokio::join;

use super::connection::Connection;
use super::shared::{EndpointId, Shared};
use super::text;
use super::view::uuids;
use crate::durable::TaskId;
use crate::durable::queue::name::QueueName;
use crate::durable::store::SessionId;
use crate::sync::lock;

/// Wakes up to `$2` idle sessions that claim tasks of the kinds `$1`, if any wait.
///
/// This and the next two choose among the sessions whose processes listen: a process that was killed may have left its sessions in the
/// table. The server computes the list of those processes only if a session is idle. The sessions are chosen before any is removed, since
/// a condition with a limit in it could be evaluated for each row of the table.
pub(super) const WAKE: &str = "WITH own AS MATERIALIZED (
        SELECT kind FROM unnest($1::bigint[]) AS own (kind)
        WHERE EXISTS (SELECT 1 FROM throng.ready WHERE ready.kind = own.kind)
    ), chosen AS MATERIALIZED (
        SELECT session FROM throng.park WHERE kinds && ARRAY(SELECT kind FROM own)
            AND endpoint = ANY (ARRAY(SELECT endpoint FROM throng.listener))
        ORDER BY random() LIMIT $2 FOR UPDATE SKIP LOCKED
    ), woken AS (
        DELETE FROM throng.park WHERE session IN (SELECT session FROM chosen)
        RETURNING session, endpoint
    )
    SELECT pg_notify('throng_' || to_hex(endpoint), 'w' || session) FROM woken";

/// Wakes an idle session of the queue `$1` for each kind of which a task waits, unless its type is paused. If `$2` is the name of a type,
/// only for the kinds of that type.
const WAKE_QUEUE: &str = "WITH own AS MATERIALIZED (
        SELECT DISTINCT unnest(park.kinds) AS kind FROM throng.park
        JOIN throng.session ON session.id = park.session WHERE coalesce(session.queue, '') = $1
    ), waiting AS MATERIALIZED (
        SELECT own.kind FROM own WHERE EXISTS (
            SELECT 1 FROM (
                SELECT id FROM throng.ready WHERE ready.kind = own.kind LIMIT 1
            ) AS first JOIN throng.task ON task.id = first.id
            WHERE ($2::text IS NULL OR task.name = $2)
                AND NOT EXISTS (SELECT 1 FROM throng.paused WHERE paused.name = task.name)
        )
    ), chosen AS MATERIALIZED (
        SELECT (
            SELECT session FROM throng.park WHERE kinds @> ARRAY[waiting.kind]
                AND endpoint = ANY (ARRAY(SELECT endpoint FROM throng.listener))
            ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED
        ) AS session FROM waiting
    ), woken AS (
        DELETE FROM throng.park WHERE session IN (SELECT session FROM chosen)
        RETURNING session, endpoint
    )
    SELECT pg_notify('throng_' || to_hex(endpoint), 'w' || session) FROM woken";

/// Wakes an idle session, whatever it claims.
const WAKE_ANY: &str = "WITH chosen AS MATERIALIZED (
        SELECT session FROM throng.park
        WHERE endpoint = ANY (ARRAY(SELECT endpoint FROM throng.listener))
        ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED
    ), woken AS (
        DELETE FROM throng.park WHERE session IN (SELECT session FROM chosen)
        RETURNING session, endpoint
    )
    SELECT pg_notify('throng_' || to_hex(endpoint), 'w' || session) FROM woken";

/// Notifies the processes that await the tasks `$1`.
const NOTIFY_ENDED: &str = "WITH ended AS (
        DELETE FROM throng.watch WHERE id = ANY ($1) RETURNING id, endpoint
    ), part AS (
        SELECT id, endpoint, row_number() OVER () / $2 AS number FROM ended
    )
    SELECT pg_notify('throng_' || to_hex(endpoint), 'e' || string_agg(id::text, ','))
    FROM part GROUP BY endpoint, number";

/// Notifies a process that tasks are to be cancelled.
const NOTIFY_CANCELLED: &str =
    "SELECT pg_notify('throng_' || to_hex($1::bigint), 'c' || array_to_string($2::uuid[], ','))";

/// A notification has at most 8000 bytes, and an id has 36.
const MAX_IDS: usize = 200;

/// Those to notify after a transaction.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The kinds of the tasks that became ready, and how many.
    pub(super) ready: BTreeMap<i64, ReadyTasks>,
    /// Kinds of which tasks may be left: a session is to look.
    pub(super) left: Vec<(QueueName, Vec<i64>)>,
    /// The queues in which tasks have stopped running.
    pub(super) freed: BTreeSet<QueueName>,
    /// The queues in which waiting tasks may start, whether or not others have stopped running.
    pub(super) changed: BTreeSet<QueueName>,
    /// The tasks that have ended.
    pub(super) ended: Vec<TaskId>,
    /// The tasks that are to be cancelled, with the processes that run them.
    pub(super) cancelled: BTreeMap<EndpointId, Vec<TaskId>>,
    /// A session must look earlier, whatever it claims: one of the delayed tasks is due before all others, or claims are left to take
    /// back.
    pub(super) needs_any: bool,
    /// The sessions that are idle no longer, as soon as the transaction is committed.
    pub(super) unparked: Vec<SessionId>,
    /// The numbers of sessions to wake, and the kinds of their tasks.
    pub(super) wakes: Vec<(i64, Vec<i64>)>,
    /// The queues, as they are stored, of which sessions are to be woken: for all types, or for that with this name.
    queue_wakes: Vec<(String, Option<String>)>,
}

/// The tasks of a kind that became ready.
#[derive(Debug)]
pub(super) struct ReadyTasks {
    pub(super) queue: QueueName,
    pub(super) gained: i64,
}

impl Notices {
    /// The number of sessions that are woken at most for tasks that became ready together. Those wake others.
    pub(super) const MAX_WAKES: i64 = 4;

    /// Records that tasks of a type that was resumed may start in a queue.
    pub(super) fn add_resumed(&mut self, queue: &QueueName, name: &str) {
        let name = text::stored(name).into_owned();
        self.add_queue_wake(queue, Some(name));
    }

    pub(super) fn add_queue_wake(&mut self, queue: &QueueName, name: Option<String>) {
        let queue = text::stored(queue.as_str()).into_owned();
        self.queue_wakes.push((queue, name));
    }

    /// Forgets that sessions are idle which are not in the table any more. To be called when the transaction is committed: if it is rolled
    /// back, they are.
    pub(super) fn forget_unparked(&self, shared: &Shared) {
        let mut parked = lock(&shared.parked);
        for session in &self.unparked {
            parked.remove(session);
        }
    }

    /// Sends the notifications. If that fails, those who are not notified look from time to time.
    pub(super) async fn send(&self, db: &Connection) {
        join!(
            biased;
            self.notify_cancelled(db),
            self.wake(db),
            self.wake_queues(db),
            self.notify_ended(db)
        );
    }

    async fn notify_cancelled(&self, db: &Connection) {
        for (endpoint, ids) in &self.cancelled {
            for ids in ids.chunks(MAX_IDS) {
                db.rows(NOTIFY_CANCELLED, &[endpoint, &uuids(ids)])
                    .await
                    .ok();
            }
        }
    }

    async fn wake(&self, db: &Connection) {
        for (sessions, kinds) in &self.wakes {
            db.rows(WAKE, &[kinds, sessions]).await.ok();
        }
        if self.needs_any {
            db.rows(WAKE_ANY, &[]).await.ok();
        }
    }

    async fn wake_queues(&self, db: &Connection) {
        for (queue, name) in &self.queue_wakes {
            db.rows(WAKE_QUEUE, &[queue, name]).await.ok();
        }
    }

    async fn notify_ended(&self, db: &Connection) {
        if !self.ended.is_empty() {
            let (ids, most) = (uuids(&self.ended), MAX_IDS as i64);
            db.rows(NOTIFY_ENDED, &[&ids, &most]).await.ok();
        }
    }
}
