//! `throng doctor`: looks for problems of the store, its server and its workers.

mod redis_permissions;
mod redis_server;
mod sqlite_file;
mod writes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;
use throng::durable::{
    DeadReason, Finding, FindingLevel, Status, TaskFilter, TaskInfo, WorkerState,
};

use super::task::show::reason_name;
use crate::duration::short;
use crate::failure::Failure;
use crate::out::{Column, ListEnd, Output};
use crate::store::{Location, Session, StoreArgs};

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Also reads the whole file of a SQLite store, which takes a long time if the file is large
    #[arg(long)]
    deep: bool,

    /// The number of clients that you plan to add: checks that a Redis server accepts their connections
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    clients: u64,

    /// Also fails if there are only warnings
    #[arg(long)]
    strict: bool,
}

/// A finding of `throng doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Diagnosis {
    /// The kind of the finding, which never changes.
    id: &'static str,
    level: FindingLevel,
    /// The problem.
    what: String,
    /// The remedy.
    remedy: String,
}

static DIAGNOSIS_COLUMNS: [Column<Diagnosis>; 4] = [
    Column {
        title: "LEVEL",
        text: |it| it.level.to_string(),
    },
    Column {
        title: "ID",
        text: |it| it.id.into(),
    },
    Column {
        title: "FINDING",
        text: |it| it.what.clone(),
    },
    Column {
        title: "REMEDY",
        text: |it| it.remedy.clone(),
    },
];

/// A larger difference of two clocks makes the times in lists misleading.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(5);
/// The findings that already say why this process cannot change the store.
const CANNOT_WRITE: [&str; 8] = [
    "postgres.permissions",
    "postgres.read_only",
    "postgres.standby",
    "postgres.tables",
    "redis.eviction",
    "redis.permissions",
    "redis.replica",
    "sqlite.permissions",
];
/// The number of dead letters that are counted by their types and reasons.
const MAX_DEAD: usize = 100;
/// The maximum number of entries in a finding: pairs of a type and a reason, or programs that use the same version.
const MAX_KINDS: usize = 5;
/// The maximum number of workers whose versions are compared.
const MAX_WORKERS: usize = 200;

/// Looks for problems, the most serious first.
pub(crate) async fn run(
    store: &StoreArgs,
    args: DoctorArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let found = examine(store, &args).await?;
    print(&found, out)?;
    let least = if args.strict {
        FindingLevel::Warn
    } else {
        FindingLevel::Error
    };
    match found.iter().filter(|it| it.level >= least).count() {
        0 => Ok(()),
        number => Err(Failure::Unmet(format!(
            "findings that need attention: {number}"
        ))),
    }
}

/// Returns all findings, the most serious first.
async fn examine(store: &StoreArgs, args: &DoctorArgs) -> Result<Vec<Diagnosis>, Failure> {
    let location = store.location()?;
    if args.clients > 0
        && let Some(reason) = no_clients(&location)
    {
        return Err(Failure::Usage(reason.into()));
    }
    let session = store.observe().await?;
    let mut found = store_findings(&session).await?;
    session.close().await;
    found.extend(match location {
        // The store itself examines the server.
        Location::Postgres(_) => Vec::new(),
        Location::Redis(url) => redis_server::examine(&url, store, args.clients).await?,
        Location::Sentinels(_) => vec![server_was_not_examined()],
        Location::Sqlite(path) => sqlite_file::examine(&path, args.deep)?,
    });
    // This is the last check: a process that opens the store repairs some of what the other checks look for.
    if !found.iter().any(|it| CANNOT_WRITE.contains(&it.id)) {
        found.extend(writes::examine(store).await);
    }
    found.sort_by_key(|it| Reverse(it.level));
    Ok(found)
}

/// Returns the reason why `--clients` cannot be checked, and the remedy.
fn no_clients(location: &Location) -> Option<&'static str> {
    match location {
        Location::Redis(_) => None,
        Location::Sentinels(_) => Some(
            "`--clients` needs the address of the server that the Sentinels name: write `redis://HOST/`",
        ),
        Location::Postgres(_) | Location::Sqlite(_) => Some(
            "`--clients` is only for a store in Redis. The finding `postgres.connections` counts the connections of a PostgreSQL server",
        ),
    }
}

fn server_was_not_examined() -> Diagnosis {
    Diagnosis::info(
        "redis.sentinels",
        "the permissions, the limits and the speed of the server that the Sentinels name are not checked",
        "run `throng doctor` with the address of each of the servers, `redis://HOST/`",
    )
}

fn print(found: &[Diagnosis], out: &mut Output) -> Result<(), Failure> {
    let mut list = out.list(&DIAGNOSIS_COLUMNS).wrapped();
    list.rows(found)?;
    list.finish(ListEnd::default())?;
    if found.is_empty() {
        out.note("nothing was found that needs attention");
    }
    Ok(())
}

/// Returns what the store itself finds.
async fn store_findings(session: &Session) -> Result<Vec<Diagnosis>, Failure> {
    let before = SystemTime::now();
    let report = session.ask(session.client.admin().report()).await?;
    let difference = difference(before, SystemTime::now(), report.now);
    let found = report.findings.into_iter().map(Diagnosis::from);
    let dead = dead_letters(session).await?;
    let versions = versions(session).await?;
    let found = found.chain(clock(difference)).chain(dead);
    Ok(found.chain(versions).collect())
}

