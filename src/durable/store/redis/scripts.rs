//! The scripts, which make all changes, and their arguments. The server runs each script as a whole.
//!
//! A script is a file in `lua`. Its head, the comment at its beginning, names the *parts* that it needs, which are other
//! files there, and the keys that it uses:
//!
//! ```text
//! -- Needs: session, lists, store_time.
//! -- Undo: enqueue.
//! -- KEYS: NONE, META, SESSIONS, READY.
//! ```
//!
//! It also numbers the arguments that the file uses, as `ARGV[1]` or `ARGV[2..]`. The head of a script describes its `Output`. The head of
//! a part lists what the part `Defines` for other files, or describes what it `Returns`. A script that needs no part says
//! `Needs no part`, and such a part says `Needs no other part`. The repository's test `tidy` checks this. No comment is sent to the
//! server: see `names.rs`.
//!
//! Parts may need other parts. Each part precedes what needs it. A part that is listed as `On demand` ends with a `return`, and
//! becomes a function `load_<part>` together with the parts that only it needs: what few runs of a script use costs the others
//! nothing. A part that is listed as `Ends with` follows the script: scripts with the same end share it. `Reads` lists the optional fields
//! of `meta` that the file uses: `epoch` and `tombstones`, which are `meta[4]` and `meta[5]`, `schedules`, which is `meta[6]`, `aged`,
//! which is `meta[7]`, and `steps`, which is `meta[8]`. A script that does not list `aged` reads it only when needed. A field that no file
//! of the script reads is nil. `Undo` names a file in `lua/undo`, which undoes what the script or part has written if a command fails: see
//! `lua/transaction.lua`. `KEYS` lists the keys in their order, or is `all`. In the rest of the script, the names of keys and constants are
//! replaced: see `names.rs`.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{LazyLock, OnceLock};

use redis::Cmd;

use super::keys::{self, Keys};
use super::names;
use crate::durable::TaskId;
use crate::durable::store::layouts::Layouts;

macro_rules! files {
    ($($name:literal)+) => {
        &[$(($name, include_str!(concat!("lua/", $name, ".lua")))),+]
    };
}

/// The files in `lua` of which scripts consist, by name.
pub(super) const FILES: &[(&str, &str)] = files![
    // Scripts.
    "advance_epochs" "cancel" "change_retention" "change_schedule" "close" "counts" "dead_letter_payload" "dead_letters" "diagnose" "enqueue" "errors" "find_task" "hand_out" "kinds" "last_numbers"
    "list_tasks" "maintain" "move_list" "move_tasks" "observe" "open" "overview" "queue" "queue_head" "read_progress" "read_schedules" "read_stats" "read_steps"
    "record_stats" "record_types" "renew" "replay" "report_progress" "routes" "run_now" "signal" "status" "store_steps" "take_notes" "tell_parents"
    "turn" "upgrade" "workers"
    // Parts.
    "add_tasks" "alive_row" "alive_tail" "base" "cards" "census" "children" "claim" "claim_scan" "claim_state" "claims" "cut_steps" "dead_letter_row" "drain" "due"
    "entry" "epochs" "expiry_bins" "group_repair" "groups" "held_keys" "ids" "intact_entry" "key_conflicts" "lists" "liveness"
    "moved_entries" "notifications" "orphans" "outcomes" "progress" "push_claim" "pushed_claims" "queue_lists" "queues" "reap" "remove_session" "repair" "repair_meta" "repair_schedules"
    "replacements" "restore_keys" "retention" "ring" "schedules" "selection" "server_time" "session" "session_activity"
    "served_lists" "session_counts" "set_lists" "steps" "store_time" "task_rows" "transaction" "type_names" "verdicts" "waiting" "worker_rows"
    // Files that run if a command fails.
    "undo/begin" "undo/cancel" "undo/claim" "undo/cut_steps" "undo/done" "undo/drain" "undo/due" "undo/end" "undo/enqueue"
    "undo/move_tasks" "undo/outcomes" "undo/push_claim" "undo/queue" "undo/replay" "undo/run_now" "undo/schedule" "undo/signal"
];

