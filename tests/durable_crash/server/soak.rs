//! Whatever can happen to workers, a server, and the connections between them, happens.

use std::time::Duration;

use redis::Value;
use rustix::process::Signal;
use throng::durable::SpawnOptions;
use tokio::time::{Instant, sleep};

use crate::child::{Role, Work};
use crate::hung::hang;
use crate::job::Job;
use crate::keys::{BASE, Keys};
use crate::load::Load;
use crate::process::Process;
use crate::site::{ALWAYS, LEASED, Site};
use crate::support::{Numbers, rounds};

const WORK: Work = Work {
    executors: 2,
    max_running: 8,
    ..LEASED
};

/// For how long ends are kept.
const RETENTION: Duration = Duration::from_secs(20);

/// The maximum time until a worker removes expired results.
const MAINTENANCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_ends_well_and_nothing_is_left() {
    needs_redis!();
    let mut site = Site::behind_proxy(&ALWAYS).await;
    let before = memory_after_some(&mut site).await;
    let killed = all_end_well(&mut site).await;
    // Each of those killed had two sessions, and any of them may have had to begin new ones.
    let left = Keys::of(site.redis());
    assert!(left.size("sessions") <= 3 * killed + 10, "{left:?}");
    assert_memory_is_back(&mut site, before).await;
    site.ends(3 * killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_ends_well_and_nothing_is_left_in_postgres() {
    needs_postgres!();
    let mut site = Site::durable_database().await;
    let killed = all_end_well(&mut site).await;
    site.ends(3 * killed + 10).await;
}

/// Does harm for some time, under load. All tasks end well. Returns the number of workers that were killed.
async fn all_end_well(site: &mut Site) -> usize {
    let plan = site.plan(Role::Worker(WORK));
    let mut workers = [(); 3].map(|()| Process::start(&plan));
    let seed = u64::from(std::process::id());
    println!("begins with {seed}");
    let mut load = Load::start(&site.client, 4, move || job(seed));
    let mut chaos = Chaos {
        start: Instant::now(),
        random: Numbers::new(seed),
        struck: 0,
        killed: 0,
    };
    let end = Instant::now() + Duration::from_secs(rounds(12, 600) as u64);
    // A killed worker may have had no task. Then others are killed.
    while Instant::now() < end || chaos.struck < 12 || !has_lost_a_run(site).await {
        load.goes_on(10).await;
        sleep(chaos.millis(200)).await;
        chaos.strike(site, &mut workers, &plan).await;
    }
    let ids = load.end().await;
    site.assert_all_finished(&ids);
    for worker in &mut workers {
        worker.stop(0).await;
    }
    let counts = site.settled().await;
    println!("{} workers were killed: {counts:?}", chaos.killed);
    assert_eq!((counts.done, counts.dead), (counts.stored, 0), "{counts:?}");
    let happened = [counts.retried, counts.snoozed, counts.crashed + counts.lost];
    assert!(happened.iter().all(|&times| times > 0), "{counts:?}");
    chaos.killed
}

/// Returns `true` if a worker has died while it ran a task. A server that is stopped does not answer.
async fn has_lost_a_run(site: &Site) -> bool {
    let counts = site.client.counts().await;
    counts.is_ok_and(|counts| counts.crashed + counts.lost > 0)
}

/// Stores a task of any kind. However many workers die, it is not to blame.
fn job(seed: u64) -> (Job, SpawnOptions) {
    let id = throng::durable::TaskId::new();
    let options = SpawnOptions::new()
        .id(id)
        .retention(RETENTION)
        .max_crashes(u32::MAX);
    let last = u64::from(id.to_bytes()[15]) ^ (seed & 0xff);
    let job = match last % 32 {
        0 => Job::Fail(2),
        1 => Job::Panic(1),
        2 => Job::Snooze,
        3 => Job::Work(300),
        _ => Job::Work(1 + last % 5),
    };
    (job, options)
}

/// Somebody who does harm.
struct Chaos {
    start: Instant,
    random: Numbers,
    /// The number of injected faults.
    struck: u64,
    /// The number of workers it has killed.
    killed: usize,
}

impl Chaos {
    fn millis(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.random.below(limit))
    }

    async fn strike(
        &mut self,
        site: &mut Site,
        workers: &mut [Process],
        plan: &crate::child::Plan,
    ) {
        let which = self.random.below(workers.len() as u64) as usize;
        let for_a_while = self.millis(2 * WORK.lease);
        let harm = self.harm();
        println!(
            "{:?} {harm:?} {which} {for_a_while:?}",
            self.start.elapsed()
        );
        match harm {
            Harm::KillWorker => {
                workers[which].kill();
                workers[which] = Process::start(plan);
                self.killed += 1;
            }
            Harm::Cut => site.cut(),
            Harm::KillServer => {
                site.kill_server();
                sleep(for_a_while / 4).await;
                site.run_server();
            }
            Harm::StopServer => {
                site.freeze_server();
                sleep(for_a_while).await;
                site.thaw_server();
            }
            Harm::StopWorker => {
                hang(site, &workers[which]);
                sleep(for_a_while).await;
                workers[which].send(Signal::CONT);
            }
            Harm::Forget => match site.redis_if_any() {
                Some(server) => drop(server.ask(&["SCRIPT", "FLUSH"])),
                None => _ = site.postgres().cut_listeners(),
            },
        }
    }

    fn harm(&mut self) -> Harm {
        // One after the other at first, so that each of them happens.
        let which = match self.struck {
            0..10 => self.struck,
            _ => self.random.below(10),
        };
        self.struck += 1;
        match which {
            0..3 => Harm::KillWorker,
            3..6 => Harm::Cut,
            6 => Harm::KillServer,
            7 => Harm::StopServer,
            8 => Harm::StopWorker,
            _ => Harm::Forget,
        }
    }
}

#[derive(Debug)]
enum Harm {
    KillWorker,
    Cut,
    KillServer,
    StopServer,
    StopWorker,
    /// Redis forgets its scripts; PostgreSQL, those who receive notifications.
    Forget,
}

/// How much memory the server needs when some tasks have come and gone.
async fn memory_after_some(site: &mut Site) -> u64 {
    let mut worker = site.worker(WORK).await;
    let options = || SpawnOptions::new().retention(Duration::ZERO);
    let jobs = (0..500).map(|_| (Job::Work(1), options()));
    site.client
        .spawn_all_with(jobs)
        .await
        .expect("they are stored");
    site.settled().await;
    worker.stop(0).await;
    site.redis().kill();
    site.redis().run();
    used_memory(site)
}

/// When nothing is kept any longer, the server needs as much memory as before. That takes a minute, so
/// only a long run waits for it.
async fn assert_memory_is_back(site: &mut Site, before: u64) {
    if rounds(0, 1) == 0 {
        return;
    }
    let mut worker = site.worker(WORK).await;
    let end = Instant::now() + RETENTION + MAINTENANCE;
    while Keys::of(site.redis()).size("results") > 0 {
        assert!(
            Instant::now() < end,
            "nobody removes what is kept no longer"
        );
        sleep(Duration::from_millis(100)).await;
    }
    worker.stop(0).await;
    // The records of killed processes stay for a day.
    site.redis().ask(&["EVAL", FORGET_PROCESSES, "0", BASE]);
    site.redis().kill();
    site.redis().run();
    let after = used_memory(site);
    println!("the server needs {after} bytes, and needed {before}");
    assert!(after * 20 < before * 21, "{before}, {after}");
}

/// Removes what is there of processes.
const FORGET_PROCESSES: &str = "
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. 'idle:*')) do redis.call('DEL', key) end
return redis.call('DEL', ARGV[1] .. 'sessions')";

fn used_memory(site: &mut Site) -> u64 {
    let Value::BulkString(info) = site.redis().ask(&["INFO", "memory"]) else {
        panic!("the server says what it uses");
    };
    let info = String::from_utf8_lossy(&info);
    let mut lines = info.lines();
    let used = lines.find_map(|line| line.strip_prefix("used_memory:"));
    used.expect("a line").trim().parse().expect("a number")
}
