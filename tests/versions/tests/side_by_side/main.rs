//! Two versions of the crate on one store. `scripts/test-versions` compiles the program with an older version, and tells this test its path.
//!
//! The processes of the older and of the newer version, each with two releases of an application, store and run tasks at the same time. Those of
//! one version are killed while they hold tasks. In the end, each task has ended once, and both versions read the same data from the store.

#[path = "../../../support/redis_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod redis_server;

mod ledger;
mod program;
mod site;
mod task;

use std::collections::{BTreeMap, BTreeSet};

use self::ledger::Ledger;
use self::program::{RELEASES, Version, Worker};
use self::redis_server::Server;
use self::site::Site;
use self::task::Task;

/// The number of tasks that the workers of a test run at once.
const PERMITS: usize = 16;

#[test]
fn two_versions_share_a_server() {
    let server = Server::with(&["--appendonly", "no"]);
    let site = Site::new(|_| format!("redis://127.0.0.1:{}/", server.port()));
    share(&site);
}

#[test]
fn two_versions_share_a_file() {
    let site = Site::new(|folder| folder.join("tasks.db").display().to_string());
    share(&site);
}

fn share(site: &Site) {
    site.tell(Version::Older, &["configure"], "");
    let mut all = round(site, "first", (Version::Older, Version::Newer));
    fragile_tasks_are_replayed(site, &all);
    let second = round(site, "second", (Version::Newer, Version::Older));
    let dead: BTreeSet<_> = ids_of(&second, "fragile").collect();
    all.extend(second.iter().cloned());
    let [older, newer] = [Version::Older, Version::Newer].map(|version| site.read(version, &all));
    assert_eq!(older, newer, "both versions read the same");
    let cancelled = assert_read(&newer, &all, &dead);
    let ledger = Ledger::read(site);
    ledger.assert_each_ended_once(&all, &dead.union(&cancelled).copied().collect());
    ledger.assert_groups_take_turns();
}

/// Starts workers and producers of both versions. The workers of one version are killed while they hold tasks that the other version has
/// stored. Returns the tasks, when all have ended.
fn round(site: &Site, gate: &str, (dying, other): (Version, Version)) -> Vec<Task> {
    let mut workers = site.start_workers(&[dying, other]);
    assert_listed(site, &workers);
    let stored = site.tell(other, &["hold", gate, &PERMITS.to_string()], "");
    let mut tasks = Task::read(&stored, RELEASES[1]);
    site.wait_until("each worker holds tasks", || {
        let ledger = Ledger::read(site);
        let holds = |worker: &Worker| ledger.starts_of(worker.id(), &tasks) == PERMITS / 4;
        workers.iter().all(holds)
    });
    let (killed, mut alive): (Vec<_>, Vec<_>) = workers
        .drain(..)
        .partition(|worker| worker.version() == dying);
    killed.into_iter().for_each(Worker::kill);
    site.open(gate);
    let producers: Vec<_> = [dying, other]
        .into_iter()
        .flat_map(|version| RELEASES.map(|release| site.start_producer(version, release, gate)))
        .collect();
    alive.extend(site.start_workers(&[dying]));
    for producer in producers {
        tasks.extend(producer.tasks());
    }
    // Tasks that are tried again are delayed, too, until they have ended.
    let (delayed, others): (Vec<_>, Vec<_>) = tasks
        .iter()
        .cloned()
        .partition(|task| task.kind == "delayed");
    site.read(other, &others);
    end_delayed(site, dying, delayed.len());
    site.read(other, &delayed);
    alive.into_iter().for_each(Worker::stop);
    tasks
}

/// In each round, a version makes the delayed tasks of both versions end.
fn end_delayed(site: &Site, version: Version, delayed: usize) {
    let change = match version {
        Version::Older => "run",
        Version::Newer => "cancel",
    };
    let moved = site.tell(version, &["change", "delayed", "move"], "");
    let changed = site.tell(version, &["change", "delayed", change], "");
    assert_eq!(
        [moved, changed],
        [delayed, delayed].map(|it| format!("{it}\n"))
    );
}

/// The newer version replays the tasks that have died in workers of both, and both run them again.
fn fragile_tasks_are_replayed(site: &Site, tasks: &[Task]) {
    let fragile: Vec<_> = tasks
        .iter()
        .filter(|task| task.kind == "fragile")
        .cloned()
        .collect();
    site.open("mended");
    let replayed = site.tell(Version::Newer, &["change", "dead", "replay"], "");
    assert_eq!(replayed, format!("{}\n", fragile.len()));
    let workers = site.start_workers(&[Version::Older, Version::Newer]);
    site.read(Version::Older, &fragile);
    workers.into_iter().for_each(Worker::stop);
    site.close("mended");
}

/// Both versions list the workers of both.
fn assert_listed(site: &Site, workers: &[Worker]) {
    let expected: BTreeSet<_> = workers.iter().map(Worker::id).collect();
    for version in [Version::Older, Version::Newer] {
        let listed = site.tell(version, &["workers"], "");
        let listed: BTreeSet<u32> = listed
            .lines()
            .map(|id| id.parse().expect("an id"))
            .collect();
        assert!(
            listed.is_superset(&expected),
            "{version:?}: {listed:?}, {expected:?}"
        );
    }
}

/// Compares what was read with what was stored. Returns the ids of the tasks that were cancelled.
fn assert_read<'a>(text: &'a str, tasks: &[Task], dead: &BTreeSet<&str>) -> BTreeSet<&'a str> {
    let outputs: BTreeMap<_, _> = text.lines().filter_map(output).collect();
    let ids: BTreeSet<_> = tasks.iter().map(|task| &*task.id).collect();
    assert!(outputs.keys().copied().eq(ids.iter().copied()));
    for task in tasks {
        let output = outputs[&*task.id];
        assert!(task.may_return(output), "{task:?}: {output}");
    }
    let listed = |status: &str| text.lines().filter(|line| line.starts_with(status)).count();
    let cancelled = outputs.iter().filter(|(_, output)| **output == "cancelled");
    let cancelled: BTreeSet<_> = cancelled.map(|(&id, _)| id).collect();
    assert_eq!(listed("dead "), dead.len());
    assert_eq!(listed("Dead "), dead.len());
    assert_eq!(listed("Cancelled "), cancelled.len());
    assert_eq!(listed("Done "), ids.len() - dead.len() - cancelled.len());
    let numbers = format!(
        "numbers alive 0 stored {} kept {} dead {} crashes {PERMITS}\n",
        ids.len(),
        ids.len() - dead.len(),
        dead.len(),
    );
    assert!(text.contains(&numbers), "{numbers}{text}");
    cancelled
}

/// Returns the id of a task and its output, from the line that `read` prints about it.
fn output(line: &str) -> Option<(&str, &str)> {
    let mut parts = line.strip_prefix("task ")?.split(" | ");
    let id = parts.next()?.split(' ').nth(1)?;
    Some((id, parts.next()?))
}

fn ids_of<'a>(tasks: &'a [Task], kind: &'a str) -> impl Iterator<Item = &'a str> {
    let of_kind = tasks.iter().filter(move |task| task.kind == kind);
    of_kind.map(|task| &*task.id)
}
