//! [`Connection`]: a connection of a [link](super::link::Link).

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio_util::sync::CancellationToken;

use super::epochs::AdvanceEpochs;
use super::error::{Fault, fault, no_connection};
use super::keys::Keys;
use super::scripts::{Arguments, Script};
use crate::durable::failure::{Effect, Failure};
use crate::sync::{Mutex, Number, lock};

/// The settings of all connections for the requests of a store.
#[derive(Default)]
pub(super) struct ConnectionSettings {
    /// Set if scripts run with commands that refuse writes.
    pub(super) is_read_only: OnceLock<()>,
    pub(super) preparation: OnceLock<Arc<dyn Preparation>>,
}

/// Runs for each partition on each new connection before the requests for the partition use it.
pub(super) trait Preparation: Send + Sync {
    /// Returns the partitions that are ready now. The requests for others are not sent.
    fn prepare<'a>(
        &'a self,
        connection: &'a mut MultiplexedConnection,
        partitions: &'a [usize],
    ) -> Prepared<'a>;
}

pub(super) type Prepared<'a> =
    Pin<Box<dyn Future<Output = (Vec<usize>, Result<(), Fault>)> + Send + 'a>>;

/// A script, and what it is run with.
#[derive(Clone, Copy)]
pub(super) struct ScriptCall<'a> {
    pub(super) script: &'a Script,
    pub(super) partition: usize,
    pub(super) keys: &'a Keys,
    pub(super) arguments: &'a Arguments,
    /// The epochs that the connection must have advanced before.
    pub(super) advance: Option<&'a AdvanceEpochs<'a>>,
}

/// A connection.
#[derive(Clone)]
pub(super) struct Connection {
    /// Each new connection of a link has a greater number.
    pub(super) number: u64,
    connection: MultiplexedConnection,
    settings: Arc<ConnectionSettings>,
    /// The number of answers so far.
    answers: Arc<Number>,
    partitions: Arc<Mutex<ReadyPartitions>>,
    arrivals: Arc<PartitionArrivals>,
    /// Cancelled when the link has closed the connection.
    closed: CancellationToken,
    /// The reason for that.
    reason: Arc<OnceLock<Failure>>,
}

/// The partitions for which a connection is ready, each with the number of its arrival.
#[derive(Default)]
struct ReadyPartitions {
    /// Those for which the [`Preparation`] has run.
    prepared: HashMap<usize, u64>,
    /// Those whose epochs the connection has advanced.
    advanced: HashMap<usize, u64>,
}

/// Counts how often each partition has come to the server of a link. After each arrival, all connections of the link prepare the partition
/// and advance its epochs again, because it was elsewhere meanwhile. This includes a connection that is still being prepared.
#[derive(Debug, Default)]
pub(super) struct PartitionArrivals(Mutex<HashMap<usize, u64>>);

impl PartitionArrivals {
    /// Counts that a partition has come.
    pub(super) fn count(&self, partition: usize) {
        *lock(&self.0).entry(partition).or_default() += 1;
    }

    /// Returns the number of the last arrival of a partition.
    fn last(&self, partition: usize) -> u64 {
        lock(&self.0).get(&partition).copied().unwrap_or_default()
    }
}

impl Connection {
    pub(super) fn new(
        number: u64,
        connection: MultiplexedConnection,
        settings: &Arc<ConnectionSettings>,
        arrivals: &Arc<PartitionArrivals>,
    ) -> Self {
        Self {
            number,
            connection,
            settings: Arc::clone(settings),
            answers: Arc::default(),
            partitions: Arc::default(),
            arrivals: Arc::clone(arrivals),
            closed: CancellationToken::new(),
            reason: Arc::default(),
        }
    }

    /// Returns the number of answers so far.
    pub(super) fn answers(&self) -> usize {
        self.answers.get()
    }

    /// Ensures that no answer counts from now on: see [`unless_closed`](Self::unless_closed).
    pub(super) fn close(&self, reason: &Failure) {
        self.reason.get_or_init(|| reason.clone());
        self.closed.cancel();
    }

