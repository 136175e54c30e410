//! Models: pairs of operations on a lane and on the word of the sleepers, and whole pools.
//!
//! In models, every backlog is worth a wake-up, and a batch has two tasks.

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::ComputePool;
use super::keyed;
use super::lane::Lane;
use super::options::Options;
use super::shared::Shared;
use crate::inbox::Batch;
use crate::join::RunContext;
use crate::sync::Plain;
use crate::task::Task;

fn pool(threads: usize) -> ComputePool {
    ComputePool::builder().threads(threads).build().unwrap()
}

/// Whole pools have long models: one preemption less keeps them in seconds.
fn check(less: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder
        .preemption_bound
        .map(|bound| bound.saturating_sub(less));
    builder.check(model);
}

/// A task that counts its run.
fn counting(ran: &Arc<AtomicUsize>) -> Task<RunContext> {
    let ran = ran.clone();
    Task::detached_closure(move || {
        ran.fetch_add(1, Ordering::Relaxed);
    })
}

fn push(lane: &Lane, task: Task<RunContext>) -> bool {
    lane.push(Batch::of(task), 1).is_ok()
}

/// A worker of a single lane: runs, parks and sleeps until the lane is sealed and empty.
fn work(lane: &Lane) {
    lane.attach_thread();
    loop {
        run_lane(lane);
        if lane.park() {
            if lane.is_sealed() && lane.unpark() {
                return;
            }
            lane.sleep();
        }
    }
}

/// Runs what is queued in a lane, as its worker.
fn run_lane(lane: &Lane) {
    while let Some(refill) = lane.refill(&mut Vec::new()) {
        let mut next = Some(refill.first);
        while let Some(task) = next {
            task.run(&mut RunContext::default());
            next = lane.pop();
        }
    }
}

/// A push finds the worker awake, parking, or asleep: the worker always gets the task.
#[test]
fn loom_push_against_park() {
    loom::model(|| {
        let (lane, ran) = (Arc::new(Lane::new()), Arc::new(AtomicUsize::new(0)));
        let worker = {
            let lane = lane.clone();
            thread::spawn(move || work(&lane))
        };
        assert!(push(&lane, counting(&ran)));
        assert!(push(&lane, counting(&ran)));
        lane.seal();
        worker.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    });
}

/// A push is accepted, and then run, or refused.
#[test]
fn loom_push_against_seal() {
    loom::model(|| {
        let (lane, ran) = (Arc::new(Lane::new()), Arc::new(AtomicUsize::new(0)));
        let worker = {
            let lane = lane.clone();
            thread::spawn(move || work(&lane))
        };
        let pusher = {
            let (lane, ran) = (lane.clone(), ran.clone());
            thread::spawn(move || usize::from(push(&lane, counting(&ran))))
        };
        lane.seal();
        let accepted = pusher.join().unwrap();
        worker.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), accepted);
    });
}

/// A thief steals while the worker parks: it never clears `PARKED`, and the next push wakes the worker.
#[test]
fn loom_steal_against_park() {
    loom::model(|| {
        let (lane, ran) = (Arc::new(Lane::new()), Arc::new(AtomicUsize::new(0)));
        let worker = {
            let lane = lane.clone();
            thread::spawn(move || work(&lane))
        };
        let thief = {
            let lane = lane.clone();
            thread::spawn(move || {
                let mut stolen = Vec::new();
                lane.steal_waiting(&mut stolen);
                for (mut list, _) in stolen {
                    while let Some(task) = list.pop_front() {
                        task.run(&mut RunContext::default());
                    }
                }
            })
        };
        assert!(push(&lane, counting(&ran)));
        thief.join().unwrap();
        assert!(push(&lane, counting(&ran)));
        lane.seal();
        worker.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    });
}

/// A worker publishes tasks while the last searcher goes to sleep: either the searcher is called, or it sees the tasks at
/// its last check. If neither, it sleeps forever, which loom reports.
#[test]
fn loom_last_searcher_against_publish() {
    loom::model(|| {
        let shared = Arc::new(Shared::new(Options::of_threads(2)));
        let ran = Arc::new(AtomicUsize::new(0));
        // The searcher has found nothing so far.
        assert!(shared.begin_search());
        let searcher = {
            let shared = shared.clone();
            thread::spawn(move || {
                let own = &shared.lanes[1];
                own.attach_thread();
                assert!(own.park());
                let again = shared.begin_sleep(true);
                if !(again && own.unpark()) {
                    assert!(own.sleep() || again, "woken without a reason");
                }
                shared.end_sleep();
                let mut stolen = Vec::new();
                assert!(shared.lanes[0].steal_half(&mut stolen));
                shared.end_search();
                stolen
            })
        };
        for _ in 0..3 {
            assert!(push(&shared.lanes[0], counting(&ran)));
        }
        let refill = shared.lanes[0].refill(&mut Vec::new()).unwrap();
        assert!(refill.published);
        shared.share(0, refill.others, refill.published);
        drop(searcher.join().unwrap());
        // The right to search is free again.
        assert!(shared.begin_search());
        drop(refill.first);
    });
}

