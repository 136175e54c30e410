//! The one table of all metrics: their names, types, help texts and labels, and where their values come from.
//!
//! The text for Prometheus and the table in `docs/METRICS.md` are made from it. The names are part of the API: dashboards and
//! alerts use them.

#[cfg(feature = "durable")]
pub(super) mod durable;

use std::time::Duration;

use super::family::{
    Family, FamilyType, Row, buckets, by, count, counter, gauge, histogram, largest, seconds,
};
use super::kind::PartKind;
use super::value::Merge;
use crate::blocking;
use crate::completion;
use crate::compute;
use crate::serial;

/// The version of the crate.
pub(super) static BUILD_INFO: Family = Family {
    name: "throng_build_info",
    kind: FamilyType::Gauge,
    help: "Always 1. The label is the version of throng.",
    item: "",
    label: "version",
    merge: Merge::Max,
};

/// The time that reading all parts has taken.
pub(super) static WATCH_SECONDS: Family = Family {
    name: "throng_watch_seconds",
    kind: FamilyType::Gauge,
    help: "Time that it took to read all watched parts.",
    item: "",
    label: "",
    merge: Merge::Max,
};

pub(super) static BLOCKING: [Row<blocking::Metrics>; 10] = [
    by(
        "state",
        gauge(
            "throng_blocking_threads",
            "Threads by state. Blocked: their task waits for another task of the pool. A thread between two tasks has no state.",
            &[
                ("busy", |m| count(m.busy.saturating_sub(m.blocked))),
                ("idle", |m| count(m.idle)),
                ("blocked", |m| count(m.blocked)),
            ],
        ),
    ),
    gauge(
        "throng_blocking_threads_core",
        "Core threads that are configured.",
        &[("", |m| count(m.core_threads))],
    ),
    gauge(
        "throng_blocking_threads_max",
        "Maximum number of threads that is configured.",
        &[("", |m| count(m.max_threads))],
    ),
    gauge(
        "throng_blocking_queue_length",
        "Tasks that wait for a thread.",
        &[("", |m| count(m.queued))],
    ),
    gauge(
        "throng_blocking_queue_capacity",
        "The most tasks that may wait. Absent if there is no bound.",
        &[("", |m| m.queue_capacity.and_then(count))],
    ),
    counter(
        "throng_blocking_submitted_total",
        "Tasks accepted.",
        &[("", |m| count(m.submitted))],
    ),
    by(
        "outcome",
        counter(
            "throng_blocking_tasks_total",
            "Tasks by outcome. Cancelled: aborted before the start. Rejected: not accepted.",
            &[
                ("completed", |m| count(m.completed)),
                ("panicked", |m| count(m.panicked)),
                ("cancelled", |m| count(m.cancelled)),
                ("rejected", |m| count(m.rejected)),
            ],
        ),
    ),
    counter(
        "throng_blocking_spawn_failures_total",
        "Threads that the system has refused.",
        &[("", |m| count(m.spawn_failures))],
    ),
    histogram(
        "throng_blocking_wait_seconds",
        "Time in the queue, of a random sample of one task in 16: use quantiles, not rates.",
        &[("", |m| buckets(&m.queue_wait))],
    ),
    histogram(
        "throng_blocking_run_seconds",
        "Run time, of a random sample of one task in 16: use quantiles, not rates.",
        &[("", |m| buckets(&m.run_time))],
    ),
];

pub(super) static BULKHEAD: [Row<blocking::Metrics>; 6] = [
    gauge(
        "throng_bulkhead_running",
        "Tasks that the pool has received and that have not ended.",
        &[("", |m| count(m.busy))],
    ),
    gauge(
        "throng_bulkhead_max_running",
        "The most tasks that may run at a time.",
        &[("", |m| count(m.max_threads))],
    ),
    gauge(
        "throng_bulkhead_queue_length",
        "Tasks that wait in the bulkhead.",
        &[("", |m| count(m.queued))],
    ),
    gauge(
        "throng_bulkhead_queue_capacity",
        "The most tasks that may wait in the bulkhead.",
        &[("", |m| m.queue_capacity.and_then(count))],
    ),
    counter(
        "throng_bulkhead_submitted_total",
        "Tasks accepted.",
        &[("", |m| count(m.submitted))],
    ),
    by(
        "outcome",
        counter(
            "throng_bulkhead_tasks_total",
            "Tasks by outcome. Cancelled: aborted before the start. Rejected: not accepted.",
            &[
                ("completed", |m| count(m.completed)),
                ("panicked", |m| count(m.panicked)),
                ("cancelled", |m| count(m.cancelled)),
                ("rejected", |m| count(m.rejected)),
            ],
        ),
    ),
];

pub(super) static COMPUTE: [Row<compute::Metrics>; 5] = [
    by(
        "state",
        gauge(
            "throng_compute_threads",
            "Threads by state. Awake: it runs tasks, or searches for some.",
            &[
                ("awake", |m| count(lanes(m, false))),
                ("parked", |m| count(lanes(m, true))),
            ],
        ),
    ),
    gauge(
        "throng_compute_queue_length",
        "Tasks that wait.",
        &[("", |m| count(m.queued))],
    ),
    largest(gauge(
        "throng_compute_longest_running_seconds",
        "The longest time for which a task has been running, measured every 5 ms; 0 for shorter tasks.",
        &[("", |m| {
            let times = m.lanes.iter().map(|lane| lane.running_for);
            seconds(times.max().unwrap_or_default())
        })],
    )),
    by(
        "outcome",
        counter(
            "throng_compute_tasks_total",
            "Tasks by outcome. A task that runs counts as completed. Cancelled: aborted before the start. Rejected: not accepted.",
            &[
                ("completed", |m| count(m.completed)),
                ("panicked", |m| count(m.panicked)),
                ("cancelled", |m| count(m.cancelled)),
                ("rejected", |m| count(m.rejected)),
            ],
        ),
    ),
    counter(
        "throng_compute_stolen_total",
        "Tasks that threads have stolen from one another.",
        &[("", |m| count(m.lanes.iter().map(|lane| lane.stolen).sum()))],
    ),
];

