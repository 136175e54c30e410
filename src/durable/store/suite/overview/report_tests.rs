//! The report on a store.

use std::time::Duration;

use super::Harness;
use super::process::*;
use super::scheduler::*;
use crate::durable::store::suite::workers::workers_tests::worker;
use crate::durable::store::{DeadReason, NewTask, Verdict};
use crate::durable::{DeadFilter, DurableClient, FindingLevel, Report, Retention};

/// A client that reads reports.
struct Reader(DurableClient);

impl Reader {
    fn of(it: &dyn Harness) -> Self {
        Self(DurableClient::open(it.connect()))
    }

    async fn report(&self) -> Report {
        self.0.admin().report().await.unwrap()
    }

    /// Returns the ids of the findings about the store, in their order. Those about a server depend on its settings.
    async fn findings(&self) -> Vec<&'static str> {
        let findings = self.report().await.findings.into_iter();
        let ids = findings.map(|finding| finding.id);
        let is_of_server = |id: &&str| id.starts_with("redis.") || id.starts_with("postgres.");
        ids.filter(|id| !is_of_server(id)).collect()
    }

    /// Checks that there is one finding, and that it contains a text.
    async fn assert_finds(&self, id: &str, text: &str) {
        assert_eq!(self.findings().await, [id]);
        let findings = self.report().await.findings;
        let finding = findings.iter().find(|finding| finding.id == id);
        let what = &finding.expect("it is listed").what;
        assert!(what.contains(text), "{what}");
    }
}

fn unknown(number: u64) -> NewTask {
    NewTask {
        name: "unknown".into(),
        ..task(number)
    }
}

pub(super) async fn a_store_in_order_has_no_findings(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    assert_eq!(reader.findings().await, [""; 0]);
    let mut session = process.session_with_card(worker("", 9)).await;
    session.enqueue((0..9).map(task)).await;
    process.pause("other").await;
    process.pause_queue("paused").await;
    session.claim(2).await;
    session.run_first(id(2), dead()).await;
    session.run_first(id(3), retry(SECOND)).await;
    assert_eq!(reader.findings().await, [""; 0]);
    let now = std::time::UNIX_EPOCH + it.clock().wall();
    assert_eq!(reader.report().await.now, now);
}

pub(super) async fn tasks_that_wait_without_any_worker(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    session.close().await;
    // A worker may start soon.
    reader
        .assert_finds("queues.unserved", "the default queue")
        .await;
    it.clock().advance(60 * SECOND);
    reader
        .assert_finds("queues.unserved", "the default queue")
        .await;
    it.clock().advance(SECOND);
    reader
        .assert_finds("workers.none", "2 tasks wait, and the longest wait is 61 s")
        .await;
    let report = reader.report().await;
    assert_eq!(report.findings[0].level, FindingLevel::Error);
    let _session = process.session().await;
    assert_eq!(reader.findings().await, [""; 0]);
}

pub(super) async fn a_queue_that_nobody_serves(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    let mut session = process.session().await;
    session.enqueue([queued(1), task(2)]).await;
    it.clock().advance(HOUR);
    reader.assert_finds("queues.unserved", ": q").await;
    let of_queue = process.session_in("q").await;
    assert_eq!(reader.findings().await, [""; 0]);
    of_queue.close().await;
    assert_eq!(reader.findings().await, ["queues.unserved"]);
    process.cancel([1]).await;
    assert_eq!(reader.findings().await, [""; 0]);
}

pub(super) async fn a_type_that_no_worker_of_its_queue_knows(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    let mut session = process.session().await;
    let _of_queue = process.session_of_in(&["odd"], "q").await;
    session.enqueue([unknown(1), task(2)]).await;
    let text = ": unknown in the default queue";
    reader.assert_finds("types.unserved", text).await;
    session
        .enqueue([queued(3), grouped("group", 4), in_queue("q", typed(5))])
        .await;
    let text = ": job in q, unknown in the default queue";
    reader.assert_finds("types.unserved", text).await;
    process.cancel([1, 3]).await;
    reader.assert_finds("types.unserved", ": job in q").await;
    process.cancel([4]).await;
    assert_eq!(reader.findings().await, [""; 0]);
}

pub(super) async fn a_paused_type_whose_tasks_wait(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    let mut session = process.session().await;
    session.enqueue([typed(1), typed(2)]).await;
    process.pause("odd").await;
    process.pause("other").await;
    // The tasks move out of their common list.
    assert_eq!(ids(&session.claim(9).await), [id(2)]);
    session.rest().await;
    let text = "types wait: odd in the default queue";
    reader.assert_finds("types.paused", text).await;
    process.resume("odd").await;
    assert_eq!(reader.findings().await, [""; 0]);
}

