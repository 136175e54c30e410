//! [`Sentinels`]: finds the primary by asking Sentinels.
//!
//! A Sentinel may be out of date, and the server that it names may have become a replica. So a server is used only if it says that it is
//! a primary, and a Sentinel is believed only if its configuration is not older than the newest one that was seen, or names the same
//! server. Each failover has a higher *configuration epoch* than the ones before.

use std::collections::HashMap;
use std::future;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, ProtocolVersion, Value,
};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::address::{SentinelTarget, ServerAddress};
use super::sentinel_problems::{Problem, SentinelProblems};
use super::timeouts::Timeouts;
use crate::durable::failure::Failure;
use crate::sync::{Mutex, lock};

/// The Sentinels that watch a server.
pub(super) struct Sentinels {
    /// Their name for the server.
    name: String,
    /// The Sentinels, in the order in which they are asked.
    order: Mutex<Vec<Sentinel>>,
    timeouts: Timeouts,
    known: watch::Sender<Named>,
    /// The time since which all Sentinels answer, and none of them knows of the last failover.
    outdated_since: Mutex<Option<Instant>>,
}

/// A Sentinel.
#[derive(Clone)]
pub(super) struct Sentinel {
    pub(super) address: ServerAddress,
    info: ConnectionInfo,
}

/// The primary that a Sentinel names. Before the first answer, there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Named {
    primary: Option<ServerAddress>,
    epoch: u64,
}

/// Waits until the server of a connection is no longer the primary. Without Sentinels, it waits forever.
#[derive(Default)]
pub(super) struct ServerWatch(Option<(watch::Receiver<Named>, ServerAddress)>);

impl ServerWatch {
    /// Waits until a Sentinel names another server.
    pub(super) async fn replaced(&mut self) {
        if let Some((known, server)) = &mut self.0
            && known
                .wait_for(|it| it.primary.as_ref() != Some(server))
                .await
                .is_ok()
        {
            return;
        }
        future::pending().await
    }
}

impl Sentinels {
    /// The connections to the Sentinels have the settings of those to the server, except for the login.
    pub(super) fn new(target: SentinelTarget, server: &ConnectionInfo, timeouts: Timeouts) -> Self {
        let sentinel = |address: ServerAddress| {
            let info = server.clone().set_addr(address.like(server.addr()));
            let info = info.set_redis_settings(target.settings.clone());
            Sentinel { address, info }
        };
        Self {
            name: target.name,
            order: Mutex::new(target.addresses.into_iter().map(sentinel).collect()),
            timeouts,
            known: watch::Sender::default(),
            outdated_since: Mutex::default(),
        }
    }

    /// Connects to the primary. Asks one Sentinel after the other until one of them names a server that is a primary.
    pub(super) async fn connect(
        &self,
        server: &ConnectionInfo,
        config: &AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, ServerWatch), Failure> {
        let mut problems = SentinelProblems::new(&self.name);
        for sentinel in self.in_order() {
            let primary = match self.find(&sentinel).await {
                Ok(primary) if problems.has_failed(&primary) => continue,
                Ok(primary) => primary,
                Err(problem) => {
                    self.ask_last(&sentinel);
                    problems.push(&sentinel.address, problem);
                    continue;
                }
            };
            match connect_to_primary(&primary, server, config).await {
                Ok(connection) => {
                    *lock(&self.outdated_since) = None;
                    let watch = ServerWatch(Some((self.known.subscribe(), primary)));
                    return Ok((connection, watch));
                }
                Err(problem) => {
                    // Otherwise, it would mislead the next connection, and its answer would end the connection that another Sentinel leads
                    // to.
                    self.ask_last(&sentinel);
                    problems.push(&sentinel.address, problem);
                }
            }
        }
        self.judge_epoch(problems.are_out_of_date());
        Err(problems.into_failure())
    }

    /// Forgets the newest epoch if, for a while, all Sentinels have answered with earlier ones. Then they have lost their configuration,
    /// and count failovers from zero again: otherwise, the one that knew the epoch would be among them, and the others would have heard of
    /// it, since Sentinels exchange their configurations every two seconds.
    fn judge_epoch(&self, are_out_of_date: bool) {
        let mut since = lock(&self.outdated_since);
        if !are_out_of_date {
            *since = None;
        } else if since.get_or_insert_with(Instant::now).elapsed() > 2 * self.timeouts.answer {
            *since = None;
            self.known.send_modify(|known| known.epoch = 0);
        }
    }

