//! The scripts. They make all changes. The server runs each script as a whole, and nothing else between its steps.
//!
//! A script is put together from parts. The first part sets the time: the server's or, in tests, the test's. For the names
//! of keys and numbers in a script, see `names.rs`.

use std::sync::LazyLock;

use super::keys::{self, Keys};
use super::names;

/// What time a script goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    Server,
    /// The last argument: in microseconds since 1970.
    #[cfg(test)]
    Told,
    /// The same, and a command may fail.
    #[cfg(test)]
    Failing,
}

impl Time {
    fn part(self) -> &'static str {
        match self {
            Self::Server => include_str!("lua/server_time.lua"),
            #[cfg(test)]
            Self::Told => include_str!("lua/told_time.lua"),
            #[cfg(test)]
            Self::Failing => include_str!("lua/failing_time.lua"),
        }
    }
}

/// A script: its text, by what Redis knows it, and the places of its keys among all of a store.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) hash: String,
    places: Vec<usize>,
}

/// All scripts. They are the same for all stores: a request names the keys.
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
    pub(super) errors: Script,
    pub(super) routes: Script,
    pub(super) recall: Script,
}

const BASE: &str = include_str!("lua/base.lua");
const SESSION: &str = include_str!("lua/session.lua");
const HEARD: &str = include_str!("lua/heard.lua");
const FORGET: &str = include_str!("lua/forget.lua");
const COUNTED: &str = include_str!("lua/counted.lua");
const LISTS: &str = include_str!("lua/lists.lua");
const PLANS: &str = include_str!("lua/plans.lua");
const UNIT: &str = include_str!("lua/unit.lua");
const ENTRY: &str = include_str!("lua/entry.lua");
const SOUND: &str = include_str!("lua/sound.lua");
const LETTER: &str = include_str!("lua/letter.lua");
const NOTICES: &str = include_str!("lua/notices.lua");
const STORE_TIME: &str = include_str!("lua/store_time.lua");
const RESULTS: &str = include_str!("lua/results.lua");
const OUTCOMES: &str = include_str!("lua/outcomes.lua");
const IDS: &str = include_str!("lua/ids.lua");
const CLAIMS: &str = include_str!("lua/claims.lua");
const REAP: &str = include_str!("lua/reap.lua");
const VERDICTS: &str = include_str!("lua/verdicts.lua");
const LIVENESS: &str = include_str!("lua/liveness.lua");
const DUE: &str = include_str!("lua/due.lua");
const DRAIN: &str = include_str!("lua/drain.lua");
const CEILING: &str = include_str!("lua/ceiling.lua");
const CLAIM: &str = include_str!("lua/claim.lua");

/// The parts that scripts need to take claims back.
const REAPING: [&str; 9] = [
    HEARD, UNIT, ENTRY, NOTICES, STORE_TIME, RESULTS, OUTCOMES, CLAIMS, REAP,
];

/// The parts that undo this if a command fails.
const UNDO_REAPING: [&str; 1] = [include_str!("lua/undo/outcomes.lua")];