fn lanes(metrics: &compute::Metrics, are_parked: bool) -> u64 {
    let lanes = metrics.lanes.iter();
    lanes.filter(|lane| lane.is_parked == are_parked).count() as u64
}

/// The numbers of a serial executor.
pub(super) struct SerialNumbers {
    pub(super) metrics: serial::Metrics,
    /// The time for which it has been known to run one job.
    pub(super) busy_for: Duration,
}

pub(super) static SERIAL: [Row<SerialNumbers>; 9] = [
    gauge(
        "throng_serial_executors",
        "Executors with this name.",
        &[("", |_| count(1))],
    ),
    gauge(
        "throng_serial_busy",
        "Executors that run a job, or whose state an asynchronous job holds.",
        &[("", |it| count(u64::from(it.metrics.is_busy)))],
    ),
    gauge(
        "throng_serial_poisoned",
        "Executors whose state is poisoned.",
        &[("", |it| count(u64::from(it.metrics.is_poisoned)))],
    ),
    largest(gauge(
        "throng_serial_busy_seconds",
        "The longest time for which an executor is known to run one job: the time since it was first found running.",
        &[("", |it| seconds(it.busy_for))],
    )),
    gauge(
        "throng_serial_queue_length",
        "Jobs that wait.",
        &[("", |it| count(it.metrics.queue_length))],
    ),
    by(
        "path",
        counter(
            "throng_serial_runs_total",
            "Jobs that ran inline, and jobs taken from the queue.",
            &[
                ("inline", |it| count(it.metrics.inline)),
                ("queued", |it| count(it.metrics.queued)),
            ],
        ),
    ),
    by(
        "outcome",
        counter(
            "throng_serial_jobs_total",
            "Jobs by outcome. Rejected: not accepted.",
            &[
                ("completed", |it| count(it.metrics.completed)),
                ("panicked", |it| count(it.metrics.panicked)),
                ("rejected", |it| count(it.metrics.rejected)),
            ],
        ),
    ),
    counter(
        "throng_serial_captured_total",
        "Jobs of others that a submitting thread ran after its own.",
        &[("", |it| count(it.metrics.captured))],
    ),
    counter(
        "throng_serial_handed_over_total",
        "Times that the queue was handed over to a runtime or a pool.",
        &[("", |it| count(it.metrics.handed_over))],
    ),
];

pub(super) static COMPLETION: [Row<completion::Metrics>; 6] = [
    gauge(
        "throng_completion_running",
        "Jobs that have not finished.",
        &[("", |m| count(m.running))],
    ),
    gauge(
        "throng_completion_in_flight",
        "Jobs that were submitted and not read.",
        &[("", |m| count(m.in_flight))],
    ),
    gauge(
        "throng_completion_ready",
        "Jobs that have finished and were not read.",
        &[("", |m| count(m.ready))],
    ),
    counter(
        "throng_completion_submitted_total",
        "Jobs submitted.",
        &[("", |m| count(m.submitted))],
    ),
    counter(
        "throng_completion_read_total",
        "Jobs read.",
        &[("", |m| count(m.read))],
    ),
    by(
        "outcome",
        counter(
            "throng_completion_jobs_total",
            "Jobs by outcome, counted when they are read. Cancelled: aborted, lost, or refused by a pool. Rejected: refused by the stream, counted when submitted.",
            &[
                ("completed", |m| count(m.completed)),
                ("panicked", |m| count(m.panicked)),
                ("cancelled", |m| count(m.cancelled)),
                ("rejected", |m| count(m.rejected)),
            ],
        ),
    ),
];

/// The metrics of a kind of parts, in the order of the table, and the values of their labels.
pub(super) fn families(kind: PartKind) -> Vec<(&'static Family, Vec<&'static str>)> {
    match kind {
        PartKind::BlockingPool => families_of(&BLOCKING),
        PartKind::Bulkhead => families_of(&BULKHEAD),
        PartKind::ComputePool => families_of(&COMPUTE),
        PartKind::SerialExecutor => families_of(&SERIAL),
        PartKind::CompletionStream => families_of(&COMPLETION),
        #[cfg(feature = "durable")]
        PartKind::DurableExecutor => [
            families_of(&durable::EXECUTOR),
            families_of(&durable::TYPES),
        ]
        .concat(),
        #[cfg(feature = "durable")]
        PartKind::DurableStore => [
            families_of(&durable::STORE),
            families_of(&durable::COUNTS),
            families_of(&durable::QUEUES),
        ]
        .concat(),
    }
}

fn families_of<M>(rows: &'static [Row<M>]) -> Vec<(&'static Family, Vec<&'static str>)> {
    let families = rows.iter().map(|row| {
        let values = row.values.iter().map(|(value, _)| *value);
        (&row.family, values.collect())
    });
    families.collect()
}
