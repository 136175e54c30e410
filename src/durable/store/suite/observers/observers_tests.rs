//! Observers, which read a store and change nothing.

use std::fmt::Debug;
use std::sync::Arc;

use super::Harness;
use super::process::*;
use super::scheduler::Scheduler;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::schedule::when::COMPUTES;
use crate::durable::store::{
    CheckedFilter, Enqueue, ListTasks, NewSession, Progress, ProgressReport, QueueChange,
    ScheduleChange, Store, Turn, WorkerCard,
};
use crate::durable::{DeadFilter, Retention};

/// Stores tasks of each status, a schedule, limits and a paused type.
async fn fill(it: &dyn Harness, process: &Process) {
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
    process.cancel([3]).await;
    let verdicts = [done(), dead(), retry(HOUR), retry(HOUR)];
    let verdicts = verdicts.into_iter().enumerate();
    let verdicts = verdicts.map(|(nth, verdict)| (id(1 + nth as u64), verdict));
    let verdicts = wanting(0).verdicts(claim.epoch, verdicts.collect());
    assert_eq!(session.turn(verdicts).await.refused, []);
    process.set_queue("q", max_running(3)).await;
    process.pause("other").await;
    Scheduler::of(it).define_minutely("minutely").await;
}

fn text<T: Debug>(answer: Result<T, Failure>) -> String {
    format!("{:?}", answer.expect("a request that reads is answered"))
}

/// Makes all requests that only read. Returns the answers.
async fn look(store: &Store) -> Vec<String> {
    let store = &store.0;
    let ids: Vec<_> = (0..10).map(id).collect();
    let mut seen = vec![
        text(store.status(ids.clone()).await),
        text(store.progress(ids.clone()).await),
        text(store.dead_letters(DeadFilter::all(), 9).await),
        text(store.counts().await),
        text(store.workers(None, 9).await),
        text(store.paused_types().await),
        text(store.queue(queue_name("q")).await),
        text(store.schedules(None, 9).await),
        text(store.schedule(schedule_name("minutely")).await),
        text(store.retention().await),
        text(store.probe().await),
        format!("{:?}", store.health()),
    ];
    for id in ids {
        seen.push(text(store.errors(id).await));
        seen.push(text(store.dead_letter_payload(id).await));
    }
    for status in LISTED {
        let filter = CheckedFilter {
            status,
            name: None,
            queue: None,
        };
        let request = ListTasks {
            filter,
            after: None,
            limit: 9,
        };
        seen.push(text(store.list(request).await));
    }
    seen
}

pub(super) async fn an_observer_reads_what_others_read(it: &dyn Harness) {
    let process = Process::of(it);
    fill(it, &process).await;
    assert_eq!(look(&it.observe()).await, look(&process.0).await);
}

pub(super) async fn an_observer_sees_changes(it: &dyn Harness) {
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
    drop(session);
    drop(process);
    assert_eq!(observer.counts().await.done, 4);
}

pub(super) async fn an_observer_writes_nothing(it: &dyn Harness) {
    let process = Process::of(it);
    fill(it, &process).await;
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

pub(super) async fn an_observer_is_refused_all_changes(it: &dyn Harness) {
    let process = Process::of(it);
    fill(it, &process).await;
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
    assert_observed(store.cancel(vec![id(6)]).await);
    assert_observed(store.replay_dead_letters(DeadFilter::all()).await);
    assert_observed(store.delete_dead_letters(DeadFilter::all()).await);
    assert_observed(store.set_paused("other".into(), false).await);
    let resume = QueueChange::Paused(false);
    assert_observed(store.change_queue(queue_name("q"), resume).await);
    assert_observed(store.hand_out(COMPUTES).await);
    assert_observed(store.change_schedule(Arc::new(removal())).await);
    assert_observed(store.maintain(9).await);
    assert_observed(store.set_retention(Retention::default()).await);
    assert_observed(store.upgrade().await);
    assert!(it.contents() == before);
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
