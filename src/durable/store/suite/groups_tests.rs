//! Groups of tasks within a queue: they take turns, and each has a limit of its own.

use std::collections::BTreeSet;

use super::Harness;
use super::process::*;
use crate::durable::TaskId;
use crate::durable::queue::{Priority, QueueInfo};
use crate::durable::store::{DEAD_LETTER_RETENTION, NewTask, Verdict};

/// Returns the tasks with these numbers in one group of the queue `q`.
fn tasks_of(group: &str, numbers: impl IntoIterator<Item = u64>) -> Vec<NewTask> {
    let tasks = numbers.into_iter().map(|number| grouped(group, number));
    tasks.collect()
}

/// Claims one task after the other. Returns their ids.
async fn one_by_one(session: &mut Session<'_>, count: usize) -> Vec<TaskId> {
    let mut claimed = Vec::new();
    for _ in 0..count {
        claimed.extend(ids(&session.claim(1).await));
    }
    claimed
}

pub async fn groups_take_turns(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    let backlog = async |q: &mut Session<'_>, first: u64| {
        q.enqueue(tasks_of("a", first..first + 3)).await;
        q.enqueue(tasks_of("b", first + 3..first + 5)).await;
        q.enqueue(tasks_of("c", [first + 5])).await;
    };
    backlog(&mut q, 10).await;
    let expected = [10, 13, 15, 11, 14, 12].map(id);
    assert_eq!(ids(&q.claim(9).await), expected);
    q.rest().await;
    backlog(&mut q, 20).await;
    let expected = [20, 23, 25, 21, 24, 22].map(id);
    assert_eq!(ids(&q.claim(2).await), expected[..2]);
    assert_eq!(one_by_one(&mut q, 4).await, expected[2..]);
    q.rest().await;
}

/// The group of a task is part of what a worker gets.
pub async fn a_claimed_task_has_its_group(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    let longest = "\u{fc} \0:/'%_".repeat(6) + "0123456789";
    assert_eq!(longest.len(), 64);
    for (number, name) in ["a", &longest].into_iter().enumerate() {
        q.enqueue(tasks_of(name, [number as u64])).await;
        let claim = q.claim(9).await;
        assert_eq!(claim.tasks[0].group.as_ref().unwrap().as_str(), name);
        let again = q.turn_again(wanting(9)).await.unwrap();
        assert_eq!(again.claim, Some(claim));
    }
    q.enqueue([queued(9)]).await;
    assert_eq!(q.claim(9).await.tasks[0].group, None);
}

pub async fn a_group_starts_its_quantum_before_the_next(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    process
        .set_queue("q", groups(Groups::new().quantum(3)))
        .await;
    q.enqueue(tasks_of("a", 10..17)).await;
    q.enqueue(tasks_of("b", 20..24)).await;
    let expected = [10, 11, 12, 20, 21, 22, 13, 14, 15, 23, 16].map(id);
    assert_eq!(ids(&q.claim(8).await), expected[..8]);
    // A turn ends with the claim.
    assert_eq!(ids(&q.claim(1).await), [id(23)]);
    assert_eq!(ids(&q.claim(9).await), [15, 16].map(id));
}

pub async fn a_group_that_gets_a_task_goes_behind_the_others(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue(tasks_of("z", [1])).await;
    q.enqueue(tasks_of("a", 10..14)).await;
    q.enqueue(tasks_of("b", 20..24)).await;
    assert_eq!(ids(&q.claim(2).await), [1, 10].map(id));
    q.enqueue(tasks_of("z", [2])).await;
    q.enqueue(tasks_of("a", [14])).await;
    let expected = [20, 11, 2, 21, 12, 22, 13, 23, 14];
    assert_eq!(ids(&q.claim(9).await), expected.map(id));
    // Groups that get tasks at once are in the order of their names.
    let tasks = ["y", "x", "y", "w"].into_iter().zip(30..);
    q.enqueue(tasks.map(|(group, number)| grouped(group, number)))
        .await;
    assert_eq!(ids(&q.claim(9).await), [33, 31, 30, 32].map(id));
}

