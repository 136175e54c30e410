//! Hooks of threads and of tasks.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use throng::BlockingPool;
use throng::blocking::Builder;

use crate::pools::{Busy, output, rounds_for, run, when, when_idle};
use crate::support::{join, message, receive, thread_name, wait_until};

/// The hooks that were called, each with its thread.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Calls {
    fn of(&self, what: &'static str) -> impl Fn() + Send + Sync + use<> {
        let calls = Self::clone(self);
        move || calls.0.lock().unwrap().push((what, thread_name()))
    }

    fn names(&self) -> Vec<&'static str> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .map(|(what, _)| *what)
            .collect()
    }

    /// The threads on which this was called.
    fn threads(&self, of: &str) -> Vec<String> {
        let calls = self.0.lock().unwrap();
        let these = calls.iter().filter(|(what, _)| *what == of);
        these.map(|(_, thread)| thread.clone()).collect()
    }
}

fn hooked(calls: &Calls) -> Builder {
    let mut builder = BlockingPool::builder();
    builder
        .name("hooked")
        .on_thread_start(calls.of("start"))
        .before_task(calls.of("before"))
        .after_task(calls.of("after"))
        .on_thread_stop(calls.of("stop"));
    builder
}

#[test]
fn thread_hooks_are_called_once_on_each_thread() {
    let calls = Calls::default();
    let pool = hooked(&calls).max_threads(3).build().unwrap();
    Busy::keep(&pool, 3).release();
    let names = ["hooked-0", "hooked-1", "hooked-2"];
    let sorted = |of| calls.threads(of).into_iter().collect::<BTreeSet<_>>();
    assert!(sorted("start").iter().eq(names));
    assert!(calls.threads("stop").is_empty());
    pool.close();
    run(pool.closed());
    assert!(sorted("stop").iter().eq(names));
    for of in ["start", "stop", "before", "after"] {
        assert_eq!(calls.threads(of).len(), 3, "{of}");
    }
}

#[test]
fn a_thread_that_exits_idle_calls_its_stop_hook() {
    let calls = Calls::default();
    let pool = hooked(&calls)
        .keep_alive(Duration::from_millis(1))
        .build()
        .unwrap();
    for round in 1..=3 {
        output(pool.spawn_blocking(|| ()));
        when(&pool, |metrics| metrics.threads == 0);
        // A thread that started late may have exited, and been replaced.
        let started = calls.threads("start");
        assert!(started.len() >= round);
        wait_until("they have stopped", || {
            calls.threads("stop").len() == started.len()
        });
        let (mut started, mut stopped) = (started, calls.threads("stop"));
        started.sort();
        stopped.sort();
        assert_eq!(started, stopped);
    }
}

#[test]
fn task_hooks_are_called_before_and_after_each_task() {
    let calls = Calls::default();
    let pool = hooked(&calls).max_threads(1).build().unwrap();
    for n in 1..=20 {
        let inside = calls.of("task");
        let handle = pool.spawn_blocking(move || {
            inside();
            assert!(n % 4 != 0, "as it should");
        });
        assert_eq!(join(handle).is_err(), n % 4 == 0);
        assert_eq!(calls.threads("after").len(), n);
    }
    let names = calls.names();
    assert_eq!(names[0], "start");
    let tasks = names[1..].chunks(3);
    assert!(
        tasks
            .into_iter()
            .all(|calls| calls == ["before", "task", "after"])
    );
    assert_eq!(names.len(), 1 + 3 * 20);
}

#[test]
fn an_outcome_even_a_panic_is_visible_only_after_the_hook() {
    let (enter, entered) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let left = Mutex::new(left);
    let hook = move || {
        enter.send(()).unwrap();
        receive(&left.lock().unwrap());
    };
    let mut builder = BlockingPool::builder();
    let pool = builder.max_threads(1).after_task(hook).build().unwrap();
    let bulkhead = pool.bulkhead(1, 10).unwrap();
    for n in 0..4 {
        let task = move || assert!(n % 2 == 0, "as it should");
        let handle = match n {
            0 | 1 => pool.spawn_blocking(task),
            _ => bulkhead.spawn_blocking(task),
        };
        receive(&entered);
        assert!(!handle.is_finished(), "{n}");
        leave.send(()).unwrap();
        assert_eq!(join(handle).is_err(), n % 2 != 0);
    }
}

