//! `throng worker`: lists the workers.

use std::collections::BTreeSet;

use clap::Subcommand;
use serde::Serialize;
use throng::durable::{Status, TaskFilter, TaskInfo, WorkerInfo, WorkerState};

use super::queue::queue_name;
use crate::duration::short;
use crate::failure::Failure;
use crate::out::{Column, Line, ListEnd, Output, dash};
use crate::store::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// Lists the workers
    Ls,
    /// Shows a worker, with the types that it has registered and the tasks that it runs
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
/// The number of pages that are read to find the running tasks of a worker. With Redis, they contain those of all workers.
const MAX_PAGES: usize = 20;
/// The number of running tasks that are shown with their worker.
const MAX_RUNNING: usize = 50;

/// A worker, and the tasks that it runs.
#[derive(Serialize)]
struct WorkerRecord {
    #[serde(flatten)]
    worker: WorkerInfo,
    running: Vec<TaskInfo>,
    /// `true` if it may run more tasks than those that are listed.
    has_more: bool,
}

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
    let worker = session.ask(session.client.admin().worker(number)).await?;
    let worker = worker.ok_or_else(|| {
        Failure::Nothing(format!(
            "there is no worker with the session {number}: `throng worker ls` lists the workers"
        ))
    })?;
    let record = with_tasks(session, worker).await?;
    out.record(&record, &lines(&record))
}

/// Adds the tasks that a worker runs.
async fn with_tasks(session: &Session, worker: WorkerInfo) -> Result<WorkerRecord, Failure> {
    let mut filter = TaskFilter::new(Status::Running).worker(worker.session);
    if let Some(queue) = &worker.queue {
        filter = filter.queue(queue);
    }
    let (admin, mut running, mut after) = (session.client.admin(), Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let wanted = MAX_RUNNING - running.len();
        let page = session.ask(admin.tasks(&filter, after.as_ref(), wanted));
        let page = page.await?;
        running.extend(page.tasks);
        after = page.next;
        if after.is_none() || running.len() >= MAX_RUNNING {
            break;
        }
    }
    Ok(WorkerRecord {
        worker,
        running,
        has_more: after.is_some(),
    })
}

fn lines(record: &WorkerRecord) -> Vec<Line> {
    let worker = &record.worker;
    let layouts = worker.layouts.as_ref();
    let layouts = layouts.map_or_else(dash, |it| format!("{} to {}", it.start(), it.end()));
    let seen = worker.last_seen;
    let seen = seen.map_or_else(dash, |it| format!("{} ago", short(it)));
    let lines = [
        ("session", worker.session.to_string()),
        ("state", state_name(worker.state).into()),
        ("queue", queue_name(worker.queue.as_deref())),
        ("permits", worker.permits.to_string()),
        ("program", worker.program.clone()),
        ("host", worker.host.clone()),
        ("process", worker.process.to_string()),
        ("version", worker.crate_version.clone()),
        ("layouts", layouts),
        ("started", format!("{} ago", short(worker.started))),
        ("last seen", seen),
        ("types", types(worker)),
    ];
    let running = record.running.iter().map(|task| ("runs", running(task)));
    let more = record
        .has_more
        .then(|| ("runs", "possibly more tasks".into()));
    lines.into_iter().chain(running).chain(more).collect()
}

fn running(task: &TaskInfo) -> String {
    let name = task.name.clone().unwrap_or_else(dash);
    let time = task.running_for.map_or_else(dash, short);
    format!("{} {name} for {time}", task.id)
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
