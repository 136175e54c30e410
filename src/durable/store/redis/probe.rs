//! Determines the kind of a server, and how durable its writes are.

use std::fmt;

use redis::Value;

use super::error::{Fault, is_sentinel, no_connection};
use super::inner::Inner;
use super::link::Link;
use super::subscriber::Subscription;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::{Durability, Finding, FindingLevel};

/// The properties of a server, as far as its user may read them. [`RedisStore::report`](crate::durable::RedisStore::report)
/// returns one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisReport {
    /// The failures that a stored task survives.
    pub durability: Durability,
    /// The version of Redis. For Valkey, the version of Redis with which it is compatible.
    pub version: Option<String>,
    /// `true` if the server is a primary, which accepts writes, or `false` if it is a replica.
    pub is_primary: Option<bool>,
    /// `true` if the server writes to a file: its setting `appendonly`.
    pub append_only: Option<bool>,
    /// When this file is synchronized to the disk: the setting `appendfsync`.
    pub append_fsync: Option<String>,
    /// The setting `maxmemory-policy`: the server's reaction when its memory is full.
    pub eviction: Option<String>,
    /// `true` if this process receives messages, which announce work at once. Otherwise, for instance because the user may
    /// not publish and subscribe, workers poll.
    pub is_subscribed: bool,
}

impl RedisReport {
    /// Returns what is wrong with the server, as far as its properties are known.
    fn findings(&self) -> Vec<Finding> {
        let findings = [
            self.durability_finding(),
            self.eviction_finding(),
            self.replica_finding(),
            self.settings_finding(),
        ];
        findings.into_iter().flatten().collect()
    }

    fn durability_finding(&self) -> Option<Finding> {
        let (level, what, remedy) = match self.durability {
            Durability::Memory => (
                FindingLevel::Warn,
                "the server writes nothing to its disk, so a restart loses all tasks",
                "set `appendonly` to `yes`",
            ),
            Durability::Buffered => (
                FindingLevel::Info,
                "a server that is killed loses up to two seconds of acknowledged writes",
                "set `appendfsync` to `always` if that is too much",
            ),
            Durability::Process => (
                FindingLevel::Info,
                "a power failure loses acknowledged writes while the server rewrites its file",
                "set `no-appendfsync-on-rewrite` to `no`",
            ),
            Durability::Unknown | Durability::Synced => return None,
        };
        let what = String::from(what);
        Some(Finding::new("redis.durability", level, what, remedy))
    }

    fn eviction_finding(&self) -> Option<Finding> {
        let policy = self.eviction.as_deref()?;
        let finding = || {
            Finding::new(
                "redis.eviction",
                FindingLevel::Error,
                format!(
                    "the server evicts tasks when its memory is full: its `maxmemory-policy` is {policy:?}"
                ),
                "set `maxmemory-policy` to `noeviction`",
            )
        };
        policy.starts_with("allkeys-").then(finding)
    }

    fn replica_finding(&self) -> Option<Finding> {
        let finding = || {
            Finding::new(
                "redis.replica",
                FindingLevel::Warn,
                String::from("the server is a replica, which accepts no writes and may be behind"),
                "open the store at the primary, unless this is intended",
            )
        };
        (self.is_primary == Some(false)).then(finding)
    }

    fn settings_finding(&self) -> Option<Finding> {
        let unknown = [
            (self.version.is_none(), "INFO"),
            (self.eviction.is_none(), "CONFIG GET"),
        ];
        let unknown = unknown.into_iter().filter(|(is_unknown, _)| *is_unknown);
        let commands: Vec<_> = unknown.map(|(_, command)| command).collect();
        let finding = || {
            Finding::new(
                "redis.settings",
                FindingLevel::Info,
                format!(
                    "the user may not run {}, so this report does not check the server",
                    commands.join(" or ")
                ),
                "permit these commands to the user",
            )
        };
        (!commands.is_empty()).then(finding)
    }
}

