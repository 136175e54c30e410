//! An operator's program is killed while it changes many tasks, and the change is repeated.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use throng::durable::{DurableClient, SpawnOptions, Status, TaskChange, TaskFilter, TaskId};

use super::child::{Role, say};
use super::job::Job;
use super::process::{Process, until};
use super::site::{ALWAYS, Site};

/// A change of all tasks with a status.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Operation {
    Cancel,
    Delete,
    Replay,
    Move,
    RunNow,
}

const ALL: [Operation; 5] = [
    Operation::Cancel,
    Operation::Delete,
    Operation::Replay,
    Operation::Move,
    Operation::RunNow,
];

/// The number of tasks, which are changed in two parts.
const TASKS: usize = 200;
/// The maximum number of tasks of a part.
const PART: usize = 128;
/// The failpoints in the middle of each part, and after it. A part is one commit.
const COMMITS: [&str; 4] = [
    "sqlite.in-commit:1",
    "sqlite.after-commit:1",
    "sqlite.in-commit:2",
    "sqlite.after-commit:2",
];
/// The failpoints before and after the commit of each part. The first commit belongs to the program's opening of the store.
const TRANSACTIONS: [&str; 4] = [
    "postgres.before-commit:2",
    "postgres.after-commit:2",
    "postgres.before-commit:3",
    "postgres.after-commit:3",
];
/// The failpoints after each request, and between the first two. A part is one request, except for moves, which need several.
const REQUESTS: [&str; 3] = [
    "redis.after-change:1",
    "redis.before-change:2",
    "redis.after-change:2",
];
/// A queue that no worker serves.
const UNSERVED: &str = "unserved";

impl Operation {
    /// Returns the status before the change, the change, and the status after it.
    fn parts(self) -> (Status, TaskChange, Option<Status>) {
        use Status::{Cancelled, Dead, Delayed, Waiting};
        match self {
            Self::Cancel => (Waiting, TaskChange::Cancel, Some(Cancelled)),
            Self::Delete => (Dead, TaskChange::Delete, None),
            Self::Replay => (Dead, TaskChange::Replay, Some(Waiting)),
            Self::Move => (Waiting, TaskChange::MoveTo(None), Some(Waiting)),
            Self::RunNow => (Delayed, TaskChange::RunNow, Some(Waiting)),
        }
    }

    /// Makes the change. Says after each part how many tasks have changed so far.
    pub(crate) async fn run(self, client: &DurableClient) {
        let (status, change, _) = self.parts();
        let (admin, mut changed) = (client.admin(), 0);
        let mut bulk = admin.change_all(TaskFilter::new(status), change);
        while let Some(part) = bulk.next().await {
            changed += part.expect("the store answers").changed;
            say(&format!("changed {changed}"));
        }
        say("operated");
    }

    /// Stores tasks with the status that the change applies to. No worker runs afterwards.
    async fn prepare(self, site: &Site) -> Vec<TaskId> {
        let waiting = || SpawnOptions::new().queue(UNSERVED);
        let (job, options) = match self {
            Self::Cancel | Self::Move => (Job::Work(0), waiting()),
            Self::Delete | Self::Replay => (Job::Die, SpawnOptions::new()),
            Self::RunNow => (Job::Work(0), waiting().delay(Duration::from_secs(3600))),
        };
        let tasks = vec![(job.clone(), options); TASKS];
        let stored = site.client.spawn_all_with(tasks).await;
        if job == Job::Die {
            let mut worker = site.worker(site.work()).await;
            let all_dead = async || (site.counts().await.dead == TASKS as u64).then_some(());
            until("all tasks have died", all_dead).await;
            worker.stop(0).await;
        }
        let handles = stored.expect("they are stored");
        handles.iter().map(|handle| handle.id()).collect()
    }
}

#[tokio::test]
async fn an_operator_dies_at_each_commit() {
    for operation in ALL {
        for point in COMMITS {
            operator_dies_at(&Site::file().await, operation, point).await;
        }
    }
}

