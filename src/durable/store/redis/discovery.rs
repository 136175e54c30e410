//! Finds out whether a server belongs to a cluster, and which nodes of the cluster own its slots.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::cluster_slots::SlotOwners;
use super::connector::Connector;
use super::error::{Fault, is_unreachable, no_connection, unexpected_answer};
use super::node::{Node, NodeSettings};
use crate::durable::failure::{Cause, Effect, Failure};

/// Connects to the first of these servers that answers. Returns its index, too.
pub(super) async fn first_that_answers(
    settings: &NodeSettings,
    given: &[Connector],
) -> Result<(usize, Node), Failure> {
    let mut last = no_connection();
    for (nth, connector) in given.iter().enumerate() {
        let node = settings.connect(connector);
        match node.link.connected().await {
            Ok(()) => return Ok((nth, node)),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

/// Returns `true` if a server says that it belongs to a cluster. Every user may ask for that: no permission is needed for `HELLO`. If the
/// connection breaks, asks again for at most this time.
pub(super) async fn belongs_to_cluster(node: &Node, time: Duration) -> Result<bool, Failure> {
    let end = Instant::now() + time;
    let answer = loop {
        match node.link.send(&redis::cmd("HELLO")).await {
            Ok(answer) => break answer,
            Err(Fault::Final(failure)) if is_unreachable(&failure) => return Err(failure),
            Err(Fault::Final(failure)) if !failure.by_store => {
                if Instant::now() >= end {
                    return Err(failure.without_effect());
                }
            }
            Err(_) => return Ok(false),
        }
    };
    let fields = match answer {
        Value::Map(fields) => fields,
        Value::Array(parts) => {
            let (pairs, _) = parts.as_chunks::<2>();
            pairs
                .iter()
                .cloned()
                .map(|[name, value]| (name, value))
                .collect()
        }
        _ => return Ok(false),
    };
    let is_mode =
        |(name, value): &(Value, Value)| is_text(name, "mode") && is_text(value, "cluster");
    Ok(fields.iter().any(is_mode))
}

/// Refuses a namespace with a brace: the text from the first `{` to the first `}` of a key determines its slot.
pub(super) fn refuse_braces(bases: &[String]) -> Result<(), Failure> {
    match bases.iter().any(|base| base.matches('}').count() > 1) {
        false => Ok(()),
        true => {
            let what = "in a cluster, a namespace cannot contain the brace `}`, since its keys would be in other slots";
            Err(Failure::new(Effect::None, Cause::Invalid(what.into())))
        }
    }
}

fn is_text(value: &Value, text: &str) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == text.as_bytes(),
        Value::SimpleString(found) => found == text,
        _ => false,
    }
}

/// Asks a node for the owners of all slots.
pub(super) async fn read_map(node: &Node) -> Result<SlotOwners, Failure> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let answer = node.link.send(&command).await;
    let answer = answer.map_err(Fault::into_failure)?;
    let owners = SlotOwners::parse(&answer, &node.host);
    owners.ok_or_else(|| unexpected_answer(&answer))
}