/// The source of the time in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeSource {
    Server,
    /// The last argument, in microseconds since 1970.
    #[cfg(test)]
    Manual,
    /// The same, and a command may fail.
    #[cfg(test)]
    Failing,
}

impl TimeSource {
    /// Returns the part that sets the time.
    fn part(self) -> &'static str {
        match self {
            Self::Server => file("server_time"),
            #[cfg(test)]
            Self::Manual => include_str!("lua/manual_time.lua"),
            #[cfg(test)]
            Self::Failing => include_str!("lua/fault_injection.lua"),
        }
    }
}

/// A script, which is composed when it is first used: a process uses few of them.
#[derive(Debug)]
pub(super) struct Script {
    name: &'static str,
    time: TimeSource,
    layouts: Layouts,
    is_cluster: bool,
    composed: OnceLock<ComposedScript>,
}

#[derive(Debug)]
struct ComposedScript {
    text: String,
    hash: String,
    /// The indexes of the script's keys in [`keys::ALL`].
    keys: Vec<usize>,
}

/// All scripts. They are the same for all stores: a request names the keys.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) enqueue: Script,
    pub(super) turn: Script,
    pub(super) renew: Script,
    pub(super) status: Script,
    pub(super) cancel: Script,
    pub(super) observe: Script,
    pub(super) run_now: Script,
    pub(super) move_tasks: Script,
    pub(super) move_list: Script,
    pub(super) kinds: Script,
    pub(super) last_numbers: Script,
    pub(super) open: Script,
    pub(super) close: Script,
    pub(super) dead_letters: Script,
    pub(super) dead_letter_payload: Script,
    pub(super) replay: Script,
    pub(super) maintain: Script,
    pub(super) counts: Script,
    pub(super) errors: Script,
    pub(super) report_progress: Script,
    pub(super) read_progress: Script,
    pub(super) store_steps: Script,
    pub(super) read_steps: Script,
    pub(super) signal: Script,
    pub(super) take_notes: Script,
    pub(super) tell_parents: Script,
    pub(super) list_tasks: Script,
    pub(super) find_task: Script,
    pub(super) queue_head: Script,
    pub(super) record_types: Script,
    pub(super) record_stats: Script,
    pub(super) read_stats: Script,
    pub(super) overview: Script,
    pub(super) diagnose: Script,
    pub(super) routes: Script,
    pub(super) queue: Script,
    pub(super) change_retention: Script,
    pub(super) change_schedule: Script,
    pub(super) read_schedules: Script,
    pub(super) hand_out: Script,
    pub(super) advance_epochs: Script,
    pub(super) upgrade: Script,
    pub(super) workers: Script,
}

impl Scripts {
    /// Returns the scripts with this source of time, for processes that know these layouts. A process composes each of them once.
    /// `is_cluster`: they publish messages on the channels of a cluster slot.
    pub(super) fn of(time: TimeSource, layouts: Layouts, is_cluster: bool) -> &'static Self {
        type All = LazyLock<[Scripts; 2]>;
        static SERVER: All = LazyLock::new(|| Scripts::both(TimeSource::Server));
        #[cfg(test)]
        static MANUAL: All = LazyLock::new(|| Scripts::both(TimeSource::Manual));
        #[cfg(test)]
        static FAILING: All = LazyLock::new(|| Scripts::both(TimeSource::Failing));
        if layouts != Layouts::KNOWN {
            // Only tests of upgrades do this.
            return Box::leak(Box::new(Self::new(time, layouts, is_cluster)));
        }
        let all = match time {
            TimeSource::Server => &SERVER,
            #[cfg(test)]
            TimeSource::Manual => &MANUAL,
            #[cfg(test)]
            TimeSource::Failing => &FAILING,
        };
        &all[usize::from(is_cluster)]
    }

    /// Returns the scripts for a server of its own, and those for the nodes of a cluster.
    fn both(time: TimeSource) -> [Self; 2] {
        [false, true].map(|is_cluster| Self::new(time, Layouts::KNOWN, is_cluster))
    }

    fn new(time: TimeSource, layouts: Layouts, is_cluster: bool) -> Self {
        let script = |name| Script::new(name, time, layouts, is_cluster);
        Self {
            enqueue: script("enqueue"),
            turn: script("turn"),
            renew: script("renew"),
            status: script("status"),
            cancel: script("cancel"),
            observe: script("observe"),
            run_now: script("run_now"),
            move_tasks: script("move_tasks"),
            move_list: script("move_list"),
            kinds: script("kinds"),
            last_numbers: script("last_numbers"),
            open: script("open"),
            close: script("close"),
            dead_letters: script("dead_letters"),
            dead_letter_payload: script("dead_letter_payload"),
            replay: script("replay"),
            maintain: script("maintain"),
            counts: script("counts"),
            errors: script("errors"),
            report_progress: script("report_progress"),
            read_progress: script("read_progress"),
            store_steps: script("store_steps"),
            read_steps: script("read_steps"),
            signal: script("signal"),
            take_notes: script("take_notes"),
            tell_parents: script("tell_parents"),
            list_tasks: script("list_tasks"),
            find_task: script("find_task"),
            queue_head: script("queue_head"),
            record_types: script("record_types"),
            record_stats: script("record_stats"),
            read_stats: script("read_stats"),
            overview: script("overview"),
            diagnose: script("diagnose"),
            routes: script("routes"),
            queue: script("queue"),
            change_retention: script("change_retention"),
            change_schedule: script("change_schedule"),
            read_schedules: script("read_schedules"),
            hand_out: script("hand_out"),
            advance_epochs: script("advance_epochs"),
            upgrade: script("upgrade"),
            workers: script("workers"),
        }
    }
}

