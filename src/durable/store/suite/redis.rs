//! [`Redis`]: the harness of the store in Redis, on a server of its own or on a cluster.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Harness;
use crate::durable::clock::Clock;
use crate::durable::store::Store;
use crate::durable::store::redis::tests::cluster::{Cluster, PRIMARIES};
use crate::durable::store::redis::tests::invariants::INVARIANTS;
use crate::durable::store::redis::tests::server::Server;
use crate::durable::store::redis::tests::{ServerConnection, age, is_server_installed};
use crate::durable::store::redis::{RedisStore, Time};
use crate::sync::Number;

/// A namespace of a cluster.
pub(super) type RedisCluster = Redis<true>;

/// A namespace of a server, or of a cluster, that concurrent tests share.
pub(super) struct Redis<const IS_CLUSTER: bool = false> {
    shared: SharedServer,
    connection: ServerConnection,
    clock: Clock,
    namespace: String,
    /// All stores that were opened.
    stores: RefCell<Vec<Weak<RedisStore>>>,
}

enum SharedServer {
    Server(Arc<Server>),
    /// A cluster, and the node that has the namespace.
    Cluster(Arc<Cluster>, usize),
}

impl SharedServer {
    fn new(is_cluster: bool, namespace: &str) -> Self {
        if !is_cluster {
            return Self::Server(Server::shared());
        }
        let cluster = Cluster::shared();
        let owner = cluster.owner(&format!("throng:{{{namespace}:0}}:"));
        Self::Cluster(cluster, owner)
    }

    /// Returns the server that has the namespace.
    fn server(&self) -> &Server {
        match self {
            Self::Server(server) => server,
            Self::Cluster(cluster, owner) => cluster.node(*owner),
        }
    }

    /// Returns a URL with which the store can be opened: that of any node.
    fn url(&self) -> String {
        match self {
            Self::Server(server) => server.url(),
            Self::Cluster(cluster, owner) => cluster.url((owner + 1) % PRIMARIES),
        }
    }
}

impl<const IS_CLUSTER: bool> Harness for Redis<IS_CLUSTER> {
    fn is_available() -> bool {
        is_server_installed()
    }

    fn new() -> Self {
        static NEXT: Number = Number::new(0);
        let namespace = format!("test-{}", NEXT.add(1));
        let shared = SharedServer::new(IS_CLUSTER, &namespace);
        Self {
            connection: ServerConnection::to(shared.server()),
            shared,
            clock: Clock::manual(),
            namespace,
            stores: RefCell::default(),
        }
    }

    /// While there is no worker, each type waits in a list of its own. So the order between types is not that of the
    /// model, even if all sessions have the same set.
    fn knows_types(&self) -> bool {
        false
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn connect(&self) -> Store {
        let mut builder = RedisStore::builder(&self.shared.url());
        builder.namespace(&*self.namespace);
        let opened = RedisStore::open_as(&builder, Time::manual(self.clock.clone()));
        let store = futures::executor::block_on(opened);
        let store = Arc::new(store.expect("the store can be opened"));
        self.stores.borrow_mut().push(Arc::downgrade(&store));
        Store(store)
    }

    fn observe(&self) -> Store {
        let mut builder = RedisStore::builder(&self.shared.url());
        builder.namespace(&*self.namespace);
        let observed = RedisStore::observe_as(&builder, Time::manual(self.clock.clone()));
        futures::executor::block_on(observed).expect("the store can be observed")
    }

    fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let prefix = format!("throng:{{{}:", self.namespace);
        self.shared.server().contents(&prefix)
    }

    /// The store detects a crash after some time. Here, the leases of the process have ended, its claims are suspects, and
    /// its sessions have been silent for long.
    fn kill(&self, process: Store) {
        let address = Arc::as_ptr(&process.0).cast::<()>();
        let stores = self.stores.borrow();
        let dying = stores.iter().find(|it| it.as_ptr().cast::<()>() == address);
        let dying = dying.and_then(Weak::upgrade);
        let client_id = dying
            .expect("the process has opened this store")
            .client_id()
            .to_owned();
        drop(process);
        self.eval(END_LEASES, &[&client_id]);
        // The thread of the store closes its connections.
        let start = Instant::now();
        while self.eval(RECEIVERS, &[&client_id]) > 0 {
            assert!(
                start.elapsed() < DEADLINE,
                "the process still receives messages"
            );
        }
    }

