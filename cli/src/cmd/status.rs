//! `throng status`: summarises the store, and checks conditions.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use throng::durable::{Health, Overview, QueueOverview, RunTotals};

use super::queue::queue_name;
use crate::duration::{self, short};
use crate::failure::Failure;
use crate::out::{Output, dash};
use crate::store::Session;

/// The maximum number of types that the line of unserved tasks names.
const MAX_NAMED_TYPES: usize = 5;

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// A condition such as `oldest<60s` or `dead==0`. If one does not hold, the exit status is 5.
    ///
    /// It compares waiting, unserved, delayed, running, kept, dead, workers or oldest with a number or, for `oldest`, a time. It can be
    /// given several times
    #[arg(long = "check", value_name = "CONDITION", value_parser = Check::parse)]
    checks: Vec<Check>,
}

/// A condition on the summary of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    text: String,
    number: CheckedNumber,
    operator: &'static str,
    limit: u128,
}

/// A number of the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckedNumber {
    Waiting,
    Unserved,
    Delayed,
    Running,
    Kept,
    Dead,
    /// The live workers. An executor counts once for each queue that it serves.
    Workers,
    /// The time for which the first waiting task has waited, in milliseconds.
    Oldest,
}

/// Shows the summary, and checks the conditions.
pub(crate) async fn run(
    session: &Session,
    args: StatusArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let overview = session.ask(session.client.admin().overview()).await?;
    let health = health(&session.client.health());
    out.record(&overview, &lines(&overview, health))?;
    // Somebody who checks conditions has said what is to be reported.
    if args.checks.is_empty()
        && let Some(hint) = hint(&overview)
    {
        out.note(hint);
    }
    check(&args.checks, &overview)
}

/// Fails if a condition does not hold. Without all partitions, the numbers are too small, so no condition counts as checked.
fn check(checks: &[Check], overview: &Overview) -> Result<(), Failure> {
    let failed = checks.iter().filter_map(|check| check.failure(overview));
    let mut failed: Vec<_> = failed.collect();
    let missing = &overview.missing_partitions;
    if !checks.is_empty() && !missing.is_empty() {
        failed.push(format!("the partitions {missing:?} do not answer"));
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Unmet(failed.join("; "))),
    }
}

fn lines(overview: &Overview, health: String) -> Vec<(&'static str, String)> {
    let counts = &overview.counts;
    let oldest = oldest(overview).map(|(queue, time)| {
        format!(
            "{} in the queue {}",
            short(time),
            queue_name(queue.name.as_deref())
        )
    });
    let mut lines = vec![
        ("store", health),
        ("waiting", counts.waiting.to_string()),
        ("unserved", unserved(overview)),
        ("delayed", counts.delayed.to_string()),
        ("running", counts.running.to_string()),
        ("dead", counts.dead.to_string()),
        ("kept", counts.kept.to_string()),
        ("oldest", oldest.unwrap_or_else(dash)),
        ("workers", workers(overview).to_string()),
        ("last hour", runs(overview)),
    ];
    let paused = paused(overview);
    if !paused.is_empty() {
        lines.push(("paused", paused.join(", ")));
    }
    if !overview.missing_partitions.is_empty() {
        lines.push((
            "no answer",
            format!("partitions {:?}", overview.missing_partitions),
        ));
    }
    lines
}

/// Returns the number of waiting tasks whose type no live worker has registered, and the first types without a worker.
fn unserved(overview: &Overview) -> String {
    let number = overview.counts.unserved;
    let types = overview.types.iter().filter(|it| !it.is_served);
    let types: BTreeSet<_> = types.filter_map(|it| it.name.as_deref()).collect();
    let names: Vec<_> = types.into_iter().take(MAX_NAMED_TYPES).collect();
    match number == 0 || names.is_empty() {
        true => number.to_string(),
        false => format!("{number} (types without a worker: {})", names.join(", ")),
    }
}

/// Returns the paused queues and types.
fn paused(overview: &Overview) -> Vec<String> {
    let queues = overview.queues.iter().filter(|it| it.info.is_paused);
    let queues = queues.map(|it| format!("the queue {}", queue_name(it.name.as_deref())));
    let types = overview.types.iter().filter(|it| it.is_paused);
    let types: BTreeSet<_> = types.filter_map(|it| it.name.as_deref()).collect();
    let types = types.into_iter().map(|it| format!("the type {it}"));
    queues.chain(types).collect()
}

/// Tells the reader of a summary in which tasks wait without a reason how to find it.
fn hint(overview: &Overview) -> Option<&'static str> {
    let counts = &overview.counts;
    let is_stuck = counts.unserved > 0 || counts.waiting > 0 && counts.running == 0;
    is_stuck.then_some("tasks wait, and may be stuck: `throng doctor` looks for the reason")
}

