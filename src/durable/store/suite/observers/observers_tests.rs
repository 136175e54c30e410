//! Observers, which read a store and change nothing.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::Harness;
use super::looks::look;
use super::process::*;
use super::scheduler::Scheduler;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::when::COMPUTES;
use crate::durable::store::suite::changes::moves_tests::all_to;
use crate::durable::store::{
    Change, ClaimPushes, Enqueue, NewSession, Progress, ProgressReport, QueueChange, RunType,
    ScheduleChange, SignalAnswer, StatReport, StepKind, StepName, Turn, WorkerCard,
};
use crate::durable::{DeadFilter, Retention, RunTotals};

/// Stores tasks of each status, a schedule, limits, a paused type and statistics. The process of the scheduler must not be dropped while
/// contents are compared, since it is removed in the background.
async fn fill<'a>(it: &'a dyn Harness, process: &Process) -> Scheduler<'a> {
    let card = WorkerCard::new(&queue_name("q"), 3, NAMES);
    let (set, card) = (Some(set(&NAMES)), Some(card));
    let session = NewSession { set, card };
    let mut session = process.session_with_card(session).await;
    session
        .enqueue((1..=6).map(task).chain([queued(7), delayed(8, HOUR)]))
        .await;
    let claim = session.claim(5).await;
    let report = ProgressReport {
        id: id(5),
        progress: Progress {
            epoch: claim.epoch,
            number: 1,
            bytes: b"1".to_vec(),
        },
    };
    process.0.0.report_progress(vec![report]).await.unwrap();
    let name = StepName::new(StepKind::Signal, "a").unwrap();
    let signal = process.0.0.signal(id(5), name, b"1".to_vec());
    assert_eq!(signal.await.unwrap(), SignalAnswer::Stored);
    process.cancel([3]).await;
    let verdicts = [done(), dead(), retry(HOUR), retry(HOUR)];
    let verdicts = verdicts.into_iter().enumerate();
    let verdicts = verdicts.map(|(nth, verdict)| (id(1 + nth as u64), verdict));
    let verdicts = wanting(0).verdicts(claim.epoch, verdicts.collect());
    assert_eq!(session.turn(verdicts).await.refused, []);
    process.set_queue("q", max_running(3)).await;
    process.pause("other").await;
    process.0.0.record_stats(Arc::new(one_run())).await.unwrap();
    let scheduler = Scheduler::of(it);
    scheduler.define_minutely("minutely").await;
    scheduler
}

/// A report of one run.
fn one_run() -> StatReport {
    let run_type = RunType::new(&"job".into(), &QueueName::DEFAULT);
    let runs = RunTotals::of([1; 5], Duration::from_micros(1));
    StatReport {
        reporter: 1,
        number: 1,
        runs: vec![(run_type, runs)],
    }
}

pub async fn an_observer_reads_what_others_read(it: &dyn Harness) {
    let process = Process::of(it);
    let _scheduler = fill(it, &process).await;
    assert_eq!(look(&it.observe()).await, look(&process.0).await);
}

pub async fn an_observer_sees_changes(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let observer = Process(it.observe());
    for number in 1..5 {
        session.enqueue([task(number)]).await;
        assert_eq!(observer.counts().await.stored, number);
        session.run_first(id(number), done()).await;
        assert_eq!(observer.status_of(number).await, state_done());
        assert_eq!(observer.counts().await.done, number);
    }
    drop(process);
    assert_eq!(observer.counts().await.done, 4);
}

pub async fn an_observer_writes_nothing(it: &dyn Harness) {
    let process = Process::of(it);
    let _scheduler = fill(it, &process).await;
    // The process reads before, since its readers may register. In SQLite, an observer of the same process could register for them.
    look(&process.0).await;
    let before = it.contents();
    let observer = it.observe();
    look(&observer).await;
    drop(observer.0.events());
    assert!(it.contents() == before);
    observer.0.close().await.unwrap();
    drop(observer);
    assert!(it.contents() == before);
}

#[track_caller]
fn assert_observed<T: Debug>(answer: Result<T, Failure>) {
    let failure = answer.expect_err("an observer changes nothing");
    assert_eq!(failure.cause, Cause::Observed);
    assert_eq!(failure.effect, Effect::None);
    assert!(
        failure.to_string().contains("`open` instead of `observe`"),
        "{failure}"
    );
}

