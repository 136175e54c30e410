//! Groups take turns while their list drains, too.

use std::collections::BTreeSet;

use super::Harness;
use super::process::*;
use crate::durable::TaskId;
use crate::durable::queue::Groups;
use crate::durable::store::{Claim, DEAD_LETTER_RETENTION, NewTask, Verdict};

/// A group with many tasks, and groups with few, whose ids come last.
#[derive(Clone, Copy)]
struct Backlog {
    first: u64,
    large: u64,
    groups: u64,
    each: u64,
}

const BACKLOG: Backlog = Backlog {
    first: 0,
    large: 1_000,
    groups: 40,
    each: 20,
};

/// The size that users care about. It takes about a minute with SQLite.
const LARGE_BACKLOG: Backlog = Backlog {
    first: 0,
    large: 20_000,
    groups: 50,
    each: 20,
};

/// Returns the backlog to test. Claims of different sizes need different ids. (The large claims come first: in Redis, cancelled tasks of
/// the large group stay.)
fn backlog(want: usize) -> Backlog {
    let backlog = match std::env::var_os("THRONG_LONG") {
        Some(_) => LARGE_BACKLOG,
        None => BACKLOG,
    };
    Backlog {
        first: 100_000 * want as u64,
        ..backlog
    }
}

impl Backlog {
    /// Stores the tasks. `name_of` is the number of the task that has the type of a task.
    async fn store(self, session: &mut Session<'_>, name_of: impl Fn(u64) -> u64) {
        let large = (0..self.large).map(|number| (number, "large".to_owned()));
        let small = (0..self.groups * self.each)
            .map(|number| (self.large + number, format!("small {}", number / self.each)));
        let tasks = large.chain(small).map(|(number, group)| NewTask {
            name: typed(name_of(self.first + number)).name,
            ..grouped(&group, self.first + number)
        });
        for batch in tasks.collect::<Vec<_>>().chunks(256) {
            session.enqueue(batch.to_vec()).await;
        }
    }

    /// Claims tasks until all tasks of the small groups have started. Checks that not many others have started before.
    async fn drain(self, session: &mut Session<'_>, want: usize) {
        let (mut started, mut left) = (0, self.groups * self.each);
        while left > 0 {
            let turned = session.turn(wanting(want)).await;
            assert!(turned.more || turned.claim.is_some(), "{left} are left");
            let Some(claim) = turned.claim else { continue };
            for id in ids(&claim) {
                started += u64::from(left > 0);
                left -= u64::from(self.is_small(id));
            }
            let ended = ids(&claim).into_iter().map(|id| (id, done())).collect();
            session.turn(wanting(0).verdicts(claim.epoch, ended)).await;
        }
        let ideal = (self.groups + 1) * self.each;
        assert!(started * 100 <= ideal * 103, "{started} > {ideal}");
    }

    fn is_small(self, task: TaskId) -> bool {
        task >= id(self.first + self.large)
    }
}

/// Each type has a list of its own until a worker knows both.
pub async fn groups_that_wait_for_the_first_worker_take_turns(it: &dyn Harness) {
    for want in [256, 10] {
        let process = Process::of(it);
        let mut producer = process.session_of_in(&["job"], "other").await;
        backlog(want).store(&mut producer, |number| number).await;
        let mut q = process.session_of_in(&["even", "odd"], "q").await;
        backlog(want).drain(&mut q, want).await;
        end_all(&process, q, backlog(want)).await;
    }
}

/// All tasks of the large group have one type, and those of the small groups have the other.
pub async fn groups_of_several_draining_lists_take_turns(it: &dyn Harness) {
    for want in [256, 10] {
        let process = Process::of(it);
        let mut producer = process.session_of_in(&["job"], "other").await;
        let backlog = backlog(want);
        let type_of = |number| u64::from(backlog.is_small(id(number)));
        backlog.store(&mut producer, type_of).await;
        let mut q = process.session_of_in(&["even", "odd"], "q").await;
        backlog.drain(&mut q, want).await;
        end_all(&process, q, backlog).await;
    }
}

pub async fn groups_take_turns_after_a_type_is_paused(it: &dyn Harness) {
    for want in [256, 10] {
        let process = Process::of(it);
        let mut q = process.session_of_in(&["even", "odd", "job"], "q").await;
        backlog(want).store(&mut q, |number| number).await;
        process.pause("job").await;
        backlog(want).drain(&mut q, want).await;
        process.resume("job").await;
        end_all(&process, q, backlog(want)).await;
    }
}

