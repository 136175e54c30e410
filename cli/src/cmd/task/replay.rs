//! `throng task replay`: runs a task again from one of its steps.

use clap::Args;
use throng::durable::{StepKind, TaskChange, TaskDetail, TaskId, TaskStep};

use super::change;
use super::show::absent;
use crate::confirm::{ConfirmArgs, confirm_all, confirm_unknown};
use crate::failure::Failure;
use crate::out::Output;
use crate::store::Session;

#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// The id of a dead letter, or of a task that waits or is delayed
    id: TaskId,

    /// The first step that runs again, such as `charge` or `sleep:pause`; it is removed with all later steps, signals included
    #[arg(long, value_name = "STEP")]
    from: String,

    #[command(flatten)]
    confirm: ConfirmArgs,
}

/// Removes the steps after a confirmation.
pub(crate) async fn replay(
    session: &Session,
    args: ReplayArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let detail = session.ask(session.client.admin().task(args.id)).await?;
    let detail = detail.ok_or_else(|| absent(args.id))?;
    confirm_removal(&detail, &args)?;
    let replay = TaskChange::replay_from(args.from);
    change(session, &[args.id], &replay, out).await
}

/// Asks for a confirmation, unless the task has no such step and was not replayed from it: the store then refuses the replay.
fn confirm_removal(detail: &TaskDetail, args: &ReplayArgs) -> Result<(), Failure> {
    if let Some(at) = position(detail, &args.from) {
        return confirm_steps(detail, at, args);
    }
    let (from, damage) = (&args.from, detail.damage.as_deref());
    if let Some(damage) = damage.filter(|it| detail.steps.is_empty() && concerns_steps(it)) {
        let act = format!("remove an unknown number of steps of a damaged task ({damage})");
        return confirm_unknown(&act, &args.confirm);
    }
    if was_replayed_from(detail, from) {
        // A run may store the step before the replay reaches the store.
        let act = format!(
            "make the task due or, if a run has stored `{from}` again by then, remove this step and all later ones"
        );
        return confirm_unknown(&act, &args.confirm);
    }
    Ok(())
}

fn position(detail: &TaskDetail, from: &str) -> Option<usize> {
    detail.steps.iter().position(|step| step.is_named(from))
}

/// Asks for a confirmation before steps are removed. If the step has spawned children, the first of their ends may come before it. The
/// details do not tell which step has spawned a child, so the number includes all that follows the first end of any child.
fn confirm_steps(detail: &TaskDetail, at: usize, args: &ReplayArgs) -> Result<(), Failure> {
    let first = match detail.steps[at].kind {
        StepKind::Spawn => first_end(&detail.steps[..at]).unwrap_or(at),
        _ => at,
    };
    let act = match (detail.steps[at].kind, first < at) {
        (StepKind::Spawn, false) => SPAWN_REMOVAL.to_owned(),
        (StepKind::Spawn, true) => format!("{SPAWN_REMOVAL} at most"),
        _ => "remove".to_owned(),
    };
    let number = (detail.steps.len() - first) as u64;
    confirm_all(&act, (number, "step"), &args.confirm)
}

/// Describes a replay from a step that has spawned children, before the number of steps.
const SPAWN_REMOVAL: &str =
    "remove this step, the ends of its children, and everything after the first of these:";

fn first_end(steps: &[TaskStep]) -> Option<usize> {
    steps.iter().position(|step| step.kind == StepKind::Child)
}

/// Returns `true` if a description of damage is that of lost steps. The steps of a task whose payload is lost are complete.
fn concerns_steps(damage: &str) -> bool {
    damage.contains("of its steps")
}

/// Returns `true` if the last replay of the task was from this step.
fn was_replayed_from(detail: &TaskDetail, from: &str) -> bool {
    let mut records = detail.steps.iter().rev();
    let last = records.find(|step| step.kind == StepKind::Replay);
    let step = last.and_then(|record| record.value.as_ref()?.as_str());
    step.is_some_and(|step| step == from || step.strip_prefix("step:") == Some(from))
}
