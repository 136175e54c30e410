//! Lists of tasks, a page at a time.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::envelope::{seal_output, stamp_output};
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{
    CheckedFilter, DEAD_LETTER_RETENTION, DeadReason, ListTasks, NewTask, Verdict,
};
use crate::durable::{DeadFilter, Key, Status, TaskId, TaskInfo, TaskPage};

fn of(status: Status) -> CheckedFilter {
    CheckedFilter::new(status)
}

fn named(name: &str, status: Status) -> CheckedFilter {
    let name = Some(name.to_owned());
    CheckedFilter { name, ..of(status) }
}

fn in_q(status: Status) -> CheckedFilter {
    let queue = Some(queue_name("q"));
    CheckedFilter {
        queue,
        ..of(status)
    }
}

async fn page(
    process: &Process,
    filter: &CheckedFilter,
    after: Option<&TaskPage>,
    limit: usize,
) -> TaskPage {
    let after = after.map(|page| page.next.as_ref().expect("there is another page"));
    let request = ListTasks {
        filter: filter.clone(),
        after: after.map(|cursor| cursor.position_in(filter.status).unwrap()),
        limit,
    };
    let max_examined = request.max_examined();
    let page = process.0.0.list(request).await.unwrap();
    let page = page.expect("the position is one of this store");
    assert!(page.tasks.len() <= limit, "{page:?}");
    assert!(page.examined <= max_examined, "{page:?}");
    assert!(page.tasks.iter().all(|it| it.status == filter.status));
    page
}

/// Returns all tasks of a list, which is read in pages of this size.
async fn all(process: &Process, filter: &CheckedFilter, limit: usize) -> Vec<TaskInfo> {
    let mut last = page(process, filter, None, limit).await;
    let mut tasks = last.tasks.clone();
    while last.next.is_some() {
        last = page(process, filter, Some(&last), limit).await;
        tasks.extend(last.tasks.clone());
    }
    tasks
}

async fn ids_of(process: &Process, filter: &CheckedFilter, limit: usize) -> Vec<TaskId> {
    let tasks = all(process, filter, limit).await;
    tasks.iter().map(|it| it.id).collect()
}

/// Checks that a list has these tasks in this order, in pages of any size.
async fn assert_listed(process: &Process, status: Status, expected: &[TaskId]) {
    for limit in [1, 3, 5, 10, 20, 100, 200] {
        let ids = ids_of(process, &of(status), limit).await;
        assert_eq!(ids, expected, "limit {limit}");
    }
}

/// Returns the only task with a status.
async fn only(process: &Process, status: Status) -> TaskInfo {
    let mut tasks = all(process, &of(status), 10).await;
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    tasks.remove(0)
}

/// Stores this number of tasks.
async fn fill(session: &mut Session<'_>, count: u64, new: impl Fn(u64) -> NewTask) {
    let numbers: Vec<_> = (1..=count).collect();
    for numbers in numbers.chunks(100) {
        session.enqueue(numbers.iter().map(|&it| new(it))).await;
    }
}

pub async fn an_empty_store_has_empty_lists(it: &dyn Harness) {
    let process = Process::of(it);
    for status in LISTED {
        let page = page(&process, &of(status), None, 10).await;
        let now = crate::durable::clock::millis(it.clock().wall());
        assert_eq!(page, TaskPage::at(now), "{status:?}");
    }
}

