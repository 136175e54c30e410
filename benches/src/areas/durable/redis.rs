//! The same in Redis.
//!
//! Each child has a new server, with the same settings for everyone: a log (`appendonly yes`) that is on the disk
//! every second, unless a row says otherwise, no snapshots, and TCP. It shares the cores of the machine with those
//! who are measured. What is done, the server is asked; `redis cpu` is its CPU time, and `cpu ns` is not.
//!
//! | rows | the bar for ours |
//! | --- | --- |
//! | `drain` | five times as fast as the best peer, and a quarter as fast as the ceiling |
//! | `drain-64` | a quarter as fast as the ceiling |
//! | `drain-1` | twice as fast as BullMQ |
//! | `drain-awaited` | 0.6 of `drain` |
//! | `drain-always` | half of `drain` |
//! | `drain-1e6` | 0.8 of `drain-1e4` |
//! | `spawn-all` | 0.4 of the ceiling |
//! | `spawn-1000` | three times as fast as the best peer |
//! | `spawn-awaited` | 0.85 of the ceiling |
//! | `spawn-keys` | 0.7 of the plain spawn |
//! | `together`, `together-2-processes` | 0.35 of the ceiling |
//! | `start-latency`, `start-latency-2-processes` | p50 1.35 times that of the ceiling, and 400 us; p99 3 ms; idle, 1 ms of CPU time in a second, a command in two |
//! | `round-trip` | p50 900 us |
//! | `steps` | 0.5 of tasks without steps |
//! | `children` | 0.5 of tasks without a parent |
//! | `memory` | 300 bytes |
//! | `beside-another-type` | 1.2 times as long as alone |
//! | `drain-queues` | 0.7 of the plain drain |
//! | `one-at-a-time` | p50 1.5 ms |
//! | `schedules-due` | 2 s |
//! | `fleet-idle-1000` | 30 ms of CPU time in a second |
//! | `fleet-busy-1000` | 500 ms of CPU time in a second; the model is within 30 % |
//! | `masters` | 1.15 of the CPU time of one server |
//!
//! [`bullmq`] compares limits, priorities, delays and schedules with those of BullMQ.

mod bullmq;
mod ceiling;
mod children;
mod fleet;
mod fleet_model;
mod keys;
mod latency;
mod masters;
mod ours;
mod peers;
mod queues;
mod scale;
mod schedules;
mod server;
mod steps;

pub(super) use self::bullmq::{PROGRAM as BULLMQ, work_stamped};
use self::ours::Drain;
pub(super) use self::ours::work;
pub(super) use self::peers::{PEERS, needs_peers};
use self::queues::Waiting;
use self::server::Fsync;
use super::steps::workload;
use super::{Peer, Unit, Workload, beside_another_type, schedules_due};
use crate::measure::{Rules, Sample};

/// Tasks that wait to be drained.
const STORED: u64 = 100_000;

/// Tasks that are stored in a round.
const ROUND: u64 = 50_000;

/// Tasks that are stored with a call.
const CHUNK: u64 = 10_000;

/// Those who spawn at once.
const SPAWNERS: u64 = 1_000;

pub(super) fn workloads() -> Vec<Workload> {
    let mut all = drains();
    all.extend([drain_with(64, 50_000, 5_000), drain_with(1, 10_000, 1_000)]);
    all.extend(drains_at_scale());
    all.extend(spawns());
    all.extend(others());
    all.extend(fleet::workloads());
    all.push(masters::workload());
    all.extend(bullmq::workloads());
    all
}

fn drains() -> Vec<Workload> {
    vec![
        beside_all("redis/drain", drain(Drain::ALL), peers::drain()),
        Workload::absolute(
            "redis/drain-awaited",
            Unit::NS_PER_TASK,
            ours::drain_awaited,
        ),
        Workload::new(
            "redis/drain-always",
            Unit::NS_PER_TASK,
            drain(Drain {
                fsync: Fsync::Always,
                ..Drain::ALL
            })
            .into(),
        ),
        Workload::new(
            "redis/drain-4KiB",
            Unit::NS_PER_TASK,
            drain_large(10_000, 4),
        ),
        Workload::new(
            "redis/drain-64KiB",
            Unit::NS_PER_TASK,
            drain_large(1_000, 64),
        ),
    ]
}