/// Returns what the newest dead letters are, so that a person who looks for a task finds it.
async fn dead_letters(session: &Session) -> Result<Option<Diagnosis>, Failure> {
    let filter = TaskFilter::new(Status::Dead);
    let admin = session.client.admin();
    let page = session.ask(admin.tasks(&filter, None, MAX_DEAD)).await?;
    let mut kinds = BTreeMap::new();
    // `dead_letters.crashes` describes the others.
    let is_failure = |task: &&TaskInfo| task.reason != Some(DeadReason::Crashes);
    for task in page.tasks.iter().filter(is_failure) {
        let reason = task.reason.map_or("other", reason_name);
        *kinds
            .entry((task.name.as_deref().unwrap_or("-"), reason))
            .or_insert(0_u64) += 1;
    }
    let has_more = page.next.is_some() || kinds.len() > MAX_KINDS;
    let kinds = kinds.into_iter().take(MAX_KINDS);
    let kinds = kinds.map(|((name, reason), number)| format!("{number} of {name} ({reason})"));
    Ok(kept_dead_letters(&kinds.collect::<Vec<_>>(), has_more))
}

fn kept_dead_letters(kinds: &[String], has_more: bool) -> Option<Diagnosis> {
    let more = if has_more { ", and more" } else { "" };
    (!kinds.is_empty()).then(|| {
        Diagnosis::info(
            "dead_letters.kept",
            format!(
                "tasks have failed and do not run again: {}{more}",
                kinds.join(", ")
            ),
            "read their errors with `throng dead ls`; run them again with `throng dead replay` once the cause is mended, or delete them",
        )
    })
}

/// Returns a finding if live workers use different versions of throng.
async fn versions(session: &Session) -> Result<Option<Diagnosis>, Failure> {
    let admin = session.client.admin();
    let page = session.ask(admin.workers(None, MAX_WORKERS)).await?;
    let live = page
        .workers
        .into_iter()
        .filter(|it| it.state == WorkerState::Live);
    let mut versions = BTreeMap::<_, BTreeSet<_>>::new();
    for worker in live {
        let name = format!("{} on {}", worker.program, worker.host);
        versions
            .entry(worker.crate_version)
            .or_default()
            .insert(name);
    }
    Ok(different_versions(&versions))
}

/// Returns a finding if there are several versions. It is only information, because processes are usually updated one at a time.
fn different_versions(versions: &BTreeMap<String, BTreeSet<String>>) -> Option<Diagnosis> {
    let used = versions.iter().map(|(version, names)| {
        let first: Vec<_> = names.iter().take(MAX_KINDS).map(String::as_str).collect();
        let more = match names.len() > MAX_KINDS {
            true => ", and others",
            false => "",
        };
        format!("{version} by {}{more}", first.join(", "))
    });
    (versions.len() > 1).then(|| {
        Diagnosis::info(
            "workers.versions",
            format!(
                "the workers use different versions of throng: {}",
                used.collect::<Vec<_>>().join("; ")
            ),
            "if the update is meant to be complete, update and restart the programs that still use the older version; then run `throng upgrade --check`",
        )
    })
}

/// Returns how far a time is outside of the period in which it was read.
fn difference(before: SystemTime, after: SystemTime, read: SystemTime) -> Duration {
    let early = before.duration_since(read).unwrap_or_default();
    let late = read.duration_since(after).unwrap_or_default();
    early.max(late)
}

fn clock(difference: Duration) -> Option<Diagnosis> {
    (difference >= MAX_CLOCK_DIFFERENCE).then(|| {
        Diagnosis::warn(
            "clock.differs",
            format!(
                "the clocks of this machine and of the store differ by {}",
                short(difference)
            ),
            "set the clock of the machine that is wrong, for example with NTP",
        )
    })
}

impl Diagnosis {
    fn error(id: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            id,
            level: FindingLevel::Error,
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    fn warn(id: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            id,
            level: FindingLevel::Warn,
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    fn info(id: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            id,
            level: FindingLevel::Info,
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

impl From<Finding> for Diagnosis {
    fn from(finding: Finding) -> Self {
        Self {
            id: finding.id,
            level: finding.level,
            what: finding.what,
            remedy: finding.remedy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_are_no_reason_to_fail() {
        assert_eq!(kept_dead_letters(&[], false), None);
        let kinds = ["2 of mail.send (crashes)".to_owned()];
        let kept = kept_dead_letters(&kinds, true).unwrap();
        assert!(kept.what.ends_with("mail.send (crashes), and more"));
        assert_eq!(kept.level, FindingLevel::Info);
    }

    #[test]
    fn workers_of_different_versions_are_named() {
        let programs = |names: &[&str]| names.iter().map(|&it| it.to_owned()).collect();
        let mut versions = BTreeMap::from([("0.1.0".to_owned(), programs(&["mail on a"]))]);
        assert_eq!(different_versions(&versions), None);
        let many = ["a", "b", "c", "d", "e", "f"];
        versions.insert("0.2.0".to_owned(), programs(&many));
        let found = different_versions(&versions).unwrap();
        assert_eq!(
            (found.id, found.level),
            ("workers.versions", FindingLevel::Info)
        );
        let used = "0.1.0 by mail on a; 0.2.0 by a, b, c, d, e, and others";
        assert!(found.what.ends_with(used), "{}", found.what);
    }

    #[test]
    fn only_a_large_difference_of_the_clocks_is_reported() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(difference(at(10), at(12), at(11)), Duration::ZERO);
        assert_eq!(difference(at(10), at(12), at(4)), Duration::from_secs(6));
        assert_eq!(difference(at(10), at(12), at(20)), Duration::from_secs(8));
        assert_eq!(clock(Duration::from_secs(4)), None);
        assert!(clock(Duration::from_secs(6)).is_some_and(|it| it.what.ends_with("by 6s")));
    }
}