pub async fn tasks_without_a_group_come_last(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue([queued(1), queued(2)]).await;
    q.enqueue(tasks_of("a", 10..13)).await;
    assert_eq!(ids(&q.claim(2).await), [10, 11].map(id));
    assert_eq!(ids(&q.claim(2).await), [12, 1].map(id));
    assert_eq!(ids(&q.claim(2).await), [id(2)]);
}

/// Within a priority, groups take turns. A higher priority comes first.
pub async fn groups_take_turns_in_each_priority(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    let at = |priority, group, number| at_priority(priority, grouped(group, number));
    let (low, high) = (Priority::Low, Priority::High);
    let tasks = [
        at(low, "a", 1),
        at(low, "a", 2),
        at(low, "b", 3),
        at(high, "b", 4),
        at(high, "b", 5),
        at(high, "a", 6),
        at_priority(high, queued(7)),
    ];
    q.enqueue(tasks).await;
    assert_eq!(ids(&q.claim(9).await), [6, 4, 5, 7].map(id));
    assert_eq!(ids(&q.claim(9).await), [1, 3, 2].map(id));
}

/// The other groups start within one round, although one group has far more tasks.
pub async fn a_group_with_many_tasks_delays_no_other(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue(tasks_of("large", 0..256)).await;
    q.enqueue(tasks_of("large", 256..500)).await;
    let small = (0..10_u64).flat_map(|group| {
        let name = format!("small {group}");
        tasks_of(&name, 1_000 + 10 * group..1_000 + 10 * group + 10)
    });
    let small: Vec<_> = small.collect();
    let ids_of_small: BTreeSet<_> = small.iter().map(|task| task.id).collect();
    q.enqueue(small).await;
    let (mut started, mut waiting) = (0, ids_of_small);
    while !waiting.is_empty() {
        let claim = q.claim(7).await;
        started += claim.tasks.len();
        waiting.retain(|id| !claim.tasks.iter().any(|task| task.id == *id));
    }
    // 110 are ideal.
    assert!(started <= 120, "{started}");
}

pub async fn tasks_of_a_group_of_one_start_in_the_order_of_storing(it: &dyn Harness) {
    let processes: Vec<_> = (0..10).map(|_| Process::of(it)).collect();
    let mut sessions = Vec::new();
    for process in &processes {
        sessions.push(process.session_in("q").await);
    }
    processes[0]
        .set_queue("q", groups(Groups::new().max_running(1)))
        .await;
    for number in 0..20 {
        let session = &mut sessions[number as usize % 10];
        session
            .enqueue([grouped("a", number), grouped("b", 100 + number)])
            .await;
    }
    let mut started = [Vec::new(), Vec::new()];
    let mut running: Vec<(usize, u64, TaskId)> = Vec::new();
    for round in 0.. {
        let at = round % 10;
        let claim = sessions[at].turn(wanting(9)).await.claim;
        for task in claim.iter().flat_map(|claim| &claim.tasks) {
            let is_b = usize::from(task.id >= id(100));
            started[is_b].push(task.id);
            running.push((at, claim.as_ref().unwrap().epoch, task.id));
        }
        assert!(running.len() <= 2, "{running:?}");
        if round % 3 == 2 && !running.is_empty() {
            let (at, epoch, id) = running.remove(0);
            let turn = wanting(0).verdicts(epoch, vec![(id, done())]);
            assert_eq!(sessions[at].turn(turn).await.refused, []);
        }
        if started[0].len() + started[1].len() == 40 {
            break;
        }
    }
    assert_eq!(started[0], (0..20).map(id).collect::<Vec<_>>());
    assert_eq!(started[1], (100..120).map(id).collect::<Vec<_>>());
}