/// Returns what is wrong with the server, and with the connection to it.
pub(super) async fn findings(inner: &Inner) -> Result<Vec<Finding>, Failure> {
    let mut findings = report(inner).await?.findings();
    // An observer does not subscribe.
    if inner.nodes.subscription() == Subscription::Inactive {
        findings.push(Finding::new(
            "redis.messages",
            FindingLevel::Warn,
            String::from("this process receives no messages from the server, so its workers poll for tasks twice a second"),
            "check that the user may publish and subscribe on the channels `throng:*`",
        ));
    }
    Ok(findings)
}

impl fmt::Display for RedisReport {
    /// Writes the report on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_unknown = |text: &Option<String>| text.as_deref().unwrap_or("unknown").to_owned();
        let yes_or_no = |is: Option<bool>| match is {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        write!(
            f,
            "durability {:?}, version {}, primary {}, appendonly {}, appendfsync {}, eviction {}, subscribed {}",
            self.durability,
            or_unknown(&self.version),
            yes_or_no(self.is_primary),
            yes_or_no(self.append_only),
            or_unknown(&self.append_fsync),
            or_unknown(&self.eviction),
            yes_or_no(Some(self.is_subscribed)),
        )
    }
}

/// Asks the server for its properties. In a cluster, these are the ones of the least durable of the nodes that have partitions.
pub(super) async fn report(inner: &Inner) -> Result<RedisReport, Failure> {
    let mut least: Option<RedisReport> = None;
    for node in inner.nodes.owners() {
        let found = report_of(inner, &node.link).await?;
        least = match least {
            Some(least) if least.durability <= found.durability => Some(least),
            _ => Some(found),
        };
    }
    least.ok_or_else(no_connection)
}

async fn report_of(inner: &Inner, link: &Link) -> Result<RedisReport, Failure> {
    let append_only = setting(link, "appendonly").await?;
    let append_fsync = setting(link, "appendfsync").await?;
    let pauses = setting(link, "no-appendfsync-on-rewrite").await?;
    let role = info(link, "replication", "role").await?;
    let found = durability(
        append_only.as_deref(),
        append_fsync.as_deref(),
        pauses.as_deref(),
    );
    Ok(RedisReport {
        durability: match inner.waits_for_disk() && append_only.as_deref() == Some("yes") {
            true => Durability::Synced,
            false => found,
        },
        version: info(link, "server", "redis_version").await?,
        is_primary: role.map(|role| role == "master"),
        append_only: append_only.map(|value| value == "yes"),
        append_fsync,
        eviction: setting(link, "maxmemory-policy").await?,
        is_subscribed: inner.is_subscribed(),
    })
}

/// Returns how durable an acknowledged write is.
fn durability(
    append_only: Option<&str>,
    append_fsync: Option<&str>,
    pauses: Option<&str>,
) -> Durability {
    match (append_only, append_fsync, pauses) {
        (Some("yes"), Some("always"), Some("no")) => Durability::Synced,
        // The server writes before it answers, but does not synchronize while it rewrites the file.
        (Some("yes"), Some("always"), Some("yes")) => Durability::Process,
        // While the disk is busy, Redis answers before it writes.
        (Some("yes"), Some("always" | "everysec"), _) => Durability::Buffered,
        (Some("yes") | None, ..) => Durability::Unknown,
        _ => Durability::Memory,
    }
}

/// Refuses a server that would lose tasks by design, or that cannot run the scripts.
pub(super) async fn refuse_unfit(inner: &Inner, allow_eviction: bool) -> Result<(), Failure> {
    // Messages of a cluster slot need 7.0.
    let oldest = if inner.nodes.is_cluster() {
        (7, 0)
    } else {
        (6, 2)
    };
    for node in inner.nodes.owners() {
        refuse_unfit_server(&node.link, oldest, allow_eviction).await?;
    }
    Ok(())
}

async fn refuse_unfit_server(
    link: &Link,
    oldest: (u32, u32),
    allow_eviction: bool,
) -> Result<(), Failure> {
    if info(link, "server", "redis_mode").await?.as_deref() == Some("sentinel") {
        return Err(Failure::new(Effect::None, is_sentinel()));
    }
    if let Some(version) = info(link, "server", "redis_version").await?
        && !is_at_least(&version, oldest)
    {
        let (major, minor) = oldest;
        let what = format!(
            "its version is {version}, and the oldest supported one is {major}.{minor}: update it"
        );
        return Err(unfit(what));
    }
    let policy = setting(link, "maxmemory-policy").await?;
    let policy = policy.unwrap_or_default();
    if policy.starts_with("allkeys-") && !allow_eviction {
        let what = format!(
            "it evicts tasks when it is full: set maxmemory-policy to noeviction instead of {policy}"
        );
        return Err(unfit(what));
    }
    Ok(())
}