/// Returns the runs of the last hour, of all types.
fn runs(overview: &Overview) -> String {
    let sum = |number: fn(&RunTotals) -> u64| {
        overview
            .types
            .iter()
            .map(|it| number(&it.last_hour))
            .fold(0, u64::saturating_add)
    };
    format!(
        "{} started, {} done, {} retried, {} died, {} cancelled",
        sum(|it| it.started),
        sum(|it| it.done),
        sum(|it| it.retried),
        sum(|it| it.died),
        sum(|it| it.cancelled),
    )
}

/// Returns the queue whose first task has waited longest, and that time.
pub(crate) fn oldest(overview: &Overview) -> Option<(&QueueOverview, Duration)> {
    let queues = overview.queues.iter();
    let times = queues.filter_map(|queue| Some((queue, queue.oldest_waiting?)));
    times.max_by_key(|(_, time)| *time)
}

/// Returns the number of live workers. An executor counts once for each queue that it serves.
pub(crate) fn workers(overview: &Overview) -> u64 {
    overview.queues.iter().map(|queue| queue.sessions).sum()
}

pub(crate) fn health(health: &Health) -> String {
    match health {
        Health::Well => "answers".into(),
        Health::Mute => "mute: the store delivers no messages, so workers poll".into(),
        Health::Unreachable(cause) => format!("unreachable: {cause}"),
        Health::Failing { error, .. } => format!("failing: {error}"),
        Health::Damaged { found, last } => format!("{found} damaged rows, the last: {last}"),
        other => format!("{other:?}"),
    }
}

/// Splits a condition into the name of a number, an operator, and a limit.
fn split(text: &str) -> Option<(&str, &'static str, &str)> {
    let (name, rest) = text.split_at(text.find(['<', '>', '=', '!'])?);
    let mut operators = ["<=", ">=", "==", "!=", "<", ">"].into_iter();
    let operator = operators.find(|it| rest.starts_with(it))?;
    Some((name.trim(), operator, rest[operator.len()..].trim()))
}

impl Check {
    fn parse(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "`{text}` is not a condition: write, for example, `waiting<1000`, `oldest<60s` or `dead==0`"
            )
        };
        let (name, operator, limit) = split(text).ok_or_else(invalid)?;
        let number = CheckedNumber::parse(name)?;
        let limit = match number {
            CheckedNumber::Oldest => duration::parse(limit)?.as_millis(),
            _ => limit.parse().map_err(|_| invalid())?,
        };
        Ok(Self {
            text: text.into(),
            number,
            operator,
            limit,
        })
    }

    /// Returns a message if the condition does not hold.
    fn failure(&self, overview: &Overview) -> Option<String> {
        let number = self.number.of(overview);
        let unit = if self.number == CheckedNumber::Oldest {
            "ms"
        } else {
            ""
        };
        let text = || format!("`{}` does not hold: the value is {number}{unit}", self.text);
        (!self.holds(number)).then(text)
    }

    fn holds(&self, number: u128) -> bool {
        match self.operator {
            "<" => number < self.limit,
            "<=" => number <= self.limit,
            ">" => number > self.limit,
            ">=" => number >= self.limit,
            "==" => number == self.limit,
            _ => number != self.limit,
        }
    }
}

impl CheckedNumber {
    fn parse(name: &str) -> Result<Self, String> {
        Ok(match name {
            "waiting" => Self::Waiting,
            "unserved" => Self::Unserved,
            "delayed" => Self::Delayed,
            "running" => Self::Running,
            "kept" => Self::Kept,
            "dead" => Self::Dead,
            "workers" => Self::Workers,
            "oldest" => Self::Oldest,
            _ => {
                return Err(format!(
                    "`{name}` is not a number of a store: choose waiting, unserved, delayed, running, kept, dead, workers or oldest"
                ));
            }
        })
    }

    fn of(self, overview: &Overview) -> u128 {
        let counts = &overview.counts;
        u128::from(match self {
            Self::Waiting => counts.waiting,
            Self::Unserved => counts.unserved,
            Self::Delayed => counts.delayed,
            Self::Running => counts.running,
            Self::Kept => counts.kept,
            Self::Dead => counts.dead,
            Self::Workers => workers(overview),
            Self::Oldest => return oldest(overview).map_or(0, |(_, time)| time.as_millis()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read() {
        let check = Check::parse("oldest <= 1m").unwrap();
        assert_eq!((check.operator, check.limit), ("<=", 60_000));
        for (text, remedy) in [
            ("dead", "`dead==0`"),
            ("dead=0", "`dead==0`"),
            ("died<1", "choose"),
            ("oldest<9", "15m"),
        ] {
            let error = Check::parse(text).unwrap_err();
            assert!(error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn conditions_hold_below_at_or_above_their_limit() {
        for (operator, expected) in [
            ("<", [true, false, false]),
            ("<=", [true, true, false]),
            ("==", [false, true, false]),
            ("!=", [true, false, true]),
            (">=", [false, true, true]),
            (">", [false, false, true]),
        ] {
            let check = Check::parse(&format!("dead{operator}5")).unwrap();
            assert_eq!([4, 5, 6].map(|it| check.holds(it)), expected, "{operator}");
        }
    }
}
