//! A primary with two replicas, and three Sentinels that watch them.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, Value};

use super::server::Server;

/// The time that a group may take to form, or to replace a primary.
const DEADLINE: Duration = Duration::from_secs(60);

/// A primary notices quickly that it is down, and its replicas ask it for its data at once.
const SENTINEL: &str = "
sentinel down-after-milliseconds main 500
sentinel failover-timeout main 4000
sentinel parallel-syncs main 2
";

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

    /// Starts a group whose first primary has these settings.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        let mut all = vec!["--appendonly", "no", "--repl-diskless-sync-delay", "0"];
        all.extend(arguments);
        let primary = Server::with(&all);
        let replicas = [Server::replica_of(&primary), Server::replica_of(&primary)];
        let sentinels = [(); 3].map(|()| Server::sentinel_with(&primary, 2, SENTINEL));
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
            let known = sentinel.ask(&["SENTINEL", "MASTER", "main"]);
            let known: Vec<String> = Vec::from_redis_value(known).expect("a list");
            let field = |name: &str| known.iter().skip_while(|it| *it != name).nth(1).cloned();
            field("num-slaves").as_deref() == Some("2")
                && field("num-other-sentinels").as_deref() == Some("2")
        };
        self.servers[1..].iter().all(is_synchronized) && self.sentinels.iter().all(knows_all)
    }

    fn wait_until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < end, "waited in vain until {what}");
            thread::sleep(Duration::from_millis(5));
        }
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
        let mut found = None;
        self.wait_until("a replica is promoted", || {
            let named = self.sentinels.iter().filter_map(named);
            let mut at =
                named.filter_map(|port| self.servers.iter().position(|it| it.port() == port));
            found = at.find(|at| *at != former);
            found.is_some()
        });
        found.unwrap_or(former)
    }

    /// Waits until all Sentinels name this primary.
    pub(crate) fn wait_until_named(&self, primary: usize) {
        let port = self.servers[primary].port();
        self.wait_until("all Sentinels name the primary", || {
            self.sentinels.iter().all(|it| named(it) == Some(port))
        });
    }

    /// Makes a server that was started again a replica, as the file with its configuration would. Waits until all Sentinels know that the
    /// servers other than the primary are replicas with its data: a failover that begins earlier may meet the end of the one before.
    pub(crate) fn rejoin(&self, server: usize, primary: usize) {
        let port = self.servers[primary].port().to_string();
        self.servers[server].ask(&["REPLICAOF", "127.0.0.1", &port]);
        let is_replica = |it: &Fields| {
            let field = |name: &str| it.get(name).map(String::as_str);
            field("flags") == Some("slave")
                && field("master-port") == Some(&port)
                && field("master-link-status") == Some("ok")
        };
        let is_whole = |sentinel: &Server| {
            let replicas = sentinel.ask(&["SENTINEL", "REPLICAS", "main"]);
            let replicas = Vec::<Fields>::from_redis_value(replicas).expect("a list");
            replicas.iter().filter(|it| is_replica(it)).count() + 1 == self.servers.len()
        };
        self.wait_until("the group is whole", || self.sentinels.iter().all(is_whole));
    }

    /// Waits until a server is a replica whose data are those of its primary.
    pub(crate) fn wait_for_replica(&self, at: usize) {
        let server = &self.servers[at];
        self.wait_until("a server is a replica", || {
            info(server).contains("master_link_status:up")
        });
    }
}

/// Returns the port of the primary that a Sentinel names.
fn named(sentinel: &Server) -> Option<u16> {
    let named = sentinel.try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"])?;
    let (_, port) = <(String, u16)>::from_redis_value(named).ok()?;
    Some(port)
}

fn info(server: &Server) -> String {
    let info = server.try_ask(&["INFO", "replication"]);
    let info = info.map(String::from_redis_value);
    info.and_then(Result::ok).unwrap_or_default()
}
