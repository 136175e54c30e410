//! `throng task replay`: runs a task again from one of its steps.

use clap::Args;
use throng::durable::{TaskChange, TaskDetail, TaskId};

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

/// Asks for a confirmation, unless the task has no such step, so that the replay is refused.
fn confirm_removal(detail: &TaskDetail, args: &ReplayArgs) -> Result<(), Failure> {
    match (steps_from(detail, &args.from), &detail.damage) {
        (0, Some(damage)) if detail.steps.is_empty() => {
            let act = format!("remove an unknown number of steps of a damaged task ({damage})");
            confirm_unknown(&act, &args.confirm)
        }
        (0, _) => Ok(()),
        (number, _) => confirm_all("remove", (number, "step"), &args.confirm),
    }
}

/// Returns the number of steps that a replay removes.
fn steps_from(detail: &TaskDetail, from: &str) -> u64 {
    let steps = detail.steps.iter();
    let removed = steps.skip_while(|step| !step.is_named(from));
    removed.count() as u64
}
