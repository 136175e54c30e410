//! Translates Redis's errors for the engine.

use redis::{ErrorKind, RedisError, Value};

use super::keys::LAYOUT;
use crate::durable::failure::{Cause, Effect, Failure};

/// An error, by what is to be done about it.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server does not know the script, which must be sent as text.
    NoScript,
    /// The server will do it later. It has done nothing so far.
    Wait(Failure),
    /// The connection is no longer usable.
    Broken(Failure),
    /// Another attempt changes nothing.
    Final(Failure),
}

impl Fault {
    fn reported_by_store(self) -> Self {
        match self {
            Self::NoScript => Self::NoScript,
            Self::Wait(failure) => Self::Wait(failure.reported_by_store()),
            Self::Broken(failure) => Self::Broken(failure.reported_by_store()),
            Self::Final(failure) => Self::Final(failure.reported_by_store()),
        }
    }

    /// Returns the fault of a request that was not sent because what must come before it had this fault.
    pub(super) fn not_sent(self) -> Self {
        match self {
            Self::NoScript => Self::NoScript,
            Self::Wait(failure) => Self::Wait(failure.without_effect()),
            Self::Broken(failure) => Self::Broken(failure.without_effect()),
            Self::Final(failure) => Self::Final(failure.without_effect()),
        }
    }

    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::NoScript => no_connection(),
            Self::Wait(failure) | Self::Broken(failure) | Self::Final(failure) => failure,
        }
    }
}

/// Returns the meaning of an error that came instead of an answer, or as an answer.
pub(super) fn fault(error: RedisError) -> Fault {
    match error.code().map(str::to_owned) {
        Some(code) => meaning(code, error).reported_by_store(),
        None => broken(error),
    }
}

/// Returns the meaning of an answer that is an error.
fn meaning(code: String, error: RedisError) -> Fault {
    let text = error.detail().unwrap_or_default();
    match &*code {
        // A script says whether it had an effect before a command failed.
        "UNDONE" => refused(&first_word(text), Effect::None, true, error),
        "HALF" => half(&first_word(text), error),
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

/// Returns the meaning of an error with this effect. If a script has answered it, another attempt changes
/// nothing.
fn refused(code: &str, effect: Effect, is_answer: bool, error: RedisError) -> Fault {
    let text = error.detail().unwrap_or_default();
    match code {
        "NOSCRIPT" => return Fault::NoScript,
        "NOSESSION" => return Fault::Final(Failure::new(Effect::None, Cause::NoSession)),
        "LAYOUT" => return Fault::Final(other_layout(text)),
        "PARTITIONS" => {
            let what = format!("it has {text} partitions: open it with the same number");
            return Fault::Final(Failure::new(Effect::None, Cause::Unfit(what)));
        }
        "GARBLED" => return Fault::Final(garbled(text)),
        "MOVED" => return Fault::Final(elsewhere(text)),
        // These errors refuse the first write of a script, or none, so there is no effect. A node answers
        // `ASK` and `TRYAGAIN` while it moves a slot to another node.
        "LOADING" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "NOREPLICAS" | "MISCONF" | "BUSY" => {
            return Fault::Wait(none(cause_of(code, text), error));
        }
        "READONLY" | "MASTERDOWN" | "NOAUTH" => {
            return Fault::Broken(none(cause_of(code, text), error));
        }
        "OOM" => return Fault::Final(none(Cause::Full, error)),
        _ => {}
    }
    let failure = Failure::new(effect, cause_of(code, text)).with_source(error);
    Fault::Final(match is_answer {
        true => failure.answered(),
        false => failure,
    })
}

/// Returns the meaning of an error after which a part of a request has taken effect.
fn half(code: &str, error: RedisError) -> Fault {
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
        // Redis 7 has another text for a command that a script may not run.
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

/// Returns the code of an error in the middle of a script, which Redis 6.2 reports behind the position in the script.
/// Later versions report the code first.
fn within_script(text: &str) -> Option<&str> {
    let (_, place) = text
        .strip_prefix("Error running script")?
        .rsplit_once("@user_script:")?;
    let (_, error) = place.split_once(": ")?;
    error.trim_start_matches('-').split(' ').next()
}

/// Returns the failure of an attempt to connect.
pub(super) fn not_connected(error: RedisError) -> Failure {
    let is_denied = error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    let cause = match error.kind() {
        _ if is_denied => Cause::Denied,
        ErrorKind::InvalidClientConfig => Cause::Invalid(String::from(ADDRESSES)),
        _ if error.to_string().contains("refused to switch database") => no_database(&error),
        _ => Cause::Unavailable,
    };
    none(cause, error)
}

/// The forms of valid addresses.
const ADDRESSES: &str = "use redis://user:password@host:port/database, the same with rediss:// for TLS \
                         (feature `redis-tls`), or redis+unix:///path";

/// Returns why a server refuses to switch to a database.
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

/// The cause if the server is a Sentinel.
pub(super) fn is_sentinel() -> Cause {
    Cause::Unfit(String::from(
        "it is a Sentinel, which only watches servers: ask it for the address of the primary (SENTINEL \
         GET-MASTER-ADDR-BY-NAME), and open the store there",
    ))
}

/// The failure of a request to a cluster node that does not own the slot of its keys.
fn elsewhere(text: &str) -> Failure {
    let mut words = text.split_whitespace();
    let (slot, node) = (words.next().unwrap_or("?"), words.next().unwrap_or("?"));
    let what = format!(
        "it is a cluster node, and slot {slot}, which has the keys of this store, belongs to another \
         node, {node}: open the store there"
    );
    Failure::new(Effect::None, Cause::Unfit(what))
}

/// The failure of a request that was not sent because there is no connection.
pub(super) fn no_connection() -> Failure {
    Failure::new(Effect::None, Cause::Unavailable)
}

/// The failure of a request that will never be answered.
pub(super) fn no_answer() -> Failure {
    Failure::new(Effect::Unknown, Cause::Unavailable)
}

/// The failure of a request whose answer has an unexpected form.
pub(super) fn nonsense(found: &Value) -> Failure {
    let text = format!("{found:?}");
    let shown: String = text.chars().take(100).collect();
    let error = std::io::Error::other(format!(
        "redis gives an answer that no script of throng returns: {shown}"
    ));
    Failure::new(Effect::Unknown, Cause::Corrupt)
        .with_source(error)
        .reported_by_store()
}

fn broken(error: RedisError) -> Fault {
    Fault::Broken(no_answer().with_source(error))
}

fn none(cause: Cause, error: RedisError) -> Failure {
    Failure::new(Effect::None, cause).with_source(error)
}

/// The failure of opening a store whose layout or number of partitions cannot be read.
fn garbled(text: &str) -> Failure {
    let (field, key) = text.split_once(' ').unwrap_or((text, "its key `meta`"));
    let value = match field {
        "layout" => format!("{LAYOUT}, if this version of throng has written the store"),
        _ => String::from("the number of partitions that the store was made with"),
    };
    let what = format!("the field `{field}` of {key} is not a number: set it to {value}");
    Failure::new(Effect::None, Cause::Corrupt).with_source(std::io::Error::other(what))
}

fn other_layout(found: &str) -> Failure {
    let found = found.split_whitespace().next();
    let found = found
        .and_then(|found| found.parse().ok())
        .unwrap_or(i64::MAX);
    let known = LAYOUT;
    let cause = match found < known {
        true => Cause::OlderLayout { found, known },
        false => Cause::NewerLayout { found, known },
    };
    Failure::new(Effect::None, cause)
}
