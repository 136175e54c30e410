//! `throng retention`: shows or changes how long, and how many, ended tasks are kept.

use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use throng::durable::{Retention, Status, TaskFilter};

use crate::confirm::{ConfirmArgs, confirm};
use crate::duration;
use crate::failure::Failure;
use crate::out::Output;
use crate::store::Session;

#[derive(Args, Debug)]
pub(crate) struct RetentionArgs {
    /// The time for which dead letters are kept, such as `30d`
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    dead_for: Option<Duration>,

    /// The maximum number of dead letters
    #[arg(long, value_name = "NUMBER")]
    dead_most: Option<u64>,

    /// The maximum number of other ended tasks, or `none`
    #[arg(long, value_name = "NUMBER", value_parser = parse_most)]
    kept_most: Option<KeptMost>,

    #[command(flatten)]
    confirm: ConfirmArgs,
}

/// A maximum, or none.
#[derive(Clone, Copy, Debug)]
struct KeptMost(Option<u64>);

impl RetentionArgs {
    pub(crate) fn changes(&self) -> bool {
        self.dead_for.is_some() || self.dead_most.is_some() || self.kept_most.is_some()
    }
}

/// Changes what the arguments name, and shows the result.
pub(crate) async fn run(
    session: &Session,
    args: RetentionArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let admin = session.client.admin();
    let mut retention = session.ask(admin.retention()).await?;
    if args.changes() {
        let before = retention;
        retention = retention.dead_for(args.dead_for.unwrap_or(retention.dead_for));
        retention = retention.dead_most(args.dead_most.unwrap_or(retention.dead_most));
        retention = retention.kept_most(args.kept_most.map_or(retention.kept_most, |it| it.0));
        let excess = excess(session, before, retention).await?;
        if excess > 0 {
            confirm("delete up to", excess, &args.confirm)?;
        }
        session.ask(admin.set_retention(retention)).await?;
    }
    let kept_most = retention
        .kept_most
        .map_or_else(|| "none".into(), |it| it.to_string());
    let lines = [
        (
            "dead for",
            humantime::format_duration(retention.dead_for).to_string(),
        ),
        ("dead most", retention.dead_most.to_string()),
        ("kept most", kept_most),
    ];
    out.record(&retention, &lines)
}

/// The largest page that a store returns. It examines the most tasks, so that a list without a match ends.
const PAGE: usize = 200;

/// Returns the maximum number of dead letters that new limits delete.
async fn excess(session: &Session, before: Retention, after: Retention) -> Result<u64, Failure> {
    let admin = session.client.admin();
    let overview = session.ask(admin.overview()).await?;
    let counts = overview.counts;
    let beyond_most = counts.dead.saturating_sub(after.dead_most);
    if after.dead_for >= before.dead_for {
        return Ok(beyond_most);
    }
    let oldest = overview.now.checked_sub(after.dead_for);
    let filter = TaskFilter::new(Status::Dead).until(oldest.unwrap_or(UNIX_EPOCH));
    let old = session.ask(admin.tasks(&filter, None, PAGE)).await?;
    match old.tasks.is_empty() && old.next.is_none() {
        true => Ok(beyond_most),
        // Nothing counts them. All of them is the most.
        false => Ok(counts.dead),
    }
}

fn parse_most(text: &str) -> Result<KeptMost, String> {
    match text {
        "none" => Ok(KeptMost(None)),
        text => match text.parse() {
            Ok(number) => Ok(KeptMost(Some(number))),
            Err(_) => Err("write a number, or `none`".into()),
        },
    }
}
