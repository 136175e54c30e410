//! [`LostWrites`]: finds out after each connect whether the server has lost writes that it had acknowledged, and repeats them.
//!
//! A replica that is promoted lacks the last writes of its former primary, and a server that is restarted may lack those that were not on
//! its disk. Such a server is *rewound*: it knows an earlier request of a session as the last one, or does not know the session. This
//! process then sends the requests that it has kept again, under their numbers, before any other request uses the connection. Tasks that
//! the server still has are not stored twice.
//!
//! If the store itself is another one, because the server was emptied, nothing is repeated.

use std::sync::{Arc, Weak};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::connection::{Preparation, Prepared};
use super::error::{Fault, fault};
use super::inner::Inner;
use super::routes_cache::KnownRoutes;
use super::tail::{KeptRequest, LastRequest};
use super::{enqueue, last_numbers, reply, sessions};
use crate::durable::store::{NewTask, Rewind};

/// Searches each new connection of a store for writes that its server has lost.
pub(super) struct LostWrites {
    inner: Weak<Inner>,
    /// Each is held while its partition is searched, so that of two connections only one repeats writes.
    running: Vec<tokio::sync::Mutex<()>>,
}

impl LostWrites {
    /// Has the connections of a store searched from now on.
    pub(super) fn watch(inner: &Arc<Inner>) {
        inner.nodes.prepare_with(Arc::new(Self::of(inner)));
    }

    pub(super) fn of(inner: &Arc<Inner>) -> Self {
        let partitions = inner.partitions.all();
        Self {
            inner: Arc::downgrade(inner),
            running: partitions.map(|_| tokio::sync::Mutex::default()).collect(),
        }
    }

    async fn search(
        &self,
        connection: &mut MultiplexedConnection,
        partitions: &[usize],
    ) -> Result<(), Fault> {
        let Some(inner) = self.inner.upgrade() else {
            return Ok(());
        };
        // Before the store is opened, nothing was acknowledged.
        if !inner.births.is_any_known() {
            return Ok(());
        }
        let (mut rewind, mut searched) = (Rewind::default(), Ok(()));
        for &partition in partitions {
            let _running = self.running[partition].lock().await;
            let mut search = Search {
                inner: &inner,
                connection: &mut *connection,
                partition,
                rewind: &mut rewind,
            };
            match search.run().await {
                // Every attempt would have this result, for example without permissions. Requests report it.
                Ok(()) | Err(Fault::Final(_) | Fault::NoScript) => {}
                Err(fault @ Fault::Elsewhere(..)) => searched = Err(fault),
                Err(fault) => {
                    searched = Err(fault);
                    break;
                }
            }
        }
        inner.report(rewind);
        searched
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
    rewind: &'a mut Rewind,
}

impl Search<'_> {
    async fn run(&mut self) -> Result<(), Fault> {
        let (inner, partition) = (self.inner, self.partition);
        let asked = inner.tail.sessions(partition);
        let arguments = last_numbers::arguments(&asked);
        let command = inner.command(&inner.scripts.last_numbers, partition, arguments);
        let answer = self.send(&command).await?;
        let numbers = last_numbers::read(inner, partition, answer).map_err(Fault::Final)?;
        let Some(numbers) = numbers else {
            self.rewind.is_replaced = true;
            self.rewind.lost += inner.tail.clear(partition) as u64;
            return Ok(());
        };
        for (asked, last) in asked.into_iter().zip(numbers) {
            self.repeat(asked, u64::try_from(last).ok()).await?;
        }
        Ok(())
    }

    /// Sends the requests of a session again that the server has lost.
    async fn repeat(&mut self, asked: LastRequest, last: Option<u64>) -> Result<(), Fault> {
        let (inner, session) = (self.inner, asked.session);
        let lost = inner
            .tail
            .lost(self.partition, asked, last, inner.since_boot());
        if lost.total() == 0 {
            return Ok(());
        }
        // The names of types may be lost, too.
        inner.types.forget(self.partition);
        inner.routes.remove(self.partition);
        if last.is_none() {
            let open = sessions::reopening(inner, session);
            self.send(&inner.command(&inner.scripts.open, self.partition, open))
                .await?;
        }
        let mut refused = Vec::new();
        for kept in lost.kept {
            if !self.repeat_one(&kept).await? {
                refused.push(kept.request.number);
            }
        }
        self.rewind.lost += lost.others as u64;
        inner.tail.settle(self.partition, session, &refused);
        Ok(())
    }

    /// Sends a request again. Returns `false` if the server refuses it.
    async fn repeat_one(&mut self, kept: &KeptRequest) -> Result<bool, Fault> {
        let inner = self.inner;
        let batch = kept.request.batch.close().iter();
        let of_partition = |task: &&NewTask| inner.partitions.of_task(task.id) == self.partition;
        let batch: Vec<_> = batch.filter(of_partition).collect();
        let (routes, now) = (KnownRoutes::default(), inner.server_time());
        let arguments = enqueue::arguments(&kept.request, &batch, &inner.client_id, &routes, now);
        let command = inner.command(&inner.scripts.enqueue, self.partition, arguments);
        let answer = match self.send(&command).await {
            Ok(answer) => reply::enqueued(answer).map_err(Fault::Final)?,
            // It has no memory left, for example.
            Err(Fault::Final(_)) => {
                self.rewind.lost += kept.tasks as u64;
                return Ok(false);
            }
            Err(fault) => return Err(fault),
        };
        // A task whose key another one holds now is not stored.
        let conflicts = answer.conflicts.len();
        self.rewind.healed += kept.tasks.saturating_sub(conflicts) as u64;
        self.rewind.lost += conflicts as u64;
        Ok(true)
    }

    async fn send(&mut self, command: &Cmd) -> Result<Value, Fault> {
        let answer = self.connection.send_packed_command(command).await;
        answer.and_then(Value::extract_error).map_err(fault)
    }
}
