//! What is in Redis, and under which names.
//!
//! All keys of a store begin with `throng:{namespace:0}:`; what is in braces decides in which slot of a
//! cluster they are. The zero is the number of the partition.
//!
//! | key | what | content |
//! | --- | --- | --- |
//! | `meta` | hash | the layout, how many partitions there are, the last epoch, the ledger |
//! | `sess` | hash | by session: its last request |
//! | `ready` | list | the entries of those that wait, the first first |
//! | `alive` | hash | by id, of all that have not ended: whose they are, and how long their end is kept |
//! | `body` | hash | by id: payloads that are too large for an entry |
//! | `later` | hash | by id: the entries of those that are delayed |
//! | `due` | sorted set | ids, by when they are due |
//! | `run` | hash | by id, of those that run: the epoch, and the entry |
//! | `claims` | hash | by epoch: what was claimed, by whom |
//! | `lease` | sorted set | epochs, by when their lease is over |
//! | `kept` | hash | by id: ends that are kept, and until when |
//! | `over` | sorted set | bins, by when what is in them is over |
//! | `bins` | hash | by bin: ids |
//! | `dead` | hash | by id: dead letters |
//! | `died` | sorted set | their ids, by when they died |
//! | `cancel` | hash | by id, of those that run and are to be cancelled: the epoch |
//! | `tombs` | hash | by id: how many entries in `ready` were cancelled |
//! | `risky` | set | ids of those in `ready` of which a worker takes one |
//! | `watch` | hash | by id: who else is to be told of the end |
//! | `park` | sorted set | processes with a worker that waits, by since when |
//!
//! What a process is told, it is told on the channel `in:` with the name of its box behind it. The
//! entries are described in `entry.rs`, the other rows in the scripts that write them.

/// The layout that this version of the crate knows.
pub(super) const LAYOUT: i64 = 1;

/// What the keys are called in the scripts; in Redis, the same in small letters.
pub(super) const ALL: [&str; 20] = [
    "META", "SESS", "READY", "ALIVE", "BODY", "LATER", "DUE", "RUN", "CLAIMS", "LEASE", "KEPT",
    "OVER", "BINS", "DEAD", "DIED", "CANCEL", "TOMBS", "RISKY", "WATCH", "PARK",
];

/// What the names of all keys of a partition begin with.
pub(super) fn base(namespace: &str, partition: usize) -> String {
    format!("throng:{{{namespace}:{partition}}}:")
}

/// The name of a key.
pub(super) fn key(base: &str, name: &str) -> String {
    format!("{base}{}", name.to_ascii_lowercase())
}

/// The channel on which a process is told.
pub(super) fn channel(base: &str, mailbox: &str) -> String {
    format!("{base}in:{mailbox}")
}