pub(super) async fn a_paused_queue_whose_tasks_wait(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    let mut session = process.session_in("q").await;
    process.pause_queue("q").await;
    session.enqueue([queued(1)]).await;
    reader.assert_finds("queues.paused", "queues: q").await;
    process.resume_queue("q").await;
    assert_eq!(reader.findings().await, [""; 0]);
}

pub(super) async fn a_worker_that_is_silent(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    let mut late = process.session_with_card(worker("", 1)).await;
    let mut other = process.session().await;
    late.enqueue([task(1)]).await;
    late.claim(1).await;
    it.clock().advance(LEASE + SECOND);
    other.turn(wanting(1)).await;
    let text = format!("(process {})", std::process::id());
    reader.assert_finds("workers.suspect", &text).await;
    late.turn(wanting(0)).await;
    assert_eq!(reader.findings().await, [""; 0]);
}

pub(super) async fn leases_that_nobody_takes_back(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    session.claim(1).await;
    session.claim(1).await;
    it.clock().advance(3 * LEASE);
    assert_eq!(reader.findings().await, [""; 0]);
    it.clock().advance(Duration::from_millis(1));
    reader
        .assert_finds("leases.overdue", "of 2 or more claims")
        .await;
    // The first turn suspects the leases, which extends them once.
    process.session().await.turn(wanting(0)).await;
    assert_eq!(reader.findings().await, [""; 0]);
}

pub(super) async fn a_task_that_has_crashed_its_workers(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let crashed = Verdict::Dead {
        reason: DeadReason::Crashes,
        error: String::new(),
        took: None,
    };
    session.run_first(id(1), crashed).await;
    session.run_first(id(2), dead()).await;
    let text = format!("`max_crashes` allows: job ({})", id(1));
    reader.assert_finds("dead_letters.crashes", &text).await;
    let report = reader.report().await;
    let tasks = report.findings.iter().flat_map(|it| &it.tasks);
    assert!(tasks.eq([&id(1)]), "{report:?}");
    let only = DeadFilter::ids([id(1)]);
    assert_eq!(process.delete_dead_letters(only).await, 1);
    assert_eq!(reader.findings().await, [""; 0]);
}

pub(super) async fn many_dead_letters(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    let retention = Retention::default().dead_most(10);
    process.0.0.set_retention(retention).await.unwrap();
    let mut session = process.session().await;
    for number in 0..9 {
        session.run(task(number), dead()).await;
    }
    assert_eq!(reader.findings().await, [""; 0]);
    session.run(task(9), dead()).await;
    let text = "10 dead letters, and at most 10 are kept";
    reader.assert_finds("dead_letters.many", text).await;
    let none = Retention::default().dead_most(0);
    process.0.0.set_retention(none).await.unwrap();
    assert_eq!(reader.findings().await, [""; 0]);
}

pub(super) async fn a_schedule_that_nobody_fires(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    let scheduler = Scheduler::of(it);
    scheduler.define_minutely("minutely").await;
    scheduler.define_minutely("paused").await;
    assert!(scheduler.client.schedules().pause("paused").await.unwrap());
    scheduler.pass("minutely", 60 * SECOND).await;
    assert_eq!(reader.findings().await, [""; 0]);
    it.clock().advance(SECOND);
    reader
        .assert_finds("schedules.late", "60 s: minutely")
        .await;
    // A worker that asks, and does not fire it, does not hide that.
    process.the_due().await;
    assert_eq!(reader.findings().await, ["schedules.late"]);
    it.clock().advance(5 * SECOND);
    process.fire_due().await;
    assert_eq!(reader.findings().await, ["queues.unserved"]);
}

pub(super) async fn a_schedule_that_is_stuck(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    Scheduler::of(it).define_minutely("minutely").await;
    process
        .edit_row("minutely", |row| row.body = b"garbage".to_vec())
        .await;
    reader.assert_finds("schedules.stuck", "minutely (").await;
}

pub(super) async fn a_report_writes_nothing(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_with_card(worker("", 9)).await;
    session.enqueue([task(1), unknown(2)]).await;
    session.run_first(id(1), Verdict::Release).await;
    let reader = Reader::of(it);
    let before = it.contents();
    reader.report().await;
    assert!(it.contents() == before);
}

pub(super) async fn a_check_of_writes_leaves_nothing(it: &dyn Harness) {
    let (process, reader) = (Process::of(it), Reader::of(it));
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    // The first session of a client may register the client.
    reader.0.admin().check_writes().await.unwrap();
    let before = (it.leftovers(), process.counts().await);
    reader.0.admin().check_writes().await.unwrap();
    assert_eq!((it.leftovers(), process.counts().await), before);
    let observer = DurableClient::open(it.observe());
    let refused = observer.admin().check_writes().await.unwrap_err();
    assert!(refused.is_read_only(), "{refused}");
}
