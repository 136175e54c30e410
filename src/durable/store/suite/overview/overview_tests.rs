//! The overview of a store.

use std::sync::Arc;
use std::time::Duration;

use crate::durable::queue::name::QueueName;
use crate::durable::queue::{Priority, Rate};
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::process::*;
use crate::durable::store::{Change, NewTask, RunType, StatReport, Verdict};
use crate::durable::{Overview, QueueOverview, QueueSettings, RunTotals, TaskId};

impl Process {
    async fn overview(&self) -> Overview {
        self.0.0.overview().await.unwrap()
    }

    async fn queue_overview(&self, queue: &str) -> QueueOverview {
        let overview = self.overview().await;
        let mut queues = overview.queues.into_iter();
        let found = queues.find(|it| it.name.as_deref().unwrap_or_default() == queue);
        found.expect("the queue is listed")
    }
}

/// Returns the number of waiting and of running tasks, and of sessions.
fn numbers(queue: &QueueOverview) -> [u64; 3] {
    [queue.info.waiting, queue.info.running, queue.sessions]
}

pub async fn an_empty_store_has_the_default_queue(it: &dyn Harness) {
    let process = Process::of(it);
    let overview = process.overview().await;
    assert_eq!(overview.now, std::time::UNIX_EPOCH + it.clock().wall());
    assert_eq!(overview.counts, process.counts().await);
    assert_eq!(overview.queues.len(), 1);
    let queue = &overview.queues[0];
    assert_eq!((&queue.name, numbers(queue)), (&None, [0; 3]));
    assert_eq!(queue.oldest_waiting, None);
    assert_eq!(overview.types, []);
    assert!(!overview.has_more_queues && !overview.has_more_types);
    assert!(overview.missing_partitions.is_empty());
}

/// At rest, the queues have all waiting and running tasks.
pub async fn queues_add_up_to_the_counts(it: &dyn Harness) {
    let process = Process::of(it);
    let mut sessions = [process.session().await, process.session_in("q").await];
    let priorities = [Priority::High, Priority::Normal, Priority::Low];
    let tasks = (0..90).map(|number| {
        let task = at_priority(priorities[number as usize % 3], task(number));
        match number % 5 {
            0 => task,
            1 => in_queue("q", task),
            2 => in_queue("r", task),
            3 => NewTask {
                group: grouped(&format!("{}", number % 4), 0).group,
                ..in_queue("q", task)
            },
            _ => NewTask {
                name: "unknown".into(),
                ..task
            },
        }
    });
    sessions[0].enqueue(tasks).await;
    assert_eq!(process.cancel([0, 1, 3, 40, 41]).await, 5);
    for session in &mut sessions {
        session.claim(7).await;
    }
    assert_eq!(process.cancel([80, 81, 83]).await, 3);
    process.pause_queue("r").await;
    let overview = process.overview().await;
    assert_eq!(overview.counts, process.counts().await);
    let sum = |number: usize| {
        overview
            .queues
            .iter()
            .map(|it| numbers(it)[number])
            .sum::<u64>()
    };
    let counts = overview.counts;
    assert_eq!(counts.unserved, 18 + 18);
    assert_eq!(counts.waiting, sum(0));
    assert_eq!(counts.running, sum(1));
    for queue in &overview.queues {
        let Some(name) = &queue.name else { continue };
        assert_eq!(queue.info, process.queue(name).await);
    }
    let default = &overview.queues[0];
    assert_eq!(default.info.waiting + default.info.running, 18 - 3 + 18);
    assert_eq!(default.sessions, 1);
}

pub async fn an_overview_describes_queues(it: &dyn Harness) {
    let process = Process::of(it);
    let settings = QueueSettings::new()
        .max_running(3)
        .rate(Rate::per_minute(100).burst(7))
        .revision(4);
    process.set_queue("limited", settings).await;
    process.pause_queue("paused").await;
    let mut first = process.session_in("served").await;
    let second = process.session_of_in(&["other"], "served").await;
    first
        .enqueue((1..=3).map(|n| in_queue("served", task(n))))
        .await;
    first.claim(2).await;
    let overview = process.overview().await;
    let names: Vec<_> = overview
        .queues
        .iter()
        .map(|it| it.name.as_deref())
        .collect();
    assert_eq!(
        names,
        [None, Some("limited"), Some("paused"), Some("served")]
    );
    let [_, limited, paused, served] = &*overview.queues else {
        unreachable!()
    };
    assert_eq!(
        (limited.info.settings, limited.info.is_paused),
        (settings, false)
    );
    assert_eq!((paused.info.is_paused, numbers(paused)), (true, [0; 3]));
    assert_eq!(numbers(served), [1, 2, 2]);
    second.close().await;
    assert_eq!(process.queue_overview("served").await.sessions, 1);
}