#[tokio::test]
async fn an_operator_dies_at_each_commit_in_postgres() {
    needs_postgres!();
    for operation in ALL {
        for point in TRANSACTIONS {
            operator_dies_at(&Site::database().await, operation, point).await;
        }
    }
}

#[tokio::test]
async fn an_operator_dies_at_each_request() {
    needs_redis!();
    for operation in ALL {
        for point in REQUESTS {
            operator_dies_at(&Site::server(&ALWAYS).await, operation, point).await;
        }
    }
}

async fn operator_dies_at(site: &Site, operation: Operation, point: &str) {
    let context = format!("{operation:?} {point}");
    let ids = operation.prepare(site).await;
    let plan = site.plan(Role::Operator(operation));
    let mut deadly = Process::start_deadly(&plan, point);
    deadly.was_killed_by(Signal::KILL).await;
    assert!(deadly.heard("operated").is_empty(), "{context}");
    let mut again = Process::start(&plan);
    again.wait_for_line("operated").await;
    assert!(again.died().await.success());
    // The answer about one part may be lost.
    let changed = changed_by(&deadly) + changed_by(&again);
    assert!(
        (TASKS - PART..=TASKS).contains(&changed),
        "{context}: {changed}"
    );
    let (_, _, expected) = operation.parts();
    assert_listed(site, &ids, expected, &context).await;
    if expected == Some(Status::Waiting) {
        assert_each_runs_once(site, &ids, operation, &context).await;
    }
}

fn changed_by(operator: &Process) -> usize {
    let changed = operator.heard("changed ").pop();
    changed.map_or(0, |number| number.parse().expect("a number"))
}

/// Reads all lists: each task is in one of them once, and no other task is in any.
async fn assert_listed(site: &Site, ids: &[TaskId], status: Option<Status>, context: &str) {
    use Status::{Cancelled, Dead, Delayed, Done, Running, Waiting};
    let mut listed = BTreeMap::new();
    for status in [Waiting, Delayed, Running, Done, Dead, Cancelled] {
        let (filter, mut after) = (TaskFilter::new(status), None);
        loop {
            let page = site
                .client
                .admin()
                .tasks(&filter, after.as_ref(), 100)
                .await;
            let page = page.expect("the store answers");
            for task in page.tasks {
                let twice = listed.insert(task.id, status);
                assert_eq!(twice, None, "{context}: {} is listed twice", task.id);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    let expected = ids.iter().filter_map(|&id| Some((id, status?)));
    assert_eq!(listed, expected.collect(), "{context}");
    let counts = site.counts().await;
    let of = |other| {
        if status == Some(other) {
            ids.len() as u64
        } else {
            0
        }
    };
    assert_eq!(
        [
            counts.waiting,
            counts.delayed,
            counts.running,
            counts.kept,
            counts.dead
        ],
        [of(Waiting), 0, 0, of(Cancelled), 0],
        "{context}: {counts:?}"
    );
}

/// Lets a worker run the tasks: an entry that is left over in a list would be a second run, or would be counted.
async fn assert_each_runs_once(site: &Site, ids: &[TaskId], operation: Operation, context: &str) {
    if operation == Operation::RunNow {
        Operation::Move.run(&site.client).await;
    }
    let mut worker = site.worker(site.work()).await;
    let counts = match site.redis_if_any() {
        // In Redis, the list of a queue that no worker serves keeps the entries of tasks that have moved.
        Some(_) => site.at_rest().await,
        None => site.settled().await,
    };
    worker.stop(0).await;
    assert_eq!(
        (counts.done, counts.kept),
        (TASKS as u64, TASKS as u64),
        "{context}"
    );
    let mut ends = BTreeMap::<_, usize>::new();
    for line in site
        .folder
        .ledger()
        .iter()
        .filter(|line| line.what == "end")
    {
        *ends.entry(line.id).or_default() += 1;
    }
    let once = ids.iter().map(|&id| (id, 1)).collect();
    assert_eq!(ends, once, "{context}");
}
