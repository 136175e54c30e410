//! Jobs of a busy executor, which are queued and run in order.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use throng::SerialExecutor;
use tokio::runtime::Handle;

use crate::occupied::occupy;
use crate::support::{
    Numbers, block_on, current_thread, join, multi_thread, poll, ready, rounds, within,
};

// ===== order =====

#[test]
fn a_busy_executor_queues_and_the_submitter_goes_on() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let mut handle = executor.submit(|n| {
        *n += 1;
        (*n, thread::current().id())
    });
    assert!(!handle.is_finished());
    assert!(poll(&mut handle).is_pending());

    let holder = busy.release();
    assert_eq!(join(handle).unwrap(), (1, holder));
}

#[test]
fn a_job_sees_the_thread_that_runs_it() {
    let runtime = current_thread();
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let in_runtime = |_: &mut ()| Handle::try_current().is_ok();
    let queued = {
        let _in = runtime.enter();
        executor.submit(in_runtime)
    };
    busy.release();
    assert!(!join(queued).unwrap());

    assert!(!ready(executor.submit(in_runtime)).unwrap());
    let _in = runtime.enter();
    assert!(ready(executor.submit(in_runtime)).unwrap());
}

#[test]
fn jobs_run_in_the_order_of_submission() {
    for limit in [0, 1, 16] {
        let runtime = multi_thread(2, "drain");
        let executor = SerialExecutor::builder()
            .capture_jobs(limit)
            .build(Sequence::default())
            .unwrap();
        check_order(&executor, Some(runtime.handle()));
    }
    check_order(&SerialExecutor::new(Sequence::default()), None);
}

/// Checks that a job runs after each job whose `submit` had returned before, on any thread, and that no two jobs
/// overlap.
fn check_order(executor: &SerialExecutor<Sequence>, runtime: Option<&Handle>) {
    const THREADS: usize = 8;
    let jobs = rounds(500, 50_000);
    let clock = AtomicUsize::new(0);
    let barrier = Barrier::new(THREADS);
    let mut stamps: Vec<(usize, usize, usize)> = thread::scope(|scope| {
        let submitter = || {
            let _in = runtime.map(Handle::enter);
            barrier.wait();
            let submit = |_| {
                let before = clock.fetch_add(1, Ordering::SeqCst);
                let handle = executor.submit(Sequence::next);
                let after = clock.fetch_add(1, Ordering::SeqCst);
                (before, after, handle)
            };
            let submitted: Vec<_> = (0..jobs).map(submit).collect();
            let ticket = |(before, after, handle)| (join(handle).unwrap(), before, after);
            submitted.into_iter().map(ticket).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(submitter)).collect();
        let stamps = threads.into_iter().map(|thread| thread.join().unwrap());
        stamps.flatten().collect()
    });

    stamps.sort_unstable();
    let mut latest_begin = 0;
    for (index, &(ticket, before, after)) in stamps.iter().enumerate() {
        assert_eq!(ticket, index, "each job runs once");
        assert!(after >= latest_begin, "job {ticket} ran too late");
        latest_begin = latest_begin.max(before);
    }
}

/// Hands out numbers, and panics if two callers overlap.
#[derive(Default)]
struct Sequence {
    value: usize,
    busy: AtomicBool,
}

impl Sequence {
    fn next(&mut self) -> usize {
        assert!(!self.busy.swap(true, Ordering::SeqCst), "not exclusive");
        let ticket = self.value;
        self.value += 1;
        // Lets other threads queue now and then.
        if ticket.is_multiple_of(16) {
            thread::yield_now();
        }
        self.busy.store(false, Ordering::SeqCst);
        ticket
    }
}

#[test]
fn a_state_that_cannot_be_shared_is_changed_by_many_threads() {
    let executor = SerialExecutor::new(Cell::new(0_usize));
    let jobs = rounds(1_000, 100_000);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..jobs {
                    drop(executor.submit(|n| n.set(n.get() + 1)));
                }
            });
        }
    });
    assert_eq!(
        block_on(executor.into_inner()).unwrap().into_inner(),
        8 * jobs
    );
}