pub async fn no_more_tasks_of_a_group_run_than_its_limit(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    let mut other = process.session_in("q").await;
    process
        .set_queue("q", max_running(3).grouped(Groups::new().max_running(2)))
        .await;
    q.enqueue(tasks_of("a", 10..16)).await;
    q.enqueue(tasks_of("b", 20..22)).await;
    let first = q.claim(9).await;
    assert_eq!(ids(&first), [10, 20, 11].map(id));
    other.rest().await;
    // One of `b` ends. Two of `a` run, so the next one of `b` starts.
    let turned = other
        .turn(wanting(9).verdict(first.epoch, 20, done()))
        .await;
    let second = turned.claim.unwrap();
    assert_eq!((ids(&second), turned.more), (vec![id(21)], false));
    let turned = other
        .turn(wanting(9).verdict(second.epoch, 21, done()))
        .await;
    assert_eq!((turned.claim, turned.more), (None, false));
    assert_eq!(process.queue("q").await.running, 2);
    let turned = other
        .turn(wanting(9).verdict(first.epoch, 10, done()))
        .await;
    assert_eq!(ids(&turned.claim.unwrap()), [id(12)]);
    // A group that is full does not keep tasks without a group from starting.
    q.enqueue([queued(1)]).await;
    assert_eq!(ids(&q.claim(9).await), [id(1)]);
}

/// The limit counts the tasks of a group in all types and priorities.
pub async fn a_group_has_one_limit_for_all_its_tasks(it: &dyn Harness) {
    let process = Process::of(it);
    let mut even = process.session_of_in(&["even"], "q").await;
    let mut odd = process.session_of_in(&["odd"], "q").await;
    process
        .set_queue("q", groups(Groups::new().max_running(1)))
        .await;
    let new = |number| NewTask {
        group: grouped("a", 0).group,
        ..in_queue("q", typed(number))
    };
    even.enqueue([
        new(2),
        new(3),
        at_priority(Priority::Low, new(4)),
        at_priority(Priority::High, new(5)),
    ])
    .await;
    let claim = even.claim(9).await;
    assert_eq!(ids(&claim), [id(2)]);
    odd.rest().await;
    even.report(claim.epoch, 2, done()).await;
    let claim = odd.claim(9).await;
    assert_eq!(ids(&claim), [id(5)]);
    even.rest().await;
    let turned = odd.turn(wanting(9).verdict(claim.epoch, 5, done())).await;
    let claim = turned.claim.unwrap();
    assert_eq!(ids(&claim), [id(3)]);
    even.rest().await;
    odd.report(claim.epoch, 3, done()).await;
    assert_eq!(ids(&even.claim(9).await), [id(4)]);
}

pub async fn a_verdict_of_any_kind_frees_one_permit_of_its_group(it: &dyn Harness) {
    let process = Process::of(it);
    let mut first = process.session_in("q").await;
    let mut second = process.session_in("q").await;
    let mut default = process.session().await;
    process
        .set_queue("q", groups(Groups::new().max_running(1)))
        .await;
    let snooze = Verdict::Snooze { after: HOUR };
    let verdicts = [done(), retry(HOUR), snooze, dead(), Verdict::Release];
    for (number, verdict) in (10..).step_by(10).zip(verdicts) {
        let is_release = verdict == Verdict::Release;
        first.enqueue(tasks_of("a", number..number + 3)).await;
        let claim = first.claim(9).await;
        assert_eq!(ids(&claim), [id(number)]);
        second.rest().await;
        let turn = wanting(0).verdict(claim.epoch, number, verdict.clone());
        first.turn(turn.clone()).await;
        // It is sent again, and in another session, in which it is late.
        first.turn_again(turn.clone()).await.unwrap();
        assert_eq!(default.turn(turn).await.refused, [id(number)]);
        let next = number + u64::from(!is_release);
        let claim = second.claim(9).await;
        assert_eq!(ids(&claim), [id(next)]);
        first.rest().await;
        second.report(claim.epoch, next, done()).await;
        process.cancel(number..number + 3).await;
    }
}

