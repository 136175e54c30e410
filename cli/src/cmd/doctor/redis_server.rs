//! Examines the Redis server of a store, on a connection of its own. The store itself reports how durable the server is.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult};
use url::Url;

use super::{Diagnosis, redis_permissions};
use crate::duration::short;
use crate::failure::{Failure, with_sources};
use crate::out::counted;
use crate::store::StoreArgs;

/// The information of a server about itself, as far as the user may read it.
#[derive(Debug, Default)]
struct ServerFacts {
    /// The lines of `INFO`.
    info: HashMap<String, String>,
    /// The answer of `CONFIG GET`.
    settings: HashMap<String, String>,
}

/// The number of pings whose median is the round-trip time.
const PINGS: usize = 20;
/// A longer round-trip time limits how many tasks run in a second.
const SLOW_TRIP: Duration = Duration::from_millis(10);

/// If at least this percentage of the memory is used, there is a warning.
const MIN_MEMORY_PERCENT: u64 = 81;

/// The smallest buffer that holds the messages of a burst of tasks.
const MIN_MESSAGE_BUFFER: u64 = 1 << 20;

/// A script that takes longer delays other clients noticeably. A server remembers those that take 10 ms, which a healthy one needs to compile
/// the scripts of a store.
const SLOW_SCRIPT: Duration = Duration::from_millis(100);

/// A limit that no script of a healthy store reaches.
const MIN_SCRIPT_LIMIT: Duration = Duration::from_secs(1);

/// Examines the server.
pub(super) async fn examine(
    url: &Url,
    store: &StoreArgs,
    clients: u64,
) -> Result<Vec<Diagnosis>, Failure> {
    let failed = |error: redis::RedisError| {
        Failure::Unreachable(format!(
            "the server cannot be examined: {}",
            with_sources(&error)
        ))
    };
    let mut connection = connect(url, store.timeout()).await.map_err(failed)?;
    let facts = read(&mut connection).await;
    let mut found = facts.examine(clients);
    let trip = round_trip(&mut connection).await.map_err(failed)?;
    found.extend(slow_trip(trip));
    let is_cluster = facts.is_cluster();
    found.extend(redis_permissions::examine(&mut connection, store.namespace(), is_cluster).await);
    found.extend(slow_scripts(&mut connection).await);
    let advice: Option<String> = ask(&mut connection, redis::cmd("LATENCY").arg("DOCTOR")).await;
    found.extend(huge_pages(&advice.unwrap_or_default()));
    Ok(found)
}

async fn connect(url: &Url, timeout: Duration) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout));
    let client = Client::open(url.as_str())?;
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Reads what the user may read.
async fn read(connection: &mut MultiplexedConnection) -> ServerFacts {
    let info: Option<String> = ask(connection, redis::cmd("INFO").arg("all")).await;
    let settings = ask(connection, redis::cmd("CONFIG").arg("GET").arg("*")).await;
    let info = info.unwrap_or_default();
    let lines = info.lines().filter_map(|line| line.trim().split_once(':'));
    ServerFacts {
        info: lines
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        settings: settings.unwrap_or_default(),
    }
}

/// Sends a command. Returns `None` if the server refuses it.
pub(super) async fn ask<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Option<T> {
    command.query_async(connection).await.ok()
}

/// Returns the median time of a request.
async fn round_trip(connection: &mut MultiplexedConnection) -> RedisResult<Duration> {
    let mut times = Vec::new();
    for _ in 0..PINGS {
        let start = Instant::now();
        redis::cmd("PING").query_async::<()>(connection).await?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[PINGS / 2])
}

fn slow_trip(trip: Duration) -> Option<Diagnosis> {
    (trip > SLOW_TRIP).then(|| {
        Diagnosis::warn(
            "redis.round_trip",
            format!("a request takes {}", short(trip)),
            "run the programs nearer to the server, or find out what slows it down with `LATENCY DOCTOR`",
        )
    })
}

/// Returns a warning if the server has transparent huge pages. Only `LATENCY DOCTOR` reports them.
fn huge_pages(advice: &str) -> Option<Diagnosis> {
    advice.contains("huge pages").then(|| {
        Diagnosis::warn(
            "redis.huge_pages",
            "the memory of the server contains transparent huge pages, so it pauses whenever it saves",
            "set `disable-thp yes`, or write `madvise` to /sys/kernel/mm/transparent_hugepage/enabled, and restart the server",
        )
    })
}

/// Returns the slowest script in the slow log.
async fn slow_scripts(connection: &mut MultiplexedConnection) -> Option<Diagnosis> {
    let command = redis::cmd("SLOWLOG").arg("GET").arg(128).to_owned();
    let entries: Vec<redis::Value> = ask(connection, &command).await?;
    let times = entries.into_iter().filter_map(script_time);
    slowest(times.collect())
}

