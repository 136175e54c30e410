//! `throng dead`: lists, replays, deletes and exports dead letters.

mod export;

use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use serde::Serialize;
use throng::durable::{Status, TaskChange, TaskFilter, TaskId, TaskInfo};

use super::queue::{in_queue, queue_name};
use super::task::show::reason_name;
use super::task::{self, TaskPages, TaskPaging};
use crate::bulk::{BulkTally, DeadBulk, has_ended_within, has_error};
use crate::confirm::{ConfirmArgs, confirm};
use crate::duration::{self, short};
use crate::failure::Failure;
use crate::out::{Column, Output, counted, dash};
use crate::store::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum DeadCommand {
    /// Lists dead letters, the newest first
    Ls(DeadListArgs),
    /// Shows a dead letter
    Show {
        /// The id of the task
        id: TaskId,
    },
    /// Makes dead letters wait for a worker again
    Replay(DeadChangeArgs),
    /// Deletes dead letters
    Delete(DeadDeleteArgs),
    /// Prints dead letters with their payloads and errors, one JSON object a line
    Export(DeadFilterArgs),
}

/// Selects the dead letters that a command is about.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeadFilterArgs {
    /// Only tasks of the type with this name
    #[arg(long = "type", value_name = "TYPE")]
    name: Option<String>,

    /// Only tasks of this queue; use `(default)` for the default queue
    #[arg(long)]
    queue: Option<String>,

    /// Only tasks whose last error contains this text within its first 160 bytes
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,

    /// Only tasks that were dead at this time, such as `2026-11-26T14:05:07Z`
    #[arg(long, value_name = "TIME", value_parser = duration::parse_time)]
    as_of: Option<SystemTime>,
}

#[derive(Args, Debug)]
pub(crate) struct DeadListArgs {
    #[command(flatten)]
    filter: DeadFilterArgs,

    /// Only tasks that became dead letters within this time, such as `1h`
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    since: Option<Duration>,

    #[command(flatten)]
    paging: TaskPaging,
}

#[derive(Args, Debug)]
pub(crate) struct DeadChangeArgs {
    /// The ids of dead letters
    #[arg(value_name = "ID", conflicts_with_all = ["all", "name", "queue", "error", "as_of", "dry_run"])]
    ids: Vec<TaskId>,

    #[command(flatten)]
    filter: DeadFilterArgs,

    /// Changes all dead letters that match the other options
    #[arg(long)]
    all: bool,

    /// Counts the dead letters, and changes nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DeadDeleteArgs {
    #[command(flatten)]
    change: DeadChangeArgs,

    #[command(flatten)]
    confirm: ConfirmArgs,
}

/// The number of dead letters that a change would change.
#[derive(Debug, Serialize)]
struct DryRun {
    matching: u64,
}

static DEAD_COLUMNS: [Column<TaskInfo>; 7] = [
    Column {
        title: "ID",
        text: |task| task.id.to_string(),
    },
    Column {
        title: "TYPE",
        text: |task| task.name.clone().unwrap_or_else(dash),
    },
    Column {
        title: "QUEUE",
        text: |task| queue_name(task.queue.as_deref()),
    },
    Column {
        title: "REASON",
        text: |task| task.reason.map_or_else(dash, |it| reason_name(it).into()),
    },
    Column {
        title: "FAILURES",
        text: |task| task.failures.map_or_else(dash, |it| it.to_string()),
    },
    Column {
        title: "AGE",
        text: |task| task.age.map_or_else(dash, short),
    },
    Column {
        title: "ERROR",
        text: |task| task.error.clone().unwrap_or_default(),
    },
];

impl DeadCommand {
    pub(crate) fn changes(&self) -> bool {
        match self {
            Self::Replay(args) => !args.dry_run,
            Self::Delete(args) => !args.change.dry_run,
            _ => false,
        }
    }
}

/// Runs a command.
pub(crate) async fn run(
    session: &Session,
    command: DeadCommand,
    out: &mut Output,
) -> Result<(), Failure> {
    match command {
        DeadCommand::Ls(args) => list(session, args, out).await,
        DeadCommand::Show { id } => task::show::show(session, id, out).await,
        DeadCommand::Replay(args) => {
            change(session, args, TaskChange::Replay, "replayed", None, out).await
        }
        DeadCommand::Delete(args) => {
            let confirm = Some(&args.confirm);
            change(
                session,
                args.change,
                TaskChange::Delete,
                "deleted",
                confirm,
                out,
            )
            .await
        }
        DeadCommand::Export(filter) => export::export(session, filter, out).await,
    }
}

