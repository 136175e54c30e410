//! [`Connector`]: finds the server of a store, and connects to it.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushInfo};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::address::ConnectTarget;
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
    pub(super) fn new(target: ConnectTarget, timeouts: Timeouts) -> Self {
        // The system counts in whole seconds.
        let time = timeouts.answer.max(Duration::from_secs(1));
        let keepalive = TcpKeepalive::new().with_time(time).with_interval(time);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive);
        let server = target.server.set_tcp_settings(tcp);
        let sentinels = target
            .sentinels
            .map(|it| Sentinels::new(it, &server, timeouts));
        Self {
            server,
            sentinels: sentinels.map(Arc::new),
            timeouts,
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
