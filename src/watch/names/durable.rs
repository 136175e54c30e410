//! The metrics of durable executors and stores.

use std::time::Duration;

use crate::durable::executor::type_tally::TypeMetrics;
use crate::durable::weak_parts::StoreState;
use crate::durable::{self, Counts, Health, QueueOverview};
use crate::watch::family::{
    Row, buckets, by, count, counter, gauge, histogram, largest, of_each, seconds,
};

pub(in crate::watch) static EXECUTOR: [Row<durable::Metrics>; 13] = [
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
    counter(
        "throng_durable_claimed_total",
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
        "throng_durable_rejected_total",
        "Runs whose verdict the store rejected because another worker had claimed the task.",
        &[("", |m| count(m.rejected))],
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
        "throng_durable_late_wakes_total",
        "Runs in this process whose tasks were not woken when a signal or the end of a child arrived, and ran only later.",
        &[("", |m| count(m.late_wakes))],
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

pub(in crate::watch) static TYPES: [Row<TypeMetrics>; 3] = [
    of_each(
        "type",
        by(
            "outcome",
            counter(
                "throng_durable_task_runs_total",
                "Runs in this process that have ended, by type of the task and by outcome. Cancelled: ended after a request to cancel the task.",
                &[
                    ("completed", |it| count(it.completed)),
                    ("retried", |it| count(it.retried)),
                    ("snoozed", |it| count(it.snoozed)),
                    ("died", |it| count(it.died)),
                    ("cancelled", |it| count(it.cancelled)),
                    ("released", |it| count(it.released)),
                ],
            ),
        ),
    ),
    of_each(
        "type",
        histogram(
            "throng_durable_wait_seconds",
            "Time from when a task was ready to run until this process claimed it, by type of the task. Tasks that were taken back from a worker do not count; those that a worker gave back count from when they first were ready.",
            &[("", |it| buckets(&it.wait_time))],
        ),
    ),
    of_each(
        "type",
        histogram(
            "throng_durable_run_seconds",
            "Run time of each run in this process that has ended, by type of the task.",
            &[("", |it| buckets(&it.run_time))],
        ),
    ),
];

pub(in crate::watch) static STORE: [Row<StoreState>; 4] = [
    largest(gauge(
        "throng_durable_store_up",
        "1 if the store answers this process, 0 if it does not.",
        &[("", |it| {
            count(u64::from(!matches!(it.health, Health::Unreachable(_))))
        })],
    )),
    largest(by(
        "state",
        gauge(
            "throng_durable_store_health",
            "1 for the state of the store as this process sees it, 0 for the other states.",
            &[
                ("well", |it| {
                    count(u64::from(matches!(it.health, Health::Well)))
                }),
                ("mute", |it| {
                    count(u64::from(matches!(it.health, Health::Mute)))
                }),
                ("failing", |it| {
                    count(u64::from(matches!(it.health, Health::Failing { .. })))
                }),
                ("damaged", |it| {
                    count(u64::from(matches!(it.health, Health::Damaged { .. })))
                }),
                ("unreachable", |it| {
                    count(u64::from(matches!(it.health, Health::Unreachable(_))))
                }),
            ],
        ),
    )),
    counter(
        "throng_durable_rewinds_total",
        "Times that this process has found that the store had lost acknowledged writes.",
        &[("", |it| count(it.losses.rewinds))],
    ),
    by(
        "outcome",
        counter(
            "throng_durable_rewound_tasks_total",
            "Tasks of this process that the store had lost after it had acknowledged them. Healed: stored again. Lost: not.",
            &[
                ("healed", |it| count(it.losses.healed)),
                ("lost", |it| count(it.losses.lost)),
            ],
        ),
    ),
];

pub(in crate::watch) static COUNTS: [Row<Counts>; 3] = [
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

pub(in crate::watch) static QUEUES: [Row<QueueOverview>; 5] = [
    of_each(
        "queue",
        by(
            "state",
            gauge(
                "throng_durable_queue_tasks",
                "Tasks of the queue in the whole store by state: use max by (store, queue), not sum.",
                &[
                    ("waiting", |it| count(it.info.waiting)),
                    ("running", |it| count(it.info.running)),
                ],
            ),
        ),
    ),
    of_each(
        "queue",
        gauge(
            "throng_durable_queue_limit",
            "The most tasks of the queue that may run at a time in the whole store. Absent if there is no limit.",
            &[("", |it| {
                it.info
                    .settings
                    .running_limit()
                    .and_then(|limit| count(u64::from(limit)))
            })],
        ),
    ),
    of_each(
        "queue",
        gauge(
            "throng_durable_queue_workers",
            "Live workers that serve the queue in the whole store: use max by (store, queue), not sum.",
            &[("", |it| count(it.sessions))],
        ),
    ),
    of_each(
        "queue",
        largest(gauge(
            "throng_durable_queue_paused",
            "1 if the queue is paused, 0 if it is not.",
            &[("", |it| count(u64::from(it.info.is_paused)))],
        )),
    ),
    of_each(
        "queue",
        largest(gauge(
            "throng_durable_oldest_waiting_seconds",
            "Time for which the first waiting task of the queue has waited; 0 if no task waits. Absent if it is not known.",
            &[("", |it| match it.info.waiting {
                0 => seconds(Duration::ZERO),
                _ => it.oldest_waiting.and_then(seconds),
            })],
        )),
    ),
];