pub async fn a_task_is_in_the_list_of_its_status(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_in("q").await;
    session.enqueue([grouped("g", 1)]).await;
    let waiting = only(&process, Status::Waiting).await;
    let known = (
        waiting.name.as_deref(),
        waiting.queue.as_deref(),
        waiting.group.as_deref(),
    );
    assert_eq!(known, (Some("job"), Some("q"), Some("g")));
    assert_eq!((waiting.id, waiting.failures), (id(1), Some(0)));

    let claim = session.claim(1).await;
    let running = only(&process, Status::Running).await;
    assert_eq!(running.fencing_token, Some(claim.epoch));
    assert_eq!(
        (running.queue.as_deref(), running.group.as_deref()),
        (Some("q"), Some("g"))
    );
    assert_eq!(ids_of(&process, &of(Status::Waiting), 10).await, []);

    session.report(claim.epoch, 1, retry(3 * SECOND)).await;
    it.clock().advance(SECOND);
    let delayed = only(&process, Status::Delayed).await;
    assert_eq!(delayed.due_in, Some(2 * SECOND));
    assert_eq!((delayed.failures, delayed.crashes), (Some(1), Some(0)));
    it.clock().advance(2 * SECOND);
    session.turn(wanting(0)).await;
    assert_eq!(only(&process, Status::Waiting).await.failures, Some(1));
    let claim = session.claim(1).await;
    it.clock().advance(SECOND);
    let running = only(&process, Status::Running).await;
    assert_eq!(running.running_for, Some(SECOND));
    let mut output = seal_output("job", &7).expect("it can be encoded");
    stamp_output(&mut output, Duration::from_micros(7_999));
    session.report(claim.epoch, 1, Verdict::Done(output)).await;
    it.age(SECOND);
    let done = only(&process, Status::Done).await;
    assert_eq!(done.name.as_deref(), Some("job"));
    assert_eq!(done.kept_for, Some(HOUR - SECOND));
    assert_eq!(done.age, Some(SECOND));
    assert_eq!(done.took, Some(Duration::from_millis(7)));
    assert_eq!((done.running_for, running.took), (None, None));
    assert_eq!(
        (done.queue, done.failures, done.crashes),
        (None, None, None)
    );
}

pub async fn dead_and_cancelled_tasks_are_listed(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), delayed(2, HOUR)]).await;
    let claim = session.claim(1).await;
    let error = "\u{fc}".repeat(200);
    let verdict = Verdict::Dead {
        reason: DeadReason::Unreadable,
        error: error.clone(),
        took: Some(SECOND),
    };
    session.report(claim.epoch, 1, verdict).await;
    process.cancel([2]).await;
    it.age(SECOND);
    let dead = only(&process, Status::Dead).await;
    assert_eq!(dead.reason, Some(DeadReason::Unreadable));
    assert_eq!(dead.error.as_deref(), Some(&error[..160]));
    assert_eq!(dead.kept_for, Some(DEAD_LETTER_RETENTION - SECOND));
    assert_eq!(dead.name.as_deref(), Some("job"));
    assert_eq!((dead.age, dead.took), (Some(SECOND), Some(SECOND)));
    let cancelled = only(&process, Status::Cancelled).await;
    assert_eq!(
        (cancelled.id, cancelled.kept_for),
        (id(2), Some(HOUR - SECOND))
    );
    assert_eq!((cancelled.age, cancelled.took), (Some(SECOND), None));
}

/// Tasks that wait, are delayed or run are cancelled. They may be in a group or have a large payload.
pub async fn cancelled_tasks_keep_their_names(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let named = |name: &'static str, task| NewTask {
        name: name.into(),
        ..task
    };
    let large = NewTask {
        payload: vec![7; 2_000],
        ..task(4)
    };
    session
        .enqueue([named("job", task(1)), named("other", large)])
        .await;
    session.claim(2).await;
    session
        .enqueue([
            named("even", task(2)),
            named("odd", delayed(3, HOUR)),
            named("job", grouped("g", 5)),
        ])
        .await;
    assert_eq!(process.cancel([1, 2, 3, 4, 5]).await, 5);
    it.clock().advance(10 * LEASE);
    // The leases of the running tasks are over.
    for _ in 0..3 {
        session.turn(wanting(0)).await;
        it.clock().advance(LEASE);
    }
    let found = all(&process, &of(Status::Cancelled), 10).await;
    let mut found: Vec<_> = found.into_iter().map(|it| (it.id, it.name)).collect();
    found.sort();
    let names = ["job", "even", "odd", "other", "job"];
    let expected = (1..)
        .map(id)
        .zip(names.map(|name| Some(String::from(name))));
    assert_eq!(found, expected.collect::<Vec<_>>());
}