/// Nobody else of the group starts until then, and the other groups are not affected.
pub async fn the_group_of_a_dead_worker_waits_until_its_task_is_taken_back(it: &dyn Harness) {
    let process = Process::of(it);
    let mut zombie = process.session_in("q").await;
    let mut q = process.session_in("q").await;
    let mut default = process.session().await;
    process
        .set_queue("q", groups(Groups::new().max_running(1)))
        .await;
    q.enqueue(tasks_of("a", 10..13)).await;
    q.enqueue(tasks_of("b", 20..23)).await;
    let lost = zombie.claim(1).await;
    assert_eq!(ids(&lost), [id(10)]);
    let mut epoch = q.claim(9).await.epoch;
    for number in [21, 22] {
        it.clock().advance(LEASE / 3);
        process.renew([epoch]).await;
        let turn = wanting(9).verdict(epoch, number - 1, done());
        let claim = q.turn(turn).await.claim.unwrap();
        assert_eq!(ids(&claim), [id(number)]);
        epoch = claim.epoch;
    }
    q.report(epoch, 22, done()).await;
    it.clock().advance(LEASE / 3);
    q.rest().await;
    it.clock().advance(LEASE / 3);
    // A session of another queue takes the claim back.
    default.rest().await;
    let claim = q.claim(9).await;
    assert_eq!(ids(&claim), [id(10)]);
    for verdict in [done(), retry(HOUR), dead(), Verdict::Release] {
        let turn = wanting(9).verdict(lost.epoch, 10, verdict);
        let turned = zombie.turn(turn).await;
        assert_eq!((turned.refused, turned.claim), (vec![id(10)], None));
    }
    let turned = q.turn(wanting(9).verdict(claim.epoch, 10, done())).await;
    assert_eq!(ids(&turned.claim.unwrap()), [id(11)]);
}

/// As in a shutdown.
pub async fn a_released_task_is_the_first_of_its_group(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    for limit in [None, Some(1)] {
        let settings = limit.map_or_else(Groups::new, |limit| Groups::new().max_running(limit));
        process.set_queue("q", groups(settings)).await;
        q.enqueue(tasks_of("a", 10..13)).await;
        q.enqueue(tasks_of("b", 20..23)).await;
        let claim = q.claim(2).await;
        assert_eq!(ids(&claim), [10, 20].map(id));
        let turn = wanting(0)
            .verdict(claim.epoch, 10, Verdict::Release)
            .verdict(claim.epoch, 20, Verdict::Release);
        q.turn(turn).await;
        let claim = q.claim(2).await;
        assert_eq!(ids(&claim), [10, 20].map(id));
        let turn = wanting(0)
            .verdict(claim.epoch, 10, done())
            .verdict(claim.epoch, 20, done());
        q.turn(turn).await;
        process.cancel([11, 12, 21, 22]).await;
        q.rest().await;
        it.age(2 * HOUR);
        while process.maintain(9).await {}
    }
}

pub async fn a_limit_of_groups_is_lowered_and_raised(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    let limited = |most| groups(Groups::new().max_running(most));
    q.enqueue(tasks_of("a", 10..19)).await;
    q.enqueue(tasks_of("b", 20..29)).await;
    // Without a limit, tasks are counted, too.
    let claim = q.claim(5).await;
    assert_eq!(ids(&claim), [10, 20, 11, 21, 12].map(id));
    process.set_queue("q", limited(3)).await;
    assert_eq!(ids(&q.claim(9).await), [id(22)]);
    process.set_queue("q", limited(1)).await;
    for number in [10, 11] {
        let turned = q
            .turn(wanting(9).verdict(claim.epoch, number, done()))
            .await;
        assert_eq!((turned.claim, turned.more), (None, false));
    }
    let turned = q.turn(wanting(9).verdict(claim.epoch, 12, done())).await;
    assert_eq!(ids(&turned.claim.unwrap()), [id(13)]);
    process.set_queue("q", limited(4)).await;
    assert_eq!(ids(&q.claim(9).await), [14, 23, 15, 16].map(id));
    q.rest().await;
    process.set_queue("q", groups(Groups::new())).await;
    assert_eq!(ids(&q.claim(3).await), [17, 24, 18].map(id));
}