async fn list(session: &Session, args: DeadListArgs, out: &mut Output) -> Result<(), Failure> {
    let mut pages = TaskPages::new(session, args.filter.filter(), args.paging);
    let matches = |task: &TaskInfo| {
        has_ended_within(task, args.since) && has_error(task, args.filter.error.as_deref())
    };
    pages.print(&DEAD_COLUMNS, matches, out).await
}

/// Changes the dead letters with the given ids, or all that match.
async fn change(
    session: &Session,
    args: DeadChangeArgs,
    change: TaskChange,
    verb: &'static str,
    ask: Option<&ConfirmArgs>,
    out: &mut Output,
) -> Result<(), Failure> {
    let act = act_of(&change);
    if !args.ids.is_empty() {
        if let Some(ask) = ask {
            confirm(act, args.ids.len() as u64, ask)?;
        }
        return task::change(session, &args.ids, &change, out).await;
    }
    if !args.selects() {
        return Err(nothing_selected(act));
    }
    let filter = args.filter.until_now(session).await?;
    if args.dry_run {
        return dry_run(count(session, &filter).await?, out);
    }
    if let Some(ask) = ask
        && let number @ 1.. = count(session, &filter).await?
    {
        confirm(act, number, ask)?;
    }
    let error = filter.error.clone();
    let tally = DeadBulk::new(session, filter.filter(), change, error)
        .run(verb, out)
        .await?;
    finish(&tally, verb, out)
}

fn dry_run(matching: u64, out: &mut Output) -> Result<(), Failure> {
    out.record(&DryRun { matching }, &[("matching", matching.to_string())])?;
    nothing_if(matching == 0)
}

fn act_of(change: &TaskChange) -> &'static str {
    match change {
        TaskChange::Delete => "delete",
        _ => "replay",
    }
}

fn nothing_selected(act: &str) -> Failure {
    Failure::Usage(format!(
        "no dead letter is selected: name ids, select with `--type`, `--queue` or `--error`, or {act} all of them with `--all`"
    ))
}

/// Prints what was done.
fn finish(tally: &BulkTally, verb: &'static str, out: &mut Output) -> Result<(), Failure> {
    out.record(tally, &tally.lines(verb))?;
    match tally.is_stopped {
        true => Err(Failure::Failed(format!(
            "stopped by Ctrl-C after {} were {verb}: the same command continues",
            counted(tally.changed, "dead letter")
        ))),
        false => nothing_if(tally.changed == 0),
    }
}

fn nothing_if(is_nothing: bool) -> Result<(), Failure> {
    match is_nothing {
        true => Err(Failure::Nothing("no dead letter matches".into())),
        false => Ok(()),
    }
}

/// Counts the dead letters that match.
async fn count(session: &Session, filter: &DeadFilterArgs) -> Result<u64, Failure> {
    let (selected, error) = (filter.filter(), filter.error.as_deref());
    let admin = session.client.admin();
    let (mut number, mut after) = (0, None);
    loop {
        let page = admin.tasks(&selected, after.as_ref(), 200);
        let page = session.ask(page).await?;
        number += page
            .tasks
            .iter()
            .filter(|task| has_error(task, error))
            .count() as u64;
        after = page.next;
        if after.is_none() {
            return Ok(number);
        }
    }
}

impl DeadChangeArgs {
    /// Returns `true` if the arguments say which dead letters are meant.
    fn selects(&self) -> bool {
        let filter = &self.filter;
        self.all || filter.name.is_some() || filter.queue.is_some() || filter.error.is_some()
    }
}

impl DeadFilterArgs {
    fn filter(&self) -> TaskFilter {
        let mut filter = TaskFilter::new(Status::Dead);
        if let Some(name) = &self.name {
            filter = filter.name(name);
        }
        if let Some(queue) = &self.queue {
            filter = in_queue(filter, queue);
        }
        match self.as_of {
            Some(time) => filter.until(time),
            None => filter,
        }
    }

    /// Leaves out what dies from now on, by the clock of the store, so that a change of all dead letters ends.
    async fn until_now(mut self, session: &Session) -> Result<Self, Failure> {
        if self.as_of.is_none() {
            let filter = self.filter();
            let page = session
                .ask(session.client.admin().tasks(&filter, None, 1))
                .await?;
            self.as_of = Some(page.now);
        }
        Ok(self)
    }
}