    fn age(&self, time: Duration) {
        age(self.shared.server(), &self.namespace, &self.clock, time);
    }

    /// Counts the elements of all keys, except for the counts, the statistics, the layout, and the watchers of tasks that are alive.
    fn leftovers(&self) -> u64 {
        self.eval(COUNT, &[]) as u64
    }

    fn statistics(&self) -> u64 {
        self.eval("return redis.call('HLEN', ARGV[1] .. 'stats')", &[]) as u64
    }

    fn rows_of_buckets(&self, buckets: u64, _types: u64) -> u64 {
        buckets
    }

    fn broken_invariants(&self) -> Vec<String> {
        let base = format!("throng:{{{}:0}}:", self.namespace);
        match self.connection.ask(&["EVAL", INVARIANTS, "0", &base]) {
            redis::Value::Array(found) => found.iter().map(|it| format!("{it:?}")).collect(),
            other => panic!("{other:?}"),
        }
    }
}

impl<const IS_CLUSTER: bool> Redis<IS_CLUSTER> {
    /// Runs a script of the tests.
    fn eval(&self, script: &str, arguments: &[&str]) -> i64 {
        let base = format!("throng:{{{}:0}}:", self.namespace);
        let of_slots = [
            ("'NUMSUB'", "'SHARDNUMSUB'"),
            ("'CHANNELS'", "'SHARDCHANNELS'"),
            ("'PUBLISH'", "'SPUBLISH'"),
        ];
        let replace = |script: String, (from, to): &(&str, &str)| script.replace(from, to);
        let script = match IS_CLUSTER {
            true => of_slots.iter().fold(script.to_owned(), replace),
            false => script.to_owned(),
        };
        let mut command = vec!["EVAL", &script, "0", &base];
        command.extend(arguments);
        match self.connection.ask(&command) {
            redis::Value::Int(answer) => answer,
            other => panic!("{other:?}"),
        }
    }
}

impl<const IS_CLUSTER: bool> Drop for Redis<IS_CLUSTER> {
    fn drop(&mut self) {
        self.eval(REMOVE, &[]);
    }
}

/// The maximum time to close a connection.
const DEADLINE: Duration = Duration::from_secs(20);

/// The number of connections that receive the messages for a process.
const RECEIVERS: &str = "return redis.call('PUBSUB', 'NUMSUB', ARGV[1] .. 'client:' .. ARGV[2])[2]";

/// Ends the leases of a process, makes its claims suspects and its sessions silent, and wakes all processes.
const END_LEASES: &str = "
local claims, lease = ARGV[1] .. 'claims', ARGV[1] .. 'lease'
for _, epoch in ipairs(redis.call('ZRANGE', lease, 0, -1)) do
  if string.sub(redis.call('HGET', claims, epoch .. 'o'), 1, 8) == ARGV[2] then
    redis.call('ZADD', lease, 0, epoch)
    redis.call('HSET', claims, epoch .. 's', 1)
  end
end
local sessions = redis.call('HGETALL', ARGV[1] .. 'sessions')
for i = 1, #sessions, 2 do
  local row = cmsgpack.unpack(sessions[i + 1])
  if row[6] == ARGV[2] then
    row[5] = 0
    redis.call('HSET', ARGV[1] .. 'sessions', sessions[i], cmsgpack.pack(row))
  end
end
for _, channel in ipairs(redis.call('PUBSUB', 'CHANNELS', ARGV[1] .. 'client:*')) do
  redis.call('PUBLISH', channel, 'w')
end
return 0";

const COUNT: &str = "
local count = { list = 'LLEN', hash = 'HLEN', set = 'SCARD', zset = 'ZCARD' }
local total = 0
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local name = string.sub(key, #ARGV[1] + 1)
  if name == 'watchers' then
    for _, id in ipairs(redis.call('HKEYS', key)) do
      total = total + 1 - redis.call('HEXISTS', ARGV[1] .. 'alive', id)
    end
  elseif name ~= 'meta' and name ~= 'routes' and name ~= 'awaiting' and name ~= 'types' and name ~= 'stats' then
    total = total + redis.call(count[redis.call('TYPE', key).ok], key)
  end
end
return total";

const REMOVE: &str = "
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', key) end
return 0";