/// Ours, and the ceiling.
fn drain(drain: Drain) -> [Peer; 2] {
    let ceiling =
        move |rules: &Rules| ceiling::drain(rules, drain.waiting, drain.bytes, drain.fsync);
    [
        Peer::new("throng", move |rules| drain.run(rules)),
        Peer::new("ceiling", ceiling),
    ]
}

/// The same, with payloads of so many KiB.
fn drain_large(waiting: u64, kib: usize) -> Vec<Peer> {
    let [ours, ceiling] = drain(Drain {
        waiting,
        runs: waiting,
        bytes: kib * 1024,
        ..Drain::ALL
    });
    vec![
        ours,
        ceiling.note(Some(
            "no ceiling here: it copies the payload with each step",
        )),
    ]
}

/// The same, with so many tasks that run at a time. Peers have fewer tasks, since they are slower.
fn drain_with(permits: usize, waiting: u64, of_peers: u64) -> Workload {
    let drain = Drain {
        waiting,
        runs: waiting,
        permits,
        ..Drain::ALL
    };
    let ceiling = move |rules: &Rules| ceiling::drain_turns(rules, waiting, permits);
    let name = if permits == 1 {
        "redis/drain-1"
    } else {
        "redis/drain-64"
    };
    let ours_and_ceiling = [
        Peer::new("throng", move |rules| drain.run(rules)),
        Peer::new("ceiling", ceiling),
    ];
    let peers = peers::drain_with(permits, of_peers).into_iter();
    beside_all(
        name,
        ours_and_ceiling,
        peers.chain([bullmq::drain_plain(4 * of_peers, permits)]),
    )
}

fn drains_at_scale() -> Vec<Workload> {
    let with_waiting = |name, waiting: u64| {
        let drain = Drain {
            waiting,
            runs: waiting.min(STORED),
            ..Drain::ALL
        };
        Workload::absolute(name, Unit::NS_PER_TASK, move |rules| drain.run(rules))
    };
    let with_processes = |name, processes| {
        let drain = move |rules: &Rules| scale::drain_processes(rules, processes);
        Workload::absolute(name, Unit::NS_PER_TASK, drain)
    };
    vec![
        with_waiting("redis/drain-1e3", 1_000),
        with_waiting("redis/drain-1e4", 10_000),
        with_waiting("redis/drain-1e5", 100_000),
        with_waiting("redis/drain-1e6", 1_000_000),
        with_processes("redis/drain-1-process", 1),
        with_processes("redis/drain-4-processes", 4),
        with_processes("redis/drain-16-processes", 16),
    ]
}

fn spawns() -> Vec<Workload> {
    let pair = |ours: fn(&Rules) -> Sample, ceiling: fn(&Rules) -> Sample| {
        [Peer::new("throng", ours), Peer::new("ceiling", ceiling)]
    };
    vec![
        beside_all(
            "redis/spawn-all",
            pair(ours::spawn_all, ceiling::spawn_all),
            peers::spawn_all(),
        ),
        beside_all(
            "redis/spawn-1000",
            pair(ours::spawn_1000, ceiling::spawn_1000),
            peers::spawn_1000(),
        ),
        beside_all(
            "redis/spawn-awaited",
            pair(ours::spawn_awaited, ceiling::spawn_awaited),
            peers::spawn_awaited()
                .into_iter()
                .chain([bullmq::spawn_awaited(5_000)]),
        ),
        spawn_keys(),
        beside_all(
            "redis/together",
            pair(ours::together, ceiling::together),
            peers::together(),
        ),
        together_2_processes(),
    ]
}

