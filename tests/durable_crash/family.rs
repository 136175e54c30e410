//! Parents that spawn children and join them, while workers are killed again and again.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use throng::durable::{
    Counts, DurableTask, Run, SpawnOptions, Status, TaskContext, TaskError, TaskFilter, TaskId,
};
use tokio::time::sleep;

use super::child::{Role, Work};
use super::job::{Folder, Line};
use super::process::Process;
use super::site::{EVERYSEC, LEASED, PATIENT, Site};
use super::store_address::StoreAddress;
use super::support::{Numbers, rounds};

/// The number of workers.
const WORKERS: usize = 3;

/// A task that joins this number of children, and returns the sum of their numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Parent {
    children: u64,
}

impl DurableTask for Parent {
    const NAME: &'static str = "test.parent";
    type Output = u64;
}

impl Run<Folder> for Parent {
    async fn run(self, cx: TaskContext<Folder>) -> Result<u64, TaskError> {
        let parent = cx.id();
        let children = (0..self.children).map(|number| Member { parent, number });
        let children = cx.spawn_all("member", children).await?;
        let mut sum = 0;
        for output in cx.join(&children).await? {
            sum += output.map_err(TaskError::fatal)?;
        }
        let note = cx.attempt().to_string();
        cx.app().write(&Line::noted("joined", &cx, &note));
        Ok(sum)
    }
}

/// A child, which takes some milliseconds and returns its number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Member {
    parent: TaskId,
    number: u64,
}

impl DurableTask for Member {
    const NAME: &'static str = "test.member";
    type Output = u64;
}

impl Run<Folder> for Member {
    async fn run(self, cx: TaskContext<Folder>) -> Result<u64, TaskError> {
        sleep(Duration::from_millis(self.number % 10)).await;
        let parent = self.parent.to_string();
        cx.app().write(&Line::noted("member", &cx, &parent));
        Ok(self.number)
    }
}

#[tokio::test]
async fn families_end_once() {
    torture(&Site::file().await).await;
}

#[tokio::test]
async fn families_end_once_with_redis() {
    needs_redis!();
    torture(&Site::server(&EVERYSEC).await).await;
}

#[tokio::test]
async fn families_end_once_in_postgres() {
    needs_postgres!();
    let site = Site::database().await;
    torture(&site).await;
    site.settled().await;
}

/// Kills a worker every second for ten minutes. In a short test, more often, for a few seconds. On a slow machine, goes on until a run was
/// interrupted, for ten times as long at most.
async fn torture(site: &Site) {
    let mut fleet = Fleet::start(site);
    let time = Duration::from_secs(rounds(3, 600) as u64);
    let start = Instant::now();
    let is_over = |counts: &Counts| {
        let passed = start.elapsed();
        passed >= time && (counts.crashed > 0 || passed >= 10 * time)
    };
    let mut parents = Vec::new();
    while let counts = site.counts().await
        && !is_over(&counts)
    {
        parents.extend(spawn_parents(site).await);
        while let counts = site.counts().await
            && let left = counts.waiting + counts.delayed + counts.running
            && left > 0
        {
            sleep(Duration::from_millis(rounds(300, 1000) as u64)).await;
            match is_over(&counts) {
                true => fleet.assert_progress(left),
                false => fleet.strike(site).await,
            }
        }
    }
    assert_ended_once(site, &parents, fleet.killed).await;
    fleet.end().await;
}

/// The number of parents that are stored at once, and the number of children of each of them.
fn size() -> (usize, u64) {
    (rounds(20, 1000), rounds(30, 100) as u64)
}

async fn spawn_parents(site: &Site) -> Vec<TaskId> {
    let (parents, children) = size();
    let options = SpawnOptions::new()
        .max_crashes(u32::MAX)
        .retention(Duration::from_secs(4 * 3600));
    let parents = vec![(Parent { children }, options); parents];
    let stored = site.client.spawn_all_with(parents).await;
    let stored = stored.expect("they are stored");
    stored.iter().map(|handle| handle.id()).collect()
}

/// The workers.
struct Fleet {
    plan: super::child::Plan,
    workers: Vec<Process>,
    random: Numbers,
    killed: usize,
    /// The number of tasks that were left when the last one had ended, and the time of that.
    progress: Option<(u64, Instant)>,
}

