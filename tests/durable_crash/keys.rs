//! [`Keys`]: all keys of a server after a test.

use std::collections::{BTreeMap, BTreeSet};

use redis::Connection;
use throng::durable::Counts;

use super::redis_server::Server;

/// All keys of a server, by their names without the prefix of a partition, and their sizes in all partitions.
#[derive(Debug)]
pub(crate) struct Keys {
    partitions: usize,
    sizes: BTreeMap<String, usize>,
    /// The fields of `meta` in each partition.
    meta: Vec<(String, Vec<u8>)>,
    /// The number of ids in the bins.
    binned: usize,
}

/// The prefix of all keys of the first partition.
pub(crate) const BASE: &str = "throng:{default:0}:";

/// The fields that `meta` may have: the layout, the number of partitions, the last epoch and its ceiling, the replication
/// id of the server, store time, the number of tombstones, the progress of the search for old sessions and the sets that
/// it has found, the progress of the searches for damage, the totals, and whether tasks may have steps. No field says that damage was
/// found.
const META: [&str; 26] = [
    "layout",
    "layout_copy",
    "partitions",
    "birth",
    "routes",
    "epoch",
    "aged",
    "history",
    "tombstones",
    "cursor",
    "seen",
    "checked",
    "passed",
    "census",
    "progress",
    "survey",
    "done",
    "retried",
    "snoozed",
    "died",
    "released",
    "crashed",
    "lost",
    "cancelled",
    "ended_apart",
    "steps",
];

impl Keys {
    pub(crate) fn of(server: &Server) -> Self {
        let mut connection = connect(server);
        let mut names: Vec<Vec<u8>> = ask(&mut connection, &["KEYS", "*"]);
        // All stores of a server share this set.
        names.retain(|name| name != b"throng:namespaces");
        let mut keys = Self {
            partitions: 0,
            sizes: BTreeMap::new(),
            meta: Vec::new(),
            binned: 0,
        };
        let mut partitions = BTreeSet::new();
        for name in names {
            let text = String::from_utf8_lossy(&name);
            let part = text.strip_prefix("throng:{default:");
            let (partition, base) = part
                .and_then(|part| part.split_once("}:"))
                .expect("a key of the store");
            partitions.insert(partition.to_owned());
            keys.add(base, &name, &mut connection);
        }
        let known = keys.partitions.max(1);
        assert!(
            partitions.len() <= known,
            "not of the store: {partitions:?}"
        );
        keys
    }

    /// Adds a key of some partition.
    fn add(&mut self, base: &str, name: &[u8], connection: &mut Connection) {
        *self.sizes.entry(base.to_owned()).or_default() += size(connection, name);
        match base {
            "meta" => {
                let fields: BTreeMap<_, _> = ask(connection, &[b"HGETALL", name]);
                self.meta.extend(fields);
                self.partitions += 1;
            }
            "expiry_bins" => {
                let bins: Vec<Vec<u8>> = ask(connection, &[b"HVALS", name]);
                self.binned += bins.iter().map(|ids| ids.len() / 16).sum::<usize>();
            }
            _ => {}
        }
    }

    /// All keys, with the number of entries of each.
    pub(crate) fn sizes(&self) -> &BTreeMap<String, usize> {
        &self.sizes
    }

    pub(crate) fn size(&self, name: &str) -> usize {
        self.sizes.get(name).copied().unwrap_or_default()
    }

    /// Nothing waits, is delayed or runs. What is there besides belongs to ends that are kept, and to
    /// processes.
    pub(crate) fn assert_sound(&self, counts: &Counts) {
        let ends = ["results", "expiry", "expiry_bins", "dead", "died"];
        let others = [
            "awaiting", "cards", "meta", "routes", "sessions", "stats", "types",
        ];
        for name in self.sizes.keys() {
            let is_known = ends.iter().chain(&others).any(|known| known == name);
            let is_known = is_known || name.starts_with("idle:");
            assert!(is_known, "nothing is left to do, but {self:?}");
        }
        let kept = [self.size("results"), self.binned];
        assert_eq!(kept, [counts.kept as usize; 2], "{self:?}");
        assert_eq!(self.size("expiry"), self.size("expiry_bins"), "{self:?}");
        let dead = [self.size("dead"), self.size("died")];
        assert_eq!(dead, [counts.dead as usize; 2], "{self:?}");
        for (name, value) in &self.meta {
            assert!(META.contains(&name.as_str()), "{name}");
            assert!(name != "tombstones" || value == b"0", "{self:?}");
        }
    }

    /// Of processes, only those have left something that were killed, in each partition.
    pub(crate) fn are_baseline(&self, counts: &Counts, killed: usize) -> bool {
        self.assert_sound(counts);
        let sessions = killed * self.partitions;
        self.size("sessions") <= sessions && self.idle() <= sessions
    }

    /// Returns how many sessions are idle.
    pub(crate) fn idle(&self) -> usize {
        let idle = self.sizes.iter();
        let idle = idle.filter(|(name, _)| name.starts_with("idle:"));
        idle.map(|(_, size)| size).sum()
    }
}

/// Returns the number of claims that are late: their lease is over, or they became suspects since then and were neither
/// renewed nor taken back.
pub(crate) fn late_claims(server: &Server) -> usize {
    let mut connection = connect(server);
    let [lease, claims] = ["lease", "claims"].map(|name| format!("{BASE}{name}"));
    let (seconds, _): (u64, u64) = ask(&mut connection, &["TIME"]);
    let now = format!("{seconds}999");
    let late: usize = ask(&mut connection, &["ZCOUNT", &lease, "-inf", &now]);
    let fields: Vec<String> = ask(&mut connection, &["HKEYS", &claims]);
    late + fields.iter().filter(|field| field.ends_with('s')).count()
}

fn connect(server: &Server) -> Connection {
    let client = redis::Client::open(server.url()).expect("a URL");
    client.get_connection().expect("the server answers")
}

fn ask<T: redis::FromRedisValue>(
    connection: &mut Connection,
    command: &[impl redis::ToRedisArgs],
) -> T {
    let mut asked = redis::Cmd::new();
    command.iter().for_each(|part| _ = asked.arg(part));
    asked.query(connection).expect("the server answers")
}

/// Returns the size of a key's contents.
fn size(connection: &mut Connection, name: &[u8]) -> usize {
    let kind: String = ask(connection, &[b"TYPE", name]);
    let command = match &*kind {
        "hash" => "HLEN",
        "list" => "LLEN",
        "set" => "SCARD",
        "zset" => "ZCARD",
        // It has gone meanwhile.
        _ => return 0,
    };
    ask(connection, &[command.as_bytes(), name])
}
