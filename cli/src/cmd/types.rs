//! `throng type`: lists and pauses the types of tasks.

use std::collections::BTreeSet;

use clap::Subcommand;
use throng::durable::TypeOverview;

use super::named::NamedArgs;
use super::queue::queue_name;
use super::worker::PAGE;
use crate::duration::short;
use crate::failure::Failure;
use crate::out::{Column, ListEnd, Output};
use crate::store::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum TypeCommand {
    /// Lists the types with runs in the last hour, and those that are paused or not served
    Ls,
    /// Pauses types: no task of them starts until they are resumed
    Pause(NamedArgs),
    /// Resumes types
    Resume(NamedArgs),
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
    let types = session.client.types();
    match command {
        TypeCommand::Ls => list(session, out).await,
        TypeCommand::Pause(names) => {
            let pause = async |name: &str| session.ask(types.pause(name)).await;
            names.change("type", "paused", out, pause).await?;
            warn_of_unknown(session, &names.names, out).await
        }
        TypeCommand::Resume(names) => {
            let resume = async |name: &str| session.ask(types.resume(name)).await;
            names.change("type", "resumed", out, resume).await
        }
    }
}

/// A store accepts any name, since a worker that knows the type may start later. So a typing error has no other effect than this warning.
async fn warn_of_unknown(session: &Session, names: &[String], out: &Output) -> Result<(), Failure> {
    let known = known_types(session).await?;
    let unknown = names.iter().filter(|name| !known.contains(*name));
    for name in unknown {
        out.note(&format!(
            "warning: no worker has listed the type {name}: `throng type ls` shows the names, and `throng type resume` undoes the pause"
        ));
    }
    Ok(())
}

/// Returns the types that workers have listed.
async fn known_types(session: &Session) -> Result<BTreeSet<String>, Failure> {
    let (admin, mut after) = (session.client.admin(), None);
    let mut known = BTreeSet::new();
    loop {
        let page = admin.workers(after.as_ref(), PAGE);
        let page = session.ask(page).await?;
        known.extend(page.workers.into_iter().flat_map(|worker| worker.types));
        after = page.next;
        if after.is_none() {
            return Ok(known);
        }
    }
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
