//! The workloads, and the child process that runs one of them.
//!
//! Each has as many threads as the model has cores. A thread that only waits for the workload is not counted.

use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use throng::{BlockingPool, CompletionStream, ComputePool, SerialExecutor};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use crate::Result;

/// `-1` has one thread that submits, and in `-half` half of the threads submit.
pub(crate) const NAMES: [&str; 11] = [
    "turns",
    "mutex",
    "blocking-1",
    "blocking-half",
    "compute-1",
    "compute-half",
    "compute-handles",
    "serial",
    "serial-post",
    "completion",
    "completion-pool",
];

/// Jobs of a stream in flight.
const WINDOW: u64 = 1_000;

/// Operations of a task before it yields.
const OPERATIONS: u64 = 128;

/// Tasks at full speed before any is counted, so that a pool knows how long they take.
const WARM_UP: u64 = 20_000;

/// The tracer is slow, and idle threads stay.
const KEEP_ALIVE: Duration = Duration::from_secs(3_600);

/// Runs the workload once to warm up, and a second time between two signals to itself.
pub(crate) fn run(name: &str, threads: &str, tasks: &str) -> Result<()> {
    println!("{}", libc::clock_gettime as *const () as usize);
    let line = io::stdin().read_line(&mut String::new());
    line.map_err(|error| format!("nobody traces this: {error}"))?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    let (threads, tasks) = (number(threads)?, number(tasks)?);
    let mut work = workload(name, threads);
    work(match name {
        // On few cores, threads that wait for one another in a loop are slow.
        "turns" => tasks,
        _ => WARM_UP,
    });
    mark();
    work(tasks);
    mark();
    Ok(())
}

/// Tells the tracer that the measured part begins, or ends.
fn mark() {
    // SAFETY: the call takes a number; the tracer keeps the signal from this process.
    unsafe { libc::raise(libc::SIGUSR1) };
}

type Work = Box<dyn FnMut(u64)>;

fn workload(name: &str, threads: u64) -> Work {
    match name {
        "turns" => turns(threads),
        "mutex" => mutex(threads),
        "blocking-1" => blocking(1, threads - 1),
        "blocking-half" => blocking(threads / 2, threads / 2),
        "compute-1" => compute(1, threads - 1),
        "compute-half" => compute(threads / 2, threads / 2),
        "compute-handles" => compute_handles(threads - 1),
        "serial" => serial(threads, operate),
        "serial-post" => serial(threads, post),
        "completion" => completion(threads),
        "completion-pool" => completion_pool(threads - 1),
        _ => unreachable!("the names were checked"),
    }
}

/// Threads that hand a word to each other, which tests the model: with two threads, the line moves twice for each
/// turn, once to the thread that waits for it, and once when that thread writes.
fn turns(threads: u64) -> Work {
    let word = Arc::new(AtomicU64::new(0));
    let numbers = Arc::new(AtomicU64::new(0));
    submitters(threads, move |tasks| {
        let own = numbers.fetch_add(1, Relaxed) % threads;
        for _ in 0..tasks {
            while word.load(Acquire) % threads != own {
                spin_loop();
            }
            word.fetch_add(1, Release);
        }
    })
}

/// Threads that share a lock of the standard library, for comparison.
fn mutex(threads: u64) -> Work {
    let state = Arc::new(Mutex::new(0_u64));
    submitters(threads, move |tasks| {
        for _ in 0..tasks {
            *state.lock().expect("nobody panics with it") += 1;
        }
    })
}

/// Closures on a `BlockingPool`, whose handles are awaited after all are submitted.
fn blocking(producers: u64, threads: u64) -> Work {
    let runtime = leaked(runtime(1));
    let mut builder = BlockingPool::builder();
    builder
        .max_threads(threads as usize)
        .keep_alive(KEEP_ALIVE)
        .runtime(runtime.handle().clone());
    let pool = leaked(builder.build().expect("the options are valid"));
    submitters(producers, move |tasks| {
        let handles: Vec<_> = (0..tasks)
            .map(|task| pool.spawn_blocking(move || task))
            .collect();
        for (task, handle) in (0..).zip(handles) {
            let output = handle.blocking_join().expect("no closure panics");
            assert_eq!(output, task);
        }
    })
}

/// Closures on a `ComputePool` that nobody awaits. Each counts itself on a line of its thread.
fn compute(producers: u64, threads: u64) -> Work {
    let pool = compute_pool(threads);
    let mut submit = submitters(producers, move |tasks| {
        for _ in 0..tasks {
            pool.execute(count);
        }
    });
    Box::new(move |tasks| {
        let sum = ran() + tasks;
        submit(tasks);
        while ran() < sum {
            thread::sleep(Duration::from_millis(1));
        }
    })
}

