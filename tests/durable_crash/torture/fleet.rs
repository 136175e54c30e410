//! [`Fleet`]: the processes of the torture, and what was done to them.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use throng::durable::TaskId;

use super::LEASE;
use crate::child::{Plan, Role, Work};
use crate::hung::hang;
use crate::job::{Line, now};
use crate::process::{Process, until};
use crate::site::{PATIENT, Site};
use crate::support::Numbers;

/// Three workers, and a process that stores chores.
pub(super) struct Fleet {
    plans: [Plan; 2],
    workers: Vec<Process>,
    storer: Process,
    frozen: Option<(usize, Instant)>,
    random: Numbers,
    strikes: u64,
    next_freeze: u64,
    pub(super) record: Record,
}

/// The deaths and freezes of the processes, and the facts that the checks need about them.
#[derive(Default)]
pub(super) struct Record {
    /// `true` if an epoch is the time of its claim. Those of a new server are ahead of the clock.
    has_times: bool,
    /// The processes that were killed, and the time right before that.
    pub(super) deaths: Vec<(u32, u64)>,
    /// The number of storers among them.
    pub(super) killed_storers: usize,
    /// The processes that were frozen for longer than a lease.
    pub(super) freezes: Vec<Freeze>,
    /// The ids of the chores of which a storer was told that they are stored.
    pub(super) told: Vec<TaskId>,
    /// The number of leases that the workers that are left have lost, and of verdicts that were refused.
    pub(super) late: u64,
}

/// The time for which a process was frozen, from right before it until it went on, in microseconds since 1970.
pub(super) struct Freeze {
    pub(super) pid: u32,
    from: u64,
    to: u64,
}

impl Freeze {
    /// Returns the time from which on a run of this process may have had no lease, if there is one before its end. A run
    /// that begins right after may have been claimed before.
    pub(super) fn cuts(&self, start: u64, end: u64) -> Option<u64> {
        const SOON: u64 = 1_000_000;
        (self.from < end && start < self.to.saturating_add(SOON)).then_some(self.from)
    }
}

/// The number of strikes from one that also kills the storer to the next.
const STORER_PERIOD: u64 = 3;
/// The same, of those that also freeze a worker.
const FREEZE_PERIOD: u64 = 6;
/// The time for which a worker is frozen: longer than a lease.
const FROZEN: Duration = Duration::from_millis(LEASE * 3 / 2);

impl Fleet {
    pub(super) fn start(site: &Site) -> Self {
        let work = Work {
            executors: 2,
            max_running: 8,
            lease: LEASE,
            chores: true,
            ..PATIENT
        };
        let plans = [Role::Worker(work), Role::Storer].map(|role| site.plan(role));
        Self {
            workers: (0..3).map(|_| Process::start(&plans[0])).collect(),
            storer: Process::start(&plans[1]),
            plans,
            frozen: None,
            random: Numbers::new(u64::from(std::process::id())),
            strikes: 0,
            next_freeze: FREEZE_PERIOD / 2,
            record: Record {
                has_times: site.is_file(),
                ..Record::default()
            },
        }
    }

    /// Kills a worker, and now and then also does something to another process.
    pub(super) fn strike(&mut self, site: &Site) {
        self.strikes += 1;
        let victim = self.victim();
        self.record.kill(&mut self.workers[victim]);
        self.workers[victim] = Process::start(&self.plans[0]);
        if self.strikes.is_multiple_of(STORER_PERIOD) {
            self.kill_storer();
            self.storer = Process::start(&self.plans[1]);
        }
        if self.strikes >= self.next_freeze && self.frozen.is_none() {
            self.freeze(site, (victim + 1) % 3);
        }
        // It lives until the next strike, so that it can report what it has done without a lease.
        self.thaw_in_time();
    }

    /// Returns a worker that is not frozen: if possible, and mostly, one that works already.
    fn victim(&mut self) -> usize {
        let frozen = self.frozen.map(|(worker, _)| worker);
        let victims = (0..3).filter(|&worker| frozen != Some(worker));
        let is_ready = |worker: &usize| !self.workers[*worker].heard("ready").is_empty();
        let ready: Vec<_> = victims.clone().filter(is_ready).collect();
        let victims = match !self.strikes.is_multiple_of(4) && !ready.is_empty() {
            true => ready,
            false => victims.collect(),
        };
        victims[self.random.below(victims.len() as u64) as usize]
    }

    /// Kills the worker that runs a task.
    pub(super) async fn strike_runner(&mut self, site: &Site, id: TaskId) {
        let look = async || {
            let last = site.lines("start", id).pop()?;
            let mut workers = self.workers.iter();
            workers.position(|worker| worker.pid() == last.pid)
        };
        let runner = until("one of them runs it", look).await;
        self.record.kill(&mut self.workers[runner]);
        self.workers[runner] = Process::start(&self.plans[0]);
    }

    fn kill_storer(&mut self) {
        self.record.killed_storers += 1;
        self.record.kill(&mut self.storer);
        let told = self.storer.heard("stored ").into_iter();
        let told = told.map(|id| id.parse::<TaskId>().expect("an id"));
        self.record.told.extend(told);
    }

    /// Freezes a worker where that does not block the others.
    fn freeze(&mut self, site: &Site, worker: usize) {
        self.next_freeze = self.strikes + FREEZE_PERIOD;
        let process = &self.workers[worker];
        self.record.freezes.push(Freeze {
            pid: process.pid(),
            from: hang(site, process),
            to: u64::MAX,
        });
        self.frozen = Some((worker, Instant::now()));
    }

    fn thaw_in_time(&mut self) {
        if self
            .frozen
            .is_some_and(|(_, since)| since.elapsed() > FROZEN)
        {
            self.thaw();
        }
    }

    fn thaw(&mut self) {
        if let Some((worker, _)) = self.frozen.take() {
            self.workers[worker].send(Signal::CONT);
            let freeze = self.record.freezes.last_mut();
            freeze.expect("it was frozen").to = now();
        }
    }

    /// Stores no more, and lets all workers work.
    pub(super) fn calm_down(&mut self) {
        self.thaw();
        self.kill_storer();
    }

    /// Ends the workers, and returns what was done.
    pub(super) async fn end(mut self) -> Record {
        for worker in &mut self.workers {
            worker.wait_for_line("ready").await;
            worker.stop(1000).await;
            let late = worker.heard("late ");
            let late = late.iter().map(|late| late.parse::<u64>());
            self.record.late += late.map(|late| late.expect("a number")).sum::<u64>();
        }
        self.record
    }
}

impl Record {
    pub(super) fn killed_workers(&self) -> usize {
        self.deaths.len() - self.killed_storers
    }

    /// Returns the time of the claim of a run, which was not later and is known up to the [slack](Self::slack).
    pub(super) fn time_of_claim(&self, start: &Line) -> u64 {
        match self.has_times {
            true => start.epoch,
            false => start.time - self.slack(),
        }
    }

    /// Returns the time by which a claim may be later than is known, in microseconds. If its epoch does not tell, its
    /// worker may have been too slow to start its run at once.
    pub(super) fn slack(&self) -> u64 {
        match self.has_times {
            true => 2_000,
            false => 1_000_000,
        }
    }

    fn kill(&mut self, process: &mut Process) {
        self.deaths.push((process.pid(), now()));
        process.kill();
    }
}