impl Script {
    pub(super) fn new(
        name: &'static str,
        time: TimeSource,
        layouts: Layouts,
        is_cluster: bool,
    ) -> Self {
        Self {
            name,
            time,
            layouts,
            is_cluster,
            composed: OnceLock::new(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.composed().text
    }

    /// Returns the hash by which Redis identifies the script.
    pub(super) fn hash(&self) -> &str {
        &self.composed().hash
    }

    /// Returns the names of the script's keys, given those of all keys of a partition.
    pub(super) fn keys<'a>(&self, all: &'a Keys) -> impl ExactSizeIterator<Item = &'a str> {
        self.composed().keys.iter().map(|&index| all.at(index))
    }

    fn composed(&self) -> &ComposedScript {
        self.composed.get_or_init(|| ComposedScript::new(self))
    }
}

impl ComposedScript {
    fn new(script: &Script) -> Self {
        let keys = match *listed(file(script.name), "KEYS:") {
            ["all"] => keys::ALL.to_vec(),
            ref some => some.to_vec(),
        };
        let text = compose(script.name, script.time);
        let text = names::resolve(&text, &keys, script.layouts, script.is_cluster);
        let index = |name: &&str| keys::ALL.iter().position(|it| it == name);
        Self {
            hash: redis::Script::new(&text).get_hash().to_owned(),
            text,
            keys: keys.iter().filter_map(index).collect(),
        }
    }
}

/// The arguments of a script, in order.
#[derive(Debug, Default)]
pub(super) struct Arguments(Vec<Vec<u8>>);

impl Arguments {
    pub(super) fn push(&mut self, argument: impl Into<Vec<u8>>) {
        self.0.push(argument.into());
    }

    pub(super) fn push_number(&mut self, number: impl Display) {
        self.push(number.to_string());
    }

    /// Adds the number of ids, and the ids.
    pub(super) fn push_ids(&mut self, ids: &[TaskId]) {
        self.push_number(ids.len());
        ids.iter().for_each(|id| self.push(id.to_bytes()));
    }

    /// Returns the command that runs a script: `EVAL` with its text, or `EVALSHA` with its hash.
    pub(super) fn command<'a>(
        &self,
        name: &str,
        script: &str,
        keys: impl ExactSizeIterator<Item = &'a str>,
    ) -> Cmd {
        let size = self.0.iter().map(Vec::len).sum::<usize>() + script.len() + 1024;
        let mut command = Cmd::with_capacity(self.0.len() + keys.len() + 3, size);
        command.arg(name).arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for argument in &self.0 {
            command.arg(argument);
        }
        command
    }
}