/// Closures on a `ComputePool`, in windows whose handles are awaited.
fn compute_handles(threads: u64) -> Work {
    let pool = compute_pool(threads);
    submitters(1, move |tasks| {
        for begin in (0..tasks).step_by(WINDOW as usize) {
            let window = begin..tasks.min(begin + WINDOW);
            let handles: Vec<_> = window.map(|task| pool.spawn(move || task)).collect();
            for handle in handles {
                handle.blocking_join().expect("no closure panics");
            }
        }
    })
}

fn compute_pool(threads: u64) -> &'static ComputePool {
    let pool = ComputePool::builder().threads(threads as usize).build();
    leaked(pool.expect("the options are valid"))
}

/// Two tasks for each worker of a runtime.
fn serial<F>(threads: u64, operate: fn(SerialExecutor<u64>, u64) -> F) -> Work
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = leaked(runtime(threads));
    let _context = runtime.enter();
    let state = SerialExecutor::new(0_u64);
    Box::new(move |tasks| {
        let share = tasks / (2 * threads);
        let running: Vec<_> = (0..2 * threads)
            .map(|_| runtime.spawn(operate(state.clone(), share)))
            .collect();
        for task in running {
            runtime.block_on(task).expect("no operation panics");
        }
    })
}

async fn operate(state: SerialExecutor<u64>, operations: u64) {
    for operation in 1..=operations {
        let result = state.submit(|state| *state += 1).await;
        result.expect("no operation panics");
        if operation.is_multiple_of(OPERATIONS) {
            yield_now().await;
        }
    }
}

/// Awaits only the last operation.
async fn post(state: SerialExecutor<u64>, operations: u64) {
    for operation in 1..operations {
        drop(state.post(|state| *state += 1));
        if operation.is_multiple_of(OPERATIONS) {
            yield_now().await;
        }
    }
    let last = state.submit(|state| *state += 1).await;
    last.expect("no operation panics");
}

/// Futures on the workers of a runtime, on one of which a task submits and reads.
fn completion(threads: u64) -> Work {
    let runtime = leaked(runtime(threads));
    Box::new(move |tasks| {
        let consumer = runtime.spawn(window(tasks, None));
        runtime.block_on(consumer).expect("no job panics");
    })
}

/// Closures on a `ComputePool`; a task on a runtime with one worker submits and reads.
fn completion_pool(threads: u64) -> Work {
    let runtime = leaked(runtime(1));
    let pool = compute_pool(threads);
    Box::new(move |tasks| {
        let consumer = runtime.spawn(window(tasks, Some(pool)));
        runtime.block_on(consumer).expect("no job panics");
    })
}

/// Keeps a thousand jobs in flight.
async fn window(jobs: u64, pool: Option<&'static ComputePool>) {
    let mut builder = CompletionStream::<u64>::builder();
    let most = WINDOW as usize;
    builder.max_running(most).max_outstanding(most);
    let (submitter, mut done) = builder.build().expect("the limits are valid");
    for job in 0..jobs + WINDOW.min(jobs) {
        if job >= WINDOW.min(jobs) {
            let item = done.next().await.expect("a job is in flight");
            item.outcome.expect("no job panics");
        }
        if job < jobs {
            let submitted = match pool {
                Some(pool) => submitter
                    .submit_blocking(pool, (), move || job)
                    .await
                    .is_ok(),
                None => submitter.submit((), async move { job }).await.is_ok(),
            };
            assert!(submitted, "an open stream refused a job");
        }
    }
}

/// Starts threads that do their shares of a round when they are told to.
fn submitters(number: u64, work: impl Fn(u64) + Clone + Send + 'static) -> Work {
    let (done, all_done) = mpsc::channel();
    let start = |_| {
        let (order, orders) = mpsc::channel();
        let (work, done) = (work.clone(), done.clone());
        thread::spawn(move || {
            for tasks in orders {
                work(tasks);
                done.send(()).expect("a round waits for its threads");
            }
        });
        order
    };
    let threads: Vec<_> = (0..number).map(start).collect();
    Box::new(move |tasks| {
        for thread in &threads {
            thread
                .send(tasks / number)
                .expect("a thread waits for orders");
        }
        for _ in &threads {
            all_done.recv().expect("a thread does all of its share");
        }
    })
}

#[repr(align(128))]
struct Stripe(AtomicU64);

static RAN: [Stripe; 128] = [const { Stripe(AtomicU64::new(0)) }; 128];

/// Counts a closure on a line of this thread.
fn count() {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: usize = NEXT.fetch_add(1, Relaxed));
    RAN[OWN.with(|own| *own) % RAN.len()]
        .0
        .fetch_add(1, Relaxed);
}

fn ran() -> u64 {
    RAN.iter().map(|stripe| stripe.0.load(Relaxed)).sum()
}

fn runtime(workers: u64) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers as usize).build();
    runtime.expect("a runtime can be built")
}

/// Lives as long as the process, which is killed at the end.
fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