pub async fn a_paused_queue_without_workers_has_waiting_tasks(it: &dyn Harness) {
    let process = Process::of(it);
    let mut default = process.session().await;
    process.pause_queue("q").await;
    let high = at_priority(Priority::High, queued(4));
    default
        .enqueue([queued(1), queued(2), high, grouped("g", 3), task(9)])
        .await;
    default
        .enqueue([in_queue("r", task(5)), delayed(6, HOUR)])
        .await;
    let waiting = async || {
        let listed = process.queue_overview("q").await.info;
        assert_eq!(listed, process.queue("q").await);
        listed.waiting
    };
    assert_eq!(waiting().await, 4);
    assert_eq!(process.cancel([2]).await, 1);
    assert_eq!(waiting().await, 3);
    // The tasks move to other lists.
    let mut q = process.session_in("q").await;
    assert_eq!(waiting().await, 3);
    process.resume_queue("q").await;
    q.claim(1).await;
    assert_eq!(waiting().await, 2);
    q.close().await;
    assert_eq!(waiting().await, 3);
}

pub async fn an_overview_describes_types(it: &dyn Harness) {
    let process = Process::of(it);
    let _sessions = [
        process.session_of(&["job"]).await,
        process.session_of_in(&["other"], "q").await,
    ];
    let runs = |n| RunTotals::of([n; 5], Duration::from_micros(n));
    let of = |name: &str, queue: &str| {
        let queue = Some(queue.to_owned()).filter(|it| !it.is_empty());
        RunType::new(&name.into(), &QueueName::from(queue))
    };
    for number in 1..=2 {
        let all =
            ["", "q"].map(|queue| ["job", "other"].map(|name| (of(name, queue), runs(number))));
        let mut runs = all.concat();
        runs.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let report = StatReport {
            reporter: 1,
            number,
            runs,
        };
        process.0.0.record_stats(Arc::new(report)).await.unwrap();
        it.clock().advance(Duration::from_secs(59 * 60));
    }
    process.pause("other").await;
    process.pause("third").await;
    let overview = process.overview().await;
    let found: Vec<_> = overview
        .types
        .iter()
        .map(|it| {
            let name = it.name.as_deref().unwrap_or_default();
            let queue = it.queue.as_deref().unwrap_or_default();
            (name, queue, it.is_paused, it.is_served)
        })
        .collect();
    let expected = [
        ("job", "", false, true),
        ("job", "q", false, false),
        ("other", "", true, false),
        ("other", "q", true, true),
        ("third", "", true, false),
    ];
    assert_eq!(found, expected);
    // The first report is older than an hour.
    for row in &overview.types[..4] {
        assert_eq!(row.last_hour, runs(2), "{row:?}");
    }
    assert_eq!(overview.types[4].last_hour, RunTotals::default());
}

/// A refused request says that a session has ended or has sent a later request. It may be the latter.
pub async fn types_of_a_closed_session_are_not_served_although_it_was_refused(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_of(&["job"]).await;
    for number in 1..=2 {
        session.enqueue([task(number)]).await;
    }
    process.pause("job").await;
    assert!(process.overview().await.types[0].is_served);
    session.number -= 1;
    assert_refused(session.turn_again(wanting(0)).await);
    session.close().await;
    let overview = process.overview().await;
    assert!(overview.types[0].is_paused && !overview.types[0].is_served);
}

pub async fn a_type_that_no_worker_knows_is_listed(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_of(&["job"]).await;
    let unknown = |number, queue: &str| NewTask {
        name: "report.build".into(),
        ..match queue {
            "" => task(number),
            queue => in_queue(queue, task(number)),
        }
    };
    session
        .enqueue([unknown(1, ""), unknown(2, "q"), task(3)])
        .await;
    let overview = process.overview().await;
    let mut unserved = overview.types.iter().filter(|it| !it.is_served);
    for queue in [None, Some("q")] {
        let row = unserved.next().expect("the type is listed");
        assert_eq!(
            (row.name.as_deref(), row.queue.as_deref()),
            (Some("report.build"), queue)
        );
    }
    assert_eq!(unserved.next(), None);
    let _other = process.session_of(&["report.build"]).await;
    let overview = process.overview().await;
    let mut in_default = overview.types.iter().filter(|it| it.queue.is_none());
    assert!(in_default.all(|it| it.is_served), "{overview:?}");
}