/// Returns the time of an entry of the slow log, if it is about a script of a store.
fn script_time(entry: redis::Value) -> Option<Duration> {
    let redis::Value::Array(fields) = entry else {
        return None;
    };
    let micros = u64::from_redis_value(fields.get(2)?.clone()).ok()?;
    let words = Vec::<Vec<u8>>::from_redis_value(fields.get(3)?.clone()).ok()?;
    let is_script = words.first()?.to_ascii_uppercase().starts_with(b"EVAL");
    let is_ours = words.iter().any(|word| word.starts_with(b"throng:{"));
    (is_script && is_ours).then(|| Duration::from_micros(micros))
}

fn slowest(mut times: Vec<Duration>) -> Option<Diagnosis> {
    times.retain(|time| *time > SLOW_SCRIPT);
    let slowest = times.iter().max()?;
    Some(Diagnosis::info(
        "redis.slow_scripts",
        format!(
            "the server has logged {} of stores, and the slowest took {}",
            counted(times.len() as u64, "slow script"),
            short(*slowest)
        ),
        "look at `SLOWLOG GET`; large payloads and many partitions on one server are common causes",
    ))
}

impl ServerFacts {
    fn is_cluster(&self) -> bool {
        self.info.get("cluster_enabled").is_some_and(|it| it == "1")
    }

