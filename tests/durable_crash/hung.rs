//! A worker hangs: it is stopped as a whole, for longer than its lease, and then goes on.

use std::time::Duration;

use rustix::process::Signal;
use throng::durable::{DurableHandle, SqliteStore, StopReason};
use tokio::time::{Instant, sleep_until};

use super::child::{Plan, Role};
use super::job::{Job, Outcome, now};
use super::process::{Process, is_stopped, until};
use super::site::{Host, LEASED, PATIENT, Site, outcomes};
use super::store_address::StoreAddress;

on_all_stores! {
    it_is_told_that_it_has_lost_its_lease,
    what_it_comes_to_is_refused,
}

async fn it_is_told_that_it_has_lost_its_lease(site: Site) {
    let (handle, mut first, mut second) = taken_over(&site, Job::Finish).await;
    let id = handle.id();

    first.send(Signal::CONT);
    let line = site
        .did(&format!("{:?}", StopReason::LeaseLost), id, &first)
        .await;
    assert_eq!(line.epoch, site.begun(id, &first).await.epoch);
    site.folder.open_gate();
    let outcome = outcomes([handle]).await[0];
    assert_eq!(outcome.pid, second.pid());
    assert_one_result(&site, &mut first, &mut second).await;
}

async fn what_it_comes_to_is_refused(site: Site) {
    let (handle, mut first, mut second) = taken_over(&site, Job::Wait).await;
    let id = handle.id();

    // The first comes to its end, too, whether it knows by then that it is too late or not.
    site.folder.open_gate();
    let outcome = outcomes([handle]).await[0];
    first.send(Signal::CONT);
    site.did("end", id, &first).await;
    assert_one_result(&site, &mut first, &mut second).await;
    let kept = outcomes([site.client.attach::<Job>(id)]).await[0];
    assert_eq!((kept, kept.pid), (outcome, second.pid()));
}

/// No other process can write then. The error names the frozen process, and nothing is lost.
#[tokio::test]
async fn one_that_is_frozen_in_its_write_is_named_and_loses_nothing() {
    let site = Site::file().await;
    let mut worker = site.worker(LEASED).await;
    let plan = site.plan(Role::Producer { tasks: 3 });
    // Its first commit begins its session.
    let mut frozen = Process::start_freezing(&plan, "sqlite.in-commit:2");
    let db = site.file_connection();
    db.busy_timeout(Duration::ZERO).expect("a timeout");
    until("it is frozen", async || {
        let is_free = db.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok();
        (!is_free && is_stopped(frozen.pid())).then_some(())
    })
    .await;

    let refused = site.client.spawn(Job::Work(1)).await;
    let error = refused.expect_err("nobody can write");
    assert!(error.is_busy() && !error.is_unknown(), "{error}");
    let (pid, text) = (frozen.pid(), error.to_string());
    assert!(text.contains(&format!("process {pid} ")), "{text}");
    assert!(text.contains("is stopped"), "{text}");

    frozen.send(Signal::CONT);
    assert!(frozen.died().await.success());
    outcomes([site.spawn(Job::Work(1)).await]).await;
    let counts = site.settled().await;
    assert_eq!((counts.stored, counts.done), (7, 7), "{counts:?}");
    worker.stop(0).await;
}

/// The first process that opens the file writes to it.
#[tokio::test]
async fn one_that_is_frozen_while_it_makes_the_file_is_named() {
    let site = Site::file().await;
    let path = site.folder.0.join("other.db");
    let plan = Plan {
        address: StoreAddress::File(path.clone()),
        ..site.plan(Role::Producer { tasks: 1 })
    };
    let mut frozen = Process::start_freezing(&plan, "sqlite.in-commit:1");
    until("it is frozen", async || {
        is_stopped(frozen.pid()).then_some(())
    })
    .await;

    let error = SqliteStore::open(&path)
        .await
        .expect_err("nobody can write");
    assert!(error.is_busy(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&format!("process {} ", frozen.pid())),
        "{text}"
    );
    assert!(text.contains("is stopped"), "{text}");
    frozen.send(Signal::CONT);
    assert!(frozen.died().await.success());
    SqliteStore::open(&path)
        .await
        .expect("nobody has it locked");
}

/// Then it keeps nobody from writing.
#[tokio::test]
async fn one_that_is_frozen_after_its_write_keeps_nobody_waiting() {
    let site = Site::file().await;
    let mut worker = site.worker(LEASED).await;
    let plan = site.plan(Role::Producer { tasks: 3 });
    let mut frozen = Process::start_freezing(&plan, "sqlite.after-commit:2");
    until("it is frozen", async || {
        is_stopped(frozen.pid()).then_some(())
    })
    .await;
    let db = site.file_connection();
    // The worker may be writing: that takes no such time, unlike a process that is frozen.
    db.busy_timeout(Duration::from_secs(5)).expect("a timeout");
    db.execute_batch("BEGIN IMMEDIATE; ROLLBACK")
        .expect("it is not locked");
    outcomes([site.spawn(Job::Work(1)).await]).await;
    frozen.send(Signal::CONT);
    assert!(frozen.died().await.success());
    let counts = site.settled().await;
    assert_eq!((counts.stored, counts.done), (7, 7), "{counts:?}");
    worker.stop(0).await;
}