    /// Waits until a Sentinel names another server than now.
    pub(super) async fn renamed(&self) {
        let mut known = self.known.subscribe();
        if known.changed().await.is_err() {
            future::pending().await
        }
    }

    /// Returns the Sentinels in the order in which they are asked.
    pub(super) fn in_order(&self) -> Vec<Sentinel> {
        lock(&self.order).clone()
    }

    /// Has a Sentinel asked after all others from now on.
    fn ask_last(&self, sentinel: &Sentinel) {
        let mut order = lock(&self.order);
        if let Some(at) = order.iter().position(|it| it.address == sentinel.address) {
            order[at..].rotate_left(1);
        }
    }

    /// Returns the primary that a Sentinel names.
    async fn find(&self, sentinel: &Sentinel) -> Result<ServerAddress, Problem> {
        let asked = async {
            let config = self.config();
            let mut connection = sentinel.connect(&config).await?;
            self.ask(&mut connection).await
        };
        match timeout(self.timeouts.connect, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(Problem::Silent),
        }
    }

    /// Returns the settings of a connection to a Sentinel.
    pub(super) fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeouts.connect))
            .set_response_timeout(Some(self.timeouts.connect))
    }

    /// Asks a Sentinel for the primary. All connections learn its answer, unless the Sentinel is out of date.
    pub(super) async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<ServerAddress, Problem> {
        self.ask_address(connection).await?;
        let fields: HashMap<String, String> = answer(connection, self.command("MASTER")).await?;
        let epoch = fields.get("config-epoch").and_then(|it| it.parse().ok());
        // A failover may have come in between. The address before it would be wrong with the epoch after it.
        let primary = self.ask_address(connection).await?;
        match self.learn(&primary, epoch.unwrap_or_default()) {
            true => Ok(primary),
            false => Err(Problem::OutOfDate),
        }
    }

    async fn ask_address(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<ServerAddress, Problem> {
        let address = answer(connection, self.command("GET-MASTER-ADDR-BY-NAME")).await?;
        let (host, port) = Option::ok_or(address, Problem::UnknownName)?;
        Ok(ServerAddress { host, port })
    }

    fn command(&self, subcommand: &str) -> Cmd {
        let mut command = redis::cmd("SENTINEL");
        command.arg(subcommand).arg(&self.name);
        command
    }

    /// Records the primary that a Sentinel names. Returns `false` if the Sentinel is out of date.
    fn learn(&self, primary: &ServerAddress, epoch: u64) -> bool {
        let named = Named {
            primary: Some(primary.clone()),
            epoch,
        };
        let mut is_current = true;
        self.known.send_if_modified(|known| {
            is_current = epoch >= known.epoch || known.primary == named.primary;
            let is_new = epoch >= known.epoch && *known != named;
            if is_new {
                *known = named;
            }
            is_new
        });
        is_current
    }
}

impl Sentinel {
    /// Connects to the Sentinel.
    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, Problem> {
        let opened = async {
            let client = Client::open(self.info.clone())?;
            client
                .get_multiplexed_async_connection_with_config(config)
                .await
        };
        opened.await.map_err(Problem::from_sentinel)
    }

    /// Returns the Sentinel, for connections that receive messages.
    pub(super) fn for_messages(&self) -> Self {
        let settings = self.info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        Self {
            info: self.info.clone().set_redis_settings(settings),
            ..self.clone()
        }
    }
}

/// Connects to a server with the settings of another one. Refuses a server that is no primary.
///
/// `ROLE` would also tell, but the user may lack the permission for it. Without arguments, `HELLO` changes nothing.
async fn connect_to_primary(
    address: &ServerAddress,
    settings: &ConnectionInfo,
    config: &AsyncConnectionConfig,
) -> Result<MultiplexedConnection, Problem> {
    let connected = async {
        let info = settings.clone().set_addr(address.like(settings.addr()));
        let client = Client::open(info)?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(config)
            .await?;
        let hello: HashMap<String, Value> =
            redis::cmd("HELLO").query_async(&mut connection).await?;
        let primary = Value::BulkString(b"master".to_vec());
        Ok((connection, hello.get("role") == Some(&primary)))
    };
    match connected.await {
        Ok((connection, true)) => Ok(connection),
        Ok((_, false)) => Err(Problem::IsReplica(address.clone())),
        Err(error) => Err(Problem::NoConnection(address.clone(), error)),
    }
}

/// Sends a command to a Sentinel.
async fn answer<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    command: Cmd,
) -> Result<T, Problem> {
    let answer = command.query_async(connection).await;
    answer.map_err(Problem::from_sentinel)
}
