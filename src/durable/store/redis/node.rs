//! [`Node`]: the connections to a server.

use std::sync::Arc;

use redis::Value;
use tokio::sync::{Notify, mpsc, watch};

use super::address::ServerAddress;
use super::connection::{ConnectionSettings, ScriptCall};
use super::connector::Connector;
use super::copies::Copies;
use super::error::Fault;
use super::link::{Link, SendAttempt};
use super::server_clock::ServerClock;
use super::session_state::Sessions;
use super::subscriber::{Subscriber, Subscription};
use crate::durable::store::Event;

/// The connections to a server: one for requests, one for messages, and one for requests that wait for copies, if there are such requests.
pub(super) struct Node {
    /// The address in the cluster, or `None` if the store was given the address.
    pub(super) address: Option<ServerAddress>,
    /// The host of the server.
    pub(super) host: String,
    pub(super) link: Arc<Link>,
    /// A connection for requests that wait until their writes are copied, since they block the requests behind them.
    waiting: Option<Arc<Link>>,
    /// The partitions at the server. When this sender is dropped, the subscriber ends.
    partitions: watch::Sender<Vec<usize>>,
    subscription: watch::Receiver<Subscription>,
    /// Keeps the channel open by which the subscriber has the connections for requests checked, also if there is no subscriber.
    _checks: watch::Sender<()>,
}

impl Node {
    /// Sends a script to the server, and waits for copies of its changes if there are to be any.
    pub(super) async fn run(
        &self,
        call: &ScriptCall<'_>,
        copies: Copies,
        attempt: SendAttempt,
    ) -> Result<Value, Fault> {
        match &self.waiting {
            Some(waiting) if copies != Copies::default() => {
                waiting.run_and_wait(call, attempt, copies).await
            }
            _ => self.link.run(call, attempt).await,
        }
    }

    /// Sets the partitions at the server. Only their messages are received here.
    pub(super) fn set_partitions(&self, partitions: Vec<usize>) {
        self.partitions.send_if_modified(|current| {
            let is_new = *current != partitions;
            *current = partitions;
            is_new
        });
    }

    pub(super) fn subscription(&self) -> watch::Receiver<Subscription> {
        self.subscription.clone()
    }

    /// Has the connections prepare a partition and advance its epochs again, since the partition was elsewhere meanwhile. This also
    /// concerns connections that are not up yet.
    pub(super) fn forget(&self, partition: usize) {
        self.link.forget(partition);
        if let Some(waiting) = &self.waiting {
            waiting.forget(partition);
        }
    }
}

/// The settings of the connections to all servers of a store.
pub(super) struct NodeSettings {
    /// `true` if there are requests that wait for copies.
    pub(super) has_waiting: bool,
    /// The channels of the partitions, on which this process receives messages.
    pub(super) channels: Vec<String>,
    pub(super) clock: Arc<ServerClock>,
    pub(super) sessions: Arc<Sessions>,
    /// Without it, the process receives no messages.
    pub(super) events: Option<mpsc::UnboundedSender<Event>>,
    pub(super) requests: Arc<ConnectionSettings>,
    /// Notified when messages from a node no longer arrive.
    pub(super) is_lost: Arc<Notify>,
}

impl NodeSettings {
    /// Connects to a server.
    pub(super) fn connect(&self, connector: &Connector) -> Node {
        self.connect_as(connector, None)
    }

    /// Connects to the node with this address of the cluster to which the server of the connector belongs.
    pub(super) fn connect_to(&self, connector: &Connector, address: &ServerAddress) -> Node {
        self.connect_as(&connector.to_node(address), Some(address.clone()))
    }

    fn connect_as(&self, connector: &Connector, address: Option<ServerAddress>) -> Node {
        let (state, subscription) = watch::channel(Subscription::Unknown);
        let (checks, check_requested) = watch::channel(());
        let (partitions, wanted) = watch::channel(Vec::new());
        if let Some(events) = &self.events {
            let subscriber = Subscriber {
                connector: connector.for_messages(),
                channels: self.channels.clone(),
                partitions: wanted.clone(),
                is_sharded: address.is_some(),
                clock: Arc::clone(&self.clock),
                sessions: Arc::clone(&self.sessions),
                events: events.clone(),
                state,
                checks: checks.clone(),
                is_lost: Arc::clone(&self.is_lost),
            };
            tokio::spawn(subscriber.run());
        }
        let link = || {
            let settings = Arc::clone(&self.requests);
            let (checks, partitions) = (check_requested.clone(), wanted.clone());
            Link::start(connector.clone(), checks, partitions, settings)
        };
        Node {
            address,
            host: connector.host().to_owned(),
            link: link(),
            waiting: self.has_waiting.then(link),
            partitions,
            subscription,
            _checks: checks,
        }
    }
}
