//! The same in PostgreSQL.
//!
//! Each child has a new server with `synchronous_commit` on a disk, 256 MB of shared buffers and otherwise the settings that it has by
//! default, and TCP. It shares the cores of the machine with those who are measured. `server cpu` is its CPU time, and `cpu ns` is
//! not. `skip-locked` is a table and two statements for a batch.
//!
//! | rows | the bar for ours |
//! | --- | --- |
//! | `drain`, `drain-64` | three times as fast as the best peer |
//! | `drain-beside-old` | 0.7 of the rate without the old transaction |
//! | `spawn-64` | twice as fast as the best peer |
//! | `start-latency` | p50 1 ms more than two commits |

mod ours;
mod peers;
mod plain;
mod server;

use self::ours::Drain;
pub(super) use self::peers::programs;
use super::{Peer, Unit, Workload};

/// Tasks that wait to be drained.
const STORED: u64 = 100_000;

/// Tasks that 64 spawners store.
const SPAWNED: u64 = 50_000;

/// Tasks that are stored with a call.
const CHUNK: u64 = 10_000;

pub(super) fn workloads() -> Vec<Workload> {
    let mut spawn = vec![
        Peer::new("throng", ours::spawn),
        Peer::new("skip-locked", plain::spawn).note(Some("a commit for each, on ten connections")),
    ];
    spawn.extend(peers::spawn());
    vec![
        drain("postgres/drain", 256),
        drain("postgres/drain-64", 64),
        Workload::new(
            "postgres/drain-beside-old",
            Unit::NS_PER_TASK,
            vec![
                ours_with(64, true),
                Peer {
                    name: "plain",
                    ..ours_with(64, false).note(Some(
                        "without the old transaction: the bar is 0.7 of its rate",
                    ))
                },
            ],
        ),
        Workload::new("postgres/spawn-64", Unit::NS_PER_TASK, spawn),
        Workload::absolute("postgres/start-latency", Unit::US, ours::start_latency),
    ]
}

fn drain(name: &'static str, permits: usize) -> Workload {
    let mut all = vec![
        ours_with(permits, false),
        Peer::new("skip-locked", move |rules| plain::drain(rules, permits)).note(Some(
            "two statements and commits for a batch, and nothing else",
        )),
    ];
    all.extend(peers::drain(permits));
    Workload::new(name, Unit::NS_PER_TASK, all)
}

fn ours_with(permits: usize, beside_old_transaction: bool) -> Peer {
    let drain = Drain {
        permits,
        beside_old_transaction,
    };
    Peer::new("throng", move |rules| drain.run(rules))
}
