//! A primary with two replicas, and three Sentinels that watch them.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, Value};

use super::server::Server;

/// The time that a group may take to form, or to replace a primary.
const DEADLINE: Duration = Duration::from_secs(60);

/// A Sentinel connects to a server at most once a second. So it needs up to a second to reach a new primary, and if that were longer than
/// the time after which the primary seems to be down, the Sentinels would replace a primary that answers.
const SENTINEL: &str = "
sentinel down-after-milliseconds main 2000
sentinel failover-timeout main 4000
sentinel parallel-syncs main 2
";

/// The servers keep nothing on the disk, and send their data to a replica as soon as it asks.
const SERVER: [&str; 4] = ["--appendonly", "no", "--repl-diskless-sync-delay", "0"];

/// The fields of a server, as a Sentinel knows them.
type Fields = HashMap<String, String>;

/// A primary with two replicas, and three Sentinels that watch them under the name `main`.
pub(crate) struct SentinelGroup {
    /// The first one is the primary until a failover.
    pub(crate) servers: Vec<Server>,
    pub(crate) sentinels: Vec<Server>,
}

impl SentinelGroup {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a group whose servers and Sentinels have these settings.
    pub(crate) fn with_common(settings: &[&str]) -> Self {
        Self::start_with(settings, &[])
    }

    /// Starts a group whose first primary has these settings.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        Self::start_with(&[], arguments)
    }

    fn start_with(common: &[&str], arguments: &[&str]) -> Self {
        let server = |more: &[&str]| Server::with(&[&SERVER[..], common, more].concat());
        let primary = server(arguments);
        let port = primary.port().to_string();
        let replicas = [(); 2].map(|()| server(&["--replicaof", "127.0.0.1", &port]));
        let sentinels = [(); 3].map(|()| Server::sentinel_with(&primary, 2, SENTINEL, common));
        let group = Self {
            servers: [primary].into_iter().chain(replicas).collect(),
            sentinels: sentinels.into(),
        };
        group.wait_until("the group has formed", || group.is_complete());
        group
    }

    fn is_complete(&self) -> bool {
        let is_synchronized = |replica: &Server| info(replica).contains("master_link_status:up");
        let knows_all = |sentinel: &Server| {
            let known = known_primary(sentinel).unwrap_or_default();
            let is_two = |name: &str| known.get(name).is_some_and(|it| it == "2");
            is_two("num-slaves") && is_two("num-other-sentinels")
        };
        self.servers[1..].iter().all(is_synchronized) && self.sentinels.iter().all(knows_all)
    }

    fn wait_until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        self.wait_for(what, || condition().then_some(()));
    }

    fn wait_for<T>(&self, what: &str, mut find: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(found) = find() {
                return found;
            }
            let is_late = Instant::now() >= end;
            assert!(!is_late, "waited in vain until {what}: {}", self.state());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns what the servers and the Sentinels say, for a failure.
    fn state(&self) -> String {
        let servers = self.servers.iter();
        let roles = servers.map(|it| format!("{} has {:?}", it.port(), it.try_ask(&["ROLE"])));
        let known = |it: &Server| format!("{:?}, {:?}", known_primary(it), known_replicas(it));
        let all: Vec<_> = roles.chain(self.sentinels.iter().map(known)).collect();
        all.join("\n")
    }

    /// Returns the addresses of the Sentinels.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let address = |it: &Server| format!("127.0.0.1:{}", it.port());
        self.sentinels.iter().map(address).collect()
    }

    /// Has the Sentinels replace the primary, although it answers.
    pub(crate) fn fail_over(&self) {
        let ok = Value::Okay;
        let begin = || self.sentinels[0].try_ask(&["SENTINEL", "FAILOVER", "main"]);
        self.wait_until("a failover begins", || begin().as_ref() == Some(&ok));
    }

    /// Waits until a Sentinel names another server than the former primary. Returns the index of that server.
    pub(crate) fn wait_for_new_primary(&self, former: usize) -> usize {
        self.wait_for("a replica is promoted", || {
            let mut named = self.sentinels.iter().filter_map(|it| self.named(it));
            named.find(|at| *at != former)
        })
    }

    /// Returns the index of the primary that a Sentinel names.
    fn named(&self, sentinel: &Server) -> Option<usize> {
        let named = sentinel.try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"])?;
        let (_, port) = <(String, u16)>::from_redis_value(named).ok()?;
        self.servers.iter().position(|it| it.port() == port)
    }

    /// Returns the index of the primary if all Sentinels name the same one.
    fn agreed(&self) -> Option<usize> {
        let named = self.named(&self.sentinels[0])?;
        let are_one = self
            .sentinels
            .iter()
            .all(|it| self.named(it) == Some(named));
        are_one.then_some(named)
    }

    /// Starts a server again, as an empty replica of the primary, and waits until the group is whole. Returns the index of the primary.
    ///
    /// Sentinels may promote a replica that has never had the data, so this one is not eligible before it has them.
    pub(crate) fn rejoin(&mut self, at: usize) -> usize {
        let primary = self.wait_for("the Sentinels agree", || self.agreed());
        let port = self.servers[primary].port().to_string();
        let server = &mut self.servers[at];
        server.push_arguments(&["--replicaof", "127.0.0.1", &port, "--replica-priority", "0"]);
        server.run();
        self.wait_for_replica(at);
        self.servers[at].ask(&["CONFIG", "SET", "replica-priority", "100"]);
        self.wait_for("the group is whole", || self.whole())
    }

    /// Returns the index of the primary if all Sentinels name the same one, know that it is up, and know that the other servers have its
    /// data. A failover that begins earlier may meet the end of the one before.
    fn whole(&self) -> Option<usize> {
        let primary = self.agreed()?;
        let port = self.servers[primary].port().to_string();
        let is_replica = |it: &&Fields| {
            let field = |name: &str| it.get(name).map(String::as_str);
            field("flags") == Some("slave")
                && field("master-port") == Some(&port)
                && field("master-link-status") == Some("ok")
        };
        let is_whole = |sentinel: &Server| {
            let known = known_primary(sentinel).unwrap_or_default();
            let replicas = known_replicas(sentinel);
            known.get("flags").is_some_and(|it| it == "master")
                && replicas.iter().filter(is_replica).count() + 1 == self.servers.len()
        };
        self.sentinels.iter().all(is_whole).then_some(primary)
    }

    /// Waits until a server is a replica whose data are those of its primary.
    pub(crate) fn wait_for_replica(&self, at: usize) {
        let server = &self.servers[at];
        self.wait_until("a server is a replica", || {
            info(server).contains("master_link_status:up")
        });
    }
}

/// Returns the primary, as a Sentinel knows it.
fn known_primary(sentinel: &Server) -> Option<Fields> {
    let known = sentinel.try_ask(&["SENTINEL", "MASTER", "main"])?;
    Fields::from_redis_value(known).ok()
}

/// Returns the replicas, as a Sentinel knows them.
fn known_replicas(sentinel: &Server) -> Vec<Fields> {
    let known = sentinel.try_ask(&["SENTINEL", "REPLICAS", "main"]);
    let known = known.map(Vec::from_redis_value);
    known.and_then(Result::ok).unwrap_or_default()
}

fn info(server: &Server) -> String {
    let info = server.try_ask(&["INFO", "replication"]);
    let info = info.map(String::from_redis_value);
    info.and_then(Result::ok).unwrap_or_default()
}
