//! Translates Redis's errors for the engine.

use redis::{ErrorKind, RedisError, Value};

use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::layouts::Layouts;

/// An error, classified by what to do about it.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server does not have the script, which must be sent as text.
    NoScript,
    /// The server is not ready. The request had no effect, and can be sent again later.
    Wait(Failure),
    /// The connection is no longer usable.
    Broken(Failure),
    /// Another node of the cluster has the keys. The request had no effect here. The failure is that of a store that cannot follow.
    Elsewhere(Redirection, Failure),
    /// Another attempt changes nothing.
    Final(Failure),
}

/// The answer of a cluster node that does not have the keys of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirection {
    /// The address of the other node: see [`redirected_to`](super::cluster_slots::redirected_to).
    pub(super) address: String,
    /// `true` if the slot is being moved to the other node, which takes only requests that follow `ASKING`.
    pub(super) is_asking: bool,
}

impl Fault {
    fn reported_by_store(self) -> Self {
        match self {
            Self::NoScript => Self::NoScript,
            Self::Wait(failure) => Self::Wait(failure.reported_by_store()),
            Self::Broken(failure) => Self::Broken(failure.reported_by_store()),
            Self::Elsewhere(to, failure) => Self::Elsewhere(to, failure.reported_by_store()),
            Self::Final(failure) => Self::Final(failure.reported_by_store()),
        }
    }

    /// Returns the fault of a request that was not sent because another one, which must precede it, had this fault.
    pub(super) fn not_sent(self) -> Self {
        match self {
            Self::NoScript => Self::NoScript,
            Self::Wait(failure) => Self::Wait(failure.without_effect()),
            Self::Broken(failure) => Self::Broken(failure.without_effect()),
            Self::Elsewhere(to, failure) => Self::Elsewhere(to, failure.without_effect()),
            Self::Final(failure) => Self::Final(failure.without_effect()),
        }
    }

    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::NoScript => no_connection(),
            Self::Wait(failure) | Self::Broken(failure) => failure,
            Self::Elsewhere(_, failure) | Self::Final(failure) => failure,
        }
    }
}

/// Returns `true` if a server cannot be reached or is not ready, and the request had no effect.
pub(super) fn is_unreachable(failure: &Failure) -> bool {
    let is_unready = matches!(failure.cause, Cause::Unavailable | Cause::Busy);
    failure.effect == Effect::None && is_unready && !failure.answered
}

/// Classifies an error.
pub(super) fn fault(error: RedisError) -> Fault {
    match error.code().map(str::to_owned) {
        Some(code) => classify(code, error).reported_by_store(),
        None => Fault::Broken(no_answer().with_source(error)),
    }
}

/// Classifies an answer that is an error.
fn classify(code: String, error: RedisError) -> Fault {
    let text = error.detail().unwrap_or_default();
    match &*code {
        // The script reports whether it had an effect before a command failed.
        "UNDONE" => refused(&first_word(text), Effect::None, true, error),
        "PARTIAL" => partial(&first_word(text), error),
        _ => {
            // An error in the middle of a script, which is not rolled back.
            let within = within_script(text).map(str::to_owned);
            let is_within = within.is_some() || text.contains("script: ");
            let effect = match is_within {
                true => Effect::Unknown,
                false => Effect::None,
            };
            refused(&within.unwrap_or(code), effect, is_within, error)
        }
    }
}

