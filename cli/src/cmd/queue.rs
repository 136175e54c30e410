//! `throng queue`: lists, pauses and limits queues.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use throng::durable::{QueueHead, QueueInfo, QueueOverview, Rate, TaskFilter, TaskInfo};

use super::named::NamedArgs;
use super::task::show::when;
use crate::duration::{self, millis, short};
use crate::failure::Failure;
use crate::out::{Column, ListEnd, Output, counted, dash};
use crate::store::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Lists the default queue, and the named queues that have limits, are paused or are served
    Ls,
    /// Shows a queue, and the tasks that have waited longest in it
    Show {
        /// The name of the queue. Without it, the default queue
        name: Option<String>,
    },
    /// Pauses queues: no task of them starts until they are resumed
    Pause(NamedArgs),
    /// Resumes queues
    Resume(NamedArgs),
    /// Sets the limits of a queue. A limit that is not given stays as it is
    Set(QueueLimits),
}

#[derive(Args, Debug)]
pub(crate) struct QueueLimits {
    /// The name of the queue
    #[arg(value_name = "QUEUE")]
    name: String,

    /// The maximum number of tasks that run at once, over all workers, or `none`
    #[arg(long, value_name = "NUMBER", value_parser = parse_running, required_unless_present = "rate")]
    running: Option<Limit<u32>>,

    /// The maximum rate at which tasks start, such as `100/min`, or `none`
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Limit<Rate>>,

    /// The number of tasks that may start at once if none have started for a while
    #[arg(long, value_name = "NUMBER", requires = "rate")]
    burst: Option<u32>,
}

/// A limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit<T>(Option<T>);

/// A queue and the tasks at its head.
#[derive(Debug, Serialize)]
struct QueueDetail<Q> {
    #[serde(flatten)]
    queue: Q,
    head: Vec<TaskInfo>,
    /// The time at which the store read the head, in milliseconds since 1970.
    now: u64,
}

/// A queue that the overview does not list.
#[derive(Debug, Serialize)]
struct UnlistedQueue<'a> {
    name: &'a str,
    info: QueueInfo,
}

static QUEUE_COLUMNS: [Column<QueueOverview>; 8] = [
    Column {
        title: "QUEUE",
        text: |queue| queue_name(queue.name.as_deref()),
    },
    Column {
        title: "STATE",
        text: |queue| state(queue).into(),
    },
    Column {
        title: "WAITING",
        text: |queue| queue.info.waiting.to_string(),
    },
    Column {
        title: "RUNNING",
        text: |queue| queue.info.running.to_string(),
    },
    Column {
        title: "OLDEST",
        text: |queue| queue.oldest_waiting.map_or_else(dash, short),
    },
    Column {
        title: "WORKERS",
        text: |queue| queue.sessions.to_string(),
    },
    Column {
        title: "LIMIT",
        text: running_limit,
    },
    Column {
        title: "RATE",
        text: rate_limit,
    },
];

/// The displayed name of the default queue. The name of a queue cannot contain parentheses.
const DEFAULT_QUEUE: &str = "(default)";

/// The number of tasks of the head of a queue that are shown.
const HEAD: usize = 10;

/// Returns the displayed name of a queue.
pub(crate) fn queue_name(name: Option<&str>) -> String {
    name.unwrap_or(DEFAULT_QUEUE).into()
}

/// Selects the tasks of a queue, given its displayed name.
pub(crate) fn in_queue(filter: TaskFilter, queue: &str) -> TaskFilter {
    match queue {
        DEFAULT_QUEUE => filter.default_queue(),
        queue => filter.queue(queue),
    }
}

impl<Q> QueueDetail<Q> {
    fn new(queue: Q, head: QueueHead) -> Self {
        Self {
            queue,
            head: head.tasks,
            now: millis(head.now),
        }
    }
}

impl QueueCommand {
    pub(crate) fn changes(&self) -> bool {
        !matches!(self, Self::Ls | Self::Show { .. })
    }
}

