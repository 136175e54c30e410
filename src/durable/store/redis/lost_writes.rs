//! [`LostWrites`]: finds out after each connect whether the server has lost writes that it had acknowledged, and repeats them.
//!
//! A replica that is promoted lacks the last writes of its former primary, and a server that is restarted may lack those that were not on
//! its disk. Such a server is *rewound*: it knows an earlier request of a session as the last one, or does not know the session. This
//! process then repeats the requests that it has kept, under their numbers, before any other request uses the connection. Tasks that
//! the server still has are not stored twice.
//!
//! If the store itself is another one, because the server was emptied, nothing is repeated.

use std::mem;
use std::ops::DerefMut;
use std::sync::{Arc, Weak};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::connection::{Preparation, Prepared};
use super::error::{Fault, fault};
use super::inner::Inner;
use super::routes_cache::KnownRoutes;
use super::tail::KeptRequest;
use super::{enqueue, last_numbers, reply, sessions};
use crate::durable::store::{NewTask, Rewind, SessionId};
use crate::sync::{Mutex, lock};

/// Looks, on each new connection of a store, for writes that its server has lost.
pub(super) struct LostWrites {
    inner: Weak<Inner>,
    /// Each is held while its partition is searched, so that of two connections only one repeats writes.
    running: Vec<tokio::sync::Mutex<()>>,
    /// The losses that are not reported yet. Each search reports all, since another one may have found them in its partition, and may still
    /// wait for an answer about another one, or have been cancelled.
    found: Mutex<Rewind>,
}

impl LostWrites {
    /// Has lost writes searched for on the connections of a store from now on.
    pub(super) fn watch(inner: &Arc<Inner>) {
        inner.nodes.prepare_with(Arc::new(Self::new(inner)));
    }

    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        let partitions = inner.partitions.all();
        Self {
            inner: Arc::downgrade(inner),
            running: partitions.map(|_| tokio::sync::Mutex::default()).collect(),
            found: Mutex::default(),
        }
    }

    async fn search(
        &self,
        connection: &mut MultiplexedConnection,
        partitions: &[usize],
    ) -> (Vec<usize>, Result<(), Fault>) {
        let inner = self.inner.upgrade();
        // Before the store is opened, nothing was acknowledged.
        let Some(inner) = inner.filter(|inner| inner.births.is_any_known()) else {
            return (partitions.to_vec(), Ok(()));
        };
        let (mut ready, mut searched) = (Vec::new(), Ok(()));
        for &partition in partitions {
            let _running = self.running[partition].lock().await;
            let mut search = Search {
                inner: &inner,
                connection: &mut *connection,
                partition,
                found: &self.found,
            };
            match search.run().await {
                // Every attempt would have this result, for example if a permission is missing. Requests report it.
                Ok(()) | Err(Fault::Final(_) | Fault::NoScript) => ready.push(partition),
                Err(fault @ (Fault::Elsewhere(..) | Fault::Wait(_))) => searched = Err(fault),
                Err(fault) => {
                    searched = Err(fault);
                    break;
                }
            }
        }
        inner.report(mem::take(&mut *lock(&self.found)));
        (ready, searched)
    }
}

impl Preparation for LostWrites {
    fn prepare<'a>(
        &'a self,
        connection: &'a mut MultiplexedConnection,
        partitions: &'a [usize],
    ) -> Prepared<'a> {
        Box::pin(self.search(connection, partitions))
    }
}

/// The search of a partition.
struct Search<'a> {
    inner: &'a Inner,
    connection: &'a mut MultiplexedConnection,
    partition: usize,
    found: &'a Mutex<Rewind>,
}

impl Search<'_> {
    async fn run(&mut self) -> Result<(), Fault> {
        let (inner, partition) = (self.inner, self.partition);
        let asked = inner.tail.sessions(partition);
        let sessions: Vec<_> = asked.iter().map(|(session, _)| *session).collect();
        let arguments = last_numbers::arguments(&sessions);
        let command = inner.command(&inner.scripts.last_numbers, partition, arguments);
        let answer = self.send(&command).await?;
        let numbers = last_numbers::read(inner, partition, answer).map_err(Fault::Final)?;
        let Some(numbers) = numbers else {
            self.found().is_replaced = true;
            self.found().lost += inner.tail.clear(partition) as u64;
            return Ok(());
        };
        for ((session, acknowledged), last) in asked.into_iter().zip(numbers) {
            let last = u64::try_from(last).ok();
            self.repeat(session, last, acknowledged).await?;
        }
        Ok(())
    }

    /// Repeats the requests of a session that the server has lost, of those that were acknowledged before the server was asked. Later
    /// ones are known to the server that has acknowledged them.
    async fn repeat(
        &mut self,
        session: SessionId,
        last: Option<u64>,
        acknowledged: u64,
    ) -> Result<(), Fault> {
        let (inner, partition) = (self.inner, self.partition);
        let now = inner.since_boot();
        let lost = inner
            .tail
            .take_lost(partition, session, last, acknowledged, now);
        if lost.is_empty() {
            return Ok(());
        }
        self.found().lost += lost.others as u64;
        // The names of types may be lost, too.
        inner.types.forget(partition);
        inner.routes.remove(partition);
        if last.is_none() {
            let open = sessions::reopening(inner, session);
            self.send(&inner.command(&inner.scripts.open, partition, open))
                .await?;
        }
        for kept in lost.kept {
            self.repeat_one(&kept).await?;
        }
        Ok(())
    }

    /// Sends a request again. If the server refuses it, its tasks are lost.
    async fn repeat_one(&mut self, kept: &KeptRequest) -> Result<(), Fault> {
        let (inner, partition, request) = (self.inner, self.partition, &*kept.request);
        let batch = request.batch.close().iter();
        let is_sent = |task: &&NewTask| {
            inner.partitions.of_task(task.id) == partition && kept.tasks.had_effect(task.id)
        };
        let batch: Vec<_> = batch.filter(is_sent).collect();
        let (routes, now) = (KnownRoutes::default(), inner.server_time());
        let arguments = enqueue::arguments(request, &batch, &inner.client_id, &routes, now);
        let command = inner.command(&inner.scripts.enqueue, partition, arguments);
        let answer = match self.send(&command).await {
            Ok(answer) => reply::enqueued(answer).map_err(Fault::Final)?,
            // The server has no memory left, for example.
            Err(Fault::Final(_)) => {
                self.found().lost += kept.tasks.count as u64;
                inner
                    .tail
                    .remove(partition, request.session, request.number);
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        // A task whose key another one holds now is not stored.
        let conflicts = answer.conflicts.iter();
        let conflicts = conflicts.filter_map(|it| batch.get(it.position));
        let conflicts = conflicts.filter(|task| kept.tasks.had_stored(task.id));
        let lost = conflicts.count();
        self.found().healed += kept.tasks.count.saturating_sub(lost) as u64;
        self.found().lost += lost as u64;
        Ok(())
    }

    fn found(&self) -> impl DerefMut<Target = Rewind> {
        lock(self.found)
    }

    async fn send(&mut self, command: &Cmd) -> Result<Value, Fault> {
        let answer = self.connection.send_packed_command(command).await;
        answer.and_then(Value::extract_error).map_err(fault)
    }
}