/// A process that stores tasks, and one that runs them.
fn together_2_processes() -> Workload {
    Workload::new(
        "redis/together-2-processes",
        Unit::NS_PER_TASK,
        vec![
            Peer::new("throng", ours::together_2_processes),
            Peer::new("ceiling", ceiling::together).note(Some(IN_ONE_PROCESS)),
            bullmq::together(20_000, ours::CONCURRENCY),
        ],
    )
}

/// A thousand spawners: each task has a key, joins another task, replaces its payload, or has no key.
fn spawn_keys() -> Workload {
    Workload::new(
        "redis/spawn-keys",
        Unit::NS_PER_TASK,
        vec![
            Peer::new("throng", keys::spawn_new),
            Peer::new("joining", keys::spawn_joining),
            Peer::new("replacing", keys::spawn_replacing),
            Peer::new("plain", ours::spawn_1000).note(Some("the bar is 0.7 of its rate")),
        ],
    )
}

fn others() -> Vec<Workload> {
    let mut latency = vec![
        Peer::new("throng", latency::start),
        Peer::new("ceiling", ceiling::start_latency),
    ];
    latency.extend(peers::start_latency());
    let mut memory = vec![
        Peer::new("throng", scale::memory),
        Peer::new("ceiling", ceiling::memory),
    ];
    memory.extend(peers::memory());
    vec![
        Workload::new("redis/start-latency", Unit::US, latency),
        start_latency_2_processes(),
        Workload::new(
            "redis/round-trip",
            Unit::US,
            vec![
                Peer::new("throng", latency::round_trip),
                Peer::new("ceiling", ceiling::round_trip),
            ],
        ),
        workload("redis/steps", steps::run),
        children::workload(),
        Workload::new("redis/memory", Unit::BYTES, memory),
        beside_another_type("redis/beside-another-type", ours::types),
        drain_queues(),
        drain_groups(),
        Workload::absolute("redis/one-at-a-time", Unit::US, queues::one_at_a_time),
        schedules_due("redis/schedules-due", schedules::due),
    ]
}

/// The same, with a process that stores tasks, and one that runs them.
fn start_latency_2_processes() -> Workload {
    Workload::new(
        "redis/start-latency-2-processes",
        Unit::US,
        vec![
            Peer::new("throng", latency::start_2_processes),
            Peer::new("ceiling", ceiling::start_latency).note(Some(IN_ONE_PROCESS)),
            bullmq::start_latency(400),
        ],
    )
}

const IN_ONE_PROCESS: &str = "the producer and the worker are in one process";

/// Tasks in four queues with weights and limits, tasks of three priorities, and tasks with neither.
fn drain_queues() -> Workload {
    let drain = |name, waiting| Peer::new(name, move |rules| queues::drain(rules, waiting));
    Workload::new(
        "redis/drain-queues",
        Unit::NS_PER_TASK,
        vec![
            drain("throng", Waiting::InQueues),
            drain("priorities", Waiting::ByPriority),
            drain("plain", Waiting::Plainly).note(Some("the bar is 0.7 of its rate")),
        ],
    )
}

/// Tasks in groups of one queue, which take turns, and tasks in the default queue.
fn drain_groups() -> Workload {
    let drain = |name, waiting| Peer::new(name, move |rules| queues::drain(rules, waiting));
    Workload::new(
        "redis/drain-groups",
        Unit::NS_PER_TASK,
        vec![
            drain("throng", Waiting::InGroups(10_000)),
            drain("100 groups", Waiting::InGroups(100)),
            drain("plain", Waiting::Plainly).note(Some("the bar is 0.4 of its rate")),
        ],
    )
}

fn beside_all(
    name: &'static str,
    ours_and_ceiling: [Peer; 2],
    peers: impl IntoIterator<Item = Peer>,
) -> Workload {
    let peers = ours_and_ceiling.into_iter().chain(peers);
    Workload::new(name, Unit::NS_PER_TASK, peers.collect())
}