/// Runs a command.
pub(crate) async fn run(
    session: &Session,
    command: QueueCommand,
    out: &mut Output,
) -> Result<(), Failure> {
    match command {
        QueueCommand::Ls => list(session, out).await,
        QueueCommand::Show { name } => show(session, name, out).await,
        QueueCommand::Pause(queues) => {
            let pause = async |name: &str| session.ask(session.client.queue(name).pause()).await;
            queues.change("queue", "paused", out, pause).await
        }
        QueueCommand::Resume(queues) => {
            let resume = async |name: &str| session.ask(session.client.queue(name).resume()).await;
            queues.change("queue", "resumed", out, resume).await
        }
        QueueCommand::Set(limits) => set(session, limits, out).await,
    }
}

async fn list(session: &Session, out: &mut Output) -> Result<(), Failure> {
    let overview = session.ask(session.client.admin().overview()).await?;
    let mut list = out.list(&QUEUE_COLUMNS);
    list.rows(&overview.queues)?;
    list.finish(ListEnd {
        now: Some(overview.now),
        ..ListEnd::default()
    })?;
    if overview.counts.unserved > 0 {
        let waiting = counted(overview.counts.unserved, "waiting task");
        out.note(&format!(
            "no live worker knows the type of {waiting}: see `throng type ls`"
        ));
    }
    if overview.has_more_queues {
        out.note("there are more queues: `throng queue show NAME` shows each of them");
    }
    Ok(())
}

async fn show(session: &Session, name: Option<String>, out: &mut Output) -> Result<(), Failure> {
    let overview = session.ask(session.client.admin().overview()).await?;
    let found = overview.queues.into_iter().find(|queue| queue.name == name);
    let name = name.as_deref();
    let Some(queue) = found else {
        return unlisted(session, name.unwrap_or_default(), out).await;
    };
    let head = session.ask(session.client.admin().head(name, HEAD)).await?;
    let names = [
        "queue", "state", "waiting", "running", "oldest", "workers", "limit", "rate",
    ];
    let texts = QUEUE_COLUMNS.iter().map(|column| (column.text)(&queue));
    let mut lines: Vec<_> = names.into_iter().zip(texts).collect();
    // The overview does not examine tasks whose type no worker has registered, and those of groups.
    let first = head.tasks.first().and_then(|task| task.ready_for);
    if let (None, Some(ready_for)) = (queue.oldest_waiting, first) {
        let oldest = lines.iter_mut().filter(|(name, _)| *name == "oldest");
        oldest.for_each(|(_, text)| *text = short(ready_for));
    }
    lines.extend(head.tasks.iter().map(|task| ("head", head_line(task))));
    out.record(&QueueDetail::new(queue, head), &lines)
}

/// Shows a queue that has no limits, is not paused, and that no worker serves. It may have tasks.
async fn unlisted(session: &Session, name: &str, out: &mut Output) -> Result<(), Failure> {
    let info = session.ask(session.client.queue(name).info()).await?;
    let head = session
        .ask(session.client.admin().head(Some(name), HEAD))
        .await?;
    if info.waiting == 0 && info.running == 0 && head.tasks.is_empty() {
        return Err(Failure::Nothing(format!(
            "the queue {name} has no tasks, no limits and no workers"
        )));
    }
    let mut lines = vec![
        ("queue", name.to_owned()),
        ("waiting", info.waiting.to_string()),
        ("running", info.running.to_string()),
        ("workers", "0".into()),
    ];
    lines.extend(head.tasks.iter().map(|task| ("head", head_line(task))));
    out.record(
        &QueueDetail::new(UnlistedQueue { name, info }, head),
        &lines,
    )
}

fn head_line(task: &TaskInfo) -> String {
    format!(
        "{}  {}  {}",
        task.id,
        task.name.as_deref().unwrap_or("-"),
        when(task)
    )
}

