//! Reports to `tracing`, with the feature of that name: a span for each run of a task, and events that no API returns. The
//! names are part of the public contract.

#[cfg(feature = "tracing")]
mod imp {
    use tracing::Instrument;

    use crate::durable::TaskId;
    use crate::durable::failure::Failure;
    use crate::durable::store::{Claimed, Epoch};

    /// Runs `run` in the span of a task.
    pub(crate) fn in_span<F: Future>(
        claimed: &Claimed,
        epoch: Epoch,
        run: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        run.instrument(tracing::info_span!(
            "durable.run",
            task.name = &*claimed.name,
            task.id = %claimed.id,
            task.attempt = claimed.failures + 1,
            task.crashes = claimed.crashes,
            task.fencing_token = epoch,
        ))
    }

    /// A request of a worker to its store has failed.
    pub(crate) fn store_failed(store: &str, failure: &Failure, failures: u32) {
        tracing::warn!(store, %failure, failures, "a worker's request to its store has failed");
    }

    /// The verdict of a run came too late.
    pub(crate) fn refused(store: &str, id: TaskId) {
        tracing::warn!(store, task.id = %id, "the end of a run came too late: the task had been taken back");
    }

    /// A run has exceeded its timeout.
    pub(crate) fn timed_out(store: &str, id: TaskId) {
        tracing::warn!(store, task.id = %id, "a run has exceeded its timeout, and is asked to stop");
    }

    /// The store may have given the tasks of a claim to others.
    pub(crate) fn lease_lost(store: &str, epoch: Epoch) {
        tracing::warn!(
            store,
            epoch,
            "a lease was lost: its tasks may run elsewhere"
        );
    }

    /// No permit becomes free, and this process awaits tasks that need one.
    pub(crate) fn waits_stalled(store: &str, max_running: usize) {
        tracing::warn!(
            store,
            max_running,
            "no permit has become free for 30 s while awaited tasks wait for a worker: \
             await handles in the run itself, not in tasks that it spawns"
        );
    }

    /// An attempt has failed, and the task is tried again.
    pub(crate) fn retried(store: &str, id: TaskId, error: &str) {
        tracing::warn!(store, task.id = %id, error, "a task has failed, and is tried again");
    }

    /// A run has reported progress that cannot be stored.
    pub(crate) fn progress_dropped(store: &str, id: TaskId, error: &str) {
        tracing::warn!(store, task.id = %id, error, "the progress of a task cannot be stored, and is ignored");
    }

    /// A task has failed for good.
    pub(crate) fn died(store: &str, id: TaskId, error: &str) {
        tracing::error!(store, task.id = %id, error, "a task has become a dead letter");
    }

    /// A schedule has fired. It has stored `started` tasks, and `skipped` ones were not stored because of earlier tasks.
    pub(crate) fn schedule_fired(store: &str, schedule: &str, started: usize, skipped: usize) {
        tracing::debug!(store, schedule, started, skipped, "a schedule has fired");
    }

    /// A schedule is due, but this process could not fire it. It is handed out again. This is reported once until it fires.
    pub(crate) fn schedule_failed(store: &str, schedule: &str, error: &str) {
        tracing::warn!(
            store,
            schedule,
            error,
            "this process could not fire a schedule, which is handed out again"
        );
    }

    /// The store did not say which schedules are due. It is asked again.
    pub(crate) fn schedules_unread(store: &str, failure: &Failure) {
        tracing::debug!(store, %failure, "the store did not say which schedules are due, and is asked again");
    }

    /// A definition replaces another one of the same revision. Two releases may be replacing each other's definitions.
    pub(crate) fn schedule_flipped(store: &str, schedule: &str, revision: u32) {
        tracing::warn!(
            store,
            schedule,
            revision,
            "the definition of a schedule replaces another one of the same revision: increase the revision with each change, so \
             that processes of an older release do not restore the old definition"
        );
    }
}

#[cfg(not(feature = "tracing"))]
mod imp {
    use crate::durable::TaskId;
    use crate::durable::failure::Failure;
    use crate::durable::store::{Claimed, Epoch};

    pub(crate) fn in_span<F: Future>(_: &Claimed, _: Epoch, run: F) -> F {
        run
    }

    pub(crate) fn store_failed(_: &str, _: &Failure, _: u32) {}
    pub(crate) fn schedule_fired(_: &str, _: &str, _: usize, _: usize) {}
    pub(crate) fn schedule_failed(_: &str, _: &str, _: &str) {}
    pub(crate) fn schedules_unread(_: &str, _: &Failure) {}
    pub(crate) fn schedule_flipped(_: &str, _: &str, _: u32) {}
    pub(crate) fn refused(_: &str, _: TaskId) {}
    pub(crate) fn timed_out(_: &str, _: TaskId) {}
    pub(crate) fn lease_lost(_: &str, _: Epoch) {}
    pub(crate) fn waits_stalled(_: &str, _: usize) {}
    pub(crate) fn retried(_: &str, _: TaskId, _: &str) {}
    pub(crate) fn progress_dropped(_: &str, _: TaskId, _: &str) {}
    pub(crate) fn died(_: &str, _: TaskId, _: &str) {}
}

pub(crate) use self::imp::*;
