//! One of two workers is killed again and again.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use throng::durable::{DurableHandle, SpawnOptions, TaskId};
use tokio::time::{Instant, sleep_until};

use crate::child::{Role, Work};
use crate::job::{Job, Line};
use crate::process::Process;
use crate::site::{EVERYSEC, LEASED, Runs, Site};
use crate::support::rounds;

const DEATHS: u32 = 9;

/// How long after the last death all is done, besides the lease.
const REST: Duration = Duration::from_secs(2);

/// The options of the workers, and the time until the next one is killed. Times are in milliseconds.
struct Scene {
    max_running: usize,
    lease: u64,
    interval: u64,
}

impl Scene {
    /// In the long run a lease is what it is by default.
    fn of(max_running: usize) -> Self {
        Self {
            max_running,
            lease: rounds(1500, 10_000) as u64,
            interval: rounds(700, 2000) as u64,
        }
    }

    fn work(&self) -> Work {
        Work {
            max_running: self.max_running,
            lease: self.lease,
            ..LEASED
        }
    }
}

#[tokio::test]
async fn what_they_do_one_at_a_time_is_done_in_time() {
    needs_redis!();
    one_at_a_time(Site::server(&EVERYSEC).await).await;
}

#[tokio::test]
async fn what_they_do_one_at_a_time_in_postgres_is_done_in_time() {
    needs_postgres!();
    one_at_a_time(Site::database().await).await;
}

async fn one_at_a_time(site: Site) {
    let options = SpawnOptions::new().retention(Duration::ZERO);
    all_is_done_in_time(site, &Scene::of(1), Job::Work(20), options).await;
}

#[tokio::test]
async fn what_they_do_side_by_side_is_done_in_time() {
    needs_redis!();
    side_by_side(Site::server(&EVERYSEC).await).await;
}

#[tokio::test]
async fn what_they_do_side_by_side_in_postgres_is_done_in_time() {
    needs_postgres!();
    side_by_side(Site::database().await).await;
}

async fn side_by_side(site: Site) {
    // However many workers die, the tasks are not to blame.
    let options = SpawnOptions::new().retention(Duration::ZERO);
    let job = Job::Work(rounds(100, 20) as u64);
    all_is_done_in_time(site, &Scene::of(64), job, options.max_crashes(u32::MAX)).await;
}

/// There is always something to do until the last death.
async fn all_is_done_in_time(site: Site, scene: &Scene, job: Job, options: SpawnOptions) {
    let mut ids = Vec::new();
    let feed = async || {
        if site.counts().await.waiting < 20 * scene.max_running as u64 {
            let tasks = vec![(job.clone(), options.clone()); 10 * scene.max_running];
            let tasks = site.client.spawn_all_with(tasks).await;
            ids.extend(
                tasks
                    .expect("they are stored")
                    .iter()
                    .map(DurableHandle::id),
            );
        }
    };
    let (workers, killed, last) = kill_some(&site, scene, feed).await;
    assert_done_in_time(site, scene, &ids, workers, killed, last).await;
}

/// Kills one of two workers at a time, and starts another at once. What `feed` does, is done all the time.
async fn kill_some(
    site: &Site,
    scene: &Scene,
    mut feed: impl AsyncFnMut(),
) -> ([Process; 2], HashSet<u32>, Instant) {
    let plan = site.plan(Role::Worker(scene.work()));
    let mut workers = [(); 2].map(|()| Process::start(&plan));
    let mut killed = HashSet::new();
    let start = Instant::now();
    for death in 1..=DEATHS {
        let next = start + death * Duration::from_millis(scene.interval);
        let victim = &mut workers[death as usize % 2];
        // On a loaded machine, a worker may take longer to start.
        while Instant::now() < next || !has_begun(site, victim.pid()) {
            feed().await;
            sleep_until(Instant::now() + Duration::from_millis(20)).await;
        }
        victim.kill();
        killed.insert(victim.pid());
        *victim = Process::start(&plan);
    }
    (workers, killed, Instant::now())
}

/// Returns `true` if a worker has begun to run a task.
fn has_begun(site: &Site, worker: u32) -> bool {
    let ledger = site.folder.ledger();
    ledger.iter().any(|line| line.pid == worker)
}

async fn assert_done_in_time(
    site: Site,
    scene: &Scene,
    ids: &[TaskId],
    mut workers: [Process; 2],
    killed: HashSet<u32>,
    last: Instant,
) {
    let counts = site.settled().await;
    let needed = last.elapsed();
    assert!(
        needed < Duration::from_millis(scene.lease) + REST,
        "{needed:?}"
    );
    for worker in &mut workers {
        worker.stop(0).await;
    }
    let count = ids.len() as u64;
    assert_eq!(
        (counts.stored, counts.done, counts.dead),
        (count, count, 0),
        "{counts:?}"
    );
    site.assert_all_finished(ids);
    let again =
        assert_only_the_killed_are_repeated(&site.folder.ledger(), &killed, scene.max_running);
    println!(
        "{count} tasks, {again} of them again; all done {needed:?} after the last death; {counts:?}"
    );
    // What ran when its worker was killed has begun again; of what had been claimed only, nothing had.
    assert!(again as u64 <= counts.crashed + counts.lost, "{counts:?}");
    assert!(again > 0, "{counts:?}");
    site.ends(killed.len()).await;
}

/// A task runs again only if its worker was killed while it ran there, and there is no more room in a
/// worker for such tasks than for tasks. How many there are.
fn assert_only_the_killed_are_repeated(
    ledger: &[Line],
    killed: &HashSet<u32>,
    max_running: usize,
) -> usize {
    let runs = Runs::of(ledger);
    let mut repeated = HashMap::<u32, usize>::new();
    for (id, starts) in &runs.starts {
        for start in &starts[..starts.len() - 1] {
            assert!(killed.contains(&start.pid), "{id} runs again: {starts:?}");
            *repeated.entry(start.pid).or_default() += 1;
        }
    }
    assert!(
        repeated.values().all(|&count| count <= max_running),
        "{repeated:?}"
    );
    repeated.values().sum()
}