/// Classifies an error with this effect. `is_answer` is `true` if a script has returned it; another attempt then has the
/// same result.
fn refused(code: &str, effect: Effect, is_answer: bool, error: RedisError) -> Fault {
    let text = error.detail().unwrap_or_default();
    match code {
        "NOSCRIPT" => return Fault::NoScript,
        "NOSESSION" => return Fault::Final(Failure::new(Effect::None, Cause::NoSession)),
        "LAYOUT" => return Fault::Final(unknown_layout(text)),
        "PARTITIONS" => {
            let what = format!("it has {text} partitions: open it with `partitions({text})`");
            return Fault::Final(Failure::new(Effect::None, Cause::Unfit(what)));
        }
        "NOSTORE" => {
            let what = "there is no store in this namespace: check the database and the namespace (`throng namespaces` lists the namespaces of a server), or start a program that creates the store with `open`";
            return Fault::Final(Failure::new(Effect::None, Cause::Invalid(what.into())));
        }
        "UNREADABLE" => return Fault::Final(unreadable(text)),
        "MOVED" => return Fault::Elsewhere(redirection(text, false), moved(text)),
        "ASK" => {
            let to = redirection(text, true);
            return Fault::Elsewhere(to, without_effect(Cause::Unavailable, error));
        }
        // These errors refuse the first write of a script, or none, so there is no effect. A node answers `TRYAGAIN` while it moves a
        // slot to another node, and has only some of the keys.
        "LOADING" | "TRYAGAIN" | "CLUSTERDOWN" | "NOREPLICAS" | "MISCONF" | "BUSY" => {
            return Fault::Wait(without_effect(cause_of(code, text), error));
        }
        "READONLY" | "MASTERDOWN" | "NOAUTH" => {
            return Fault::Broken(without_effect(cause_of(code, text), error));
        }
        "OOM" => return Fault::Final(without_effect(Cause::Full, error)),
        _ => {}
    }
    let failure = Failure::new(effect, cause_of(code, text)).with_source(error);
    Fault::Final(match is_answer {
        true => failure.answered(),
        false => failure,
    })
}

/// Classifies an error after which a part of a request has taken effect.
fn partial(code: &str, error: RedisError) -> Fault {
    let cause = cause_of(code, error.detail().unwrap_or_default());
    let failure = Failure::new(Effect::Unknown, cause).with_source(error);
    Fault::Final(failure.answered())
}

fn cause_of(code: &str, text: &str) -> Cause {
    match code {
        "BUSY" => Cause::Busy,
        "READONLY" => Cause::ReadOnly,
        "OOM" => Cause::Full,
        "NOAUTH" | "NOPERM" | "WRONGPASS" => Cause::Denied,
        "WRONGTYPE" => Cause::Corrupt,
        // Redis 7 reports a forbidden command in a script with another text.
        _ if text.contains("user executing the script") || text.contains("ACL failure") => {
            Cause::Denied
        }
        _ => Cause::Unavailable,
    }
}

fn first_word(text: &str) -> String {
    let word = text.split_whitespace().next();
    word.unwrap_or_default().to_owned()
}

/// Returns the code of an error in the middle of a script, which Redis 6.2 reports after the position in the script.
/// Later versions report the code first.
fn within_script(text: &str) -> Option<&str> {
    let (_, position) = text
        .strip_prefix("Error running script")?
        .rsplit_once("@user_script:")?;
    let (_, error) = position.split_once(": ")?;
    error.trim_start_matches('-').split(' ').next()
}

/// Returns the failure of an attempt to connect.
pub(super) fn not_connected(error: RedisError) -> Failure {
    let cause = match error.kind() {
        _ if is_denied(&error) => Cause::Denied,
        ErrorKind::InvalidClientConfig => Cause::Invalid(String::from(ADDRESSES)),
        _ if error.to_string().contains("refused to switch database") => no_database(&error),
        _ => Cause::Unavailable,
    };
    without_effect(cause, error)
}

/// Returns `true` if the login is wrong, or if its user lacks a permission.
pub(super) fn is_denied(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
}

/// Returns the failure of a store whose address is not valid. The text names the remedy.
pub(super) fn invalid_address(text: String) -> Failure {
    Failure::new(Effect::None, Cause::Invalid(text))
}

/// The forms of valid addresses.
const ADDRESSES: &str = "use redis://user:password@host:port/database, the same with rediss:// for TLS \
                         (feature `redis-tls`), redis+unix:///path, or redis-sentinel://host:port,host:port/name";

