//! The scripts, by which everything is done that changes something: each runs as a whole, with nothing
//! between its steps.
//!
//! A script is put together of parts. The first two lines say which key is which, and some numbers; the
//! next what time it is: the server's, or, in tests, what the test says.

use std::fmt::Write;

use super::keys::{self, LAYOUT};
use super::reply::reason_number;
use crate::durable::clock::millis;
use crate::durable::store::{DEAD_RETENTION, DeadReason, MAX_BATCH, MAX_DEAD};

/// What time a script goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    Server,
    /// The last argument: in microseconds since 1970.
    #[cfg(test)]
    Told,
}

impl Time {
    fn part(self) -> &'static str {
        match self {
            Self::Server => include_str!("lua/server_time.lua"),
            #[cfg(test)]
            Self::Told => include_str!("lua/told_time.lua"),
        }
    }
}

/// A script: its text, by what Redis knows it, and the names of its keys, by partition.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) hash: String,
    pub(super) keys: Vec<Vec<String>>,
}

/// All scripts of a store.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) enqueue: Script,
    pub(super) turn: Script,
    pub(super) renew: Script,
    pub(super) status: Script,
    pub(super) cancel: Script,
    pub(super) open: Script,
    pub(super) close: Script,
    pub(super) dead_letters: Script,
    pub(super) revive: Script,
    pub(super) maintain: Script,
    pub(super) counts: Script,
}

const BASE: &str = include_str!("lua/base.lua");
const SESSION: &str = include_str!("lua/session.lua");
const WAKE: &str = include_str!("lua/wake.lua");
const ENDS: &str = include_str!("lua/ends.lua");
const ENTRY: &str = include_str!("lua/entry.lua");
const CLAIM: &str = include_str!("lua/claim.lua");
const REAP: &str = include_str!("lua/reap.lua");

impl Scripts {
    pub(super) fn new(bases: &[String], time: Time) -> Self {
        let make = |keys: &[&str], parts: &[&str]| Script::new(bases, time, keys, parts);
        let all = &keys::ALL;
        Self {
            enqueue: make(
                &[
                    "NONE", "META", "SESSIONS", "READY", "ALIVE", "PAYLOADS", "DELAYED", "DUE",
                    "RESULTS", "DEAD", "DIED", "IDLE",
                ],
                &[SESSION, WAKE, include_str!("lua/enqueue.lua")],
            ),
            turn: make(
                all,
                &[
                    SESSION,
                    WAKE,
                    ENTRY,
                    ENDS,
                    CLAIM,
                    REAP,
                    include_str!("lua/turn.lua"),
                ],
            ),
            renew: make(
                &["NONE", "META", "CLAIMS", "LEASE", "RUNNING", "CANCEL"],
                &[CLAIM, include_str!("lua/renew.lua")],
            ),
            status: make(
                &[
                    "NONE", "META", "ALIVE", "RUNNING", "DUE", "RESULTS", "DEAD", "DIED",
                    "WATCHERS",
                ],
                &[include_str!("lua/status.lua")],
            ),
            cancel: make(
                &[
                    "NONE",
                    "META",
                    "ALIVE",
                    "PAYLOADS",
                    "DELAYED",
                    "DUE",
                    "RUNNING",
                    "CLAIMS",
                    "LEASE",
                    "RESULTS",
                    "EXPIRY",
                    "EXPIRY_BINS",
                    "CANCEL",
                    "TOMBSTONES",
                    "QUARANTINED",
                    "WATCHERS",
                ],
                &[ENTRY, ENDS, include_str!("lua/cancel.lua")],
            ),
            open: make(
                all,
                &[
                    SESSION,
                    ENTRY,
                    ENDS,
                    CLAIM,
                    REAP,
                    include_str!("lua/open.lua"),
                ],
            ),
            close: make(
                all,
                &[
                    SESSION,
                    WAKE,
                    ENTRY,
                    ENDS,
                    CLAIM,
                    REAP,
                    include_str!("lua/close.lua"),
                ],
            ),
            dead_letters: make(
                &["NONE", "META", "DEAD", "DIED"],
                &[ENTRY, include_str!("lua/dead_letters.lua")],
            ),
            revive: make(
                &[
                    "NONE", "META", "READY", "ALIVE", "PAYLOADS", "LEASE", "DEAD", "DIED", "IDLE",
                ],
                &[WAKE, include_str!("lua/revive.lua")],
            ),
            maintain: make(
                &[
                    "NONE",
                    "META",
                    "SESSIONS",
                    "PAYLOADS",
                    "CLAIMS",
                    "LEASE",
                    "RESULTS",
                    "EXPIRY",
                    "EXPIRY_BINS",
                    "DEAD",
                    "DIED",
                    "IDLE",
                ],
                &[CLAIM, include_str!("lua/maintain.lua")],
            ),
            counts: make(
                &["NONE", "META", "READY", "DUE", "RUNNING", "RESULTS", "DIED"],
                &[include_str!("lua/counts.lua")],
            ),
        }
    }
}

impl Script {
    fn new(bases: &[String], time: Time, keys: &[&str], parts: &[&str]) -> Self {
        let mut text = head(keys);
        for part in [time.part(), BASE].iter().chain(parts) {
            text.push_str(part);
        }
        Self {
            hash: redis::Script::new(&text).get_hash().to_owned(),
            text,
            keys: bases
                .iter()
                .map(|base| keys.iter().map(|name| keys::key(base, name)).collect())
                .collect(),
        }
    }
}

/// The lines that say which key is which, and some numbers.
fn head(keys: &[&str]) -> String {
    let mut head = format!("local {} = unpack(KEYS)\n", keys.join(", "));
    let numbers = [
        ("LAYOUT", LAYOUT as u64),
        ("MAX_BATCH", MAX_BATCH as u64),
        ("MAX_DEAD", MAX_DEAD),
        ("DEAD_RETENTION", millis(DEAD_RETENTION)),
        ("CRASHES", reason_number(DeadReason::Crashes).into()),
        ("DAY", 24 * 3600 * 1000),
    ];
    for (name, number) in numbers {
        // Writing to a string does not fail.
        writeln!(head, "local {name} = {number}").ok();
    }
    head
}