/// A dead letter whose last worker has died, and one that was replayed.
pub async fn only_a_run_that_has_ended_has_a_duration(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let failed = || Verdict::Dead {
        reason: DeadReason::Fatal,
        error: String::from("error"),
        took: Some(SECOND),
    };
    let fragile = NewTask {
        max_crashes: 1,
        ..task(1)
    };
    session.run(fragile, failed()).await;
    assert_eq!(only(&process, Status::Dead).await.took, Some(SECOND));
    let by_id = DeadFilter::ids([id(1)]);
    assert_eq!(process.replay_dead_letters(by_id).await, 1);
    let epoch = session.claim(1).await.epoch;
    process.renew([epoch]).await;
    for _ in 0..4 {
        it.clock().advance(2 * LEASE);
        process.session().await.turn(wanting(0)).await;
    }
    let dead = only(&process, Status::Dead).await;
    assert_eq!((dead.reason, dead.took), (Some(DeadReason::Crashes), None));
}

pub async fn pages_follow_each_other(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    fill(&mut session, 250, task).await;
    let waiting = of(Status::Waiting);
    let expected: BTreeSet<_> = (1..=250).map(id).collect();
    for limit in [1, 7, 100, 200] {
        let ids = ids_of(&process, &waiting, limit).await;
        assert_eq!(ids.len(), 250, "limit {limit}");
        assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), expected);
    }
    let claim = session.claim(250).await;
    assert_eq!(ids_of(&process, &waiting, 100).await, []);
    for limit in [1, 7, 200] {
        let ids = ids_of(&process, &of(Status::Running), limit).await;
        assert_eq!(ids.len(), 250, "limit {limit}");
        assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), expected);
    }
    let verdicts = claim.tasks.iter().map(|it| (it.id, done())).collect();
    session
        .turn(wanting(0).verdicts(claim.epoch, verdicts))
        .await;
    for limit in [1, 7, 200] {
        let ids = ids_of(&process, &of(Status::Done), limit).await;
        assert_eq!(ids.len(), 250, "limit {limit}");
        assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), expected);
    }
    assert_eq!(ids_of(&process, &of(Status::Cancelled), 10).await, []);
}

pub async fn delayed_tasks_are_in_the_order_of_their_times(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    // Ten tasks are due in each second.
    let due = |number: u64| delayed(number, SECOND * (10 - number as u32 % 10));
    fill(&mut session, 100, due).await;
    let mut expected: Vec<_> = (1..=100_u64).collect();
    expected.sort_by_key(|number| (10 - number % 10, *number));
    let expected: Vec<_> = expected.into_iter().map(id).collect();
    assert_listed(&process, Status::Delayed, &expected).await;
}

pub async fn the_newest_dead_letters_are_listed_first(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for second in 0..4 {
        session.enqueue((0..5).map(|n| task(10 * second + n))).await;
        let claim = session.claim(5).await;
        let verdicts = claim.tasks.iter().map(|it| (it.id, dead())).collect();
        session
            .turn(wanting(0).verdicts(claim.epoch, verdicts))
            .await;
        it.age(SECOND);
    }
    let newest_first = |second: u64| (0..5).rev().map(move |n| id(10 * second + n));
    let expected: Vec<_> = (0..4).rev().flat_map(newest_first).collect();
    assert_listed(&process, Status::Dead, &expected).await;
}

pub async fn expired_ends_are_in_no_list(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2), task(3)]).await;
    let claim = session.claim(2).await;
    process.cancel([3]).await;
    session.report(claim.epoch, 1, done()).await;
    session.report(claim.epoch, 2, dead()).await;
    it.age(HOUR - Duration::from_millis(1));
    let ended = [Status::Done, Status::Cancelled, Status::Dead];
    for status in ended {
        assert_eq!(
            ids_of(&process, &of(status), 10).await.len(),
            1,
            "{status:?}"
        );
    }
    it.age(Duration::from_millis(1));
    for status in [Status::Done, Status::Cancelled] {
        assert_eq!(ids_of(&process, &of(status), 10).await, [], "{status:?}");
    }
    it.age(DEAD_LETTER_RETENTION - HOUR);
    assert_eq!(ids_of(&process, &of(Status::Dead), 10).await, []);
}

