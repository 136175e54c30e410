//! The set of the namespaces that have a store on the server.

use redis::Value;

use super::inner::Inner;
use super::keys;
use super::reply::Reader;
use crate::durable::failure::{Cause, Failure};

/// Adds the namespace of a store to the set. If this fails, the next client that opens the store does so: the set is only a directory. In a
/// cluster, it is in a slot of its own, whose node may be down, so this does not try again.
pub(super) async fn record(inner: &Inner) {
    let mut command = redis::cmd("SADD");
    command.arg(keys::NAMESPACES).arg(&*inner.namespace);
    inner.nodes.send_once(keys::NAMESPACES, &command).await.ok();
}

/// Returns the namespaces in the set that still have a store, in order.
pub(super) async fn list(inner: &Inner) -> Result<Vec<String>, Failure> {
    let mut command = redis::cmd("SMEMBERS");
    command.arg(keys::NAMESPACES);
    let answer = inner.nodes.send(keys::NAMESPACES, &command).await;
    let mut found = Vec::new();
    for name in members(answer?)? {
        if exists(inner, &name).await? {
            found.push(name);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn members(answer: Value) -> Result<Vec<String>, Failure> {
    let answer = match answer {
        Value::Set(members) => Value::Array(members),
        other => other,
    };
    Reader::new(answer)?.rest(Reader::text)
}

async fn exists(inner: &Inner, namespace: &str) -> Result<bool, Failure> {
    let mut command = redis::cmd("EXISTS");
    let meta = keys::key(&keys::base(namespace, 0), "META");
    command.arg(&meta);
    match inner.nodes.send(&meta, &command).await {
        Ok(answer) => Ok(answer != Value::Int(0)),
        Err(failure) if failure.cause == Cause::Unavailable => Err(failure),
        // The user may lack the permission.
        Err(_) => Ok(true),
    }
}
