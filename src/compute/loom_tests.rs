//! Models of the pool: what can meet in a lane, in the word of those who rest, and in the whole.
//!
//! In models everything is worth waking somebody for, and a handful is two tasks.

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::ComputePool;
use super::builder::Options;
use super::lane::{Chunk, Lane};
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

/// A task that counts its run, and touches what is touched by one thread at a time.
fn counting(ran: &Arc<AtomicUsize>) -> Task<RunContext> {
    let ran = ran.clone();
    Task::detached_closure(move || {
        ran.fetch_add(1, Ordering::Relaxed);
    })
}

fn push(lane: &Lane, task: Task<RunContext>) -> bool {
    lane.push(Batch::of(task), 1).is_ok()
}

/// What a worker does, without a shared: runs, lies down, sleeps, until the lane is sealed and empty.
fn man(lane: &Lane) {
    lane.man();
    let mut cuts: Vec<Chunk> = Vec::new();
    loop {
        if let Some(refill) = lane.refill(&mut cuts) {
            let mut next = Some(refill.first);
            while let Some(task) = next {
                task.run(&mut RunContext::default());
                next = lane.pop();
            }
        } else if lane.park() {
            if lane.is_sealed() && lane.unpark() {
                return;
            }
            lane.sleep();
        }
    }
}

/// A push finds the worker awake, lying down, or asleep: it always gets the task.
#[test]
fn loom_push_against_park() {
    loom::model(|| {
        let (lane, ran) = (Arc::new(Lane::new(1)), Arc::new(AtomicUsize::new(0)));
        let worker = {
            let lane = lane.clone();
            thread::spawn(move || man(&lane))
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
        let (lane, ran) = (Arc::new(Lane::new(1)), Arc::new(AtomicUsize::new(0)));
        let worker = {
            let lane = lane.clone();
            thread::spawn(move || man(&lane))
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

/// A thief takes what is there while the worker lies down: it never takes the mark that says so, and
/// the next push wakes the worker.
#[test]
fn loom_thief_against_sentinel() {
    loom::model(|| {
        let (lane, ran) = (Arc::new(Lane::new(1)), Arc::new(AtomicUsize::new(0)));
        let worker = {
            let lane = lane.clone();
            thread::spawn(move || man(&lane))
        };
        let thief = {
            let lane = lane.clone();
            thread::spawn(move || {
                let mut loot = Vec::new();
                lane.steal_behind(&mut loot);
                for (mut chain, _) in loot {
                    while let Some(task) = chain.pop_front() {
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

/// A worker publishes a surplus while the last searcher lies down: either it is called, or it sees the
/// surplus at its last look. If neither, it sleeps for ever, which loom reports.
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
                own.man();
                assert!(own.park());
                let again = shared.park(true);
                if !(again && own.unpark()) {
                    assert!(own.sleep() || again, "woken without a reason");
                }
                shared.unpark();
                let mut loot = Vec::new();
                assert!(shared.lanes[0].steal_surplus(&mut loot));
                shared.end_search();
                loot
            })
        };
        for _ in 0..3 {
            assert!(push(&shared.lanes[0], counting(&ran)));
        }
        let refill = shared.lanes[0].refill(&mut Vec::new()).unwrap();
        assert!(refill.published);
        shared.share(0, refill.in_hand, refill.published);
        drop(searcher.join().unwrap());
        // The right to search is free again.
        assert!(shared.begin_search());
        drop(refill.first);
    });
}

/// Somebody calls a worker that somebody else wakes with a task: the right to search is not lost.
#[test]
fn loom_call_against_push() {
    loom::model(|| {
        let shared = Arc::new(Shared::new(Options::of_threads(1)));
        let ran = Arc::new(AtomicUsize::new(0));
        let worker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let own = &shared.lanes[0];
                own.man();
                if own.park() {
                    shared.park(false);
                    if own.sleep() {
                        shared.end_search();
                    }
                    shared.unpark();
                }
            })
        };
        let caller = {
            let shared = shared.clone();
            thread::spawn(move || shared.call_searcher(0))
        };
        assert!(push(&shared.lanes[0], counting(&ran)));
        worker.join().unwrap();
        caller.join().unwrap();
        assert!(shared.begin_search(), "nobody could ever search again");
    });
}

/// the timer goes while a worker gets up: it stays, or is called again.
#[test]
fn loom_timer_leaves_against_get_up() {
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
        // In models one quiet visit is enough for it to go.
        let stays = shared.check();
        worker.join().unwrap();
        assert!(
            stays || shared.is_watched(),
            "nobody looks after a worker that is awake"
        );
    });
}

/// A worker of a closed pool sleeps while another lane has something left; whoever ends wakes it.
#[test]
fn loom_last_task_against_lying_down() {
    loom::model(|| {
        let shared = Arc::new(Shared::new(Options::of_threads(2)));
        let ran = Arc::new(AtomicUsize::new(0));
        assert!(push(&shared.lanes[0], counting(&ran)));
        shared.lanes[1].man();
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

/// Two workers of a closed pool run their last tasks and lie down: one of them sees that nothing is left.
#[test]
fn loom_two_lie_down_at_the_end() {
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
            shared.park(false);
            shared.is_over(lane)
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || end(&shared, 1))
        };
        let over = end(&shared, 0);
        assert!(other.join().unwrap() || over, "both sleep for ever");
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
fn loom_submit_against_shutdown() {
    check(1, || {
        let pool = pool(1);
        let submitter = {
            let pool = pool.clone();
            thread::spawn(move || match pool.spawn(|| 1).blocking_join() {
                Ok(one) => assert_eq!(one, 1),
                Err(error) => assert!(error.is_closed()),
            })
        };
        pool.shutdown();
        block_on(pool.terminated());
        submitter.join().unwrap();
    });
}

/// What is queued when the pool is shut down at once is dropped, or has run; nothing is left, also of
/// what another thread has taken to drop it.
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
        block_on(pool.terminated());
        assert_eq!(left.load(Ordering::Relaxed), 0);
        let dropped = ender.join().unwrap();
        let ran: usize = handles
            .into_iter()
            .map(|handle| handle.blocking_join().unwrap_or_default())
            .sum();
        assert!(ran + dropped <= 2);
    });
}

/// Tasks of one key never run at the same time.
#[test]
fn loom_keyed_tasks_take_turns() {
    check(1, || {
        let pool = pool(1);
        let state = Arc::new(Plain::new(0));
        let push = |pool: &ComputePool, state: &Arc<Plain>| {
            let state = state.clone();
            pool.spawn_keyed("key", move || state.add(1))
        };
        let other = {
            let (pool, state) = (pool.clone(), state.clone());
            thread::spawn(move || push(&pool, &state))
        };
        let one = push(&pool, &state);
        // Waiting is no part of this: one at a time, so that it makes few orders more.
        other.join().unwrap().blocking_join().unwrap();
        one.blocking_join().unwrap();
        assert_eq!(state.get(), 2);
    });
}
