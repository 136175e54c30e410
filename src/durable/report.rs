//! Reports to `tracing`, with the feature of that name: spans for spawns and runs, and events that no API returns. The
//! names are part of the public contract. A panic of the subscriber is contained.

#[cfg(feature = "tracing")]
mod imp {
    use std::pin::Pin;

    use tracing::Span;
    use tracing::field::Empty;

    use crate::durable::TaskId;
    use crate::durable::contained_span::{ContainedSpan, EnteredSpan};
    use crate::durable::envelope::TraceBytes;
    use crate::durable::failure::Failure;
    use crate::durable::queue::name::QueueName;
    use crate::durable::store::{Claimed, Epoch, NewTask, Rewind, Verdict};
    pub(crate) use crate::durable::trace::Propagation;
    use crate::unwind::contain;

    /// The span of a spawn.
    pub(crate) struct SpawnSpan(ContainedSpan);

    impl SpawnSpan {
        pub(crate) fn new(store: &str, name: &str) -> Self {
            Self(ContainedSpan::new(|| {
                tracing::debug_span!(
                    "durable.spawn",
                    otel.kind = "producer",
                    store,
                    task.name = name,
                    task.queue = Empty,
                    task.id = Empty,
                    task.count = Empty,
                )
            }))
        }

        pub(crate) fn enter(&self) -> EnteredSpan<'_> {
            self.0.enter()
        }

        /// Records the tasks. A single one is identified.
        pub(crate) fn spawns(&self, propagation: &Propagation, tasks: &[NewTask]) {
            self.0.record(|span| propagation.describe(span, tasks));
            self.0.record(|span| {
                span.record("task.count", tasks.len());
                if let [task] = tasks {
                    span.record("task.id", tracing::field::display(task.id));
                    span.record("task.queue", task.queue.shown());
                }
            });
        }

