//! `throng worker`: lists the workers.

use std::collections::BTreeSet;

use clap::Subcommand;
use throng::durable::{WorkerInfo, WorkerState};

use super::queue::queue_name;
use crate::duration::short;
use crate::failure::Failure;
use crate::out::{Column, ListEnd, Output, dash};
use crate::store::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// Lists the workers
    Ls,
    /// Shows a worker, with the types that it has registered
    Show {
        /// The number of the worker's session
        session: u64,
    },
}

static WORKER_COLUMNS: [Column<WorkerInfo>; 9] = [
    Column {
        title: "SESSION",
        text: |worker| worker.session.to_string(),
    },
    Column {
        title: "STATE",
        text: |worker| state_name(worker.state).into(),
    },
    Column {
        title: "QUEUE",
        text: |worker| queue_name(worker.queue.as_deref()),
    },
    Column {
        title: "PERMITS",
        text: |worker| worker.permits.to_string(),
    },
    Column {
        title: "PROGRAM",
        text: |worker| worker.program.clone(),
    },
    Column {
        title: "HOST",
        text: |worker| worker.host.clone(),
    },
    Column {
        title: "PROCESS",
        text: |worker| worker.process.to_string(),
    },
    Column {
        title: "STARTED",
        text: |worker| format!("{} ago", short(worker.started)),
    },
    Column {
        title: "TYPES",
        text: types,
    },
];

/// The largest page that a store returns.
pub(crate) const PAGE: usize = 200;

/// Runs a command.
pub(crate) async fn run(
    session: &Session,
    command: WorkerCommand,
    out: &mut Output,
) -> Result<(), Failure> {
    match command {
        WorkerCommand::Ls => list(session, out).await,
        WorkerCommand::Show { session: number } => show(session, number, out).await,
    }
}

async fn list(session: &Session, out: &mut Output) -> Result<(), Failure> {
    let mut list = out.list(&WORKER_COLUMNS);
    let (admin, mut after) = (session.client.admin(), None);
    let (mut missing, mut end) = (BTreeSet::new(), ListEnd::default());
    loop {
        let page = admin.workers(after.as_ref(), PAGE);
        let page = session.ask(page).await?;
        list.rows(&page.workers)?;
        missing.extend(page.missing_partitions);
        end.now = end.now.or(Some(page.now));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    list.finish(end)?;
    if !missing.is_empty() {
        out.note(&format!(
            "the partitions {missing:?} do not answer, so their workers are missing"
        ));
    }
    Ok(())
}

async fn show(session: &Session, number: u64, out: &mut Output) -> Result<(), Failure> {
    let (admin, mut after) = (session.client.admin(), None);
    loop {
        let page = admin.workers(after.as_ref(), PAGE);
        let page = session.ask(page).await?;
        if let Some(worker) = page.workers.iter().find(|worker| worker.session == number) {
            return out.record(worker, &lines(worker));
        }
        after = page.next;
        if after.is_none() {
            return Err(Failure::Nothing(format!(
                "there is no worker with the session {number}: `throng worker ls` lists the workers"
            )));
        }
    }
}

fn lines(worker: &WorkerInfo) -> Vec<(&'static str, String)> {
    vec![
        ("session", worker.session.to_string()),
        ("state", state_name(worker.state).into()),
        ("queue", queue_name(worker.queue.as_deref())),
        ("permits", worker.permits.to_string()),
        ("program", worker.program.clone()),
        ("host", worker.host.clone()),
        ("process", worker.process.to_string()),
        ("version", worker.crate_version.clone()),
        (
            "layouts",
            worker
                .layouts
                .as_ref()
                .map_or_else(dash, |it| format!("{} to {}", it.start(), it.end())),
        ),
        ("started", format!("{} ago", short(worker.started))),
        (
            "last seen",
            worker
                .last_seen
                .map_or_else(dash, |it| format!("{} ago", short(it))),
        ),
        ("types", types(worker)),
    ]
}

fn types(worker: &WorkerInfo) -> String {
    let names = worker.types.join(" ");
    match worker.other_types {
        0 => names,
        others => format!("{names} and {others} more"),
    }
}

pub(crate) fn state_name(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Live => "live",
        WorkerState::Suspect => "suspect",
        WorkerState::Gone => "gone",
        _ => "other",
    }
}
