//! [`Connector`]: finds the server of a store, and connects to it.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo,
};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::address::{ConnectTarget, ServerAddress};
use super::error::not_connected;
use super::sentinels::{Sentinels, ServerWatch};
use super::timeouts::{BACKOFF, Timeouts};
use crate::durable::failure::Failure;

/// Finds the server of a store, and connects to it. Clones use the same Sentinels.
#[derive(Clone)]
pub(super) struct Connector {
    server: ConnectionInfo,
    sentinels: Option<Arc<Sentinels>>,
    pub(super) timeouts: Timeouts,
}

/// A new connection to the server.
pub(super) struct NewConnection {
    pub(super) connection: MultiplexedConnection,
    /// Waits until the server is no longer the primary.
    pub(super) watch: ServerWatch,
}

impl Connector {
    /// Returns a connector to each of the servers that were given.
    pub(super) fn all(target: ConnectTarget, timeouts: Timeouts) -> Vec<Self> {
        // The system counts in whole seconds.
        let time = timeouts.answer.max(Duration::from_secs(1));
        let keepalive = TcpKeepalive::new().with_time(time).with_interval(time);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive);
        let servers = target
            .servers()
            .map(|it| it.clone().set_tcp_settings(tcp.clone()));
        let servers: Vec<_> = servers.collect();
        let sentinels = target
            .sentinels
            .map(|it| Arc::new(Sentinels::new(it, &servers[0], timeouts)));
        let connector = |server| Self {
            server,
            sentinels: sentinels.clone(),
            timeouts,
        };
        servers.into_iter().map(connector).collect()
    }

    /// Returns a connector to another node of the same cluster. The connection is encrypted if that to this node is.
    pub(super) fn to_node(&self, address: &ServerAddress) -> Self {
        Self {
            server: self
                .server
                .clone()
                .set_addr(address.like(self.server.addr())),
            ..self.clone()
        }
    }

    /// Returns the host of the server. A Unix socket leads to this machine.
    pub(super) fn host(&self) -> &str {
        match self.server.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "127.0.0.1",
        }
    }

    /// Returns a connector for connections that receive messages.
    pub(super) fn for_messages(&self) -> Self {
        let settings = self.server.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        let server = self.server.clone().set_redis_settings(settings);
        let connector = self.clone();
        Self {
            server,
            ..connector
        }
    }

    /// Returns the Sentinels that know the server, if there are any.
    pub(super) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        self.sentinels.as_ref()
    }

    /// Finds the server, and connects to it. The sender gets the messages that arrive on the connection.
    pub(super) async fn connect(
        &self,
        messages: Option<mpsc::UnboundedSender<PushInfo>>,
    ) -> Result<NewConnection, Failure> {
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeouts.connect))
            .set_response_timeout(Some(self.timeouts.answer));
        if let Some(sender) = messages {
            config = config.set_push_sender(sender);
        }
        if let Some(sentinels) = &self.sentinels {
            let (connection, watch) = sentinels.connect(&self.server, &config).await?;
            return Ok(NewConnection { connection, watch });
        }
        let client = Client::open(self.server.clone()).map_err(not_connected)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(NewConnection {
            connection: connection.await.map_err(not_connected)?,
            watch: ServerWatch::default(),
        })
    }

    /// Waits before the next attempt to connect, after this number of failures. Returns early if the Sentinels name another server.
    pub(super) async fn pause(&self, failures: u32) {
        let pause = sleep(BACKOFF.delay(failures).unwrap_or_default());
        match &self.sentinels {
            Some(sentinels) => tokio::select! {
                () = pause => {}
                () = sentinels.renamed() => {}
            },
            None => pause.await,
        }
    }
}
