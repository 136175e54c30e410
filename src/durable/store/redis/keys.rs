//! Lists the keys in Redis, and what they contain.
//!
//! All keys of a store begin with `throng:{namespace:0}:`. The part in braces determines their slot in a
//! cluster. The zero is the number of the partition. The set `throng:namespaces`, which all stores of a server or a cluster share, has the
//! namespaces: see `namespaces.rs`.
//!
//! | key | type | content |
//! | --- | --- | --- |
//! | `meta` | hash | the layout, the number of partitions, the last epoch and its ceiling, the replication id of the server, a text that differs for each store (`birth`), store time (see `lua/store_time.lua`), the retention (see `lua/retention.lua`), the times at which the next schedules are handed out, the progress of maintenance, and the totals; see `lua/repair.lua` for how damage is repaired |
//! | `none` | | never exists |
//! | `sessions` | hash | by session: its last request |
//! | `ready`, `ready:<list>` | lists | the entries of waiting tasks, in order: in one list while all workers know the same types |
//! | `routes` | hash | the list of each type, and the sets that read it: see `lua/lists.lua` |
//! | `alive` | hash | by id, for all tasks that have not ended: the client id, how long the result is kept, the kind, and the key, the group and the parent if it has one |
//! | `payloads` | hash | by id: payloads that are too large for an entry |
//! | `delayed` | hash | by id: the entries of delayed tasks |
//! | `due` | sorted set | ids of delayed tasks, by due time |
//! | `running` | hash | by id, for running tasks: the epoch, and the entry |
//! | `claims` | hash | by epoch: the claimed tasks, and the claim's owner |
//! | `lease` | sorted set | epochs, by the end of their lease |
//! | `results` | hash | by id: results that are kept, and their expiry |
//! | `expiry` | sorted set | bins, by the time at which the results in them expire |
//! | `expiry_bins` | hash | by bin: the ids in it |
//! | `dead` | hash | by id: dead letters |
//! | `died` | sorted set | ids of dead letters, by the time of death |
//! | `errors` | hash | by id, for tasks that have failed and are to run again: the time of the first failure, and the last errors |
//! | `progress` | hash | by id, for tasks whose runs have reported progress: the last report, see `lua/report_progress.lua` |
//! | `steps` | hash | by id, for tasks that have steps: their number, see `lua/steps.lua` |
//! | `steps:<id>` | hashes | the steps of a task, by name |
//! | `notes` | hash | by id, for children that have ended: the parent, to which the end is still to be told, and the end; see `lua/children.lua` |
//! | `cancel` | hash | by id, for running tasks that are to be cancelled: the epoch |
//! | `tombstones` | hash | by id, kind and group: the number of list entries that claims skip, because their tasks were cancelled or replaced |
//! | `quarantined` | set | ids of quarantined tasks in `ready`: a worker runs one such task at a time |
//! | `watchers` | hash | by id: the client ids of other processes that are notified of the end |
//! | `awaiting` | sorted set | clients, by the time of their last status request: only these get completion events |
//! | `unlisted` | set | during a census: ids, and ids with kinds, that it has found in no list: see `lua/census.lua` |
//! | `damage` | list | the last 100 unreadable rows: the time, the damage, and up to 1,024 bytes of the row |
//! | `queues` | hash | the limits of named queues, and how far they are used: see `lua/queues.lua` |
//! | `permits:<queue>`, `permits:<queue>\0<group>` | sets | ids of the running tasks of a named queue, and of those of a group |
//! | `ready:<list>:<group>` | lists | the entries of the waiting tasks of a group in a list, in order |
//! | `groups:ring:<list>` | sorted sets | groups with waiting tasks in a list, by their turns: see `lua/groups.lua` |
//! | `groups:hold:<queue>` | sorted sets | groups of a queue that are held, by the time at which that is over |
//! | `groups` | hash | the turns that were issued, and what else scripts know about groups |
//! | `held_keys` | hash | by key of a task: the task that got the key last, and what a replacement needs: see `lua/held_keys.lua` |
//! | `schedules` | hash | by name: the rows of schedules |
//! | `schedule_times:<needs>` | sorted sets | names of the schedules that need a build, by the time of their next hand-out: see `lua/schedules.lua` |
//! | `types` | hash | by kind: the name and the queue of a type that clients store, see `lua/record_types.lua` |
//! | `stats` | hash | by minute and by hour: the numbers of runs of each type; by process: its last report. See `lua/record_stats.lua` |
//! | `cards` | sorted set | for each session that claims: its id, when it was opened, and the description of its worker; see `lua/cards.lua` |
//! | `idle:<set>` | sorted sets | client and session of idle workers that know a set of types, by the time at which they went idle |
//!
//! A process receives messages on the channel `client:`, followed by its client id. Rows are described in
//! `lua/layout.lua`, or in the scripts that write them.
//!
//! Every script declares `none` before its other keys. While a cluster moves a slot to another node, a
//! node refuses a script if one of the script's keys is missing. Without `none`, a script whose keys all exist
//! would run, and fail half-way at the first key that has moved.

/// The names of the keys in the scripts. In Redis, they are in lower case.
pub(super) const ALL: [&str; 38] = [
    "NONE",
    "META",
    "SESSIONS",
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
    "DEAD",
    "DIED",
    "ERRORS",
    "CANCEL",
    "TOMBSTONES",
    "QUARANTINED",
    "WATCHERS",
    "AWAITING",
    "IDLE",
    "ROUTES",
    "UNLISTED",
    "DAMAGE",
    "QUEUES",
    "PERMITS",
    "HELD_KEYS",
    "GROUPS",
    "SCHEDULES",
    "SCHEDULE_TIMES",
    "PROGRESS",
    "TYPES",
    "STATS",
    "CARDS",
    "STEPS",
    "NOTES",
];

/// The set of the namespaces, which is no key of a store.
pub(super) const NAMESPACES: &str = "throng:namespaces";

/// Returns the prefix of all keys of a partition.
pub(super) fn base(namespace: &str, partition: usize) -> String {
    format!("throng:{{{namespace}:{partition}}}:")
}

/// The names of all keys of a partition.
#[derive(Debug)]
pub(super) struct Keys([String; ALL.len()]);

impl Keys {
    pub(super) fn new(base: &str) -> Self {
        Self(ALL.map(|name| key(base, name)))
    }

    /// Returns the name of the key at an index in [`ALL`].
    pub(super) fn at(&self, index: usize) -> &str {
        &self.0[index]
    }

    pub(super) fn meta(&self) -> &str {
        self.at(1)
    }
}

/// Returns the full name of a key.
pub(super) fn key(base: &str, name: &str) -> String {
    format!("{base}{}", name.to_ascii_lowercase())
}

/// Returns the channel on which a process receives messages.
pub(super) fn channel(base: &str, client_id: &str) -> String {
    format!("{base}client:{client_id}")
}