#[test]
fn without_a_runtime_the_submitters_run_everything() {
    let executor = SerialExecutor::builder()
        .capture_jobs(1)
        .build(0_usize)
        .unwrap();
    let jobs = rounds(1_000, 100_000);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..jobs {
                    executor.submit(|n| *n += 1).blocking_join().unwrap();
                }
            });
        }
    });
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 4 * jobs);
    assert_eq!(executor.metrics().handed_over, 0);
}

// ===== many at once =====

#[test]
fn results_are_those_of_one_thread_in_some_order() {
    const THREADS: u64 = 8;
    let jobs = rounds(1_500, 150_000);
    let runtime = multi_thread(2, "drain");
    let executor = SerialExecutor::builder()
        .capture_jobs(2)
        .build(Recorded::default())
        .unwrap();
    let clock = AtomicU64::new(0);
    let mut history: Vec<Event> = thread::scope(|scope| {
        let client = |seed| {
            let (executor, clock, runtime) = (&executor, &clock, &runtime);
            move || {
                let _in = runtime.enter();
                let mut numbers = Numbers::new(seed);
                let event = |_| Event::record(executor, clock, &mut numbers);
                (0..jobs).map(event).collect::<Vec<_>>()
            }
        };
        let threads: Vec<_> = (1..=THREADS)
            .map(|seed| scope.spawn(client(seed)))
            .collect();
        let histories = threads.into_iter().map(|thread| thread.join().unwrap());
        histories.flatten().collect()
    });

    history.sort_unstable_by_key(|event| event.turn);
    let mut model = Recorded::default();
    let mut latest_begin = 0;
    for event in &history {
        assert_eq!(model.apply(event.operation), (event.turn, event.result));
        assert!(event.end > latest_begin, "{event:?} took effect too late");
        latest_begin = latest_begin.max(event.begin);
    }
    assert_eq!(block_on(executor.into_inner()).unwrap(), model);
}

/// A map that counts its operations.
#[derive(Debug, Default, PartialEq)]
struct Recorded {
    turn: usize,
    counters: HashMap<u64, u64>,
}

impl Recorded {
    fn apply(&mut self, operation: Operation) -> (usize, Option<u64>) {
        self.turn += 1;
        let result = match operation {
            Operation::Get(key) => self.counters.get(&key).copied(),
            Operation::Add(key, n) => {
                let counter = self.counters.entry(key).or_default();
                *counter += n;
                Some(*counter)
            }
            Operation::Remove(key) => self.counters.remove(&key),
        };
        (self.turn, result)
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Get(u64),
    Add(u64, u64),
    Remove(u64),
}

/// An operation, the times of its call and its return, and its result.
#[derive(Debug)]
struct Event {
    operation: Operation,
    begin: u64,
    end: u64,
    turn: usize,
    result: Option<u64>,
}

impl Event {
    fn record(
        executor: &SerialExecutor<Recorded>,
        clock: &AtomicU64,
        numbers: &mut Numbers,
    ) -> Self {
        let key = numbers.below(4);
        let operation = match numbers.below(4) {
            0 => Operation::Get(key),
            1 => Operation::Remove(key),
            _ => Operation::Add(key, numbers.below(10)),
        };
        let job = move |state: &mut Recorded| state.apply(operation);
        let begin = clock.fetch_add(1, Ordering::SeqCst);
        let (turn, result) = match numbers.below(4) {
            0 => join(executor.post(job)).unwrap(),
            1 => match executor.try_run(job) {
                Ok(result) => result,
                Err(busy) => join(executor.submit(busy.into_inner())).unwrap(),
            },
            _ => join(executor.submit(job)).unwrap(),
        };
        Self {
            operation,
            begin,
            end: clock.fetch_add(1, Ordering::SeqCst),
            turn,
            result,
        }
    }
}

#[test]
fn many_tasks_share_one_executor() {
    multi_thread(2, "worker").block_on(async {
        let executor = SerialExecutor::new(0_usize);
        let jobs = rounds(2_000, 200_000);
        let tasks = (0..16).map(|_| {
            let executor = executor.clone();
            tokio::spawn(async move {
                for _ in 0..jobs {
                    executor.submit(|n| *n += 1).await.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            within(task).await.unwrap();
        }
        assert_eq!(within(executor.into_inner()).await.unwrap(), 16 * jobs);
    });
}
