//! A user who may have no more threads: a limit of the system that comes, and goes.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use throng::BlockingPool;
use throng::blocking::Growth;

use crate::pools::{Busy, output, rest, settle};
use crate::support::{Gate, PATIENCE, join, threads_called};

const IN_CHILD: &str = "THRONG_TEST_IN_LIMITED_CHILD";
const LIMIT: &str = "limit threads to ";

// ===== The parent =====

/// Runs this test again, as a user who has no other threads. The child says how many it may have.
fn in_child(name: &str, test: fn()) {
    if env::var_os(IN_CHILD).is_some() {
        return test();
    }
    // Each child has a user of its own, so that the threads of others do not count.
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
    let said = attend(&mut child, user);
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

/// Only root may start it.
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

/// Sets the limits that the child asks for. What else it has said.
fn attend(child: &mut Child, user: u32) -> io::Result<String> {
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

/// As the same user: that of another process takes a capability which root may lack in a container.
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

/// Has the parent set how many threads there may be.
fn limit(threads: usize) {
    println!("{LIMIT}{threads}");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).unwrap();
    assert_eq!(answer, "done\n");
}

/// How many threads this process has.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// What the processors have done for this process so far.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The name, in parentheses, may hold anything; the times are the 12th and 13th behind it.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = times.map(|time| time.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// Polls seldom, so that it takes up no processor.
#[track_caller]
fn wait_idly(mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Pools are looked after from now on, whether or not there may be more threads.
fn have_timer() {
    let growth = Growth::After(Duration::from_millis(1));
    let pool = BlockingPool::builder()
        .name("calls")
        .growth(growth)
        .build()
        .unwrap();
    let busy = Busy::keep(&pool, 1);
    output(pool.spawn_blocking(|| ()));
    busy.release();
    pool.shutdown();
    wait_idly(|| threads_called("calls").is_empty());
}

#[test]
fn with_no_thread_at_all_closures_come_back() {
    in_child(
        "no_thread_limit::with_no_thread_at_all_closures_come_back",
        || {
            limit(1);
            let pool = BlockingPool::builder().build().unwrap();
            for _ in 0..3 {
                let refused = pool.try_spawn_blocking(|| "handed back").unwrap_err();
                assert!(refused.is_no_thread());
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
        limit(threads() + 1);
        let pool = BlockingPool::builder().build().unwrap();
        let busy = Busy::keep(&pool, 1);
        let queued: Vec<_> = (0..100).map(|n| pool.spawn_blocking(move || n)).collect();
        let batch = pool.spawn_batch((100..200).map(|n| move || n));
        let metrics = pool.metrics();
        assert_eq!((metrics.threads, metrics.queued), (1, 200));
        busy.release();
        assert!(queued.into_iter().chain(batch).map(output).eq(0..200));
        let metrics = rest(&pool);
        assert!(metrics.largest == 1 && metrics.spawn_failures > 0);
        assert_eq!(metrics.rejected, 0);
    });
}

/// Who waits inside has no thread to stand in for it, and needs none.
#[test]
fn with_one_thread_tasks_may_wait_for_tasks() {
    in_child(
        "no_thread_limit::with_one_thread_tasks_may_wait_for_tasks",
        || {
            limit(threads() + 1);
            let pool = BlockingPool::builder().build().unwrap();
            let own = pool.clone();
            let outer = pool.spawn_blocking(move || {
                let inner = [1, 2, 3].map(|n| own.spawn_blocking(move || n));
                inner.map(|inner| inner.blocking_join().unwrap())
            });
            assert_eq!(output(outer), [1, 2, 3]);
            assert_eq!(rest(&pool).largest, 1);
        },
    );
}

/// All that run wait for what is queued, and nobody submits any more.
#[test]
fn a_pool_recovers_by_itself_and_is_patient_until_then() {
    in_child(
        "no_thread_limit::a_pool_recovers_by_itself_and_is_patient_until_then",
        || {
            have_timer();
            let after = Growth::After(Duration::from_millis(1));
            for growth in [Growth::Eager, after] {
                let pool = BlockingPool::builder().growth(growth).build().unwrap();
                let gate = Gate::new();
                let held = gate.clone();
                let running = pool.spawn_blocking(move || held.pass());
                settle(&pool, |metrics| metrics.busy == 1 && metrics.queued == 0);
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
                assert_eq!(rest(&pool).threads, 2);
            }
        },
    );
}