    fn closed(&self, effect: Effect) -> Fault {
        let reason = self.reason.get().cloned().unwrap_or_else(no_connection);
        Fault::Broken(Failure { effect, ..reason })
    }

    /// Prepares those of these partitions that are not prepared yet.
    pub(super) async fn prepare(&self, partitions: &[usize]) -> Result<(), Fault> {
        let mut missing = partitions.to_vec();
        missing.retain(|&it| !self.is_prepared(it));
        if missing.is_empty() {
            return Ok(());
        }
        // A partition that leaves and comes back meanwhile is prepared again.
        let arrivals: Vec<_> = missing
            .iter()
            .map(|&it| (it, self.arrivals.last(it)))
            .collect();
        let (ready, result) = match self.settings.preparation.get() {
            None => (missing, Ok(())),
            Some(preparation) => {
                let mut connection = self.connection.clone();
                let prepared = preparation.prepare(&mut connection, &missing);
                tokio::select! {
                    biased;
                    // Otherwise, preparations of other connections, which wait for this one, would wait for an answer that may not come.
                    () = self.closed.cancelled() => return Err(self.closed(Effect::None)),
                    prepared = prepared => prepared,
                }
            }
        };
        let arrivals = arrivals.into_iter().filter(|(it, _)| ready.contains(it));
        lock(&self.partitions).prepared.extend(arrivals);
        result.map_err(Fault::not_sent)
    }

    fn is_prepared(&self, partition: usize) -> bool {
        let arrival = self.arrivals.last(partition);
        lock(&self.partitions).prepared.get(&partition) == Some(&arrival)
    }

    /// Sends the command of a script call. Before that, prepares the partition, and advances its epochs if the call needs it. If this
    /// fails, the command is not sent. A node to which the partition is only being moved is not prepared, since a move loses nothing.
    pub(super) async fn call(
        &self,
        command: &Cmd,
        call: &ScriptCall<'_>,
        is_asking: bool,
    ) -> Result<Value, Fault> {
        while !is_asking && !self.is_prepared(call.partition) {
            self.prepare(&[call.partition]).await?;
        }
        let arrival = self.arrivals.last(call.partition);
        if let Some(advance) = call.advance
            && lock(&self.partitions).advanced.get(&call.partition) != Some(&arrival)
        {
            let advanced = self.send(&advance.command(), is_asking).await;
            advanced.map_err(Fault::not_sent)?;
            let advanced = &mut lock(&self.partitions).advanced;
            advanced.insert(call.partition, arrival);
        }
        self.send(command, is_asking).await
    }

    /// Sends a command. `is_asking` is `true` if another node has redirected it to this one by `ASK`.
    pub(super) async fn send(&self, command: &Cmd, is_asking: bool) -> Result<Value, Fault> {
        let answer = self.unless_closed(|mut connection| async move {
            let answer = match is_asking {
                false => connection.send_packed_command(command).await,
                true => ask(&mut connection, command).await,
            };
            answer.and_then(Value::extract_error)
        });
        let answer = answer.await;
        if !matches!(answer, Err(Fault::Broken(_))) {
            self.answers.add(1);
        }
        answer
    }

    /// Awaits an answer, unless the connection is closed meanwhile. An answer that arrives later is worth nothing: the server may be a
    /// former primary, which will lose what it acknowledges, and the search for lost writes would not find this write.
    pub(super) async fn unless_closed<T, F>(
        &self,
        send: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = RedisResult<T>>,
    {
        if self.closed.is_cancelled() {
            return Err(self.closed(Effect::None));
        }
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(self.closed(Effect::Unknown)),
            answer = send(self.connection.clone()) => answer.map_err(fault),
        }
    }
}

/// Sends a command to the node to which the slot of its keys is being moved. `ASKING` applies only to the command that follows it.
async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(command.clone());
    let answers = connection.send_packed_commands(&both, 1, 1).await?;
    Ok(answers.into_iter().next().unwrap_or(Value::Nil))
}
