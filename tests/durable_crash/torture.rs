//! A fleet that serves queues with limits, keys, groups and schedules, and whose processes are killed again and again.
//!
//! The test reads the ledger afterwards, and checks it. A run counts for the limits of its queue from its start to its end or to
//! the death of its process, and only for as long as it certainly had its lease.

#[path = "torture/baseline.rs"]
mod baseline;
#[path = "torture/chore.rs"]
pub(crate) mod chore;
#[path = "torture/ends.rs"]
mod ends;
#[path = "torture/events.rs"]
mod events;
#[path = "torture/fleet.rs"]
mod fleet;
#[path = "torture/producers.rs"]
pub(crate) mod producers;
#[path = "torture/runs.rs"]
mod runs;
#[path = "torture/ticks.rs"]
mod ticks;

use std::time::Duration;

use throng::durable::Counts;
use tokio::time::sleep;

use self::baseline::Baseline;
use self::chore::{Act, Chore, Lane, MAX_RUNNING, Origin};
use self::events::Events;
use self::fleet::{Fleet, Record};
use self::producers::{Produced, Producers};
use self::runs::{History, Run};
use super::child::Work;
use super::job::Job;
use super::site::{PATIENT, Site};
use super::support::rounds;

on_all_stores! {
    every_promise_is_kept,
}

/// The lease of the workers, in milliseconds.
const LEASE: u64 = 1500;

/// The number of waiting tasks above which no more are stored, so that all end soon when the killing is over.
const MAX_WAITING: u64 = 500;

/// The number of times for which all rounds are repeated until there were events of all kinds. On a slow machine, some take long.
const MOST_ROUNDS: usize = 10;

async fn every_promise_is_kept(mut site: Site) {
    prepare(&site).await;
    let baseline = Baseline::of(&site);
    let outcome = torture(&site).await;
    outcome.assert_limits();
    let (history, produced) = (&outcome.history, &outcome.produced);
    ends::assert_one_end_each(&site, &outcome.counts, history, produced, &outcome.record);
    ends::assert_handles(history, produced).await;
    ends::assert_joins(history, produced);
    ends::assert_windows(produced);
    outcome.report();
    ends::assert_keys_are_free(&site).await;
    // Its sessions are gone, as are those of the workers.
    site.client.close().await.expect("it ends in order");
    site.client = site.address.client().await;
    baseline::assert_reached(&site, &baseline, &outcome.record).await;
}

/// Nobody dies. Each process has an engine of its own.
#[tokio::test]
async fn eight_engines_meet_no_deadlock_in_postgres() {
    needs_postgres!();
    let site = Site::database().await;
    prepare(&site).await;
    let work = Work {
        max_running: 8,
        chores: true,
        ..PATIENT
    };
    let mut workers = Vec::new();
    for _ in 0..8 {
        workers.push(site.worker(work).await);
    }
    let producers = Producers::start(&site.client);
    for _ in 0..rounds(20, 1000) {
        sleep(Duration::from_millis(400)).await;
        producers.pause_if(site.counts().await.waiting > MAX_WAITING);
    }
    producers.end().await;
    // This looks at the number of deadlocks.
    let counts = site.settled().await;
    println!("{counts:?}");
    for worker in &mut workers {
        worker.stop(1000).await;
    }
}

/// Kills processes while tasks of all kinds are stored and run, and then lets all tasks end.
async fn torture(site: &Site) -> Tortured {
    let defined = ticks::define(&site.client).await;
    let mut fleet = Fleet::start(site);
    let producers = Producers::start(&site.client);
    // It runs all the time, so that at least the last of the deaths interrupts a run.
    let held = site.client.spawn_with(held(), Lane::Plain.options()).await;
    let held = held.expect("it is stored").id();
    let least = rounds(12, 300);
    for round in 1..=MOST_ROUNDS * least {
        // Later rounds are longer: where processes take long to start, they must live on to do anything.
        let pause = rounds(400, 2000) * round.div_ceil(least);
        sleep(Duration::from_millis(pause as u64)).await;
        fleet.strike(site);
        let counts = site.counts().await;
        producers.pause_if(counts.waiting > MAX_WAITING);
        if round >= least && is_all_seen(site, &counts, &producers, &fleet) {
            break;
        }
    }
    let produced = producers.end().await;
    fleet.calm_down();
    fleet.strike_runner(site, held).await;
    let schedules = ticks::end(&site.client).await;
    site.folder.open_gate();
    let counts = site.at_rest().await;
    let mut record = fleet.end().await;
    record.told.push(held);
    let history = History::of(&site.folder.ledger(), &record);
    let ticks = ticks::assert_once_each(&history, &schedules, defined);
    Tortured {
        counts,
        record,
        produced,
        history,
        ticks,
    }
}

/// Returns `true` if there were events of all kinds.
fn is_all_seen(site: &Site, counts: &Counts, producers: &Producers, fleet: &Fleet) -> bool {
    let history = History::so_far(&site.folder.ledger(), &fleet.record);
    let events = Events::of(counts, &producers.produced(), &history, &fleet.record);
    events.missing().is_empty()
}

async fn prepare(site: &Site) {
    for lane in Lane::ALL {
        if let Some(queue) = lane.queue() {
            let set = site.client.queue(queue).set(lane.settings()).await;
            assert!(set.expect("the store answers"));
        }
    }
}

/// A chore that ends when the gate is opened.
fn held() -> Chore {
    Chore {
        lane: Lane::Plain,
        origin: Origin::Free,
        serial: 0,
        act: Act::Do(Job::Wait),
    }
}

/// The results of a torture.
struct Tortured {
    counts: Counts,
    record: Record,
    produced: Produced,
    history: History,
    ticks: usize,
}

impl Tortured {
    /// Asserts that no limit was exceeded.
    fn assert_limits(&self) {
        let history = &self.history;
        let is_in = |lane| move |run: &Run| run.note.chore.lane == lane;
        let of = |lane| move |run: &Run| is_in(lane)(run).then_some(lane);
        history.assert_at_most(MAX_RUNNING, of(Lane::Limited));
        history.assert_at_most(1, |run| run.note.group.clone());
        history.assert_in_order();
        history.assert_rate(self.record.slack(), is_in(Lane::Rated));
        history.assert_at_most(1, |run| Some(run.id));
        history.assert_at_most(1, key_until_end);
    }

    /// Prints what has happened, and asserts that it is not too little.
    fn report(&self) {
        let (counts, record) = (&self.counts, &self.record);
        let events = Events::of(counts, &self.produced, &self.history, record);
        println!(
            "{} killed; {} tasks, {} runs, {} ticks; {events}; {} crashed, {} lost, {} late, {} dead",
            record.deaths.len(),
            counts.stored,
            self.history.runs.len(),
            self.ticks,
            counts.crashed,
            counts.lost,
            record.late,
            counts.dead,
        );
        let missing = events.missing();
        assert!(
            missing.is_empty(),
            "these never happened: {missing:?}; {events}"
        );
    }
}

/// Returns the key that the task of a run holds until it ends, if there is one.
fn key_until_end(run: &Run) -> Option<String> {
    match &run.note.chore.origin {
        Origin::Keyed(kind, number) if !kind.is_until_started() => {
            Some(format!("{kind:?} {number}"))
        }
        Origin::Schedule(name) if name == "skip" => Some(name.clone()),
        _ => None,
    }
}