pub async fn filters_select_tasks(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let new = |number: u64| NewTask {
        name: if number.is_multiple_of(25) {
            "even"
        } else {
            "odd"
        }
        .into(),
        ..task(number)
    };
    fill(&mut session, 250, new).await;
    fill(&mut session, 100, |number| {
        in_queue("q", new(1000 + number))
    })
    .await;
    let even = |status| named("even", status);
    let expected: BTreeSet<_> = (1..=10)
        .map(|n| id(25 * n))
        .chain((1..=4).map(|n| id(1000 + 25 * n)))
        .collect();
    for limit in [1, 5, 50] {
        let ids = ids_of(&process, &even(Status::Waiting), limit).await;
        assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), expected);
        assert_eq!(
            ids_of(&process, &in_q(Status::Waiting), limit).await.len(),
            100
        );
        assert_eq!(
            ids_of(&process, &named("nobody", Status::Waiting), limit).await,
            []
        );
    }
    session.claim(250).await;
    assert_eq!(ids_of(&process, &even(Status::Running), 5).await.len(), 10);
    assert_eq!(ids_of(&process, &in_q(Status::Running), 5).await, []);
    session
        .enqueue([delayed(2000, HOUR), in_queue("q", delayed(2001, HOUR))])
        .await;
    assert_eq!(
        ids_of(&process, &in_q(Status::Delayed), 5).await,
        [id(2001)]
    );
    assert_eq!(
        ids_of(&process, &named("job", Status::Delayed), 5).await,
        [id(2000), id(2001)]
    );
}

pub async fn the_default_queue_can_be_selected(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut of_queue = process.session_in("q").await;
    let tasks = [task(1), queued(2), delayed(3, HOUR)];
    session.enqueue(tasks).await;
    session.enqueue([in_queue("q", delayed(4, HOUR))]).await;
    let of_default = |status| CheckedFilter {
        queue: Some(QueueName::DEFAULT),
        ..of(status)
    };
    let listed = async |status| ids_of(&process, &of_default(status), 5).await;
    assert_eq!(listed(Status::Waiting).await, [id(1)]);
    assert_eq!(listed(Status::Delayed).await, [id(3)]);
    session.claim(1).await;
    let epoch = of_queue.claim(1).await.epoch;
    assert_eq!(listed(Status::Running).await, [id(1)]);
    of_queue.report(epoch, 2, dead()).await;
    assert_eq!(listed(Status::Dead).await, []);
    session.enqueue([task(5)]).await;
    session.run_first(id(5), dead()).await;
    assert_eq!(listed(Status::Dead).await, [id(5)]);
}

pub async fn a_filter_selects_tasks_that_wait_for_another_attempt(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    fill(&mut session, 60, |number| delayed(1000 + number, HOUR)).await;
    session
        .enqueue([task(1), queued(2), in_queue("q", task(3))])
        .await;
    session.run_first(id(1), retry(HOUR)).await;
    let retrying = CheckedFilter {
        has_failed: true,
        ..of(Status::Delayed)
    };
    for limit in [1, 5, 50] {
        assert_eq!(ids_of(&process, &retrying, limit).await, [id(1)]);
    }
    let named = |name: &str| CheckedFilter {
        name: Some(name.to_owned()),
        ..retrying.clone()
    };
    assert_eq!(ids_of(&process, &named("job"), 5).await, [id(1)]);
    assert_eq!(ids_of(&process, &named("nobody"), 5).await, []);
}

pub async fn a_filter_selects_the_tasks_of_a_worker(it: &dyn Harness) {
    let process = Process::of(it);
    let (mut first, mut second) = (process.session().await, process.session().await);
    first.enqueue((1..=30).map(task)).await;
    let mut expected = [BTreeSet::new(), BTreeSet::new()];
    for _ in 0..5 {
        expected[0].extend(ids(&first.claim(2).await));
        expected[1].extend(ids(&second.claim(3).await));
    }
    for (session, expected) in [first.id, second.id].into_iter().zip(expected) {
        let running = CheckedFilter {
            session: Some(session),
            ..of(Status::Running)
        };
        for limit in [1, 4, 50] {
            let found = ids_of(&process, &running, limit).await;
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
        }
        let others = CheckedFilter {
            name: Some("nobody".into()),
            ..running
        };
        assert_eq!(ids_of(&process, &others, 5).await, []);
    }
    let nobody = CheckedFilter {
        session: Some(7),
        ..of(Status::Running)
    };
    assert_eq!(ids_of(&process, &nobody, 50).await, []);
}

