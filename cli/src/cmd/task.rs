//! `throng task`: lists, shows and changes tasks.

mod list;
mod payload;
mod replay;
pub(crate) mod show;
mod signal;
mod steps;
mod wait;
mod why;

use clap::{Args, Subcommand};
use serde::Serialize;
use throng::durable::{Changed, TaskChange, TaskId};

pub(crate) use self::list::{TaskPages, TaskPaging};
use crate::confirm::{ConfirmArgs, confirm};
use crate::failure::Failure;
use crate::out::{Column, ListEnd, Output};
use crate::store::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Lists the tasks with a status
    Ls(list::TaskListArgs),
    /// Shows what the store knows about a task
    Show {
        /// The id of the task
        id: TaskId,
    },
    /// Prints the payload of a task: the encoded task, usually JSON
    Payload(payload::PayloadArgs),
    /// Waits for the end of a task, and prints its output
    Wait(wait::WaitArgs),
    /// Cancels waiting, delayed and running tasks
    Cancel(TaskIds),
    /// Makes delayed tasks due now
    Run(TaskIds),
    /// Moves waiting and delayed tasks to another queue
    Move(MoveArgs),
    /// Runs a task again from one of its steps: `task show` lists them
    Replay(replay::ReplayArgs),
    /// Sends a signal to a task
    Signal(signal::SignalArgs),
    /// Deletes dead letters
    Delete(DeleteArgs),
}

#[derive(Args, Debug)]
pub(crate) struct TaskIds {
    /// The ids of the tasks
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<TaskId>,
}

#[derive(Args, Debug)]
#[group(id = "target", required = true, multiple = false)]
struct MoveTarget {
    /// The queue to which the tasks move
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,

    /// Moves the tasks to the default queue
    #[arg(long)]
    default_queue: bool,
}

#[derive(Args, Debug)]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    tasks: TaskIds,

    #[command(flatten)]
    target: MoveTarget,
}

#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    tasks: TaskIds,

    #[command(flatten)]
    confirm: ConfirmArgs,
}

/// The effect of a change on a task.
#[derive(Debug, Serialize)]
struct ChangeRow {
    id: TaskId,
    #[serde(flatten)]
    effect: ChangeEffect,
}

#[derive(Debug, Serialize)]
struct ChangeEffect {
    is_changed: bool,
    effect: String,
}

static CHANGE_COLUMNS: [Column<ChangeRow>; 2] = [
    Column {
        title: "ID",
        text: |row| row.id.to_string(),
    },
    Column {
        title: "EFFECT",
        text: |row| row.effect.effect.clone(),
    },
];

impl TaskCommand {
    pub(crate) fn changes(&self) -> bool {
        matches!(
            self,
            Self::Cancel(_)
                | Self::Run(_)
                | Self::Move(_)
                | Self::Replay(_)
                | Self::Signal(_)
                | Self::Delete(_)
        )
    }
}

/// Runs a command.
pub(crate) async fn run(
    session: &Session,
    command: TaskCommand,
    out: &mut Output,
) -> Result<(), Failure> {
    match command {
        TaskCommand::Ls(args) => list::list(session, args, out).await,
        TaskCommand::Show { id } => show::show(session, id, out).await,
        TaskCommand::Payload(args) => payload::payload(session, args, out).await,
        TaskCommand::Wait(args) => wait::wait(session, args, out).await,
        TaskCommand::Cancel(tasks) => change(session, &tasks.ids, &TaskChange::Cancel, out).await,
        TaskCommand::Run(tasks) => change(session, &tasks.ids, &TaskChange::RunNow, out).await,
        TaskCommand::Move(args) => {
            let target = TaskChange::MoveTo(args.target.queue);
            change(session, &args.tasks.ids, &target, out).await
        }
        TaskCommand::Replay(args) => replay::replay(session, args, out).await,
        TaskCommand::Signal(args) => signal::signal(session, args, out).await,
        TaskCommand::Delete(args) => {
            let number = args.tasks.ids.len() as u64;
            confirm("delete", number, &args.confirm)?;
            change(session, &args.tasks.ids, &TaskChange::Delete, out).await
        }
    }
}

/// Changes tasks one by one, and prints the effect on each.
pub(crate) async fn change(
    session: &Session,
    ids: &[TaskId],
    change: &TaskChange,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut list = out.list(&CHANGE_COLUMNS);
    let mut unchanged = 0;
    for &id in ids {
        let changed = session
            .ask(session.client.admin().change(id, change.clone()))
            .await?;
        let is_changed = matches!(changed, Changed::Yes | Changed::Already);
        unchanged += u64::from(!is_changed);
        let effect = ChangeEffect {
            is_changed,
            effect: effect_of(changed, change),
        };
        list.rows(&[ChangeRow { id, effect }])?;
    }
    list.finish(ListEnd::default())?;
    match unchanged {
        0 => Ok(()),
        _ => Err(Failure::Nothing(format!(
            "{unchanged} of {} tasks were not changed",
            ids.len()
        ))),
    }
}

/// Returns a text for the effect of a change.
pub(crate) fn effect_of(changed: Changed, change: &TaskChange) -> String {
    match changed {
        Changed::Yes => match change {
            TaskChange::Cancel => "cancelled, or asked to stop if it was running".into(),
            TaskChange::RunNow => "made due".into(),
            TaskChange::MoveTo(_) => "moved".into(),
            TaskChange::Replay => "replayed".into(),
            TaskChange::ReplayFrom(step) => format!("ready to run again from `{step}`"),
            _ => "deleted".into(),
        },
        Changed::Already => match change {
            TaskChange::ReplayFrom(_) => {
                "not changed: it was already replayed from this step".into()
            }
            _ => "not changed: the task is already in this queue".into(),
        },
        Changed::NotThere => "not changed: the store has no such task".into(),
        Changed::NotIn(status) => format!("not changed: the task is {}", show::status_name(status)),
        Changed::Refused(refusal) => format!("not changed: {refusal}"),
        other => format!("not changed: {other:?}"),
    }
}