        pub(crate) fn hold<F: Future>(self, f: F) -> impl Future<Output = F::Output> {
            self.0.hold(f)
        }
    }

    /// Runs `run` in the span of a task. `trace` is the trace context of its spawn, if it was stored.
    pub(crate) fn in_span<F: Future + Send + 'static>(
        propagation: &Propagation,
        (queue, claimed): (&QueueName, &Claimed),
        epoch: Epoch,
        trace: Option<TraceBytes>,
        run: Pin<Box<F>>,
    ) -> Pin<Box<dyn Future<Output = F::Output> + Send>> {
        let span = ContainedSpan::new(|| {
            tracing::info_span!(
                "durable.run",
                otel.kind = "consumer",
                otel.name = Empty,
                otel.status_code = Empty,
                task.name = &*claimed.name,
                task.queue = queue.shown(),
                task.id = %claimed.id,
                task.attempt = claimed.failures.saturating_add(1),
                task.crashes = claimed.crashes,
                task.fencing_token = epoch,
                task.outcome = Empty,
                trace_id = Empty,
            )
        });
        span.record(|span| propagation.begin(span, (queue, claimed), trace));
        span.hold_boxed(run)
    }

    /// Records how the run ends whose span is the current one.
    pub(crate) fn run_ended(verdict: &Verdict) {
        let (outcome, is_failure) = match verdict.split().0 {
            Verdict::Done(_) => ("completed", false),
            Verdict::Retry { .. } => ("retried", true),
            Verdict::Snooze { .. } => ("snoozed", false),
            Verdict::Suspend { .. } => ("suspended", false),
            Verdict::Dead { .. } => ("died", true),
            Verdict::Release | Verdict::HoldGroup { .. } => ("released", false),
        };
        contain(|| {
            let span = Span::current();
            span.record("task.outcome", outcome);
            if is_failure {
                span.record("otel.status_code", "error");
            }
        });
    }

    /// A request of a worker to its store has failed.
    pub(crate) fn store_failed(store: &str, failure: &Failure, failures: u32) {
        contain(
            || tracing::warn!(store, %failure, failures, "a worker's request to its store has failed"),
        );
    }

    /// The store has lost writes that it had acknowledged.
    pub(crate) fn rewound(store: &str, rewind: Rewind) {
        let Rewind {
            healed,
            lost,
            is_replaced,
        } = rewind;
        contain(|| {
            tracing::warn!(
                store,
                healed,
                lost,
                is_replaced,
                "the store has lost acknowledged writes: `healed` tasks of this process are stored again, and `lost` are not"
            )
        });
    }

    /// The verdict of a run came too late.
    pub(crate) fn refused(store: &str, id: TaskId) {
        contain(
            || tracing::warn!(store, task.id = %id, "the end of a run came too late: the task had been taken back"),
        );
    }

    /// A store in PostgreSQL has accepted `LISTEN`, and passes on no notification. Workers poll until it does.
    #[cfg(feature = "postgres")]
    pub(crate) fn receives_no_notifications(store: &str) {
        contain(|| {
            tracing::warn!(
                store,
                "no notifications arrive, so workers look for tasks at intervals: connect to the server itself, or through a pooler in \
             session mode"
            )
        });
    }

    /// A run has exceeded its timeout.
    pub(crate) fn timed_out(store: &str, id: TaskId) {
        contain(
            || tracing::warn!(store, task.id = %id, "a run has exceeded its timeout, and is asked to stop"),
        );
    }

    /// The store may have given the tasks of a claim to others.
    pub(crate) fn lease_lost(store: &str, epoch: Epoch) {
        contain(|| {
            tracing::warn!(
                store,
                epoch,
                "a lease was lost: its tasks may run elsewhere"
            )
        });
    }

    /// No permit becomes free, and this process awaits tasks that need one.
    pub(crate) fn waits_stalled(store: &str, max_running: usize) {
        contain(|| {
            tracing::warn!(
                store,
                max_running,
                "no permit has become free for 30 s while awaited tasks wait for a worker: \
             await handles in the run itself, not in tasks that it spawns"
            )
        });
    }

    /// An attempt has failed, and the task is tried again.
    pub(crate) fn retried(store: &str, id: TaskId, error: &str) {
        contain(
            || tracing::warn!(store, task.id = %id, error, "a task has failed, and is tried again"),
        );
    }

    /// A run has reported progress that cannot be stored.
    pub(crate) fn progress_dropped(store: &str, id: TaskId, error: &str) {
        contain(
            || tracing::warn!(store, task.id = %id, error, "the progress of a task cannot be stored, and is ignored"),
        );
    }

    /// A task has failed for good.
    pub(crate) fn died(store: &str, id: TaskId, error: &str) {
        contain(|| tracing::error!(store, task.id = %id, error, "a task has become a dead letter"));
    }

    /// Rows of the outbox could not be read. Each of them is a task that no worker runs now: a dead letter, or one that waits.
    pub(crate) fn outbox_unreadable(store: &str, rows: u64) {
        contain(|| {
            tracing::error!(
                store,
                rows,
                "rows of the outbox could not be read: look at the tasks of the type `throng.unreadable-outbox-row`"
            )
        });
    }

    /// A relay could not move the rows of an outbox, which stay there. It tries again.
    #[cfg(any(feature = "postgres", feature = "sqlite-unbundled"))]
    pub(crate) fn relay_failed(outbox: &str, failure: &Failure, failures: u32) {
        contain(
            || tracing::warn!(outbox, %failure, failures, "a relay could not move the rows of an outbox, and tries again"),
        );
    }

    /// There are rows of the outbox that only a later version of the crate can read. This is reported once.
    pub(crate) fn outbox_newer(store: &str, rows: u64) {
        contain(|| {
            tracing::warn!(
                store,
                rows,
                "rows of the outbox were encoded by a later version of throng: update the workers"
            )
        });
    }

    /// A schedule has fired. It has stored `started` tasks, and `skipped` ones were not stored because of earlier tasks.
    pub(crate) fn schedule_fired(store: &str, schedule: &str, started: usize, skipped: usize) {
        contain(|| tracing::debug!(store, schedule, started, skipped, "a schedule has fired"));
    }

    /// A schedule is due, but this process could not fire it. It is handed out again. This is reported once until it fires.
    pub(crate) fn schedule_failed(store: &str, schedule: &str, error: &str) {
        contain(|| {
            tracing::warn!(
                store,
                schedule,
                error,
                "this process could not fire a schedule, which is handed out again"
            )
        });
    }

    /// The store did not say which schedules are due. It is asked again.
    pub(crate) fn schedules_unread(store: &str, failure: &Failure) {
        contain(
            || tracing::debug!(store, %failure, "the store did not say which schedules are due, and is asked again"),
        );
    }

    /// A definition replaces another one of the same revision. Two releases may be replacing each other's definitions.
    pub(crate) fn schedule_flipped(store: &str, schedule: &str, revision: u32) {
        contain(|| {
            tracing::warn!(
                store,
                schedule,
                revision,
                "the definition of a schedule replaces another one of the same revision: increase the revision with each change, so \
             that processes of an older release do not restore the old definition"
            )
        });
    }
}