#[test]
fn task_hooks_are_not_called_for_a_cancelled_task() {
    let calls = Calls::default();
    let pool = hooked(&calls).max_threads(1).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let aborted = [(); 3].map(|()| pool.spawn_blocking(|| ()));
    aborted.iter().for_each(throng::JoinHandle::abort);
    busy.release();
    output(pool.spawn_blocking(|| ()));
    assert_eq!(calls.threads("before").len(), 2);
    assert_eq!(calls.threads("after").len(), 2);
}

/// A task of a bulkhead and its carrier count as one task.
#[test]
fn task_hooks_are_called_once_for_a_task_of_a_bulkhead() {
    let calls = Calls::default();
    let pool = hooked(&calls).max_threads(2).build().unwrap();
    let bulkhead = pool.bulkhead(1, 10).unwrap();
    for n in rounds_for(0.3) {
        let inside = calls.of("task");
        output(bulkhead.spawn_blocking(inside));
        assert_eq!(calls.threads("after").len(), n + 1);
    }
    let tasks = calls.threads("task").len();
    when_idle(&pool);
    assert_eq!(calls.threads("before").len(), tasks);
    assert_eq!(calls.threads("after").len(), tasks);
}

/// The waiting thread runs the task, and the hooks around it.
#[test]
fn task_hooks_are_called_on_the_waiting_thread_that_runs_the_task() {
    for in_view in [false, true] {
        let calls = Calls::default();
        let pool = hooked(&calls).max_threads(1).build().unwrap();
        let (own, bulkhead) = (pool.clone(), pool.bulkhead(1, 10).unwrap());
        let (outer, inner) = (calls.of("outer"), calls.of("inner"));
        let joins = pool.spawn_blocking(move || {
            outer();
            let inner = match in_view {
                true => bulkhead.spawn_blocking(inner),
                false => own.spawn_blocking(inner),
            };
            inner.blocking_join().unwrap();
        });
        output(joins);
        when_idle(&pool);
        let expected = [
            "start", "before", "outer", "before", "inner", "after", "after",
        ];
        assert_eq!(calls.names(), expected, "in a bulkhead: {in_view}");
    }
}

#[test]
fn hooks_that_panic_have_no_effect() {
    let panics = || panic!("as it should");
    let pool = BlockingPool::builder()
        .max_threads(2)
        .on_thread_start(panics)
        .before_task(panics)
        .after_task(panics)
        .on_thread_stop(panics)
        .build()
        .unwrap();
    for n in 0..10 {
        assert_eq!(output(pool.spawn_blocking(move || n)), n);
    }
    let panicked: Result<(), _> = join(pool.spawn_blocking(|| panic!("of its own")));
    let error = panicked.unwrap_err();
    assert_eq!(message(error.into_panic()), "of its own");
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    assert_eq!(
        output(bulkhead.spawn_blocking(|| "of a bulkhead")),
        "of a bulkhead"
    );
    pool.close();
    run(pool.closed());
    let metrics = pool.metrics();
    assert_eq!((metrics.completed, metrics.panicked), (11, 1));
}

/// Tasks see the thread-local of their own thread.
#[test]
fn a_start_hook_can_set_a_thread_local_for_tasks() {
    thread_local! {
        static PREPARED: Cell<Option<thread::ThreadId>> = const { Cell::new(None) };
    }
    let pool = BlockingPool::builder()
        .max_threads(4)
        .on_thread_start(|| PREPARED.set(Some(thread::current().id())))
        .build()
        .unwrap();
    let handles: Vec<_> = (0..100)
        .map(|_| pool.spawn_blocking(|| PREPARED.get() == Some(thread::current().id())))
        .collect();
    assert!(handles.into_iter().all(output));
    assert_eq!(PREPARED.get(), None);
}

/// Hooks may use the pool, and submit tasks.
#[test]
fn hooks_may_use_the_pool() {
    let own: Arc<Mutex<Option<BlockingPool>>> = Arc::default();
    let hook = |own: &Arc<Mutex<Option<BlockingPool>>>| {
        let own = Arc::clone(own);
        move || {
            if let Some(pool) = &*own.lock().unwrap() {
                assert!(pool.metrics().threads <= 1);
            }
        }
    };
    let pool = BlockingPool::builder()
        .max_threads(1)
        .on_thread_start(hook(&own))
        .before_task(hook(&own))
        .after_task(hook(&own))
        .on_thread_stop(hook(&own))
        .build()
        .unwrap();
    *own.lock().unwrap() = Some(pool.clone());
    assert_eq!(output(pool.spawn_blocking(|| "ran")), "ran");
    pool.close();
    run(pool.closed());
    own.lock().unwrap().take();
}
