//! A limit of the system on threads that is imposed, and lifted.

use std::env;
use std::error::Error as _;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use throng::BlockingPool;

use crate::pools::{Busy, output, when, when_idle};
use crate::support::{Gate, TEST_TIMEOUT, join, thread_count, threads_called};

const IN_CHILD: &str = "THRONG_TEST_IN_LIMITED_CHILD";
const LIMIT: &str = "limit threads to ";

// ===== The parent =====

/// Runs this test again, as a user without other threads. The child asks for its limits.
fn in_child(name: &str, test: fn()) {
    if env::var_os(IN_CHILD).is_some() {
        return test();
    }
    // Each child has a user of its own, whose limit counts no other threads.
    static CHILDREN: AtomicU32 = AtomicU32::new(0);
    let nth = CHILDREN.fetch_add(1, Ordering::Relaxed);
    let user = 50_000 + std::process::id() % 1_000 * 8 + nth;
    let mut child = match start(name, user) {
        Ok(child) => child,
        Err(why) => {
            eprintln!("NOT RUN: no process of another user: {why}");
            return;
        }
    };
    let said = answer_requests(&mut child, user);
    let status = child.wait().unwrap();
    let said = match said {
        Ok(said) => said,
        Err(why) => {
            eprintln!("NOT RUN: no limit can be set: {why}");
            return;
        }
    };
    assert!(status.success() && said.contains("1 passed"), "{said}");
}

/// Needs root.
fn start(name: &str, user: u32) -> io::Result<Child> {
    Command::new(env::current_exe()?)
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(IN_CHILD, "1")
        .env("RUST_BACKTRACE", "0")
        .uid(user)
        .gid(user)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

/// Sets the limits that the child asks for, and returns the rest of its output.
fn answer_requests(child: &mut Child, user: u32) -> io::Result<String> {
    let id = child.id();
    let mut answers = child.stdin.take().expect("it is piped");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut said = String::new();
    for line in lines {
        let line = line?;
        // The harness does not end its line before a test.
        match line.split_once(LIMIT) {
            Some((_, limit)) => {
                set_limit(id, user, limit).inspect_err(|_| _ = child.kill())?;
                answers.write_all(b"done\n")?;
            }
            None => said += &(line + "\n"),
        }
    }
    Ok(said)
}

/// Runs as the same user, since root may lack the capability for other users in a container.
fn set_limit(process: u32, user: u32, limit: &str) -> io::Result<()> {
    let set = Command::new("prlimit")
        .arg(format!("--pid={process}"))
        .arg(format!("--nproc={limit}:"))
        .uid(user)
        .gid(user)
        .status()?;
    match set.success() {
        true => Ok(()),
        false => Err(io::Error::other("prlimit failed")),
    }
}

// ===== The child =====

/// Asks the parent to limit the number of threads.
fn limit(threads: usize) {
    println!("{LIMIT}{threads}");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).unwrap();
    assert_eq!(answer, "done\n");
}

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The name, in parentheses, may contain spaces. The times are the 12th and 13th fields after it.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = times.map(|time| time.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// Polls rarely, to use little processor time.
#[track_caller]
fn wait_idly(mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Starts the timer thread, before threads are limited.
fn have_timer() {
    let growth = Duration::from_millis(1);
    let pool = BlockingPool::builder()
        .name("calls")
        .grow_after(growth)
        .build()
        .unwrap();
    let busy = Busy::keep(&pool, 1);
    output(pool.spawn_blocking(|| ()));
    busy.release();
    pool.close();
    wait_idly(|| threads_called("calls").is_empty());
}

#[test]
fn without_any_thread_closures_are_returned() {
    in_child(
        "no_thread_limit::without_any_thread_closures_are_returned",
        || {
            limit(1);
            let pool = BlockingPool::builder().build().unwrap();
            for _ in 0..3 {
                let refused = pool.try_spawn_blocking(|| "handed back").unwrap_err();
                assert!(refused.source().is_some());
                assert_eq!(refused.into_inner()(), "handed back");
            }
            assert!(join(pool.spawn_blocking(|| ())).unwrap_err().is_rejected());
            for handle in pool.spawn_batch([|| 1, || 2]) {
                assert!(join(handle).unwrap_err().is_rejected());
            }
            assert!(pool.prestart_core_threads().is_ok());
            pool.set_core_threads(1).unwrap();
            assert!(pool.prestart_core_threads().is_err());
            assert_eq!((pool.metrics().rejected, pool.metrics().threads), (6, 0));
            limit(1_000);
            assert_eq!(output(pool.spawn_blocking(|| "runs")), "runs");
        },
    );
}

#[test]
fn with_one_thread_tasks_run_on_it() {
    in_child("no_thread_limit::with_one_thread_tasks_run_on_it", || {
        limit(thread_count() + 1);
        let pool = BlockingPool::builder().build().unwrap();
        let busy = Busy::keep(&pool, 1);
        let queued: Vec<_> = (0..100).map(|n| pool.spawn_blocking(move || n)).collect();
        let batch = pool.spawn_batch((100..200).map(|n| move || n));
        let metrics = pool.metrics();
        assert_eq!((metrics.threads, metrics.queued), (1, 200));
        busy.release();
        assert!(queued.into_iter().chain(batch).map(output).eq(0..200));
        let metrics = when_idle(&pool);
        assert!(metrics.largest == 1 && metrics.spawn_failures > 0);
        assert_eq!(metrics.rejected, 0);
    });
}

/// No compensating thread can be created, and none is needed.
#[test]
fn with_one_thread_tasks_may_wait_for_tasks() {
    in_child(
        "no_thread_limit::with_one_thread_tasks_may_wait_for_tasks",
        || {
            limit(thread_count() + 1);
            let pool = BlockingPool::builder().build().unwrap();
            let own = pool.clone();
            let outer = pool.spawn_blocking(move || {
                let inner = [1, 2, 3].map(|n| own.spawn_blocking(move || n));
                inner.map(|inner| inner.blocking_join().unwrap())
            });
            assert_eq!(output(outer), [1, 2, 3]);
            assert_eq!(when_idle(&pool).largest, 1);
        },
    );
}

/// All running tasks wait for queued ones, and no task is submitted.
#[test]
fn a_pool_recovers_when_the_system_gives_threads_again() {
    in_child(
        "no_thread_limit::a_pool_recovers_when_the_system_gives_threads_again",
        || {
            have_timer();
            let after = Duration::from_millis(1);
            for growth in [Duration::ZERO, after] {
                let pool = BlockingPool::builder().grow_after(growth).build().unwrap();
                let gate = Gate::new();
                let held = gate.clone();
                let running = pool.spawn_blocking(move || held.pass());
                when(&pool, |metrics| metrics.busy == 1 && metrics.queued == 0);
                limit(1);
                let (began, used) = (Instant::now(), processor_time());
                let queued = pool.spawn_blocking(move || gate.open());
                wait_idly(|| pool.metrics().spawn_failures >= 5);
                let (took, used) = (began.elapsed(), processor_time() - used);
                assert!(used < took / 4, "{used:?} of {took:?}");
                assert!(!queued.is_finished());
                limit(1_000);
                output(queued);
                output(running);
                assert_eq!(when_idle(&pool).threads, 2);
            }
        },
    );
}