async fn set(session: &Session, limits: QueueLimits, out: &mut Output) -> Result<(), Failure> {
    let queue = session.client.queue(&limits.name);
    // The other settings, and their revision, stay as they are.
    let mut settings = session.ask(queue.info()).await?.settings;
    if let Some(Limit(running)) = limits.running {
        settings = settings.max_running(running);
    }
    if let Some(Limit(rate)) = limits.rate {
        settings = settings.rate(rate.map(|rate| limits.burst.map_or(rate, |it| rate.burst(it))));
    }
    match session.ask(queue.set(settings)).await? {
        true => out.note(&format!("the limits of the queue {} are set", limits.name)),
        false => {
            let how = "another process has set limits with a higher revision meanwhile: try again";
            return Err(Failure::Nothing(how.into()));
        }
    }
    Ok(())
}

pub(crate) fn state(queue: &QueueOverview) -> &'static str {
    match (queue.info.is_paused, queue.sessions) {
        (true, _) => "paused",
        (false, 0) if queue.info.waiting == 0 => "unused",
        (false, 0) => "not served",
        (false, _) => "served",
    }
}

fn running_limit(queue: &QueueOverview) -> String {
    queue
        .info
        .settings
        .running_limit()
        .map_or_else(dash, |it| it.to_string())
}

fn rate_limit(queue: &QueueOverview) -> String {
    let Some(rate) = queue.info.settings.rate_limit() else {
        return "-".into();
    };
    match rate.burst_size() {
        1 => rate_text(rate),
        burst => format!("{}, burst {burst}", rate_text(rate)),
    }
}

/// Returns a text such as `100/min`, which `--rate` accepts.
fn rate_text(rate: Rate) -> String {
    let interval = rate.interval();
    for (unit, seconds) in [("s", 1), ("min", 60), ("h", 3600)] {
        let time = Duration::from_secs(seconds);
        let number = time.div_duration_f64(interval).round() as u32;
        if number > 0 && Rate::every(time / number).interval() == interval {
            return format!("{number}/{unit}");
        }
    }
    format!("1/{}", humantime::format_duration(interval))
}

fn parse_running(text: &str) -> Result<Limit<u32>, String> {
    match text {
        "none" => Ok(Limit(None)),
        text => match text.parse() {
            Ok(0) => {
                Err("a limit of 0 would stop the queue: pause it with `throng queue pause`".into())
            }
            Ok(number) => Ok(Limit(Some(number))),
            Err(_) => Err("write a number, or `none`".into()),
        },
    }
}

fn parse_rate(text: &str) -> Result<Limit<Rate>, String> {
    match text {
        "none" => Ok(Limit(None)),
        text => rate(text).map(|rate| Limit(Some(rate))).ok_or_else(|| {
            "write a rate such as `5/s`, `100/min`, `20/h` or `1/90s`, or `none`".into()
        }),
    }
}

fn rate(text: &str) -> Option<Rate> {
    let (number, time) = text.split_once('/')?;
    let number: u32 = number.trim().parse().ok().filter(|it| *it > 0)?;
    Some(match time.trim() {
        "s" | "sec" | "second" => Rate::per_second(number),
        "m" | "min" | "minute" => Rate::per_minute(number),
        "h" | "hour" => Rate::per_hour(number),
        time => {
            let time = duration::parse(time).ok().filter(|it| !it.is_zero())?;
            Rate::every(time / number)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        assert_eq!(
            parse_rate("100/min"),
            Ok(Limit(Some(Rate::per_minute(100))))
        );
        assert_eq!(
            parse_rate("3/90s"),
            Ok(Limit(Some(Rate::every(Duration::from_secs(30)))))
        );
        assert_eq!(parse_rate("none"), Ok(Limit(None)));
        for text in ["3/s", "100/min", "7/h", "1/1h 30m"] {
            let Ok(Limit(Some(rate))) = parse_rate(text) else {
                panic!("{text} is a rate");
            };
            assert_eq!(rate_text(rate), text);
        }
        for text in ["100", "0/s", "x/s", "1/soon", "1/0s", "1/0s/"] {
            assert!(
                parse_rate(text).is_err_and(|error| error.contains("100/min")),
                "{text}"
            );
        }
        assert!(parse_running("0").is_err_and(|error| error.contains("queue pause")));
    }
}