pub async fn cancelled_tasks_may_be_all_of_a_group(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue(tasks_of("a", 10..13)).await;
    q.enqueue(tasks_of("b", 20..23)).await;
    q.enqueue(tasks_of("c", 30..33)).await;
    assert_eq!(process.cancel((10..13).chain([20])).await, 4);
    assert_eq!(process.queue("q").await.waiting, 5);
    let turned = q.turn(wanting(3)).await;
    assert_eq!(ids(&turned.claim.unwrap()), [21, 30, 22].map(id));
    assert!(turned.more);
    assert_eq!(process.cancel([31, 32]).await, 2);
    q.rest().await;
    assert_eq!(process.queue("q").await.waiting, 0);
    // A group of which only cancelled tasks were left is new.
    q.enqueue(tasks_of("d", 40..42)).await;
    q.enqueue(tasks_of("c", [33])).await;
    assert_eq!(ids(&q.claim(9).await), [40, 33, 41].map(id));
}

pub async fn tasks_of_a_group_change_their_lists(it: &dyn Harness) {
    let process = Process::of(it);
    let mut all = process.session_of_in(&["even", "odd"], "q").await;
    let new = |number| NewTask {
        group: grouped(if number % 4 < 2 { "a" } else { "b" }, 0).group,
        ..in_queue("q", typed(number))
    };
    all.enqueue((0..16).map(new)).await;
    // The list is split, and a type is paused and resumed.
    let mut even = process.session_of_in(&["even"], "q").await;
    process.pause("odd").await;
    let claimed = claim_all(&mut even).await.0;
    assert_eq!(claimed, [0, 2, 4, 6, 8, 10, 12, 14].map(id));
    all.rest().await;
    process.resume("odd").await;
    let mut odd = process.session_of_in(&["odd"], "q").await;
    let claimed = claim_all(&mut odd).await.0;
    let of = |rest| {
        claimed
            .iter()
            .filter(move |&&it| (0..16).any(|n| n % 4 == rest && id(n) == it))
    };
    assert!(
        of(1).eq([1, 5, 9, 13].map(id).iter()) && of(3).eq([3, 7, 11, 15].map(id).iter()),
        "{claimed:?}"
    );
    all.rest().await;
}

pub async fn nothing_is_left_of_a_group(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    let limit = groups(Groups::new().max_running(1));
    process.set_queue("q", limit).await;
    q.enqueue(tasks_of("a", 1..=4)).await;
    q.run_first(id(1), done()).await;
    q.run_first(id(2), hold(SECOND, retry(SECOND))).await;
    it.clock().advance(SECOND);
    q.run_first(id(3), dead()).await;
    q.run_first(id(4), done()).await;
    q.run_first(id(2), done()).await;
    q.enqueue(tasks_of("b", [5])).await;
    assert_eq!(process.cancel([5]).await, 1);
    process.set_queue("q", Default::default()).await;
    q.rest().await;
    q.close().await;
    it.age(DEAD_LETTER_RETENTION);
    while process.maintain(3).await {}
    assert_eq!(process.queue("q").await, QueueInfo::default());
    // The settings of the queue remain.
    assert!(it.leftovers() <= 1, "{}", it.leftovers());
}

/// A released task is put into the list into which the others of its group drain later.
pub async fn a_group_keeps_its_turn_while_its_list_drains(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_in("q").await;
    q.enqueue(tasks_of("b", 1..=3)).await;
    let epoch = q.claim(1).await.epoch;
    q.enqueue(tasks_of("a", [4, 5])).await;
    process.pause("job").await;
    q.report(epoch, 1, Verdict::Release).await;
    q.rest().await;
    process.resume("job").await;
    assert_eq!(ids(&q.claim(9).await), [1, 4, 2, 5, 3].map(id));
}