/// Stopped processes read the messages that are sent to them later or never.
#[tokio::test]
async fn ten_that_are_stopped_hold_up_nobody() {
    const TASKS_PER_PROCESS: usize = 5;
    const TASKS: usize = 20;
    let site = Site::file().await;
    let mut worker = site.worker(PATIENT).await;
    let awaited = site.spawn(Job::Wait).await;
    let mut stopped = Vec::new();
    for _ in 0..TASKS_PER_PROCESS {
        let awaiter = Process::start(&site.plan(Role::Awaiter { id: awaited.id() }));
        awaiter.wait_for_line("awaits").await;
        stopped.push(awaiter);
    }
    let watchers = site.folder.0.join("tasks.db-throng").join("watchers");
    until("they are told of all ends", async || {
        let markers = std::fs::read_dir(&watchers).ok()?.count();
        (markers >= TASKS_PER_PROCESS).then_some(())
    })
    .await;
    for awaiter in &stopped {
        hang(&site, awaiter);
    }
    let tasks = TASKS_PER_PROCESS * TASKS;
    for n in 1..=TASKS_PER_PROCESS {
        // Each producer stores the tasks of those before it, which changes nothing, and then some of its own. The first
        // answer is the one to the request that opens its session.
        let plan = site.plan(Role::Producer { tasks });
        let point = format!("sqlite.after-answer:{}", 1 + n * TASKS);
        let producer = Process::start_freezing(&plan, &point);
        until("it is frozen", async || {
            is_stopped(producer.pid()).then_some(())
        })
        .await;
        stopped.push(producer);
    }

    outcomes(site.spawn_all(Job::Work(1), 300).await).await;
    site.folder.open_gate();
    let outcome = outcomes([awaited]).await[0];
    for process in &mut stopped {
        process.send(Signal::CONT);
        assert!(process.died().await.success());
    }
    for awaiter in &stopped[..TASKS_PER_PROCESS] {
        assert_eq!(awaiter.heard("run by "), [outcome.pid.to_string()]);
    }
    let counts = site.settled().await;
    let stored = 1 + 300 + 2 * tasks as u64;
    assert_eq!((counts.stored, counts.done), (stored, stored), "{counts:?}");
    worker.stop(0).await;
}

/// A task that a second worker has begun, while the first hangs that had it.
async fn taken_over(site: &Site, job: Job) -> (DurableHandle<Outcome>, Process, Process) {
    let handle = site.spawn(job).await;
    let first = site.worker(LEASED).await;
    let before = site.begun(handle.id(), &first).await;
    let second = site.worker(LEASED).await;
    hang(site, &first);
    let hangs = Instant::now();
    let line = site.begun(handle.id(), &second).await;
    // For as long as it might take others to give its claim up twice.
    sleep_until(hangs + 2 * Duration::from_millis(LEASED.lease)).await;
    assert!(line.epoch > before.epoch && line.attempt == 1, "{line:?}");
    (handle, first, second)
}

/// Stops a process; but not where it keeps others from writing, which nobody could help. Returns the time right before that, in
/// microseconds since 1970.
pub(crate) fn hang(site: &Site, process: &Process) -> u64 {
    loop {
        let before = now();
        process.freeze();
        if !is_in_the_way(site, process) {
            return before;
        }
        process.send(Signal::CONT);
        // Its transaction ends only if it runs.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns `true` if a process that is frozen has the file locked, or a transaction open.
fn is_in_the_way(site: &Site, frozen: &Process) -> bool {
    match &site.host {
        Host::Redis(_) => false,
        Host::Postgres(database) => database.is_in_transaction(frozen.pid()),
        Host::Folder => {
            let db = site.file_connection();
            db.busy_timeout(Duration::from_millis(200))
                .expect("a timeout");
            db.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
        }
    }
}

/// The task has ended once; the first worker knows that it was too late, and the second was not.
async fn assert_one_result(site: &Site, first: &mut Process, second: &mut Process) {
    for (worker, is_late) in [(first, true), (second, false)] {
        worker.stop(0).await;
        assert_eq!(worker.wait_for_line("late ").await != "0", is_late);
    }
    let counts = site.settled().await;
    assert_eq!((counts.claimed, counts.done), (2, 1), "{counts:?}");
    assert_eq!(counts.crashed + counts.lost, 1, "{counts:?}");
}
