//! Levels: which queued job runs first.

use std::sync::{Arc, Mutex};
use std::thread;

use throng::SerialExecutor;
use throng::serial::Level;

use crate::occupied::{Busy, occupy};

/// The number of jobs of higher levels that may overtake a job, as documented at [`Level`].
const MAX_OVERTAKES: usize = 16;
use crate::support::{Numbers, block_on, join, multi_thread, ready, rounds};

const LEVELS: [Level; 3] = [Level::LOW, Level::NORMAL, Level::HIGH];

type List = SerialExecutor<Vec<&'static str>>;

fn queue(list: &List, level: Level, name: &'static str) {
    drop(list.submit_at(level, move |list| list.push(name)));
}

fn order(list: &List, busy: Busy) -> Vec<&'static str> {
    busy.release();
    ready(list.submit(std::mem::take)).unwrap()
}

#[test]
fn higher_levels_run_first_and_each_level_runs_in_order() {
    let list = List::new(Vec::new());
    let busy = occupy(&list);
    queue(&list, Level::LOW, "low 1");
    queue(&list, Level::NORMAL, "normal 1");
    queue(&list, Level::HIGH, "high 1");
    queue(&list, Level::LOW, "low 2");
    drop(list.submit(|list| list.push("normal 2")));
    queue(&list, Level::HIGH, "high 2");
    assert_eq!(
        order(&list, busy),
        ["high 1", "high 2", "normal 1", "normal 2", "low 1", "low 2"]
    );
}

#[test]
fn a_job_is_overtaken_by_a_bounded_number_of_jobs() {
    let list = List::new(Vec::new());
    for _ in 0..2 {
        let busy = occupy(&list);
        queue(&list, Level::LOW, "low");
        queue(&list, Level::NORMAL, "normal");
        for _ in 0..3 * MAX_OVERTAKES {
            queue(&list, Level::HIGH, "high");
        }
        let order = order(&list, busy);
        assert_eq!(order.len(), 3 * MAX_OVERTAKES + 2);
        let (first, rest) = order.split_at(MAX_OVERTAKES);
        assert!(first.iter().all(|name| *name == "high"), "{order:?}");
        assert_eq!(rest[..3], ["low", "normal", "high"]);
    }
}

#[test]
fn the_overtakes_of_each_job_are_counted_anew() {
    let list = List::new(Vec::new());
    let busy = occupy(&list);
    for _ in 0..2 {
        queue(&list, Level::LOW, "low");
    }
    for _ in 0..2 * MAX_OVERTAKES {
        queue(&list, Level::NORMAL, "normal");
    }
    let order = order(&list, busy);
    let low = (0..order.len()).filter(|&index| order[index] == "low");
    assert_eq!(
        low.collect::<Vec<_>>(),
        [MAX_OVERTAKES, 2 * MAX_OVERTAKES + 1]
    );
}

#[test]
fn a_job_of_a_higher_level_that_is_submitted_during_a_drain_is_next() {
    let list = List::new(Vec::new());
    let busy = occupy(&list);
    let again = list.clone();
    drop(list.submit(move |list| {
        list.push("first");
        queue(&again, Level::HIGH, "high");
    }));
    queue(&list, Level::NORMAL, "second");
    queue(&list, Level::NORMAL, "third");
    assert_eq!(order(&list, busy), ["first", "high", "second", "third"]);
}

#[test]
fn an_idle_executor_runs_a_job_at_once_whatever_its_level() {
    let executor = SerialExecutor::new(());
    for level in LEVELS {
        let here = ready(executor.submit_at(level, |()| thread::current().id()));
        assert_eq!(here.unwrap(), thread::current().id());
    }
    assert_eq!(executor.metrics().inline, 3);
}

#[test]
fn levels_are_ordered() {
    assert!(LEVELS.is_sorted() && Level::LOW < Level::HIGH);
    assert_eq!(Level::default(), Level::NORMAL);
}

#[test]
fn jobs_of_many_submitters_run_once_and_each_level_in_order() {
    const THREADS: usize = 4;
    let jobs = rounds(2_000, 200_000);
    let runtime = multi_thread(1, "drain");
    let ran = Arc::new(Mutex::new(Vec::new()));
    let executor = SerialExecutor::builder()
        .capture_jobs(2)
        .build(Arc::clone(&ran))
        .unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (executor, runtime) = (&executor, &runtime);
            scope.spawn(move || {
                let _in = runtime.enter();
                let mut numbers = Numbers::new(thread as u64 + 1);
                let mut last = None;
                for number in 0..jobs {
                    let level = LEVELS[numbers.below(3) as usize];
                    last = Some(executor.submit_at(level, move |ran| {
                        ran.lock().unwrap().push((thread, level, number));
                    }));
                }
                join(last.unwrap()).unwrap();
            });
        }
    });
    drop(block_on(executor.into_inner()).unwrap());
    let ran = ran.lock().unwrap();
    assert_eq!(ran.len(), THREADS * jobs);
    for thread in 0..THREADS {
        for level in LEVELS {
            let of = |job: &&(usize, Level, usize)| (job.0, job.1) == (thread, level);
            assert!(ran.iter().filter(of).is_sorted_by_key(|job| job.2));
        }
    }
}