/// One thread calls a worker that another wakes by a push: the right to search is not lost.
#[test]
fn loom_call_against_push() {
    loom::model(|| {
        let shared = Arc::new(Shared::new(Options::of_threads(1)));
        let ran = Arc::new(AtomicUsize::new(0));
        let worker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let own = &shared.lanes[0];
                own.attach_thread();
                if own.park() {
                    shared.begin_sleep(false);
                    if own.sleep() {
                        shared.end_search();
                    }
                    shared.end_sleep();
                }
            })
        };
        let caller = {
            let shared = shared.clone();
            thread::spawn(move || shared.call_to_search(0))
        };
        assert!(push(&shared.lanes[0], counting(&ran)));
        worker.join().unwrap();
        caller.join().unwrap();
        assert!(shared.begin_search(), "no worker could ever search again");
    });
}

/// The timer is disarmed while a worker wakes: it stays armed, or is armed again.
#[test]
fn loom_disarm_against_wake_up() {
    use crate::timer::Watchdog as _;

    loom::model(|| {
        let shared = Arc::new(Shared::new(Options::of_threads(1)));
        let lane = &shared.lanes[0];
        Shared::arm_watchdog(&shared);
        assert!(lane.park());
        let worker = {
            let shared = shared.clone();
            thread::spawn(move || {
                assert!(shared.lanes[0].unpark());
                Shared::arm_watchdog(&shared);
            })
        };
        // In models, one quiet check is enough to disarm it.
        let stays = shared.check();
        worker.join().unwrap();
        assert!(
            stays || shared.watchdog().is_armed(),
            "a worker that is awake has no timer"
        );
    });
}

/// A worker of a closed pool sleeps while another lane has tasks; a worker that exits wakes it.
#[test]
fn loom_last_task_against_park() {
    loom::model(|| {
        let shared = Arc::new(Shared::new(Options::of_threads(2)));
        let ran = Arc::new(AtomicUsize::new(0));
        assert!(push(&shared.lanes[0], counting(&ran)));
        shared.lanes[1].attach_thread();
        shared.close();
        let worker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let refill = shared.lanes[0].refill(&mut Vec::new()).unwrap();
                refill.first.run(&mut RunContext::default());
                assert!(shared.is_over(0));
                shared.lanes.iter().for_each(Lane::wake);
            })
        };
        assert!(shared.lanes[1].park());
        if !shared.is_over(1) {
            shared.lanes[1].sleep();
            assert!(shared.is_over(1));
        }
        worker.join().unwrap();
    });
}

/// Two workers of a closed pool run their last tasks and go to sleep: one of them sees that nothing is left.
#[test]
fn loom_two_park_at_the_end() {
    loom::model(|| {
        let shared = Arc::new(Shared::new(Options::of_threads(2)));
        let ran = Arc::new(AtomicUsize::new(0));
        for lane in &shared.lanes {
            assert!(push(lane, counting(&ran)));
        }
        shared.close();
        let end = |shared: &Shared, lane: usize| {
            let own = &shared.lanes[lane];
            let refill = own.refill(&mut Vec::new()).unwrap();
            refill.first.run(&mut RunContext::default());
            assert!(own.park());
            shared.begin_sleep(false);
            shared.is_over(lane)
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || end(&shared, 1))
        };
        let over = end(&shared, 0);
        assert!(other.join().unwrap() || over, "both sleep forever");
    });
}

/// A task moves from one lane to another while a caller checks whether the pool is idle: it never is.
#[test]
fn loom_idle_against_a_task_that_moves() {
    loom::model(|| {
        let shared = Arc::new(Shared::new(Options::of_threads(2)));
        let ran = Arc::new(AtomicUsize::new(0));
        assert!(shared.lanes[0].park());
        shared.begin_sleep(false);
        // The other worker has been woken by a push, and does not count as awake yet.
        shared.begin_sleep(false);
        assert!(push(&shared.lanes[1], counting(&ran)));
        let worker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let own = &shared.lanes[1];
                shared.lanes[0].attach_thread();
                shared.end_sleep();
                // Loom lets this thread run between the checks of the two lanes only for a store without a load before.
                drop(shared.lanes[0].pinned().take());
                let refill = own.refill(&mut Vec::new()).unwrap();
                // The first worker does not run this one yet.
                assert!(push(&shared.lanes[0], counting(&ran)));
                refill.first.run(&mut RunContext::default());
                assert!(own.park());
                shared.begin_sleep(false);
            })
        };
        assert!(!shared.is_idle());
        worker.join().unwrap();
    });
}