/// Has more groups than a claim in Redis looks at, each with a task of this type that one more crash makes a dead letter.
async fn quarantine_many_groups(process: &Process, producer: &mut Session<'_>, name_of: u64) {
    let tasks = (0..300).map(|number| NewTask {
        name: typed(name_of).name,
        max_crashes: 2,
        ..grouped(&format!("poison {number}"), number)
    });
    for batch in tasks.collect::<Vec<_>>().chunks(256) {
        producer.enqueue(batch.to_vec()).await;
    }
    let mut left = 300;
    while left > 0 {
        let mut victim = process.session_of_in(&["even", "odd"], "q").await;
        let mut epochs = Vec::new();
        while left > 0 {
            let claim = victim.claim(256).await;
            left -= claim.tasks.len();
            epochs.push(claim.epoch);
        }
        process.renew(epochs).await;
        process.0.0.close_session(victim.id).await.unwrap();
    }
}

/// Stores a task that is not quarantined. Checks that a worker that runs a quarantined task claims it soon, and does not ask again and
/// again before there is such a task.
async fn assert_claims_soon(session: &mut Session<'_>, task: NewTask) {
    let turned = session.turn(wanting(9).without_quarantined()).await;
    assert_eq!((turned.claim, turned.more), (None, false));
    let number = task.id;
    session.enqueue([task]).await;
    for _ in 0..3 {
        let turned = session.turn(wanting(9).without_quarantined()).await;
        if let Some(claim) = turned.claim {
            assert_eq!(ids(&claim), [number]);
            return;
        }
        assert!(turned.more || turned.next <= Some(SECOND / 10));
    }
    panic!("the worker claims nothing");
}

/// A worker that runs a quarantined task, for a long time, starts tasks that are not quarantined.
pub async fn quarantined_tasks_of_many_groups_delay_no_other_group(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_of_in(&["even", "odd"], "q").await;
    quarantine_many_groups(&process, &mut q, 0).await;
    let other = NewTask {
        name: typed(0).name,
        ..grouped("sound", 1_000)
    };
    assert_claims_soon(&mut q, other).await;
}

pub async fn quarantined_tasks_of_many_groups_delay_no_other_list(it: &dyn Harness) {
    let process = Process::of(it);
    let mut q = process.session_of_in(&["even", "odd"], "q").await;
    // Another worker knows only one of the types, so each has a list.
    let _odd = process.session_of_in(&["odd"], "q").await;
    quarantine_many_groups(&process, &mut q, 0).await;
    let other = NewTask {
        name: typed(1).name,
        ..grouped("sound", 1_000)
    };
    assert_claims_soon(&mut q, other).await;
}

/// Its list has no reader when the group is held.
pub async fn a_group_is_held_in_a_list_that_no_worker_reads(it: &dyn Harness) {
    let process = Process::of(it);
    let mut even = process.session_of_in(&["even"], "q").await;
    let odd = process.session_of_in(&["odd"], "q").await;
    let new = |number: u64| NewTask {
        name: typed(number).name,
        ..grouped("a", number)
    };
    even.enqueue((1..=6).map(new)).await;
    let of_b = |number: u64| NewTask {
        group: grouped("b", 0).group,
        ..new(number)
    };
    even.enqueue([of_b(7)]).await;
    odd.close().await;
    let claim = even.claim(1).await;
    assert_eq!(ids(&claim), [id(2)]);
    even.report(claim.epoch, 2, hold(SECOND, Verdict::Release))
        .await;
    let mut odd = process.session_of_in(&["odd"], "q").await;
    assert_eq!(ids(&odd.claim(9).await), [id(7)]);
    assert!(!odd.turn(wanting(9)).await.more);
    it.clock().advance(SECOND);
    assert_eq!(ids(&odd.claim(9).await), [1, 3, 5].map(id));
}
