//! `throng task ls`: lists tasks.

use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use throng::durable::{Cursor, Status, TaskFilter, TaskInfo};

use super::show::{status_name, when};
use crate::bulk::{has_ended_within, has_error};
use crate::cmd::queue::{in_queue, queue_name};
use crate::duration;
use crate::failure::Failure;
use crate::out::{Column, ListEnd, Output, dash};
use crate::store::Session;

#[derive(Args, Debug)]
pub(crate) struct TaskListArgs {
    /// The status of the tasks
    #[arg(long = "status", value_enum, value_name = "STATUS", default_value_t = ListedStatus::Waiting)]
    state: ListedStatus,

    /// Only tasks of the type with this name
    #[arg(long = "type", value_name = "TYPE")]
    name: Option<String>,

    /// Only tasks of this queue; use `(default)` for the default queue
    #[arg(long)]
    queue: Option<String>,

    /// Only dead letters whose last error contains this text within its first 160 bytes
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,

    /// Only tasks that have ended within this time, such as `1h`
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    since: Option<Duration>,

    /// Only running tasks of the worker with this session
    #[arg(long, value_name = "SESSION")]
    worker: Option<u64>,

    /// Only tasks that existed at this time, such as `2026-11-26T14:05:07Z`
    #[arg(long, value_name = "TIME", value_parser = duration::parse_time)]
    as_of: Option<SystemTime>,

    #[command(flatten)]
    paging: TaskPaging,
}

/// The part of a list that is printed.
#[derive(Args, Clone, Debug)]
pub(crate) struct TaskPaging {
    /// The number of tasks
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "50",
        value_parser = parse_limit,
        conflicts_with = "all"
    )]
    limit: usize,

    /// Lists all tasks that match, a page at a time
    #[arg(long)]
    all: bool,

    /// Continues after a position that an earlier list has named
    #[arg(long, value_name = "POSITION")]
    after: Option<Cursor>,
}

/// A status that can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListedStatus {
    Waiting,
    Delayed,
    /// Delayed after a failure
    Retrying,
    Running,
    Done,
    Dead,
    Cancelled,
}

static TASK_COLUMNS: [Column<TaskInfo>; 6] = [
    Column {
        title: "ID",
        text: |task| task.id.to_string(),
    },
    Column {
        title: "STATUS",
        text: |task| status_name(task.status).into(),
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
        title: "FAILURES",
        text: |task| task.failures.map_or_else(dash, |it| it.to_string()),
    },
    Column {
        title: "WHEN",
        text: when,
    },
];

/// The largest page that a store returns.
const MAX_PAGE: usize = 200;
/// A list whose filter matches little ends after this number of pages, so that it ends soon.
const MAX_PAGES: usize = 20;

impl From<ListedStatus> for Status {
    fn from(status: ListedStatus) -> Self {
        match status {
            ListedStatus::Waiting => Self::Waiting,
            ListedStatus::Delayed | ListedStatus::Retrying => Self::Delayed,
            ListedStatus::Running => Self::Running,
            ListedStatus::Done => Self::Done,
            ListedStatus::Dead => Self::Dead,
            ListedStatus::Cancelled => Self::Cancelled,
        }
    }
}

fn parse_limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|it| *it > 0);
    limit.ok_or_else(|| "write a number from 1, or use `--all`".into())
}

/// Lists tasks.
pub(crate) async fn list(
    session: &Session,
    args: TaskListArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    if args.error.is_some() && args.state != ListedStatus::Dead {
        return Err(Failure::Usage(
            "only lists of dead letters contain errors: add `--status dead`, or remove `--error`"
                .into(),
        ));
    }
    let filter = args.filter();
    let error = args.error;
    let mut pages = TaskPages::new(session, filter, args.paging);
    let since = args.since;
    let matches =
        |task: &TaskInfo| has_ended_within(task, since) && has_error(task, error.as_deref());
    pages.print(&TASK_COLUMNS, matches, out).await
}

impl TaskListArgs {
    fn filter(&self) -> TaskFilter {
        let mut filter = TaskFilter::new(self.state.into());
        if self.state == ListedStatus::Retrying {
            filter = filter.retrying();
        }
        if let Some(name) = &self.name {
            filter = filter.name(name);
        }
        if let Some(queue) = &self.queue {
            filter = in_queue(filter, queue);
        }
        if let Some(session) = self.worker {
            filter = filter.worker(session);
        }
        match self.as_of {
            Some(time) => filter.until(time),
            None => filter,
        }
    }
}

/// Reads the pages of a list.
pub(crate) struct TaskPages<'a> {
    session: &'a Session,
    filter: TaskFilter,
    paging: TaskPaging,
    examined: usize,
    found: usize,
    now: Option<SystemTime>,
}

impl<'a> TaskPages<'a> {
    pub(crate) fn new(session: &'a Session, filter: TaskFilter, paging: TaskPaging) -> Self {
        Self {
            session,
            filter,
            paging,
            examined: 0,
            found: 0,
            now: None,
        }
    }

    /// Prints the tasks that `matches` accepts. Fails if there are none.
    pub(crate) async fn print(
        &mut self,
        columns: &'static [Column<TaskInfo>],
        matches: impl Fn(&TaskInfo) -> bool,
        out: &mut Output,
    ) -> Result<(), Failure> {
        let mut list = out.list(columns);
        for page in 0.. {
            list.rows(&self.page(&matches).await?)?;
            let is_full = self.found >= self.paging.limit || page + 1 >= MAX_PAGES;
            if self.paging.after.is_none() || (is_full && !self.paging.all) {
                break;
            }
        }
        let next = self.paging.after.clone();
        list.finish(ListEnd {
            now: self.now,
            next,
            examined: Some(self.examined),
        })?;
        self.end(out)
    }

    /// Reads the next page.
    async fn page(
        &mut self,
        matches: impl Fn(&TaskInfo) -> bool,
    ) -> Result<Vec<TaskInfo>, Failure> {
        let wanted = match self.paging.all {
            true => MAX_PAGE,
            false => (self.paging.limit - self.found).clamp(1, MAX_PAGE),
        };
        let admin = self.session.client.admin();
        let page = admin.tasks(&self.filter, self.paging.after.as_ref(), wanted);
        let page = self.session.ask(page).await?;
        self.examined += page.examined;
        self.now = self.now.or(Some(page.now));
        self.paging.after = page.next;
        let tasks: Vec<_> = page.tasks.into_iter().filter(matches).collect();
        self.found += tasks.len();
        Ok(tasks)
    }

    fn end(&self, out: &Output) -> Result<(), Failure> {
        if let Some(next) = &self.paging.after {
            let examined = self.examined;
            out.note(&format!(
                "the store has examined {examined} tasks, and more follow: add `--all`, or `--after {next}`"
            ));
        }
        match self.found {
            0 => Err(Failure::Nothing("no task matches".into())),
            _ => Ok(()),
        }
    }
}
