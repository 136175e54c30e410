//! `throng type`: lists and pauses the types of tasks.

use clap::{Args, Subcommand};
use throng::durable::TypeOverview;

use super::queue::queue_name;
use crate::duration::short;
use crate::failure::Failure;
use crate::out::{Column, ListEnd, Output};
use crate::store::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum TypeCommand {
    /// Lists the types with runs in the last hour, and those that are paused or not served
    Ls,
    /// Pauses types: no task of them starts until they are resumed
    Pause(TypeNames),
    /// Resumes types
    Resume(TypeNames),
}

#[derive(Args, Debug)]
pub(crate) struct TypeNames {
    /// The names of the types
    #[arg(required = true, value_name = "TYPE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    names: Vec<String>,
}

static TYPE_COLUMNS: [Column<TypeOverview>; 8] = [
    Column {
        title: "TYPE",
        text: |it| it.name.clone().unwrap_or_else(|| "(others)".into()),
    },
    Column {
        title: "QUEUE",
        text: |it| queue_name(it.queue.as_deref()),
    },
    Column {
        title: "STATE",
        text: |it| state(it).into(),
    },
    Column {
        title: "STARTED",
        text: |it| it.last_hour.started.to_string(),
    },
    Column {
        title: "DONE",
        text: |it| it.last_hour.done.to_string(),
    },
    Column {
        title: "RETRIED",
        text: |it| it.last_hour.retried.to_string(),
    },
    Column {
        title: "DIED",
        text: |it| it.last_hour.died.to_string(),
    },
    Column {
        title: "MEAN",
        text: |it| mean(it),
    },
];

impl TypeCommand {
    pub(crate) fn changes(&self) -> bool {
        !matches!(self, Self::Ls)
    }
}

/// Runs a command.
pub(crate) async fn run(
    session: &Session,
    command: TypeCommand,
    out: &mut Output,
) -> Result<(), Failure> {
    let (names, is_paused) = match command {
        TypeCommand::Ls => return list(session, out).await,
        TypeCommand::Pause(types) => (types.names, true),
        TypeCommand::Resume(types) => (types.names, false),
    };
    for name in names {
        let types = session.client.types();
        match is_paused {
            true => session.ask(types.pause(&name)).await?,
            false => session.ask(types.resume(&name)).await?,
        }
        out.note(&format!(
            "the type {name} is {}",
            if is_paused { "paused" } else { "resumed" }
        ));
    }
    Ok(())
}

async fn list(session: &Session, out: &mut Output) -> Result<(), Failure> {
    let overview = session.ask(session.client.admin().overview()).await?;
    let mut list = out.list(&TYPE_COLUMNS);
    list.rows(&overview.types)?;
    list.finish(ListEnd {
        now: Some(overview.now),
        ..ListEnd::default()
    })?;
    if overview.has_more_types {
        out.note("there are more types than the store lists");
    }
    Ok(())
}

pub(crate) fn state(it: &TypeOverview) -> &'static str {
    match (it.is_paused, it.is_served) {
        (true, _) => "paused",
        (false, true) => "served",
        (false, false) => "not served",
    }
}

/// Returns the mean duration of the runs of the last hour.
pub(crate) fn mean(it: &TypeOverview) -> String {
    let runs = &it.last_hour;
    let ended = runs.done + runs.retried + runs.died + runs.cancelled;
    match u32::try_from(ended) {
        Ok(0) | Err(_) => "-".into(),
        Ok(ended) => short(runs.run_time / ended),
    }
}