/// Refuses a server that has fewer replicas than must have each write. If the user may not run `INFO`, their number is unknown.
pub(super) async fn refuse_few_replicas(inner: &Inner) -> Result<(), Failure> {
    if inner.replicas == 0 {
        return Ok(());
    }
    for node in inner.nodes.owners() {
        let found = info(&node.link, "replication", "connected_slaves").await?;
        let found = found.and_then(|found| found.parse::<usize>().ok());
        if let Some(found) = found.filter(|&found| found < inner.replicas) {
            return Err(unfit(format!(
                "it has {found} replicas, and `wait_for_replicas({})` needs more: start them, or reduce the number",
                inner.replicas
            )));
        }
    }
    Ok(())
}

/// Returns `true` if the server can wait until a write is on its disk, or `false` if it always does. Refuses other
/// servers.
pub(super) async fn can_wait_for_disk(inner: &Inner) -> Result<bool, Failure> {
    let mut can_wait = false;
    for node in inner.nodes.owners() {
        can_wait |= can_server_wait(&node.link).await?;
    }
    Ok(can_wait)
}

async fn can_server_wait(link: &Link) -> Result<bool, Failure> {
    if setting(link, "appendonly").await?.as_deref() == Some("no") {
        let what = "it writes nothing to its disk: set appendonly to yes";
        return Err(unfit(String::from(what)));
    }
    let append_fsync = setting(link, "appendfsync").await?;
    if append_fsync.as_deref() == Some("no") {
        let what =
            "it lets the system decide when to write: set appendfsync to always, or everysec";
        return Err(unfit(String::from(what)));
    }
    let mut command = redis::cmd("WAITAOF");
    command.arg(0).arg(0).arg(1);
    match link.send(&command).await.map_err(Fault::into_failure) {
        Ok(_) => return Ok(true),
        Err(failure) if failure.to_string().contains("unknown command") => {}
        Err(failure) => return Err(failure),
    }
    let pauses = setting(link, "no-appendfsync-on-rewrite").await?;
    match durability(Some("yes"), append_fsync.as_deref(), pauses.as_deref()) {
        Durability::Synced => Ok(false),
        _ => Err(unfit(String::from(
            "it cannot wait until a write is on its disk, as Redis 7.2 and later can: update it, or set \
             appendfsync to always",
        ))),
    }
}

fn unfit(what: String) -> Failure {
    Failure::new(Effect::None, Cause::Unfit(what))
}

/// Returns a setting of the server, or `None` if the user may not read it.
async fn setting(link: &Link, name: &str) -> Result<Option<String>, Failure> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(name);
    match ask(link, &command).await? {
        Some(Value::Array(pair)) => Ok(pair.get(1).and_then(text)),
        _ => Ok(None),
    }
}

/// Returns a value of `INFO`, or `None` if the user may not read it.
async fn info(link: &Link, section: &str, name: &str) -> Result<Option<String>, Failure> {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    let answer = ask(link, &command).await?;
    let lines = answer.as_ref().and_then(text).unwrap_or_default();
    let lines = lines.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(key, _)| *key == name);
    Ok(found.next().map(|(_, value)| value.trim().to_owned()))
}

/// Returns the answer to a command, or `None` if the command is not permitted or unknown.
async fn ask(link: &Link, command: &redis::Cmd) -> Result<Option<Value>, Failure> {
    match link.send(command).await {
        Ok(answer) => Ok(Some(answer)),
        Err(Fault::Final(failure))
            if failure.effect == Effect::None && failure.cause != Cause::Unavailable =>
        {
            Ok(None)
        }
        Err(fault) => Err(fault.into_failure()),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

fn is_at_least(version: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= wanted
}