/// Returns the cause if a server refuses to switch to a database.
fn no_database(error: &RedisError) -> Cause {
    let text = error.to_string();
    if text.contains("unknown command") {
        return is_sentinel();
    }
    let instead = match text.contains("cluster mode") {
        true => "a node of a cluster has only database 0",
        false => "the server has no database of this number",
    };
    Cause::Invalid(String::from(instead))
}

/// Returns the cause if the server is a Sentinel.
pub(super) fn is_sentinel() -> Cause {
    Cause::Unfit(String::from(
        "it is a Sentinel, which only watches servers: open the store of the primary that it knows, with \
         `RedisStore::sentinel` or the URL redis-sentinel://host:port/name",
    ))
}

/// Reads the text of a redirection: the slot, and the address of the node.
fn redirection(text: &str, is_asking: bool) -> Redirection {
    let address = text.split_whitespace().nth(1).unwrap_or_default();
    Redirection {
        address: address.to_owned(),
        is_asking,
    }
}

/// Returns the failure of a request to a cluster node that does not own the slot of its keys. A store follows such redirections unless it
/// was not told that the server belongs to a cluster.
fn moved(text: &str) -> Failure {
    let mut words = text.split_whitespace();
    let (slot, node) = (words.next().unwrap_or("?"), words.next().unwrap_or("?"));
    let what = format!(
        "it is a cluster node, and the cluster slot {slot}, which has the keys of this store, belongs to \
         another node, {node}: permit the command `CLUSTER SLOTS` to the user, so that the store finds the nodes"
    );
    Failure::new(Effect::None, Cause::Unfit(what))
}

/// Returns the failure of a request that was not sent because there is no connection.
pub(super) fn no_connection() -> Failure {
    Failure::new(Effect::None, Cause::Unavailable)
}

/// Returns the failure of a request that was not sent, since the Sentinels name another server.
pub(super) fn replaced() -> Failure {
    let what = "the Sentinels name another primary";
    no_connection().with_source(std::io::Error::other(what))
}

/// Returns the failure of a request that was sent but not answered.
pub(super) fn no_answer() -> Failure {
    Failure::new(Effect::Unknown, Cause::Unavailable)
}

/// Returns the failure of a request whose answer has an unexpected form.
pub(super) fn unexpected_answer(found: &Value) -> Failure {
    let text = format!("{found:?}");
    let shown: String = text.chars().take(100).collect();
    let error = std::io::Error::other(format!(
        "the answer of Redis has an unexpected form: {shown}"
    ));
    Failure::new(Effect::Unknown, Cause::Corrupt)
        .with_source(error)
        .reported_by_store()
}

/// Returns the failure of a request that may have had an effect.
pub(super) fn with_unknown_effect(mut failure: Failure) -> Failure {
    failure.effect = Effect::Unknown;
    failure
}

fn without_effect(cause: Cause, error: RedisError) -> Failure {
    Failure::new(Effect::None, cause).with_source(error)
}

/// Returns the failure to open a store whose layout or number of partitions is unreadable.
fn unreadable(text: &str) -> Failure {
    let (field, key) = text.split_once(' ').unwrap_or((text, "its key `meta`"));
    let value = match field {
        "layout" => {
            let newest = Layouts::KNOWN.newest;
            format!("{newest}, if this version of throng has created the store")
        }
        _ => String::from("the number of partitions with which the store was created"),
    };
    let what = format!("the field `{field}` of {key} is not a number: set it to {value}");
    Failure::new(Effect::None, Cause::Corrupt).with_source(std::io::Error::other(what))
}

/// Returns the failure of a request to a store whose layout is unknown. The text contains this layout and the newest known
/// one.
fn unknown_layout(text: &str) -> Failure {
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    let (found, known) = (next().unwrap_or(i64::MAX), next().unwrap_or_default());
    let cause = match found < known {
        true => Cause::OlderLayout { found, known },
        false => Cause::NewerLayout { found, known },
    };
    Failure::new(Effect::None, cause)
}
