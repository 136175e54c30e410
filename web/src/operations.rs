//! Changes tasks, queues, types and schedules. The routes to these functions exist only if the application has set an access hook, and a middleware
//! lets only users through who may operate.

pub(crate) mod action;
pub(crate) mod audit;
pub(crate) mod bulk;
pub(crate) mod jobs;

use serde_json::Value;
use serde_json::value::RawValue;
use throng::durable::{Changed, DurableError, TaskChange, TaskId};

use self::action::TaskAction;
use self::audit::Audit;
use crate::error::{ErrorKind, WebError};
use crate::views::tasks::code_of;
use crate::visit::StoreVisit;

/// A kind of objects that can be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pausable {
    Queue,
    Type,
    Schedule,
}

/// Changes one task.
pub(crate) async fn change_task(
    visit: &StoreVisit,
    id: TaskId,
    action: TaskAction,
    to: Option<&str>,
) -> Result<Changed, WebError> {
    let change = action.change(to)?;
    let subject = id.to_string();
    let audit = Audit::begin(visit, action.code(), &subject);
    let admin = visit.store.client.admin();
    let changed = visit.store.change(admin.change(id, change)).await;
    audit.end(&changed.as_ref().map(effect_of));
    changed
}

/// The maximum size in bytes of the name of a signal, and of a step without its kind.
pub(crate) const MAX_STEP_NAME_BYTES: usize = 128;
/// The maximum size in bytes of the name of a step with its kind. The longest kind is `timeout`.
const MAX_FULL_NAME_BYTES: usize = "timeout:".len() + MAX_STEP_NAME_BYTES;

/// Refuses a name that no step has. This precedes the audit event, which would otherwise record a text as long as the request.
fn check_length(what: &str, name: &str, max: usize) -> Result<(), WebError> {
    let len = name.len();
    match (1..=max).contains(&len) {
        true => Ok(()),
        false => Err(WebError::invalid(format!(
            "The name of a {what} has 1 to {max} bytes, and this one has {len}: check the name, and send it again."
        ))),
    }
}

/// Replays a task from a step.
pub(crate) async fn replay_from(
    visit: &StoreVisit,
    id: TaskId,
    step: &str,
) -> Result<Changed, WebError> {
    check_length("step, with its kind,", step, MAX_FULL_NAME_BYTES)?;
    let subject = format!("{id} {step}");
    let audit = Audit::begin(visit, "replay-from", &subject);
    let change = TaskChange::replay_from(step);
    let admin = visit.store.client.admin();
    let changed = visit.store.change(admin.change(id, change)).await;
    audit.end(&changed.as_ref().map(effect_of));
    changed
}

/// The maximum length in bytes of the body of a request that sends a signal. A value has at most 64 KiB, and a form may encode each of its
/// bytes as three. The rest is for the name.
pub(crate) const MAX_SIGNAL_BODY_BYTES: usize = 3 * (64 << 10) + (4 << 10);

/// Refuses a value that `serde_json` accepts as a [`RawValue`], but decodes into no type: it contains half of a surrogate pair, a number that
/// is out of range, or too many nested arrays. The run that reads it would fail for good, and the first signal with a name stands.
fn check_value(value: &RawValue) -> Result<(), WebError> {
    let decoded = serde_json::from_str::<Value>(value.get());
    decoded.map(drop).map_err(|error| {
        WebError::invalid(format!(
            "No task could read the value of the signal ({error}): correct the value, and send it again."
        ))
    })
}

/// Sends a signal to a task. Returns `false` if the task has a signal with this name already.
pub(crate) async fn signal(
    visit: &StoreVisit,
    id: TaskId,
    name: &str,
    value: &RawValue,
) -> Result<bool, WebError> {
    check_length("signal", name, MAX_STEP_NAME_BYTES)?;
    check_value(value)?;
    let subject = format!("{id} {name}");
    let audit = Audit::begin(visit, "signal", &subject);
    let client = &visit.store.client;
    let sent = async {
        match client.signal(id, name, value).await {
            Err(error) if error.is_expired() => Ok(None),
            sent => sent.map(Some),
        }
    };
    let sent = visit.store.change(sent).await;
    let sent = sent.and_then(|sent| {
        let ended = || {
            format!(
                "The signal was not sent: the task {id} has ended, or the store has no record of it. If it is a dead letter, replay it first."
            )
        };
        sent.ok_or_else(|| WebError::new(ErrorKind::NotInState, ended()))
    });
    let effect = |is_sent: &bool| String::from(if *is_sent { "yes" } else { "already" });
    audit.end(&sent.as_ref().map(effect));
    sent
}

/// Pauses or resumes a queue, a type or a schedule.
pub(crate) async fn set_paused(
    visit: &StoreVisit,
    what: Pausable,
    name: &str,
    is_paused: bool,
) -> Result<(), WebError> {
    let audit = Audit::begin(visit, what.operation(is_paused), name);
    let set = visit
        .store
        .change(what.set_paused(visit, name, is_paused))
        .await;
    let exists = set.and_then(|exists| exists.then_some(()).ok_or_else(|| no_schedule(name)));
    audit.end(&exists.as_ref().map(|()| String::from("yes")));
    exists
}

/// Stores a task of a schedule now. Returns the id of the task or, if an earlier task prevents it, of that one.
pub(crate) async fn fire(visit: &StoreVisit, name: &str) -> Result<TaskId, WebError> {
    let audit = Audit::begin(visit, "fire-schedule", name);
    let schedules = visit.store.client.schedules();
    let fired = visit.store.change(schedules.fire_now(name)).await;
    let fired = fired.and_then(|id| id.ok_or_else(|| no_schedule(name)));
    audit.end(&fired.as_ref().map(ToString::to_string));
    fired
}

/// Returns the effect of a change as one word.
pub(crate) fn effect_of(changed: &Changed) -> String {
    match changed {
        Changed::NotIn(_) => "not_in".into(),
        Changed::Refused(refusal) => code_of(refusal),
        changed => code_of(changed),
    }
}

fn no_schedule(name: &str) -> WebError {
    WebError::not_found(format!(
        "The store has no schedule {name:?}: it may have been removed."
    ))
}

impl Pausable {
    fn operation(self, is_paused: bool) -> &'static str {
        match (self, is_paused) {
            (Self::Queue, true) => "pause-queue",
            (Self::Queue, false) => "resume-queue",
            (Self::Type, true) => "pause-type",
            (Self::Type, false) => "resume-type",
            (Self::Schedule, true) => "pause-schedule",
            (Self::Schedule, false) => "resume-schedule",
        }
    }

    /// Returns `false` if there is no schedule with this name. Queues and types can be paused before they exist.
    async fn set_paused(
        self,
        visit: &StoreVisit,
        name: &str,
        is_paused: bool,
    ) -> Result<bool, DurableError> {
        let client = &visit.store.client;
        match (self, is_paused) {
            (Self::Queue, true) => client.queue(name).pause().await.map(|()| true),
            (Self::Queue, false) => client.queue(name).resume().await.map(|()| true),
            (Self::Type, true) => client.types().pause(name).await.map(|()| true),
            (Self::Type, false) => client.types().resume(name).await.map(|()| true),
            (Self::Schedule, true) => client.schedules().pause(name).await,
            (Self::Schedule, false) => client.schedules().resume(name).await,
        }
    }
}