pub async fn an_observer_is_refused_all_changes(it: &dyn Harness) {
    let process = Process::of(it);
    let _scheduler = fill(it, &process).await;
    look(&process.0).await;
    let before = it.contents();
    let observer = it.observe();
    let store = &observer.0;
    assert_observed(store.open_session(Some(set(&NAMES))).await);
    assert_observed(store.open_session(None).await);
    assert_observed(store.close_session(1).await);
    assert_observed(store.enqueue(Arc::new(new_enqueue())).await);
    assert_observed(store.turn(Arc::new(new_turn())).await);
    assert_observed(store.renew(vec![1]).await);
    assert_observed(store.report_progress(Vec::new()).await);
    assert_observed(store.store_steps(Vec::new()).await);
    let name = StepName::new(StepKind::Signal, "a").unwrap();
    assert_observed(store.signal(id(6), name, Vec::new()).await);
    assert_observed(store.cancel(vec![id(6)]).await);
    assert_observed(store.change(vec![id(8)], Change::RunNow).await);
    assert_observed(store.move_waiting(all_to("q")).await);
    assert_observed(store.replay_dead_letters(DeadFilter::all()).await);
    assert_observed(store.delete_dead_letters(DeadFilter::all()).await);
    assert_observed(store.set_paused("other".into(), false).await);
    let resume = QueueChange::Paused(false);
    assert_observed(store.change_queue(queue_name("q"), resume).await);
    assert_observed(store.hand_out(COMPUTES).await);
    assert_observed(store.change_schedule(Arc::new(removal())).await);
    assert_eq!(store.outbox_insert(), Err(Cause::Observed));
    assert_observed(store.look_into_outbox().await);
    assert_observed(store.drain_outbox().await);
    assert_observed(store.record_stats(Arc::new(one_run())).await);
    assert_observed(store.maintain(9).await);
    assert_observed(store.maintain_every(HOUR, 9).await);
    assert_observed(store.set_retention(Retention::default()).await);
    assert_observed(store.upgrade().await);
    assert!(it.contents() == before);
}

/// A new request has to be added to `look`, or to those that are refused.
#[test]
fn every_request_is_made_of_an_observer() {
    let text = |source: &str| source.split_whitespace().collect::<String>();
    let made = text(include_str!("looks.rs")) + &text(include_str!("observers_tests.rs"));
    let store = include_str!("../../../store.rs");
    let (_, requests) = store.split_once("trait Backend").unwrap();
    let (requests, _) = requests.split_once("\n}\n").unwrap();
    let names = requests.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("    fn ")?.split_once('(')?;
        Some(name)
    });
    let all: Vec<_> = names.collect();
    assert!(all.len() > 40, "{all:?}");
    // The first five ask nothing of the store, and `open_session` makes the last.
    let others = [
        "name",
        "runtime",
        "can_have",
        "suits_parent",
        "is_reachable",
        "tells_all_ticks",
        "open_session_with",
    ];
    let requests = all.iter().filter(|name| !others.contains(name));
    let missing = requests.filter(|name| {
        let receivers = ["store", "observer.0"];
        let mut calls = receivers.iter().map(|it| format!("{it}.{name}("));
        !calls.any(|call| made.contains(&call))
    });
    assert_eq!(missing.collect::<Vec<_>>(), [&""; 0]);
}

fn new_enqueue() -> Enqueue {
    Enqueue {
        session: 1,
        number: 1,
        batch: Arc::new(vec![task(9)].into()),
    }
}

fn new_turn() -> Turn {
    Turn {
        session: 1,
        number: 1,
        verdicts: Vec::new(),
        received: None,
        floor: 0,
        want: 9,
        want_bytes: 9,
        quarantined: true,
        lease: LEASE,
        go_idle: true,
        pushes: ClaimPushes::default(),
    }
}

/// A change that removes the schedule.
fn removal() -> ScheduleChange {
    ScheduleChange {
        name: schedule_name("minutely"),
        before: None,
        after: None,
        queue: queue_name("q"),
        tasks: Vec::new(),
    }
}
