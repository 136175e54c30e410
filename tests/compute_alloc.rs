//! The allocations of a `ComputePool`: almost none for its tasks, and it frees what it needed.
//!
//! There is one test, because the allocations of the whole process are counted.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use throng::{ComputePool, JoinHandle};

use self::support::wait_until;

/// The system's allocator, which counts.
struct Counting;

/// Allocations of the process so far.
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// Bytes that have not been freed.
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: everything is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> isize {
    LIVE.load(Ordering::Relaxed)
}

/// The most bytes that a burst may leave for each of its tasks, and the time in which it must free the others.
const LEFT_PER_TASK: usize = 2;
const SOON: Duration = Duration::from_secs(2);

/// The most allocations for each task in steady state.
const PER_TASK: f64 = 0.02;

#[test]
fn allocations_are_as_promised() {
    an_allocation_is_counted();
    tasks_in_steady_state_allocate_next_to_nothing();
    tasks_from_inside_allocate_next_to_nothing();
    a_burst_leaves_little();
    a_burst_behind_a_held_thread_leaves_little();
    threads_that_come_and_go_leave_nothing();
    pools_that_come_and_go_leave_nothing();
    an_aborted_or_panicking_task_leaves_nothing();
}

fn an_allocation_is_counted() {
    const SIZE: isize = 2 << 20;
    // The main thread of the test harness may allocate a little at the same time.
    const LITTLE: isize = 64 << 10;
    let (allocations, bytes) = (ALLOCATIONS.load(Ordering::Relaxed), live());
    let boxed = std::hint::black_box(vec![1_u8; SIZE.cast_unsigned()]);
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > allocations);
    assert!((live() - bytes - SIZE).abs() <= LITTLE);
    drop(boxed);
    assert!((live() - bytes).abs() <= LITTLE);
}

fn of(threads: usize) -> ComputePool {
    ComputePool::builder().threads(threads).build().unwrap()
}

/// Waits until the threads of the pool sleep.
#[track_caller]
fn rest(pool: &ComputePool) {
    wait_until("the pool is at rest", || {
        let metrics = pool.metrics();
        metrics.queued == 0 && metrics.lanes.iter().all(|lane| lane.is_parked)
    });
}

/// Counts tasks that have run.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn adder(&self) -> impl FnOnce() + Send + 'static {
        let this = self.clone();
        move || _ = this.0.fetch_add(1, Ordering::Relaxed)
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Submits some tasks.
type Submit = fn(&ComputePool, &Count, tasks: usize);

const WAYS: [(&str, Submit); 4] = [
    ("execute", |pool, ran, tasks| {
        (0..tasks).for_each(|_| pool.execute(ran.adder()));
    }),
    ("execute_batch", |pool, ran, tasks| {
        pool.execute_batch((0..tasks).map(|_| ran.adder()));
    }),
    ("spawn", |pool, ran, tasks| {
        (0..tasks).for_each(|_| drop(pool.spawn(ran.adder())));
    }),
    ("spawn_keyed", |pool, ran, tasks| {
        (0..tasks).for_each(|n| drop(pool.spawn_keyed(&(n % 8), ran.adder())));
    }),
];

/// The number of tasks of a burst. They need many times the memory that they may leave.
fn burst() -> usize {
    support::rounds(250_000, 1_000_000)
}

/// Submits 400 tasks.
fn submit_all_ways(pool: &ComputePool, ran: &Count) {
    for (_, submit) in WAYS {
        submit(pool, ran, 100);
    }
}