#[cfg(not(feature = "tracing"))]
mod imp {
    use std::pin::Pin;

    use crate::durable::TaskId;
    use crate::durable::envelope::TraceBytes;
    use crate::durable::failure::Failure;
    use crate::durable::queue::name::QueueName;
    use crate::durable::store::{Claimed, Epoch, NewTask, Rewind, Verdict};

    /// No traces are propagated.
    #[derive(Clone, Default)]
    pub(crate) struct Propagation {}

    impl Propagation {
        pub(crate) fn current(&self) -> Option<TraceBytes> {
            None
        }
    }

    pub(crate) struct SpawnSpan;

    impl SpawnSpan {
        pub(crate) fn new(_: &str, _: &str) -> Self {
            Self
        }

        pub(crate) fn enter(&self) -> &Self {
            self
        }

        pub(crate) fn spawns(&self, _: &Propagation, _: &[NewTask]) {}

        pub(crate) fn hold<F: Future>(self, f: F) -> F {
            f
        }
    }

    pub(crate) fn in_span<F: Future + Send + 'static>(
        _: &Propagation,
        _: (&QueueName, &Claimed),
        _: Epoch,
        _: Option<TraceBytes>,
        run: Pin<Box<F>>,
    ) -> Pin<Box<dyn Future<Output = F::Output> + Send>> {
        run
    }

    pub(crate) fn run_ended(_: &Verdict) {}

    pub(crate) fn store_failed(_: &str, _: &Failure, _: u32) {}
    pub(crate) fn rewound(_: &str, _: Rewind) {}
    pub(crate) fn outbox_unreadable(_: &str, _: u64) {}
    pub(crate) fn outbox_newer(_: &str, _: u64) {}
    #[cfg(any(feature = "postgres", feature = "sqlite-unbundled"))]
    pub(crate) fn relay_failed(_: &str, _: &Failure, _: u32) {}
    pub(crate) fn schedule_fired(_: &str, _: &str, _: usize, _: usize) {}
    pub(crate) fn schedule_failed(_: &str, _: &str, _: &str) {}
    pub(crate) fn schedules_unread(_: &str, _: &Failure) {}
    pub(crate) fn schedule_flipped(_: &str, _: &str, _: u32) {}
    pub(crate) fn refused(_: &str, _: TaskId) {}
    #[cfg(feature = "postgres")]
    pub(crate) fn receives_no_notifications(_: &str) {}
    pub(crate) fn timed_out(_: &str, _: TaskId) {}
    pub(crate) fn lease_lost(_: &str, _: Epoch) {}
    pub(crate) fn waits_stalled(_: &str, _: usize) {}
    pub(crate) fn retried(_: &str, _: TaskId, _: &str) {}
    pub(crate) fn progress_dropped(_: &str, _: TaskId, _: &str) {}
    pub(crate) fn died(_: &str, _: TaskId, _: &str) {}
}

pub(crate) use self::imp::*;