    fn examine(&self, clients: u64) -> Vec<Diagnosis> {
        let found = [
            self.loading(),
            self.failed_writes(),
            self.memory(),
            self.idle_timeout(),
            self.connections(clients),
            self.message_buffer(),
            self.script_limit(),
        ];
        found.into_iter().flatten().collect()
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    fn info(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.info(name)?.parse().ok()
    }

    fn loading(&self) -> Option<Diagnosis> {
        (self.number("loading") == Some(1)).then(|| {
            Diagnosis::error(
                "redis.loading",
                "the server still loads its file",
                "wait until the file is loaded",
            )
        })
    }

    fn failed_writes(&self) -> Option<Diagnosis> {
        let names = [
            "aof_last_write_status",
            "aof_last_bgrewrite_status",
            "rdb_last_bgsave_status",
        ];
        let failed = names
            .into_iter()
            .filter(|name| self.info(name).is_some_and(|it| it != "ok"));
        let failed: Vec<_> = failed.collect();
        (!failed.is_empty()).then(|| {
            Diagnosis::error(
                "redis.writes",
                format!(
                    "the server could not write to its disk: {}",
                    failed.join(", ")
                ),
                "look at its log, and at the free space of its disk",
            )
        })
    }

    fn memory(&self) -> Option<Diagnosis> {
        let (used, most) = (self.number("used_memory")?, self.number("maxmemory")?);
        let percent = used.saturating_mul(100).checked_div(most)?;
        let what = format!("the server uses {percent} % of its `maxmemory`");
        let remedy = "raise `maxmemory`, or delete data that nobody needs: a server that is full refuses new tasks";
        match percent {
            100.. => Some(Diagnosis::error("redis.memory", what, remedy)),
            MIN_MEMORY_PERCENT.. => Some(Diagnosis::warn("redis.memory", what, remedy)),
            _ => None,
        }
    }

    fn idle_timeout(&self) -> Option<Diagnosis> {
        let timeout = self.setting("timeout").filter(|it| *it != "0")?;
        Some(Diagnosis::warn(
            "redis.timeout",
            format!("the server closes connections that are idle for {timeout} s"),
            "set `timeout 0`",
        ))
    }

    fn connections(&self, clients: u64) -> Option<Diagnosis> {
        let most = self.number("maxclients")?;
        // Each client has two connections.
        let needed = self
            .number("connected_clients")?
            .saturating_add(clients.saturating_mul(2));
        (needed.saturating_mul(10) > most.saturating_mul(9)).then(|| {
            Diagnosis::warn(
                "redis.connections",
                format!("{needed} connections are open or needed, and the server accepts {most}"),
                "raise `maxclients`, and the limit of open files of the server",
            )
        })
    }

    /// A server that reports itself as busy refuses the requests of all clients until the script ends. Since version 7.0, servers
    /// accept both names of the setting.
    fn script_limit(&self) -> Option<Diagnosis> {
        let limit = self.setting("busy-reply-threshold");
        let limit = limit.or_else(|| self.setting("lua-time-limit"))?;
        let limit = limit.parse().ok().map(Duration::from_millis)?;
        // Zero means that the server never reports itself as busy.
        (!limit.is_zero() && limit < MIN_SCRIPT_LIMIT).then(|| {
            Diagnosis::warn(
                "redis.script_limit",
                format!("once a script has run for {}, the server refuses the requests of other clients until the script ends", short(limit)),
                "raise `lua-time-limit` to at least 1000 ms; the default is 5000 ms",
            )
        })
    }

    fn message_buffer(&self) -> Option<Diagnosis> {
        let limits = self.setting("client-output-buffer-limit")?.split(' ');
        let limits = limits.skip_while(|word| *word != "pubsub").skip(1).take(2);
        // A limit of 0 means that there is no limit.
        let limits = limits.filter_map(|it| it.parse().ok()).filter(|it| *it > 0);
        let least: u64 = limits.min()?;
        (least < MIN_MESSAGE_BUFFER).then(|| {
            Diagnosis::warn(
                "redis.message_buffer",
                format!("the server closes the connection of a worker that has not read {} KiB of messages", least >> 10),
                "raise `client-output-buffer-limit`: the default is `pubsub 33554432 8388608 60`",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use throng::durable::FindingLevel;

    use super::*;

    fn facts(info: &[(&str, &str)], settings: &[(&str, &str)]) -> ServerFacts {
        let map = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect()
        };
        ServerFacts {
            info: map(info),
            settings: map(settings),
        }
    }

    fn ids(facts: &ServerFacts, clients: u64) -> Vec<&'static str> {
        facts.examine(clients).iter().map(|it| it.id).collect()
    }

    #[test]
    fn a_healthy_server_has_no_findings() {
        let info = [
            ("loading", "0"),
            ("used_memory", "80"),
            ("maxmemory", "100"),
            ("connected_clients", "2"),
            ("maxclients", "10000"),
            ("aof_last_write_status", "ok"),
        ];
        let buffers = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        let settings = [("timeout", "0"), ("client-output-buffer-limit", buffers)];
        assert_eq!(ids(&facts(&info, &settings), 100), Vec::<&str>::new());
        for limit in ["0", "1000", "5000"] {
            let settings = [("lua-time-limit", limit)];
            assert_eq!(ids(&facts(&info, &settings), 100), Vec::<&str>::new());
        }
    }

    #[test]
    fn each_fault_of_a_server_has_a_finding() {
        let info = [
            ("loading", "1"),
            ("used_memory", "81"),
            ("maxmemory", "100"),
            ("connected_clients", "2"),
            ("maxclients", "100"),
            ("rdb_last_bgsave_status", "err"),
        ];
        let buffers = "normal 0 0 0 slave 1 1 60 pubsub 0 65536 60";
        let settings = [
            ("timeout", "300"),
            ("client-output-buffer-limit", buffers),
            ("busy-reply-threshold", "999"),
        ];
        let expected = [
            "redis.loading",
            "redis.writes",
            "redis.memory",
            "redis.timeout",
            "redis.connections",
            "redis.message_buffer",
            "redis.script_limit",
        ];
        assert_eq!(ids(&facts(&info, &settings), 50), expected);
        assert_eq!(ids(&ServerFacts::default(), 50), Vec::<&str>::new());
    }

    #[test]
    fn a_script_that_takes_some_milliseconds_is_not_slow() {
        let times = |millis: &[u64]| millis.iter().copied().map(Duration::from_millis).collect();
        assert_eq!(slowest(times(&[11, 100])), None);
        let found = slowest(times(&[11, 150, 120])).unwrap();
        assert!(
            found.what.contains("2 slow scripts") && found.what.ends_with("150ms"),
            "{}",
            found.what
        );
    }

    #[test]
    fn a_slow_connection_is_reported() {
        assert_eq!(slow_trip(SLOW_TRIP), None);
        let found = slow_trip(Duration::from_millis(11)).unwrap();
        assert_eq!(found.what, "a request takes 11ms");
    }

    /// The texts are those of Redis 7.
    #[test]
    fn huge_pages_are_reported() {
        let silent = "Dave, no latency spike was observed during the lifetime of this Redis instance, not in the slightest bit.";
        assert_eq!(huge_pages(silent), None);
        let advice = "- I detected a non zero amount of anonymous huge pages used by your process.";
        assert!(huge_pages(advice).is_some());
    }

    #[test]
    fn a_server_is_full_when_it_has_reached_its_memory_limit() {
        let level = |used, most| {
            let facts = facts(&[("used_memory", used), ("maxmemory", most)], &[]);
            facts.memory().map(|it| it.level)
        };
        assert_eq!(level("80", "100"), None);
        assert_eq!(level("99", "100"), Some(FindingLevel::Warn));
        assert_eq!(level("100", "100"), Some(FindingLevel::Error));
        // There is no limit.
        assert_eq!(level("5", "0"), None);
    }
}
