//! Six workers in three processes, which are killed again and again.

use std::time::Duration;

use rustix::process::Signal;
use throng::durable::{DurableHandle, SpawnOptions, TaskId};
use tokio::time::sleep;

use super::child::{Role, Work};
use super::job::{Job, Outcome};
use super::process::{Process, until};
use super::site::{Site, outcomes};
use super::support::rounds;

on_all_stores! {
    every_task_ends_well_once,
}

/// The number of tasks that are stored between two deaths.
const TASKS: usize = 50;

async fn every_task_ends_well_once(site: Site) {
    let plan = site.plan(Role::Worker(Work {
        executors: 2,
        max_running: 8,
        ..site.work()
    }));
    let mut processes = [(); 3].map(|()| Process::start(&plan));
    let mut random = Random(u64::from(std::process::id()));
    println!("begins with {random:?}");
    // Runs all the time, so that at least the last of the deaths interrupts a run.
    let options = SpawnOptions::new().max_crashes(u32::MAX);
    let held = site.spawn_with(Job::Wait, options).await;
    let held_id = held.id();
    let mut handles = vec![held];
    for _ in 0..rounds(30, 150) {
        handles.extend(store(&site, &mut random).await);
        // Some tasks run still, or again, and others do not.
        sleep(Duration::from_millis(random.below(100))).await;
        let victim = &mut processes[random.below(3) as usize];
        victim.kill();
        *victim = Process::start(&plan);
    }
    let runner = runner_of(&site, held_id, &mut processes).await;
    runner.kill();
    *runner = Process::start(&plan);
    site.folder.open_gate();
    let stored = handles.len() as u64;
    let ids: Vec<_> = handles.iter().map(DurableHandle::id).collect();
    assert_are_of_the_ledger(&site, &ids, &outcomes(handles).await);
    for process in &mut processes {
        process.send(Signal::KILL);
        process.was_killed_by(Signal::KILL).await;
    }
    let counts = site.settled().await;
    assert_eq!((counts.stored, counts.done), (stored, stored), "{counts:?}");
    assert_eq!((counts.kept, counts.dead), (stored, 0), "{counts:?}");
    // That something has happened.
    let happened = [counts.retried, counts.snoozed, counts.crashed + counts.lost];
    assert!(happened.iter().all(|&times| times > 0), "{counts:?}");
}

/// Stores tasks of all kinds. However many workers die, they are not to blame.
async fn store(site: &Site, random: &mut Random) -> Vec<DurableHandle<Outcome>> {
    let jobs: Vec<_> = (0..TASKS).map(|_| random.job()).collect();
    let options = SpawnOptions::new().max_crashes(u32::MAX);
    let jobs = jobs.into_iter().map(|job| (job, options.clone()));
    let stored = site.client.spawn_all_with(jobs).await;
    stored.expect("they are stored")
}

/// Waits until one of the processes runs a task, and returns it.
async fn runner_of<'a>(site: &Site, id: TaskId, processes: &'a mut [Process]) -> &'a mut Process {
    let look = async || {
        let last = site.lines("start", id).pop()?;
        processes
            .iter()
            .position(|process| process.pid() == last.pid)
    };
    let runner = until("one of them runs it", look).await;
    &mut processes[runner]
}

/// Each output is that of a run that has come to its end.
fn assert_are_of_the_ledger(site: &Site, ids: &[TaskId], outcomes: &[Outcome]) {
    let ledger = site.folder.ledger().into_iter();
    let ends = ledger.filter(|line| line.what == "end");
    let ends: std::collections::HashSet<_> =
        ends.map(|line| (line.id, line.pid, line.epoch)).collect();
    for (&id, outcome) in ids.iter().zip(outcomes) {
        assert!(
            ends.contains(&(id, outcome.pid, outcome.epoch)),
            "{id}: {outcome:?}"
        );
    }
}

/// Random numbers: xorshift.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn job(&mut self) -> Job {
        match self.below(20) {
            0 => Job::Fail(2),
            1 => Job::Panic(1),
            2 => Job::Snooze,
            _ => Job::Work(1 + self.below(5)),
        }
    }
}