/// The parts of a script, in order.
#[derive(Debug, Default)]
struct Parts {
    names: Vec<&'static str>,
    code: Vec<String>,
    undo: Vec<&'static str>,
    /// The optional fields of `meta` that the parts read.
    reads: BTreeSet<&'static str>,
}

impl Parts {
    /// Adds a file after the parts that it needs.
    fn add(&mut self, name: &'static str) {
        if self.names.contains(&name) {
            return;
        }
        self.names.push(name);
        let code = file(name);
        for part in listed(code, "Needs:") {
            self.add(part);
        }
        for part in listed(code, "On demand:") {
            self.add_on_demand(part);
        }
        let last = listed(code, "Ends with:");
        for part in last.iter().flat_map(|part| listed(file(part), "Needs:")) {
            self.add(part);
        }
        self.code.push(code.to_owned());
        self.undo.extend(listed(code, "Undo:"));
        self.reads.extend(listed(code, "Reads:"));
        last.into_iter().for_each(|part| self.add(part));
    }

    /// Adds a function that contains a file, after the parts that only the file needs.
    fn add_on_demand(&mut self, name: &'static str) {
        let mut inner = Self {
            names: self.names.clone(),
            ..Self::default()
        };
        inner.add(name);
        let code = inner.code.concat();
        self.code
            .push(format!("local function load_{name}()\n{code}end\n"));
        self.undo.extend(inner.undo);
        self.reads.extend(inner.reads);
    }
}

/// Returns the text of a script, in which names are not replaced yet.
fn compose(name: &'static str, time: TimeSource) -> String {
    let mut parts = Parts::default();
    parts.add(name);
    let before = listed(file(name), "Before base:");
    let before: String = before.into_iter().map(file).collect();
    let base = base(&parts.reads);
    let head = format!("{}{before}{base}", time.part());
    match &*parts.undo {
        [] => head + &parts.code.concat(),
        undo => with_undo(&head, &parts.code, undo),
    }
}

/// Returns the part `base`. It reads an optional field of `meta` only in scripts that use the field or a later one, since each
/// field takes time.
fn base(reads: &BTreeSet<&str>) -> String {
    let unused = match ["steps", "aged", "schedules", "epoch"].map(|field| reads.contains(field)) {
        [true, ..] => "",
        [false, true, ..] => ", 'steps'",
        [false, false, true, _] => ", 'aged', 'steps'",
        [false, false, false, true] => ", 'schedules', 'aged', 'steps'",
        [false, false, false, false] => ", 'epoch', 'tombstones', 'schedules', 'aged', 'steps'",
    };
    file("base").replace(unused, "")
}

/// Returns a script whose parts are a function, followed by code that runs if a command fails: see `lua/transaction.lua`.
///
/// The short names of commands are defined outside of that function. Lua creates the inner functions in each run, and
/// accesses a variable fast only if it belongs to a function further out than the enclosing one.
fn with_undo(head: &str, parts: &[String], undo: &[&str]) -> String {
    let undo = undo.iter().map(|name| file(&format!("undo/{name}")));
    format!(
        "local state = {{}}\n\
         {head}\
         local function main()\n{}end\n\
         while true do\n\
         local is_done, failure = pcall(main)\n\
         if is_done then return failure end\n\
         {}{}{}end\n",
        parts.concat(),
        file("undo/begin"),
        undo.collect::<String>(),
        file("undo/end"),
    )
}

/// Returns the text of a file in `lua`.
fn file(name: &str) -> &'static str {
    let found = FILES.iter().find(|it| it.0 == name);
    debug_assert!(found.is_some(), "there is no {name}.lua");
    found.map_or("", |it| it.1)
}

/// Returns the words that the head of a file lists after a label.
fn listed<'a>(file: &'a str, label: &str) -> Vec<&'a str> {
    let mut words = Vec::new();
    let mut is_list = false;
    for line in file.lines().map_while(|line| line.strip_prefix("--")) {
        let first = line.trim_start().strip_prefix(label);
        is_list = first.is_some() || is_list && line.starts_with("   ");
        if is_list {
            let listed = first.unwrap_or(line).split([' ', ',', '.']);
            words.extend(listed.filter(|word| !word.is_empty()));
        }
    }
    words
}