/// Has tasks submitted in parts, one after the other, and says how many allocations there were for each.
#[track_caller]
fn allocations_per_task(part: impl Fn(&Count, usize), parts: usize) -> f64 {
    const PART: usize = 500;
    let ran = Count::default();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for n in 1..=parts {
        part(&ran, PART);
        while ran.get() < n * PART {
            thread::yield_now();
        }
    }
    (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / (parts * PART) as f64
}

/// The number of parts in which the allocations are counted.
fn parts() -> usize {
    support::rounds(100, 400)
}

fn tasks_in_steady_state_allocate_next_to_nothing() {
    for threads in [1, 2] {
        for (way, submit) in WAYS {
            let pool = of(threads);
            allocations_per_task(|ran, tasks| submit(&pool, ran, tasks), 40);
            let each = allocations_per_task(|ran, tasks| submit(&pool, ran, tasks), parts());
            println!("{way}, {threads} threads: {each} allocations per task");
            assert!(each <= PER_TASK, "{way}, {threads} threads: {each}");
        }
    }
}

fn tasks_from_inside_allocate_next_to_nothing() {
    for threads in [1, 2] {
        for (way, submit) in WAYS {
            let pool = of(threads);
            let from_inside = |ran: &Count, tasks: usize| {
                let (own, ran) = (pool.clone(), ran.clone());
                pool.execute(move || submit(&own, &ran, tasks));
            };
            allocations_per_task(from_inside, 40);
            let each = allocations_per_task(from_inside, parts());
            println!("{way} from inside, {threads} threads: {each} allocations per task");
            assert!(each <= PER_TASK, "{way}, {threads} threads: {each}");
        }
    }
}

/// Sees how much more there is than before, soon after the work was done.
#[track_caller]
fn assert_little_is_left(what: &str, before: isize) {
    let most = (LEFT_PER_TASK * burst()).cast_signed();
    let end = Instant::now() + SOON;
    while live() - before > most && Instant::now() < end {
        thread::park_timeout(Duration::from_millis(10));
    }
    let left = live() - before;
    println!("{what}: {left} bytes are left");
    assert!(left <= most, "{what}: {left} bytes are left");
}

fn a_burst_leaves_little() {
    let tasks = burst();
    for (way, submit) in WAYS {
        let pool = of(2);
        rest(&pool);
        let (ran, before) = (Count::default(), live());
        submit(&pool, &ran, tasks);
        wait_until("the burst is over", || ran.get() == tasks);
        assert_little_is_left(way, before);
    }
}

/// All of them wait at the same time.
fn a_burst_behind_a_held_thread_leaves_little() {
    let tasks = burst();
    for (way, submit) in WAYS {
        let pool = of(1);
        let gate = support::Gate::new();
        let (ran, before) = (Count::default(), live());
        let holds = gate.clone();
        pool.execute(move || holds.pass());
        submit(&pool, &ran, tasks);
        println!("{way}: {} bytes wait", live() - before);
        gate.open();
        wait_until("the burst is over", || ran.get() == tasks);
        assert_little_is_left(way, before);
    }
}

/// Runs something once, and then many times: the process must not grow by more than a little.
#[track_caller]
fn assert_no_growth(what: &str, pool: Option<&ComputePool>, round: impl Fn()) {
    let rounds = |rounds: usize| {
        (0..rounds).for_each(|_| round());
        pool.inspect(|pool| rest(pool));
    };
    rounds(20);
    let before = live();
    rounds(200);
    // What a round has left must be more than this in all, to be called growth.
    const LITTLE: isize = 300 << 10;
    let end = Instant::now() + SOON;
    while live() - before > LITTLE && Instant::now() < end {
        thread::park_timeout(Duration::from_millis(10));
    }
    let grown = live() - before;
    println!("{what}: grown by {grown} bytes");
    assert!(grown <= LITTLE, "{what}: grown by {grown} bytes");
}

fn threads_that_come_and_go_leave_nothing() {
    let pool = of(2);
    assert_no_growth("threads", Some(&pool), || {
        let ran = Count::default();
        thread::scope(|scope| {
            scope.spawn(|| submit_all_ways(&pool, &ran));
        });
        wait_until("the tasks have run", || ran.get() == 400);
    });
    // Tasks that end on other threads than they ran on: their handles are dropped there.
    assert_no_growth("handles", Some(&pool), || {
        let handles = pool.spawn_batch((0..200).map(|n| move || n));
        thread::spawn(move || {
            for handle in handles {
                support::join(handle).unwrap();
            }
        })
        .join()
        .unwrap();
    });
}

fn pools_that_come_and_go_leave_nothing() {
    assert_no_growth("pools", None, || {
        let pool = of(2);
        let ran = Count::default();
        submit_all_ways(&pool, &ran);
        pool.close();
        support::block_on(pool.closed());
        assert_eq!(ran.get(), 400);
    });
    assert_no_growth("pools shut down at once", None, || {
        let pool = of(2);
        let ran = Count::default();
        submit_all_ways(&pool, &ran);
        pool.shutdown_now();
        support::block_on(pool.closed());
    });
}

fn an_aborted_or_panicking_task_leaves_nothing() {
    let pool = of(2);
    assert_no_growth("aborts and panics", Some(&pool), || {
        let handles = pool.spawn_batch((0..200).map(|n| {
            move || {
                if n % 10 == 0 {
                    std::panic::resume_unwind(Box::new([n; 100]));
                }
                [n; 50]
            }
        }));
        let aborts: Vec<_> = handles.iter().map(JoinHandle::abort_handle).collect();
        handles.iter().step_by(3).for_each(JoinHandle::abort);
        drop(handles);
        wait_until("all have ended", || {
            aborts.iter().all(throng::AbortHandle::is_finished)
        });
    });
}
