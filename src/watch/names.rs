//! The one table of all metrics: their names, types, help texts and labels, and where their values come from.
//!
//! The text for Prometheus and the table in `docs/METRICS.md` are made from it. The names are part of the API: dashboards and
//! alerts use them.

use std::time::Duration;

use super::kind::PartKind;
use super::value::{Buckets, Merge, Value};
use crate::blocking::{self, Histogram};
#[cfg(feature = "durable")]
use crate::durable::{self, Counts, Health};
use crate::{completion, compute, serial};

/// A metric.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: FamilyType,
    pub(super) help: &'static str,
    /// The label beside the name of the part, or an empty string.
    pub(super) label: &'static str,
    pub(super) merge: Merge,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyType {
    Gauge,
    /// A number that never falls.
    Counter,
    Histogram,
}

impl FamilyType {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }

    /// Returns `true` if the numbers of a part that is gone stay in the sum of its name.
    pub(super) fn is_cumulative(self) -> bool {
        self != Self::Gauge
    }
}

/// A metric, and its values for the numbers `M` of a part: one for each value of the label, or one with an empty string.
pub(super) struct Row<M: 'static> {
    pub(super) family: Family,
    pub(super) values: &'static [(&'static str, Read<M>)],
}

/// Reads a value out of the numbers of a part. `None` if the part has no such value.
type Read<M> = fn(&M) -> Option<Value>;

type Reads<M> = &'static [(&'static str, Read<M>)];

const fn row<M: 'static>(
    name: &'static str,
    kind: FamilyType,
    help: &'static str,
    values: Reads<M>,
) -> Row<M> {
    let family = Family {
        name,
        kind,
        help,
        label: "",
        merge: Merge::Sum,
    };
    Row { family, values }
}

const fn gauge<M: 'static>(name: &'static str, help: &'static str, values: Reads<M>) -> Row<M> {
    row(name, FamilyType::Gauge, help, values)
}

const fn counter<M: 'static>(name: &'static str, help: &'static str, values: Reads<M>) -> Row<M> {
    row(name, FamilyType::Counter, help, values)
}

const fn histogram<M: 'static>(name: &'static str, help: &'static str, values: Reads<M>) -> Row<M> {
    row(name, FamilyType::Histogram, help, values)
}

/// Distinguishes the values by a label.
const fn by<M>(label: &'static str, mut row: Row<M>) -> Row<M> {
    row.family.label = label;
    row
}

/// Of parts with one name, takes the largest value instead of the sum.
const fn largest<M>(mut row: Row<M>) -> Row<M> {
    row.family.merge = Merge::Max;
    row
}

fn count(number: u64) -> Option<Value> {
    Some(Value::Count(number))
}

fn seconds(time: Duration) -> Option<Value> {
    Some(Value::Seconds(time))
}

fn buckets(histogram: &Histogram) -> Option<Value> {
    Some(Value::Histogram(Box::new(Buckets::of(histogram))))
}

/// The version of the crate.
pub(super) static BUILD_INFO: Family = Family {
    name: "throng_build_info",
    kind: FamilyType::Gauge,
    help: "Always 1. The label is the version of throng.",
    label: "version",
    merge: Merge::Max,
};

/// The time that reading all parts has taken.
pub(super) static WATCH_SECONDS: Family = Family {
    name: "throng_watch_seconds",
    kind: FamilyType::Gauge,
    help: "Time that it took to read all watched parts.",
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
        "The longest time for which an executor is known to run one job: the time since the first look that found it running.",
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
    counter(
        "throng_completion_failed_total",
        "Jobs read that have no output: they have panicked, were aborted, or were lost.",
        &[("", |m| count(m.failed))],
    ),
];