pub async fn the_oldest_task_has_waited_longest(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let _other = process.session_in("q").await;
    let now = || NewTask {
        id: id_at(it.clock().wall()),
        ..task(0)
    };
    session.enqueue([now()]).await;
    it.clock().advance(5 * SECOND);
    session.enqueue([now()]).await;
    session.enqueue([in_queue("q", now())]).await;
    it.clock().advance(3 * SECOND);
    let waited = async |queue| process.queue_overview(queue).await.oldest_waiting;
    assert_eq!(waited("").await, Some(8 * SECOND));
    assert_eq!(waited("q").await, Some(3 * SECOND));
    let claim = session.claim(1).await;
    assert_eq!(waited("").await, Some(3 * SECOND));
    session.claim(1).await;
    assert_eq!(waited("").await, None);
    let retry = vec![(claim.tasks[0].id, Verdict::Release)];
    session.turn(wanting(0).verdicts(claim.epoch, retry)).await;
    assert!(waited("").await.is_some());
}

/// In Redis, the entries of such tasks stay in their lists for a while.
pub async fn tasks_that_have_left_a_queue_wait_there_no_longer(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let _other = process.session_in("q").await;
    let waited = async |queue| process.queue_overview(queue).await.oldest_waiting;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let now = NewTask {
            id: id_at(it.clock().wall()),
            ..task(0)
        };
        ids.push(now.id);
        session.enqueue([now]).await;
        it.clock().advance(SECOND);
    }
    assert_eq!(waited("").await, Some(3 * SECOND));
    let to = Change::MoveTo(queue_name("q"));
    for (id, expected) in ids.into_iter().zip([Some(2 * SECOND), Some(SECOND), None]) {
        process.0.0.change(vec![id], to.clone()).await.unwrap();
        assert_eq!(waited("").await, expected);
    }
}

/// Returns a new id as it is created at this time.
fn id_at(since_1970: Duration) -> TaskId {
    let mut bytes = TaskId::new().to_bytes();
    let millis = since_1970.as_millis() as u64;
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    TaskId::from_bytes(bytes)
}

pub async fn sessions_of_dead_processes_do_not_serve(it: &dyn Harness) {
    let (process, doomed) = (Process::of(it), Process::of(it));
    let session = doomed.session_in("q").await;
    assert_eq!(process.queue_overview("q").await.sessions, 1);
    let _ = session;
    doomed.kill(it);
    let mut own = process.session().await;
    own.rest().await;
    for _ in 0..3 {
        process.maintain(100).await;
    }
    let overview = process.overview().await;
    let dead = overview.queues.iter().find(|it| it.name.is_some());
    assert!(dead.is_none_or(|it| it.sessions == 0), "{overview:?}");
}

pub async fn an_overview_has_a_limited_number_of_rows(it: &dyn Harness) {
    let process = Process::of(it);
    let _session = process.session_in("q000").await;
    for number in 0..201 {
        process.pause_queue(&format!("q{number:03}")).await;
        process.pause(&format!("t{number:03}")).await;
        let overview = process.overview().await;
        assert_eq!(overview.queues.len(), 200.min(number + 2));
        assert_eq!(overview.types.len(), 200.min(number + 1));
        assert_eq!(overview.has_more_queues, number >= 199);
        assert_eq!(overview.has_more_types, number >= 200);
        if number % 40 != 0 && number < 197 {
            continue;
        }
        let names = overview.queues.iter().filter_map(|it| it.name.as_deref());
        assert!(names.is_sorted());
    }
}

pub async fn an_overview_writes_nothing(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session
        .enqueue([task(1), delayed(2, SECOND), queued(3)])
        .await;
    let (before, statistics) = (it.leftovers(), it.statistics());
    let counts = process.counts().await;
    assert_eq!(process.overview().await, process.overview().await);
    assert_eq!((it.leftovers(), it.statistics()), (before, statistics));
    assert_eq!(process.counts().await, counts);
}
