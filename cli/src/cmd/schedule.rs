//! `throng schedule`: lists, pauses and fires schedules.

use clap::Subcommand;
use throng::durable::ScheduleInfo;

use super::named::NamedArgs;
use super::queue::queue_name;
use crate::duration::utc;
use crate::failure::Failure;
use crate::out::{Column, ListEnd, Output, dash};
use crate::store::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Lists the schedules
    Ls,
    /// Shows a schedule
    Show {
        /// The name of the schedule
        name: String,
    },
    /// Pauses schedules: they do not fire until they are resumed
    Pause(NamedArgs),
    /// Resumes schedules
    Resume(NamedArgs),
    /// Stores one more task of a schedule now, and prints its id
    Fire {
        /// The name of the schedule
        name: String,
    },
}

static SCHEDULE_COLUMNS: [Column<ScheduleInfo>; 7] = [
    Column {
        title: "SCHEDULE",
        text: |row| row.name.clone(),
    },
    Column {
        title: "STATE",
        text: |row| state(row).into(),
    },
    Column {
        title: "WHEN",
        text: |row| row.when.clone(),
    },
    Column {
        title: "NEXT",
        text: next,
    },
    Column {
        title: "TASK",
        text: |row| row.task.clone(),
    },
    Column {
        title: "STARTED",
        text: |row| row.started.to_string(),
    },
    Column {
        title: "SKIPPED",
        text: |row| row.skipped.to_string(),
    },
];

/// The number of schedules that are read at once.
const PAGE: usize = 200;

impl ScheduleCommand {
    pub(crate) fn changes(&self) -> bool {
        !matches!(self, Self::Ls | Self::Show { .. })
    }
}

/// Runs a command.
pub(crate) async fn run(
    session: &Session,
    command: ScheduleCommand,
    out: &mut Output,
) -> Result<(), Failure> {
    let schedules = session.client.schedules();
    match command {
        ScheduleCommand::Ls => list(session, out).await,
        ScheduleCommand::Show { name } => show(session, &name, out).await,
        ScheduleCommand::Pause(names) => {
            let pause = async |name: &str| found(name, session.ask(schedules.pause(name)).await?);
            names.change("schedule", "paused", out, pause).await
        }
        ScheduleCommand::Resume(names) => {
            let resume = async |name: &str| found(name, session.ask(schedules.resume(name)).await?);
            names.change("schedule", "resumed", out, resume).await
        }
        ScheduleCommand::Fire { name } => fire(session, &name, out).await,
    }
}

async fn list(session: &Session, out: &mut Output) -> Result<(), Failure> {
    let schedules = session.client.schedules();
    let mut list = out.list(&SCHEDULE_COLUMNS);
    let mut page = session.ask(schedules.list(None, PAGE)).await?;
    while let Some(last) = page.last().map(|it| it.name.clone()) {
        let is_last = page.len() < PAGE;
        list.rows(&page)?;
        if is_last {
            break;
        }
        page = session.ask(schedules.list(Some(&last), PAGE)).await?;
    }
    list.finish(ListEnd::default())
}

async fn show(session: &Session, name: &str, out: &mut Output) -> Result<(), Failure> {
    let found = session.ask(session.client.schedules().get(name)).await?;
    let row = found.ok_or_else(|| absent(name))?;
    let mut lines = vec![
        ("schedule", row.name.clone()),
        ("state", state(&row).into()),
        ("when", row.when.clone()),
        ("next", next(&row)),
        ("last", row.last_tick.map_or_else(dash, utc)),
        ("task", row.task.clone()),
        ("queue", queue_name(row.queue.as_deref())),
        (
            "last task",
            row.last_task.map_or_else(dash, |id| id.to_string()),
        ),
        ("started", row.started.to_string()),
        ("skipped", row.skipped.to_string()),
        ("revision", row.revision.to_string()),
    ];
    lines.extend(row.stuck.clone().map(|reason| ("stuck", reason)));
    out.record(&row, &lines)
}

async fn fire(session: &Session, name: &str, out: &mut Output) -> Result<(), Failure> {
    let task = session
        .ask(session.client.schedules().fire_now(name))
        .await?;
    let id = task.ok_or_else(|| absent(name))?;
    out.id(id)
}

fn found(name: &str, is_there: bool) -> Result<(), Failure> {
    match is_there {
        true => Ok(()),
        false => Err(absent(name)),
    }
}

fn absent(name: &str) -> Failure {
    Failure::Nothing(format!(
        "there is no schedule {name}: `throng schedule ls` lists the schedules"
    ))
}

fn state(row: &ScheduleInfo) -> &'static str {
    match (row.is_paused, &row.stuck) {
        (true, _) => "paused",
        (false, Some(_)) => "stuck",
        (false, None) => "active",
    }
}

fn next(row: &ScheduleInfo) -> String {
    row.next_tick.map_or_else(dash, utc)
}