#[cfg(feature = "durable")]
pub(super) static EXECUTOR: [Row<durable::Metrics>; 12] = [
    gauge(
        "throng_durable_running",
        "Tasks that run and hold a permit, in this process.",
        &[("", |m| count(m.running))],
    ),
    gauge(
        "throng_durable_max_running",
        "The most tasks that may run at a time, in this process.",
        &[("", |m| count(m.max_running))],
    ),
    gauge(
        "throng_durable_suspended",
        "Tasks whose runs hold no permit, in this process.",
        &[("", |m| count(m.suspended))],
    ),
    gauge(
        "throng_durable_claimed",
        "Tasks that this process has claimed.",
        &[("", |m| count(m.claimed))],
    ),
    by(
        "outcome",
        counter(
            "throng_durable_runs_total",
            "Runs in this process by outcome. Retried: failed, and tried again. Died: became a dead letter. Released: given back.",
            &[
                ("completed", |m| count(m.completed)),
                ("retried", |m| count(m.retried)),
                ("snoozed", |m| count(m.snoozed)),
                ("died", |m| count(m.died)),
                ("released", |m| count(m.released)),
            ],
        ),
    ),
    counter(
        "throng_durable_panicked_total",
        "Runs in this process that have panicked.",
        &[("", |m| count(m.panicked))],
    ),
    counter(
        "throng_durable_timed_out_total",
        "Runs in this process that have exceeded their timeout.",
        &[("", |m| count(m.timed_out))],
    ),
    counter(
        "throng_durable_refused_total",
        "Runs whose verdict the store has refused, because another worker had claimed the task.",
        &[("", |m| count(m.refused))],
    ),
    counter(
        "throng_durable_leases_lost_total",
        "Leases that this process has lost.",
        &[("", |m| count(m.leases_lost))],
    ),
    counter(
        "throng_durable_stalled_waits_total",
        "Times that no permit became free for 30 s while this process awaited tasks that wait for a worker.",
        &[("", |m| count(m.stalled_waits))],
    ),
    counter(
        "throng_durable_fired_total",
        "Tasks that this process has stored for schedules.",
        &[("", |m| count(m.fired))],
    ),
    by(
        "outcome",
        counter(
            "throng_durable_requests_total",
            "Requests of this process to claim and report tasks, by outcome.",
            &[
                ("ok", |m| count(m.turns)),
                ("failed", |m| count(m.failures)),
            ],
        ),
    ),
];

#[cfg(feature = "durable")]
pub(super) static STORE: [Row<Health>; 2] = [
    largest(gauge(
        "throng_durable_store_up",
        "1 if the store answers this process, 0 if it does not.",
        &[("", |health| {
            count(u64::from(!matches!(health, Health::Unreachable(_))))
        })],
    )),
    largest(by(
        "state",
        gauge(
            "throng_durable_store_health",
            "1 for the state of the store as this process sees it, 0 for the other states.",
            &[
                ("well", |health| {
                    count(u64::from(matches!(health, Health::Well)))
                }),
                ("mute", |health| {
                    count(u64::from(matches!(health, Health::Mute)))
                }),
                ("failing", |health| {
                    count(u64::from(matches!(health, Health::Failing { .. })))
                }),
                ("damaged", |health| {
                    count(u64::from(matches!(health, Health::Damaged { .. })))
                }),
                ("unreachable", |health| {
                    count(u64::from(matches!(health, Health::Unreachable(_))))
                }),
            ],
        ),
    )),
];

#[cfg(feature = "durable")]
pub(super) static COUNTS: [Row<Counts>; 3] = [
    by(
        "state",
        gauge(
            "throng_durable_tasks",
            "Tasks in the whole store by state: use max by (store), not sum. Kept: ended, with an end that is kept.",
            &[
                ("waiting", |it| count(it.waiting)),
                ("delayed", |it| count(it.delayed)),
                ("running", |it| count(it.running)),
                ("kept", |it| count(it.kept)),
                ("dead", |it| count(it.dead)),
            ],
        ),
    ),
    gauge(
        "throng_durable_unserved_tasks",
        "Waiting tasks in the whole store whose type no live worker has registered: use max by (store), not sum.",
        &[("", |it| count(it.unserved))],
    ),
    by(
        "event",
        counter(
            "throng_durable_events_total",
            "Events in the whole store since it was created: use max by (store), not sum.",
            &[
                ("stored", |it| count(it.stored)),
                ("claimed", |it| count(it.claimed)),
                ("done", |it| count(it.done)),
                ("retried", |it| count(it.retried)),
                ("snoozed", |it| count(it.snoozed)),
                ("died", |it| count(it.died)),
                ("released", |it| count(it.released)),
                ("crashed", |it| count(it.crashed)),
                ("lost", |it| count(it.lost)),
                ("cancelled", |it| count(it.cancelled)),
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
        PartKind::DurableExecutor => families_of(&EXECUTOR),
        #[cfg(feature = "durable")]
        PartKind::DurableStore => [families_of(&STORE), families_of(&COUNTS)].concat(),
    }
}

fn families_of<M>(rows: &'static [Row<M>]) -> Vec<(&'static Family, Vec<&'static str>)> {
    let families = rows.iter().map(|row| {
        let values = row.values.iter().map(|(value, _)| *value);
        (&row.family, values.collect())
    });
    families.collect()
}