/// A turn moves a few tasks of some groups. Then it is the turn of the other groups to move.
pub async fn more_groups_than_a_turn_drains_take_turns(it: &dyn Harness) {
    const GROUPS: u64 = 300;
    let process = Process::of(it);
    let mut producer = process.session_of_in(&["job"], "other").await;
    let tasks = (0..20 * GROUPS).map(|number| NewTask {
        name: typed(0).name,
        ..grouped(&(number % GROUPS).to_string(), number)
    });
    for batch in tasks.collect::<Vec<_>>().chunks(256) {
        producer.enqueue(batch.to_vec()).await;
    }
    let mut q = process.session_of_in(&["even", "odd"], "q").await;
    let (mut started, mut served) = (0, BTreeSet::new());
    while served.len() < GROUPS as usize {
        let claim = q.claim(256).await;
        started += claim.tasks.len();
        served.extend(claim.tasks.into_iter().map(|task| task.group));
    }
    // If the first 256 groups moved all their tasks first, these would be 5,120.
    assert!(started <= 1_400, "{started}");
}

/// The groups of one list have every other turn, and those of the other list have the rest.
pub async fn groups_of_two_draining_lists_are_served_in_one_order(it: &dyn Harness) {
    const GROUPS: u64 = 520;
    let process = Process::of(it);
    let mut producer = process.session_of_in(&["job"], "other").await;
    for number in 0..GROUPS {
        let task = NewTask {
            name: typed(number).name,
            ..grouped(&number.to_string(), number)
        };
        producer.enqueue([task]).await;
    }
    let mut q = process.session_of_in(&["even", "odd"], "q").await;
    let mut started = Vec::new();
    while started.len() < 40 {
        started.extend(ids(&q.claim(10).await));
    }
    assert!(started.into_iter().eq((0..40).map(id)));
}

/// Returns a session and its claim, and a session that knows only another type. The remaining tasks are in a list that drains.
async fn draining(
    process: &Process,
    tasks: Vec<NewTask>,
    running: usize,
) -> ([Session<'_>; 2], Option<Claim>) {
    let mut q = process.session_of_in(&["even", "odd"], "q").await;
    let limit = groups(Groups::new().max_running(1));
    process.set_queue("q", limit).await;
    let even = |task| NewTask {
        name: typed(0).name,
        ..task
    };
    for batch in tasks.chunks(256) {
        q.enqueue(batch.iter().cloned().map(even)).await;
    }
    let claim = q.turn(wanting(running)).await.claim;
    ([q, process.session_of_in(&["odd"], "q").await], claim)
}

pub async fn full_groups_drain_after_tasks_without_a_group(it: &dyn Harness) {
    let process = Process::of(it);
    let full = (0..280).map(|number| grouped(&(number / 4).to_string(), number));
    let tasks = full.chain((280..480).map(queued)).collect();
    let ([mut q, _], running) = draining(&process, tasks, 70).await;
    assert_eq!(running.map(|claim| claim.tasks.len()), Some(70));
    let claim = q.claim(256).await;
    assert!(ids(&claim).into_iter().eq((280..480).map(id)));
}

pub async fn tasks_without_a_group_drain_beside_a_group(it: &dyn Harness) {
    let process = Process::of(it);
    let group = (0..300).map(|number| grouped("a", number));
    let tasks = group.chain((300..400).map(queued)).collect();
    let ([mut q, _], _) = draining(&process, tasks, 0).await;
    let expected = [0].into_iter().chain(300..308);
    assert!(ids(&q.claim(9).await).into_iter().eq(expected.map(id)));
}

pub async fn nothing_is_left_of_groups_that_have_drained(it: &dyn Harness) {
    let process = Process::of(it);
    let tasks = (0..8).map(|number| grouped(&(number % 2).to_string(), number));
    let ([mut q, odd], mut claim) = draining(&process, tasks.collect(), 2).await;
    q.rest().await;
    while let Some(running) = claim {
        let ended = ids(&running).into_iter().map(|id| (id, done()));
        let turn = wanting(9).verdicts(running.epoch, ended.collect());
        claim = q.turn(turn).await.claim;
    }
    q.close().await;
    odd.close().await;
    process.set_queue("q", Default::default()).await;
    it.age(DEAD_LETTER_RETENTION);
    while process.maintain(9).await {}
    // The settings of the queue remain.
    assert!(it.leftovers() <= 1, "{}", it.leftovers());
}

/// Removes the tasks that are left, and closes the session.
async fn end_all(process: &Process, session: Session<'_>, backlog: Backlog) {
    session.close().await;
    let all = backlog.large + backlog.groups * backlog.each;
    for first in (backlog.first..backlog.first + all).step_by(256) {
        process.cancel(first..first + 256).await;
    }
}

/// In Redis, the entry of a cancelled task stays in its list for a while.
pub async fn a_group_of_cancelled_tasks_has_no_turn_in_a_draining_list(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_in("q").await;
    session.enqueue([grouped("a", 1)]).await;
    let claim = session.claim(1).await;
    session.enqueue([grouped("a", 2)]).await;
    process.cancel([2]).await;
    session.enqueue([grouped("b", 3)]).await;
    process.pause("job").await;
    // The list of the type drains, and the only task of the group comes back.
    session.report(claim.epoch, 1, Verdict::Release).await;
    process.resume("job").await;
    let mut claimed = Vec::new();
    while let Some(claim) = session.turn(wanting(2)).await.claim {
        claimed.extend(ids(&claim));
    }
    assert_eq!(claimed, [id(3), id(1)]);
}
