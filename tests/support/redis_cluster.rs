//! A Redis Cluster for tests: three primaries, each of which has a third of the slots, and a replica of each if wanted.

use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;

use super::redis_server::Server;

/// The number of slots of a cluster.
pub(crate) const SLOTS: u64 = 16_384;
/// The number of primaries.
pub(crate) const PRIMARIES: usize = 3;
/// The maximum time for anything that the nodes of a cluster do.
const TIMEOUT: Duration = Duration::from_secs(40);

/// The nodes end with their owner. The first three begin as primaries, the others as their replicas, in the same order.
pub(crate) struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
}

impl Cluster {
    /// The cluster that the tests share that run at the same time; it ends with the last of them.
    #[allow(dead_code, reason = "only the suite of all stores shares one")]
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|it| it.into_inner());
        let cluster = shared.upgrade();
        cluster.unwrap_or_else(|| {
            let cluster = Arc::new(Self::start());
            *shared = Arc::downgrade(&cluster);
            cluster
        })
    }

    /// Starts three primaries, which do not replace one another.
    pub(crate) fn start() -> Self {
        Self::with(PRIMARIES, &[])
    }

    /// Starts three primaries with these settings.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        Self::with(PRIMARIES, settings)
    }

    /// Starts three primaries, and a replica of each, which replaces its primary when that has been silent for a second or two.
    pub(crate) fn with_replicas() -> Self {
        let settings = [
            "--cluster-node-timeout",
            "1500",
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync-delay",
            "0",
        ];
        Self::with(2 * PRIMARIES, &settings)
    }

    fn with(count: usize, settings: &[&str]) -> Self {
        // If a node is lost, the others go on.
        let common = [
            "--cluster-enabled",
            "yes",
            "--cluster-require-full-coverage",
            "no",
            "--appendonly",
            "no",
        ];
        let settings = [&common, settings].concat();
        let start = |_| {
            thread::spawn({
                let settings: Vec<_> = settings.iter().map(|&it| it.to_owned()).collect();
                move || Server::with(&settings.iter().map(|it| &**it).collect::<Vec<_>>())
            })
        };
        let starting: Vec<_> = (0..count).map(start).collect();
        let nodes = starting
            .into_iter()
            .map(|it| it.join().expect("a node starts"));
        let nodes: Vec<Server> = nodes.collect();
        let ids = nodes
            .iter()
            .map(|node| text(node.ask(&["CLUSTER", "MYID"])));
        let cluster = Self {
            ids: ids.collect(),
            nodes,
        };
        cluster.join();
        cluster
    }

    /// Divides the slots, and has all nodes meet.
    fn join(&self) {
        for (nth, node) in (0..).zip(&self.nodes[..PRIMARIES]) {
            let (first, next) = (range_start(nth), range_start(nth + 1));
            node.ask(&[
                "CLUSTER",
                "ADDSLOTSRANGE",
                &first.to_string(),
                &(next - 1).to_string(),
            ]);
        }
        // A node that knows another one accepts no epoch.
        for (nth, node) in self.nodes.iter().enumerate() {
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(nth + 1).to_string()]);
        }
        for (nth, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[nth + 1..] {
                node.ask(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
            }
        }
        for (nth, node) in self.nodes.iter().enumerate().skip(PRIMARIES) {
            // A node can follow another one as soon as it knows it.
            let follow = ["CLUSTER", "REPLICATE", &self.ids[nth - PRIMARIES]];
            until("a replica follows", || node.try_ask(&follow).is_some());
        }
        self.until_agreed();
    }

    /// Waits until each node knows the owners of all slots, and each replica has the data of its primary.
    fn until_agreed(&self) {
        let is_ready = |(nth, node): (usize, &Server)| {
            let info = |section: &[&str]| node.try_ask(section).map(text).unwrap_or_default();
            let owned = ranges(node)
                .iter()
                .map(|(first, last, _)| last + 1 - first)
                .sum::<u64>();
            let is_copy = || info(&["INFO", "replication"]).contains("master_link_status:up");
            let is_ok = info(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
            owned == SLOTS && is_ok && (nth < PRIMARIES || is_copy())
        };
        until("the nodes agree", || {
            self.nodes.iter().enumerate().all(is_ready)
        });
    }

    pub(crate) fn node(&self, nth: usize) -> &Server {
        &self.nodes[nth]
    }

    /// Kills a node, or stops and continues it.
    pub(crate) fn node_mut(&mut self, nth: usize) -> &mut Server {
        &mut self.nodes[nth]
    }

    pub(crate) fn url(&self, nth: usize) -> String {
        format!("redis://127.0.0.1:{}/", self.nodes[nth].port())
    }

    /// Returns the slot of a key.
    pub(crate) fn slot(&self, key: &str) -> u64 {
        let answer = self
            .nodes
            .iter()
            .find_map(|node| node.try_ask(&["CLUSTER", "KEYSLOT", key]));
        match answer {
            Some(Value::Int(slot)) => slot as u64,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the node that owns a slot, as a running node knows it, other than `except`. While a replica takes over, a slot has no owner.
    pub(crate) fn owner_except(&self, slot: u64, except: Option<usize>) -> usize {
        let mut owner = None;
        until("the slot has an owner", || {
            owner = self.find_owner(slot, except);
            owner.is_some()
        });
        owner.expect("it was found")
    }

    fn find_owner(&self, slot: u64, except: Option<usize>) -> Option<usize> {
        let asked = (0..self.nodes.len()).filter(|&nth| Some(nth) != except);
        let mut asked = asked.filter(|&nth| self.nodes[nth].try_ask(&["PING"]).is_some());
        let ranges = ranges(&self.nodes[asked.next()?]);
        let has_slot = |(first, last, _): &&(u64, u64, Vec<u16>)| (*first..=*last).contains(&slot);
        let (_, _, ports) = ranges.iter().find(has_slot)?;
        let owner = self.nodes.iter().position(|node| node.port() == ports[0]);
        Some(owner.expect("the owner is a node"))
    }

    /// Returns the node that owns the slot of a key.
    pub(crate) fn owner(&self, key: &str) -> usize {
        self.owner_except(self.slot(key), None)
    }

    /// Begins to move a slot between two nodes.
    pub(crate) fn begin_move(&self, slot: u64, from: usize, to: usize) {
        let slot = slot.to_string();
        self.nodes[to].ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        self.nodes[from].ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
    }

    /// Moves some keys of a slot. Returns `false` if there are none left.
    pub(crate) fn move_keys(&self, slot: u64, from: usize, to: usize, most: usize) -> bool {
        let client = redis::Client::open(self.url(from)).expect("it is a URL");
        let mut connection = client.get_connection().expect("the node runs");
        let mut keys = redis::cmd("CLUSTER");
        keys.arg("GETKEYSINSLOT").arg(slot).arg(most);
        // Some keys contain bytes that are no text.
        let keys: Vec<Vec<u8>> = keys.query(&mut connection).expect("keys");
        for key in &keys {
            let mut migrate = redis::cmd("MIGRATE");
            let migrate = migrate.arg("127.0.0.1").arg(self.nodes[to].port());
            let moved = migrate.arg(key).arg(0).arg(5000).exec(&mut connection);
            moved.expect("the key moves");
        }
        !keys.is_empty()
    }

    /// Completes the move of a slot, and waits until the primaries agree on its owner, and on the epoch of the cluster: a node that has not
    /// heard of the last epoch takes the same one for its next slot, and one of the two nodes then claims slots that it has given away.
    pub(crate) fn end_move(&self, slot: u64, to: usize) {
        let text = slot.to_string();
        let set = ["CLUSTER", "SETSLOT", &text, "NODE", &self.ids[to]];
        let is_owner = |node: &Server| has_slot(node, &self.ids[to], slot);
        until("the primaries agree on the owner of a slot", || {
            let others = (0..PRIMARIES).filter(|&node| node != to);
            for node in [to].into_iter().chain(others) {
                self.nodes[node].try_ask(&set);
            }
            let primaries = &self.nodes[..PRIMARIES];
            let epochs: Vec<_> = primaries.iter().map(current_epoch).collect();
            primaries.iter().all(is_owner) && epochs.iter().all(|it| *it == epochs[0])
        });
    }

    /// Moves a slot, as `redis-cli --cluster reshard` does.
    pub(crate) fn move_slot(&self, slot: u64, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        while self.move_keys(slot, from, to, 10) {}
        self.end_move(slot, to);
    }
}

/// Returns the first slot of a primary.
fn range_start(nth: u64) -> u64 {
    nth * SLOTS / PRIMARIES as u64
}

/// Returns the ranges of slots that a node knows, with the ports of their servers, the primary first.
fn ranges(node: &Server) -> Vec<(u64, u64, Vec<u16>)> {
    let Some(Value::Array(ranges)) = node.try_ask(&["CLUSTER", "SLOTS"]) else {
        return Vec::new();
    };
    let number = |value: &Value| match value {
        Value::Int(number) => *number as u64,
        other => panic!("{other:?}"),
    };
    let port = |value: &Value| match value {
        Value::Array(server) => number(&server[1]) as u16,
        other => panic!("{other:?}"),
    };
    let range = |value: Value| match value {
        Value::Array(parts) => (
            number(&parts[0]),
            number(&parts[1]),
            parts[2..].iter().map(port).collect(),
        ),
        other => panic!("{other:?}"),
    };
    ranges.into_iter().map(range).collect()
}

/// Returns `true` if a node says that the one with this id has a slot. It is not asked with `CLUSTER SLOTS`, since tests count such requests.
fn has_slot(node: &Server, id: &str, slot: u64) -> bool {
    let nodes = text(node.ask(&["CLUSTER", "NODES"]));
    let line = nodes.lines().find(|line| line.starts_with(id));
    let ranges = line.into_iter().flat_map(|line| line.split(' ').skip(8));
    let mut ranges = ranges.map(|range| range.split_once('-').unwrap_or((range, range)));
    let number = |text: &str| text.parse::<u64>().ok();
    ranges.any(|(first, last)| number(first) <= Some(slot) && Some(slot) <= number(last))
}

/// Returns the highest epoch of which a node has heard.
fn current_epoch(node: &Server) -> String {
    let info = text(node.ask(&["CLUSTER", "INFO"]));
    let line = info
        .lines()
        .find(|line| line.starts_with("cluster_current_epoch:"));
    line.expect("a node knows an epoch").to_owned()
}

/// Returns the text of an answer.
pub(crate) fn text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).expect("text"),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text,
        other => format!("{other:?}"),
    }
}

/// Waits on this thread until a condition holds.
#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