impl Fleet {
    fn start(site: &Site) -> Self {
        let lease = match site.address {
            StoreAddress::File(_) => PATIENT.lease,
            StoreAddress::Server { .. } => LEASED.lease / 2,
        };
        let plan = site.plan(Role::Worker(Work {
            max_running: 8,
            lease,
            children: true,
            ..PATIENT
        }));
        Self {
            workers: (0..WORKERS).map(|_| Process::start(&plan)).collect(),
            plan,
            random: Numbers::new(u64::from(std::process::id())),
            killed: 0,
            progress: None,
        }
    }

    /// Kills a worker, and starts another one; but not if a child would be to blame for the deaths of too many workers.
    async fn strike(&mut self, site: &Site) {
        let victim = self.random.below(WORKERS as u64) as usize;
        let victim = &mut self.workers[victim];
        victim.freeze();
        if runs_crashed_child(site, victim.pid()).await {
            return victim.send(Signal::CONT);
        }
        victim.kill();
        *victim = Process::start(&self.plan);
        self.killed += 1;
    }

    /// Asserts that tasks end now that no worker dies. A parent that nobody has woken would wait for hours.
    fn assert_progress(&mut self, left: u64) {
        match self.progress {
            Some((before, since)) if before == left => {
                let waited = since.elapsed();
                assert!(waited < Duration::from_secs(30), "{left} tasks do not end");
            }
            _ => self.progress = Some((left, Instant::now())),
        }
    }

    async fn end(mut self) {
        for worker in &mut self.workers {
            worker.stop(1000).await;
        }
    }
}

/// Returns `true` if a worker that is frozen runs a child with which another worker has died. Three such deaths would be too many; the
/// store counts two if it cannot tell whether a second worker has begun the child.
async fn runs_crashed_child(site: &Site, worker: u32) -> bool {
    let admin = site.client.admin();
    for session in sessions_of(site, worker).await {
        let running = TaskFilter::new(Status::Running).name(Member::NAME);
        let running = admin.tasks(&running.worker(session), None, 200).await;
        let running = running.expect("the store answers").tasks;
        if running.iter().any(|child| child.crashes > Some(0)) {
            return true;
        }
    }
    false
}

/// Returns the sessions of the workers of a process. The store also lists those that were killed.
async fn sessions_of(site: &Site, worker: u32) -> Vec<u64> {
    let (mut sessions, mut after) = (Vec::new(), None);
    loop {
        let page = site.client.admin().workers(after.as_ref(), 200).await;
        let page = page.expect("the store answers");
        let own = page.workers.iter().filter(|it| it.process == worker);
        sessions.extend(own.map(|it| it.session));
        match page.next {
            Some(next) => after = Some(next),
            None => return sessions,
        }
    }
}

/// Asserts that all parents and children have ended once.
async fn assert_ended_once(site: &Site, parents: &[TaskId], killed: usize) {
    let (_, children) = size();
    for &id in parents {
        let sum = site.client.attach::<Parent>(id).await;
        assert_eq!(sum.expect("it succeeds"), children * (children - 1) / 2);
    }
    let counts = site.at_rest().await;
    let all = parents.len() as u64 * (1 + children);
    assert_eq!((counts.stored, counts.done), (all, all), "{counts:?}");
    assert_eq!((counts.dead, counts.retried), (0, 0), "{counts:?}");
    assert_eq!(site.folder.late_wakers(), Vec::<String>::new());

    let ledger = site.folder.ledger();
    let of = |what: &'static str| ledger.iter().filter(move |line| line.what == what);
    let members: HashSet<_> = of("member").map(|line| line.id).collect();
    assert_eq!(members.len() as u64, all - parents.len() as u64);
    let mut last_ends = HashMap::new();
    for line in of("member") {
        let last = last_ends.entry(line.note.clone()).or_insert(0);
        *last = line.time.max(*last);
    }
    let joined: HashMap<_, _> = of("joined").map(|line| (line.id, line.time)).collect();
    assert_eq!(joined.len(), parents.len());
    let delay = |(id, time): (&TaskId, &u64)| time.saturating_sub(last_ends[&id.to_string()]);
    let mut delays: Vec<_> = joined.iter().map(delay).collect();
    delays.sort_unstable();
    println!(
        "{killed} killed; {} parents, {} runs of children for {}, {} tasks taken back; from the last child to the parent: median {} ms, \
         longest {} ms",
        parents.len(),
        of("member").count(),
        members.len(),
        counts.crashed + counts.lost,
        delays[delays.len() / 2] / 1000,
        delays.last().unwrap_or(&0) / 1000,
    );
    assert!(killed > 0 && counts.crashed > 0, "{counts:?}");
}