pub async fn types_that_no_worker_knows_are_listed(it: &dyn Harness) {
    let process = Process::of(it);
    // The types that the workers know are not those of the tasks.
    let _worker = process.session_of(&["other"]).await;
    let mut session = process.session_of(&["even"]).await;
    let unknown = STRANGE_NAMES.map(str::to_owned);
    for (number, name) in (1..).zip(unknown.clone()) {
        let name = name.into();
        session
            .enqueue([NewTask {
                name,
                ..task(number)
            }])
            .await;
    }
    for (number, name) in (1..).zip(unknown) {
        let found = all(&process, &named(&name, Status::Waiting), 10).await;
        assert_eq!(found.len(), 1, "{name:?}");
        assert_eq!(
            (found[0].id, found[0].name.as_deref()),
            (id(number), Some(&*name))
        );
    }
}

/// The replacing task gets the priority of the replaced one, and keeps its own version.
pub async fn a_task_that_was_replaced_is_listed_by_its_name(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let key = || Key::new("key").until_started().replace();
    let high = at_priority(Priority::High, task(1));
    session.enqueue([with_key(key(), high)]).await;
    let newer = NewTask {
        version: 2,
        ..task(2)
    };
    session.enqueue([with_key(key(), newer)]).await;
    let found = only(&process, Status::Waiting).await;
    assert_eq!((found.id, found.name.as_deref()), (id(1), Some("job")));
}

pub async fn a_task_that_waits_throughout_is_listed(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    fill(&mut session, 100, task).await;
    let filter = of(Status::Waiting);
    let (mut last, mut found) = (None, BTreeSet::new());
    // While the list is read, one task is claimed and one is stored for each page.
    for round in 0.. {
        let page = page(&process, &filter, last.as_ref(), 3).await;
        found.extend(page.tasks.iter().map(|it| it.id));
        if page.next.is_none() {
            break;
        }
        last = Some(page);
        if round < 40 {
            session.enqueue([task(1000 + round)]).await;
            session.claim(1).await;
        }
    }
    for number in 41..=100 {
        assert!(found.contains(&id(number)), "task {number} is missing");
    }
}

pub async fn foreign_positions_are_refused(it: &dyn Harness) {
    let process = Process::of(it);
    for status in LISTED {
        for position in [&b""[..], b"x", &[255; 7], &[255; 40], &[1; 100]] {
            let request = ListTasks {
                filter: of(status),
                after: Some(position.to_vec()),
                limit: 10,
            };
            assert_eq!(
                process.0.0.list(request).await.unwrap(),
                None,
                "{position:?}"
            );
        }
    }
}

/// A position may come from a stranger.
pub async fn pages_from_any_position_come_to_an_end(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    fill(&mut session, 40, task).await;
    fill(&mut session, 20, |number| delayed(100 + number, HOUR)).await;
    let claim = session.claim(30).await;
    for (nth, of_two) in claim.tasks.chunks(10).enumerate().skip(1) {
        let verdict = || if nth == 1 { done() } else { dead() };
        let verdicts = of_two.iter().map(|it| (it.id, verdict())).collect();
        session
            .turn(wanting(0).verdicts(claim.epoch, verdicts))
            .await;
    }
    for status in LISTED {
        for (len, byte) in [9, 24, 25, 33]
            .into_iter()
            .flat_map(|len| [0, 1, 127, 128, 255].map(|byte| (len, byte)))
        {
            let mut position = vec![byte; len];
            // A position in Redis begins with a partition.
            position[0] = if len == 24 { byte } else { 0 };
            read_on(&process, status, position).await;
        }
    }
}

/// Reads the pages from a position on.
async fn read_on(process: &Process, status: Status, mut position: Vec<u8>) {
    for _ in 0..200 {
        let request = ListTasks {
            filter: of(status),
            after: Some(position),
            limit: 1,
        };
        let page = process.0.0.list(request).await.unwrap();
        let Some(next) = page.and_then(|page| page.next) else {
            return;
        };
        position = next.position_in(status).unwrap();
    }
    panic!("the list of {status:?} tasks does not end");
}

pub async fn a_list_writes_nothing(it: &dyn Harness) {
    let process = Process::of(it);
    let before = it.leftovers();
    for status in LISTED {
        all(&process, &of(status), 10).await;
    }
    assert_eq!(it.leftovers(), before);
}