/// A caller pushes a task behind one whose drain another thread has not queued yet. No worker runs the two, so the pool
/// is never idle.
#[test]
fn loom_idle_against_a_drain_that_is_not_queued() {
    loom::model(|| {
        let shared = Arc::new(Shared::new(Options::of_threads(1)));
        let ran = Arc::new(AtomicUsize::new(0));
        shared.lanes[0].attach_thread();
        assert!(shared.lanes[0].park());
        shared.begin_sleep(false);
        let other = {
            let (shared, task) = (shared.clone(), counting(&ran));
            thread::spawn(move || keyed::push(&shared, 0, task))
        };
        keyed::push(&shared, 0, counting(&ran));
        assert!(!shared.is_idle());
        other.join().unwrap();
        assert_eq!(shared.abort_queued(), 2);
    });
}

/// A caller pins a task to a worker that parks, and the task runs: the pool is idle only after that.
#[test]
fn loom_idle_against_a_pinned_task() {
    loom::model(|| {
        let shared = Arc::new(Shared::new(Options::of_threads(1)));
        let ran = Arc::new(AtomicUsize::new(0));
        let worker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let own = &shared.lanes[0];
                own.attach_thread();
                assert!(own.park());
                shared.begin_sleep(false);
                if !(own.pinned().has_tasks() && own.unpark()) {
                    own.sleep();
                }
                shared.end_sleep();
                let task = own.pinned().take().pop_front().unwrap();
                task.run(&mut RunContext::default());
                assert!(own.park());
                shared.begin_sleep(false);
            })
        };
        assert!(shared.lanes[0].pinned().push(counting(&ran)).is_ok());
        shared.lanes[0].wake();
        if shared.is_idle() {
            assert_eq!(ran.load(Ordering::Relaxed), 1);
        }
        worker.join().unwrap();
    });
}

#[test]
fn loom_pool_of_one() {
    check(1, || {
        let pool = pool(1);
        assert_eq!(pool.spawn(|| 1).blocking_join().unwrap(), 1);
        assert_eq!(pool.spawn(|| 2).blocking_join().unwrap(), 2);
    });
}

#[test]
fn loom_submit_against_close() {
    check(1, || {
        let pool = pool(1);
        let submitter = {
            let pool = pool.clone();
            thread::spawn(move || match pool.spawn(|| 1).blocking_join() {
                Ok(one) => assert_eq!(one, 1),
                Err(error) => assert!(error.is_closed()),
            })
        };
        pool.close();
        block_on(pool.closed());
        submitter.join().unwrap();
    });
}

/// A queued task is dropped, or has run, when `shutdown_now` has ended the pool; so is a task that another thread has
/// taken to drop it.
#[test]
fn loom_run_against_shutdown_now() {
    struct Left(Arc<AtomicUsize>);
    impl Drop for Left {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    check(1, || {
        let (pool, left) = (pool(1), Arc::new(AtomicUsize::new(2)));
        let task = || {
            let left = Left(left.clone());
            pool.spawn(move || {
                drop(left);
                1
            })
        };
        let handles = [task(), task()];
        let ender = {
            let pool = pool.clone();
            thread::spawn(move || pool.shutdown_now())
        };
        block_on(pool.closed());
        assert_eq!(left.load(Ordering::Relaxed), 0);
        let dropped = ender.join().unwrap();
        let ran: usize = handles
            .into_iter()
            .map(|handle| handle.blocking_join().unwrap_or_default())
            .sum();
        assert!(ran + dropped <= 2);
    });
}

/// Two workers push and run tasks of one key: none is lost, and they never run at the same time.
#[test]
fn loom_keyed_tasks_run_one_at_a_time() {
    loom::model(|| {
        let shared = Arc::new(Shared::new(Options::of_threads(2)));
        let state = Arc::new(Plain::new(0));
        let work = |shared: &Arc<Shared>, state: &Arc<Plain>, lane: usize| {
            shared.attach_worker(lane);
            let state = state.clone();
            keyed::push(shared, 0, Task::detached_closure(move || state.add(1)));
            run_lane(&shared.lanes[lane]);
            shared.detach_worker();
        };
        let other = {
            let (shared, state) = (shared.clone(), state.clone());
            thread::spawn(move || work(&shared, &state, 1))
        };
        work(&shared, &state, 0);
        other.join().unwrap();
        assert_eq!(state.get(), 2);
        assert!(shared.keys.are_idle());
    });
}

/// A pinned task is run, whether its worker is awake, parks, or sleeps.
#[test]
fn loom_broadcast_against_park() {
    check(1, || {
        let pool = pool(1);
        for handle in pool.broadcast(|lane| lane) {
            assert_eq!(handle.blocking_join().unwrap(), 0);
        }
    });
}

/// The pool's thread and the thread that waits share the closures; both have ended when the scope returns.
#[test]
fn loom_scope_waits_for_its_closures() {
    loom::model(|| {
        let pool = pool(1);
        let number = Plain::new(0);
        pool.scope(|scope| scope.spawn(|| number.add(1)));
        assert_eq!(number.get(), 1);
    });
}