impl Scripts {
    /// Returns the scripts that go by some time. They are put together once in a process.
    pub(super) fn of(time: Time) -> &'static Self {
        static SERVER: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(Time::Server));
        #[cfg(test)]
        static TOLD: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(Time::Told));
        #[cfg(test)]
        static FAILING: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(Time::Failing));
        match time {
            Time::Server => &SERVER,
            #[cfg(test)]
            Time::Told => &TOLD,
            #[cfg(test)]
            Time::Failing => &FAILING,
        }
    }

    fn new(time: Time) -> Self {
        let make = |keys: &[&str], parts: &[&str]| {
            Script::new(keys, &(head(time, parts) + &parts.concat()))
        };
        let units = |keys: &[&str], parts: &[&str], undo: &[&str]| {
            Script::new(keys, &with_undo(&head(time, parts), parts, undo))
        };
        let reaping = |before: &[&str], after: &[&str], undo: &[&str]| {
            let parts = [before, &REAPING, after].concat();
            units(&keys::ALL, &parts, &[&UNDO_REAPING, undo].concat())
        };
        Self {
            enqueue: units(
                &[
                    "NONE",
                    "META",
                    "SESSIONS",
                    "READY",
                    "ALIVE",
                    "PAYLOADS",
                    "DELAYED",
                    "DUE",
                    "RESULTS",
                    "DEAD",
                    "DIED",
                    "ERRORS",
                    "TOMBSTONES",
                    "IDLE",
                    "ROUTES",
                    "SUSPECTS",
                ],
                &[SESSION, LISTS, STORE_TIME, include_str!("lua/enqueue.lua")],
                &[include_str!("lua/undo/enqueue.lua")],
            ),
            turn: reaping(
                &[SESSION, LISTS, PLANS],
                &[
                    VERDICTS,
                    DUE,
                    DRAIN,
                    CEILING,
                    CLAIM,
                    include_str!("lua/turn.lua"),
                ],
                &[
                    include_str!("lua/undo/done.lua"),
                    include_str!("lua/undo/drain.lua"),
                    include_str!("lua/undo/due.lua"),
                    include_str!("lua/undo/claim.lua"),
                ],
            ),
            renew: make(
                &[
                    "NONE", "META", "SESSIONS", "CLAIMS", "LEASE", "RUNNING", "CANCEL",
                ],
                &[SESSION, HEARD, IDS, include_str!("lua/renew.lua")],
            ),
            status: make(
                &[
                    "NONE", "META", "ALIVE", "RUNNING", "DUE", "RESULTS", "DEAD", "DIED",
                    "WATCHERS", "AWAITING",
                ],
                &[LETTER, STORE_TIME, include_str!("lua/status.lua")],
            ),
            cancel: units(
                &[
                    "NONE",
                    "META",
                    "READY",
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
                    "ERRORS",
                    "CANCEL",
                    "TOMBSTONES",
                    "QUARANTINED",
                    "WATCHERS",
                    "AWAITING",
                ],
                &[NOTICES, STORE_TIME, RESULTS, include_str!("lua/cancel.lua")],
                &[include_str!("lua/undo/cancel.lua")],
            ),
            open: reaping(
                &[SESSION, LISTS, PLANS, COUNTED],
                &[CEILING, include_str!("lua/open.lua")],
                &[],
            ),
            close: reaping(
                &[SESSION, FORGET, LISTS, PLANS, COUNTED],
                &[include_str!("lua/close.lua")],
                &[],
            ),
            dead_letters: make(
                &["NONE", "META", "DEAD", "DIED", "ERRORS"],
                &[
                    ENTRY,
                    LETTER,
                    STORE_TIME,
                    include_str!("lua/dead_letters.lua"),
                ],
            ),
            revive: units(
                &[
                    "NONE",
                    "META",
                    "READY",
                    "ALIVE",
                    "PAYLOADS",
                    "LEASE",
                    "DEAD",
                    "DIED",
                    "ERRORS",
                    "TOMBSTONES",
                    "IDLE",
                    "ROUTES",
                    "SUSPECTS",
                ],
                &[
                    LISTS,
                    ENTRY,
                    SOUND,
                    LETTER,
                    STORE_TIME,
                    include_str!("lua/revive.lua"),
                ],
                &[include_str!("lua/undo/revive.lua")],
            ),
            maintain: Script::new(&keys::ALL, &maintain(time)),
            counts: make(
                &[
                    "NONE",
                    "META",
                    "SESSIONS",
                    "READY",
                    "ALIVE",
                    "DUE",
                    "RUNNING",
                    "CLAIMS",
                    "LEASE",
                    "RESULTS",
                    "DIED",
                    "TOMBSTONES",
                    "IDLE",
                    "ROUTES",
                ],
                &[
                    SESSION,
                    LISTS,
                    PLANS,
                    LIVENESS,
                    include_str!("lua/counts.lua"),
                ],
            ),
            errors: make(
                &["NONE", "META", "ALIVE", "DIED", "ERRORS"],
                &[STORE_TIME, include_str!("lua/errors.lua")],
            ),
            routes: make(
                &["NONE", "META", "ROUTES", "READY", "LEASE", "IDLE"],
                &[LISTS, include_str!("lua/routes.lua")],
            ),
            recall: make(
                &["NONE", "META", "LEASE"],
                &[CEILING, include_str!("lua/recall.lua")],
            ),
        }
    }
}

impl Script {
    fn new(keys: &[&str], source: &str) -> Self {
        let text = names::resolve(source, keys);
        let place = |name| keys::ALL.iter().position(|it| it == name);
        Self {
            hash: redis::Script::new(&text).get_hash().to_owned(),
            text,
            places: keys.iter().filter_map(place).collect(),
        }
    }

    /// Returns the names of the script's keys, given those of all keys of a partition.
    pub(super) fn keys<'a>(&self, all: &'a Keys) -> impl ExactSizeIterator<Item = &'a str> {
        self.places.iter().map(|&place| all.at(place))
    }
}

/// Returns the script that maintains a store.
fn maintain(time: Time) -> String {
    let parts = [
        SESSION,
        FORGET,
        IDS,
        LISTS,
        LIVENESS,
        COUNTED,
        UNIT,
        ENTRY,
        SOUND,
        NOTICES,
        STORE_TIME,
        RESULTS,
        OUTCOMES,
        DRAIN,
        include_str!("lua/mend.lua"),
        include_str!("lua/census.lua"),
        include_str!("lua/partners.lua"),
        CEILING,
        include_str!("lua/maintain.lua"),
    ];
    let undo = [
        include_str!("lua/undo/outcomes.lua"),
        include_str!("lua/undo/drain.lua"),
    ];
    let head = format!("{}{}{BASE}", time.part(), include_str!("lua/mend_meta.lua"));
    with_undo(&head, &parts, &undo)
}

/// Returns a script whose parts are a function, and code that runs if one of the commands fails: see `unit.lua`.
///
/// The short names of commands are defined outside of that function. Lua makes the inner functions anew in each run,
/// and finds a variable for them fast only if it belongs to a function further out than the one that encloses them.
fn with_undo(head: &str, parts: &[&str], undo: &[&str]) -> String {
    format!(
        "local state = {{}}\n\
         {head}\
         local function main()\n{}end\n\
         while true do\n\
         local is_done, failure = pcall(main)\n\
         if is_done then return failure end\n\
         {}{}{}end\n",
        parts.concat(),
        include_str!("lua/undo/begin.lua"),
        undo.concat(),
        include_str!("lua/undo/end.lua"),
    )
}

/// Returns the beginning of a script: the time, and short names. Only scripts that use the last two fields of `meta` read
/// them, since each field costs time.
fn head(time: Time, parts: &[&str]) -> String {
    let uses = |field| parts.iter().any(|part| part.contains(field));
    let base = if uses("meta[4]") || uses("meta[5]") {
        BASE.to_owned()
    } else {
        BASE.replace(", 'epoch', 'tombstones'", "")
    };
    time.part().to_owned() + &base
}
