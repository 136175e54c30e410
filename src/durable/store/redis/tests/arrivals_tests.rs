//! Partitions that leave a server and come back while a connection to it is being prepared.

use redis::aio::MultiplexedConnection;
use tokio::sync::Semaphore;

use super::*;
use crate::durable::store::redis::address::RedisAddress;
use crate::durable::store::redis::connection::{
    ConnectionSettings, Preparation, Prepared, ScriptCall,
};
use crate::durable::store::redis::connector::Connector;
use crate::durable::store::redis::copies::Copies;
use crate::durable::store::redis::keys::{self, Keys};
use crate::durable::store::redis::link::SendAttempt;
use crate::durable::store::redis::node::{Node, NodeSettings};
use crate::durable::store::redis::scripts::Arguments;
use crate::durable::store::redis::timeouts::Timeouts;

/// Preparations that a test ends.
struct StoppedPreparation {
    begun: Semaphore,
    may_end: Semaphore,
}

impl Preparation for StoppedPreparation {
    fn prepare<'a>(
        &'a self,
        _: &'a mut MultiplexedConnection,
        partitions: &'a [usize],
    ) -> Prepared<'a> {
        Box::pin(async move {
            self.begun.add_permits(1);
            let end = self.may_end.acquire().await;
            end.expect("it is open").forget();
            (partitions.to_vec(), Ok(()))
        })
    }
}

impl StoppedPreparation {
    async fn begins(&self) {
        let begun = timeout(DEADLINE, self.begun.acquire()).await;
        begun.expect("a preparation begins").unwrap().forget();
    }
}

/// A server, the connections to it, and their preparations.
struct PreparedNode {
    server: Server,
    node: Node,
    preparation: Arc<StoppedPreparation>,
}

impl PreparedNode {
    fn connect() -> Self {
        let server = Server::start();
        let preparation = Arc::new(StoppedPreparation {
            begun: Semaphore::new(0),
            may_end: Semaphore::new(0),
        });
        let requests = ConnectionSettings::default();
        let used = Arc::clone(&preparation);
        requests.preparation.get_or_init(|| used);
        let settings = NodeSettings {
            has_waiting: false,
            channels: Vec::new(),
            clock: Arc::default(),
            sessions: Arc::default(),
            events: None,
            requests: Arc::new(requests),
            is_lost: Arc::default(),
        };
        let timeouts = Timeouts {
            connect: DEADLINE,
            answer: DEADLINE,
            ping_interval: DEADLINE,
        };
        let target = RedisAddress::url(&server.url()).resolve().unwrap();
        let connectors = Connector::all(target, timeouts);
        Self {
            node: settings.connect(&connectors[0]),
            server,
            preparation,
        }
    }

    /// Sends a script on the keys of a partition, and returns when it is answered.
    async fn request(&self, partition: usize) {
        let store = open(&self.server.url()).await;
        let call = ScriptCall {
            script: &store.inner.scripts.counts,
            partition,
            keys: &Keys::new(&keys::base("default", partition)),
            arguments: &Arguments::default(),
            advance: None,
        };
        let attempt = SendAttempt {
            end: Instant::now() + DEADLINE,
            is_asking: false,
        };
        let answer = self.node.run(&call, Copies::default(), attempt).await;
        answer.expect("the server answers");
    }

    /// Ends all preparations, and checks that another one has begun before a request for this partition is answered.
    async fn is_prepared_again(&self, partition: usize) {
        self.preparation.may_end.add_permits(10);
        self.request(partition).await;
        let begun = self.preparation.begun.available_permits();
        assert!(begun > 0, "the request precedes the search for lost writes");
    }
}

/// The preparation began before the partition came back, so it did not search for what the partition has lost elsewhere.
#[tokio::test]
async fn a_partition_that_returns_before_a_connection_is_up_is_prepared_again() {
    needs_redis!();
    let connected = PreparedNode::connect();
    connected.node.set_partitions(vec![0]);
    connected.preparation.begins().await;
    assert!(!connected.node.link.is_connected());
    connected.node.forget(0);
    connected.is_prepared_again(0).await;
}

#[tokio::test]
async fn a_partition_that_returns_while_it_is_prepared_is_prepared_again() {
    needs_redis!();
    let connected = PreparedNode::connect();
    connected.node.link.connected().await.unwrap();
    connected.node.set_partitions(vec![0]);
    connected.preparation.begins().await;
    connected.node.forget(0);
    connected.is_prepared_again(0).await;
}
