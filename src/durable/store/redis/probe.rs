//! What kind of server it is, and how durable its writes are.

use redis::Value;

use super::Inner;
use super::error::Fault;
use crate::durable::Durability;
use crate::durable::error::{Cause, Effect, Failure};

/// Refuses a server that would lose tasks by design, or that lacks what the scripts need.
pub(super) async fn refuse_unfit(inner: &Inner, allow_eviction: bool) -> Result<(), Failure> {
    if let Some(version) = info(inner, "server", "redis_version").await?
        && !is_at_least(&version, (6, 2))
    {
        let what =
            format!("its version is {version}, and 6.2 is the oldest that will do: update it");
        return Err(unfit(what));
    }
    let policy = setting(inner, "maxmemory-policy").await?;
    let policy = policy.unwrap_or_default();
    if policy.starts_with("allkeys-") && !allow_eviction {
        let what = format!(
            "it removes tasks when it is full: set maxmemory-policy to noeviction, not {policy}"
        );
        return Err(unfit(what));
    }
    Ok(())
}

/// How durable a write is that the server has answered.
pub(super) async fn durability(inner: &Inner) -> Result<Durability, Failure> {
    let Some(appends) = setting(inner, "appendonly").await? else {
        return Ok(Durability::Unknown);
    };
    let when = setting(inner, "appendfsync").await?.unwrap_or_default();
    let pauses = setting(inner, "no-appendfsync-on-rewrite").await?;
    Ok(match (&*appends, &*when) {
        ("yes", "always") if pauses.as_deref() == Some("no") => Durability::Synced,
        ("yes", "always" | "everysec") => Durability::Delayed,
        ("yes", _) => Durability::Unknown,
        _ => Durability::Memory,
    })
}

fn unfit(what: String) -> Failure {
    Failure::new(Effect::None, Cause::Unfit(what))
}

/// A setting of the server. Nothing if it may not be asked for.
async fn setting(inner: &Inner, name: &str) -> Result<Option<String>, Failure> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(name);
    match ask(inner, &command).await? {
        Some(Value::Array(pair)) => Ok(pair.get(1).and_then(text)),
        _ => Ok(None),
    }
}

/// A line of what the server says of itself. Nothing if it may not be asked for.
async fn info(inner: &Inner, section: &str, name: &str) -> Result<Option<String>, Failure> {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    let answer = ask(inner, &command).await?;
    let lines = answer.as_ref().and_then(text).unwrap_or_default();
    let lines = lines.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(key, _)| *key == name);
    Ok(found.next().map(|(_, value)| value.trim().to_owned()))
}

/// The answer to a command, unless it is not allowed or not known.
async fn ask(inner: &Inner, command: &redis::Cmd) -> Result<Option<Value>, Failure> {
    match inner.link.send(command).await {
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
