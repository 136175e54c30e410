//! [`Node`]: the connections to a server.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisResult, Value};
use tokio::sync::{Notify, mpsc, watch};

use super::cluster_slots::NodeAddress;
use super::error::Fault;
use super::link::{Link, ScriptCall, SendAttempt, Timeouts};
use super::server_clock::ServerClock;
use super::subscriber::{Subscriber, Subscription};
use crate::durable::store::Event;

/// The connections to a server: one for requests, one for messages, and one for requests that wait for the disk if there are any.
pub(super) struct Node {
    /// The address in the cluster, or `None` if the store was given the address.
    pub(super) address: Option<NodeAddress>,
    pub(super) link: Arc<Link>,
    /// A connection for requests that wait until their writes are on the disk, since they block the requests behind them.
    disk: Option<Arc<Link>>,
    /// The partitions whose messages are to be received here. When it is dropped, the subscriber ends.
    partitions: watch::Sender<Vec<usize>>,
    subscription: watch::Receiver<Subscription>,
}

impl Node {
    /// Sends a script to the server.
    pub(super) async fn run(
        &self,
        call: &ScriptCall<'_>,
        to_disk: bool,
        attempt: SendAttempt,
    ) -> Result<Value, Fault> {
        match &self.disk {
            Some(disk) if to_disk => disk.run_to_disk(call, attempt).await,
            _ => self.link.run(call, attempt).await,
        }
    }

    /// Receives the messages of these partitions, and of no others.
    pub(super) fn subscribe(&self, partitions: Vec<usize>) {
        self.partitions.send_if_modified(|current| {
            let is_new = *current != partitions;
            *current = partitions;
            is_new
        });
    }

    pub(super) fn subscription(&self) -> watch::Receiver<Subscription> {
        self.subscription.clone()
    }

    /// Has connections advance the epochs of a partition again before its next claim.
    pub(super) fn forget_epochs(&self, partition: usize) {
        self.link.forget_epochs(partition);
        if let Some(disk) = &self.disk {
            disk.forget_epochs(partition);
        }
    }
}

/// Opens the connections to servers.
pub(super) struct Connector {
    pub(super) timeouts: Timeouts,
    pub(super) has_disk: bool,
    /// The channels of the partitions, on which this process receives messages.
    pub(super) channels: Vec<String>,
    pub(super) clock: Arc<ServerClock>,
    /// Without it, the process receives no messages.
    pub(super) events: Option<mpsc::UnboundedSender<Event>>,
    /// Set if scripts run with commands that refuse writes.
    pub(super) is_read_only: Arc<OnceLock<()>>,
    /// Notified when messages no longer arrive at a node.
    pub(super) is_lost: Arc<Notify>,
}

impl Connector {
    /// Connects to the server with this address.
    pub(super) fn connect(&self, info: &ConnectionInfo) -> RedisResult<Node> {
        self.connect_as(info, None, false)
    }

    /// Connects to a node of the cluster of which `info` is another node.
    pub(super) fn connect_to(
        &self,
        info: &ConnectionInfo,
        address: &NodeAddress,
    ) -> RedisResult<Node> {
        let info = info.clone().set_addr(addr_of(info.addr(), address));
        self.connect_as(&info, Some(address.clone()), true)
    }

    fn connect_as(
        &self,
        info: &ConnectionInfo,
        address: Option<NodeAddress>,
        is_sharded: bool,
    ) -> RedisResult<Node> {
        let (requests, pushes) = clients(info.clone(), self.timeouts)?;
        let (state, subscription) = watch::channel(Subscription::Unknown);
        let (checks, check_requested) = watch::channel(());
        let (partitions, wanted) = watch::channel(Vec::new());
        if let Some(events) = &self.events {
            let subscriber = Subscriber {
                client: pushes,
                timeouts: self.timeouts,
                channels: self.channels.clone(),
                partitions: wanted,
                is_sharded,
                clock: Arc::clone(&self.clock),
                events: events.clone(),
                state,
                checks,
                is_lost: Arc::clone(&self.is_lost),
            };
            tokio::spawn(subscriber.run());
        }
        let link = || {
            let (client, checks) = (requests.clone(), check_requested.clone());
            Link::start(
                client,
                self.timeouts,
                checks,
                Arc::clone(&self.is_read_only),
            )
        };
        Ok(Node {
            address,
            link: link(),
            disk: self.has_disk.then(link),
            partitions,
            subscription,
        })
    }
}

/// Returns the address of another node of the same cluster. The connection is encrypted if that to the first node is.
fn addr_of(first: &ConnectionAddr, address: &NodeAddress) -> ConnectionAddr {
    let NodeAddress { host, port } = address.clone();
    match first.clone() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure,
            tls_params,
        },
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// Creates the clients that connect for requests and for messages.
fn clients(info: ConnectionInfo, timeouts: Timeouts) -> RedisResult<(Client, Client)> {
    use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
    // The system counts in whole seconds.
    let time = timeouts.answer.max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(time).with_interval(time);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    let info = info.set_tcp_settings(tcp);
    let settings = info.redis_settings().clone();
    let settings = settings.set_protocol(ProtocolVersion::RESP3);
    let pushes = info.clone().set_redis_settings(settings);
    Ok((Client::open(info)?, Client::open(pushes)?))
}
