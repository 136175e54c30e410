//! What is in Redis, and under which names.
//!
//! All keys of a store begin with `throng:{namespace:0}:`; what is in braces decides in which slot of a
//! cluster they are. The zero is the number of the partition.
//!
//! | key | what | content |
//! | --- | --- | --- |
//! | `meta` | hash | the layout, how many partitions there are, the last epoch and its ceiling, the replication id of the server, store time (see `lua/store_time.lua`), the ledger: see `lua/mend.lua` for what becomes of it when it is damaged |
//! | `none` | | never exists |
//! | `sessions` | hash | by session: its last request |
//! | `ready`, `ready:<list>` | lists | the entries of waiting tasks, in their order: in one list while all workers know the same types |
//! | `routes` | hash | the list of each type, and the sets that read it: see `lua/lists.lua` |
//! | `alive` | hash | by id, of all tasks that have not ended: the client id, how long the result is kept, and the kind |
//! | `payloads` | hash | by id: payloads that are too large for an entry |
//! | `delayed` | hash | by id: the entries of delayed tasks |
//! | `due` | sorted set | ids of delayed tasks, by when they are due |
//! | `running` | hash | by id, of running tasks: the epoch, and the entry |
//! | `claims` | hash | by epoch: what was claimed, by whom |
//! | `lease` | sorted set | epochs, by when their lease is over |
//! | `results` | hash | by id: ends that are kept, and until when |
//! | `expiry` | sorted set | bins, by when the results in them expire |
//! | `expiry_bins` | hash | by bin: ids |
//! | `dead` | hash | by id: dead letters |
//! | `died` | sorted set | their ids, by when they died |
//! | `errors` | hash | by id, of tasks that have failed and were to run again: the last errors |
//! | `cancel` | hash | by id, of running tasks that are to be cancelled: the epoch |
//! | `tombstones` | hash | by id and kind: the number of entries in `ready` that belong to cancelled tasks |
//! | `quarantined` | set | ids of quarantined tasks in `ready`: a worker runs one such task at a time |
//! | `watchers` | hash | by id: the client ids of other processes that are told of the end |
//! | `awaiting` | sorted set | clients that have asked for the status of tasks, by time: only these get completion events |
//! | `suspects` | set | while there is a census: ids, and ids with kinds, that it has not found in any list: see `lua/census.lua` |
//! | `damage` | list | the last 100 rows that could not be read: the time, what is wrong, and up to 1,024 bytes of the row |
//! | `idle:<set>` | sorted sets | client and session of idle workers that know a set of types, by the time at which they went idle |
//!
//! A process receives events on the channel `client:`, followed by its client id. The entries are
//! described in `entry.rs`, the other rows in the scripts that write them.
//!
//! Every script declares `none` before its other keys. While a cluster moves a slot to another node, a
//! node refuses a script if one of the script's keys is missing. Without `none`, a script whose keys all exist
//! would run, and fail half-way at the first key that has moved meanwhile.

/// The layout that this version of the crate knows.
pub(super) const LAYOUT: i64 = 2;

/// What the keys are called in the scripts; in Redis, the same in small letters.
pub(super) const ALL: [&str; 26] = [
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
    "SUSPECTS",
    "DAMAGE",
];

/// What the names of all keys of a partition begin with.
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

    /// Returns the name of the key at a place in [`ALL`].
    pub(super) fn at(&self, place: usize) -> &str {
        &self.0[place]
    }

    pub(super) fn meta(&self) -> &str {
        self.at(1)
    }
}

/// The name of a key.
pub(super) fn key(base: &str, name: &str) -> String {
    format!("{base}{}", name.to_ascii_lowercase())
}

/// The channel on which a process is told.
pub(super) fn channel(base: &str, client_id: &str) -> String {
    format!("{base}client:{client_id}")
}
