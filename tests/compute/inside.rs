//! Submission from tasks of the pool.

use std::sync::mpsc;

use throng::ComputePool;

use crate::pools::{Busy, Count, of, output, rest};
use crate::support::{Gate, block_on, receive, thread_name, wait_until};

#[test]
fn a_task_can_submit_in_every_way() {
    let pool = of(2);
    let own = pool.clone();
    let (ran, runs) = mpsc::channel();
    let handles = output(pool.spawn(move || {
        let tell = |n| {
            let ran = ran.clone();
            move || ran.send(n).unwrap()
        };
        own.execute(tell(0));
        own.try_execute(tell(1)).unwrap();
        own.execute_batch((2..5).map(tell));
        let permit = block_on(own.reserve()).unwrap();
        permit.execute(tell(5)).unwrap();
        let mut handles = own.spawn_batch((6..8).map(tell));
        handles.push(own.spawn(tell(8)));
        handles.push(own.spawn_keyed("key", tell(9)));
        handles.push(block_on(own.reserve()).unwrap().spawn(tell(10)));
        handles
    }));
    handles.into_iter().for_each(output);
    let mut seen: Vec<_> = (0..11).map(|_| receive(&runs)).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..11));
    rest(&pool);
    assert!(runs.try_recv().is_err());
}

/// One thread is held at a gate: it is the other one's lane that the children land in, and its thread
/// that runs them.
#[test]
fn children_land_in_their_parents_lane() {
    let pool = of(2);
    let busy = Busy::keep(&pool, 1);
    let own = pool.clone();
    let names = output(pool.spawn(move || {
        let children = own.spawn_batch((0..100).map(|_| thread_name));
        let lanes = own.metrics().lanes;
        let in_use = lanes.iter().filter(|lane| lane.queued > 0).count();
        (thread_name(), children, in_use)
    }));
    let (parent, children, lanes_in_use) = names;
    assert_eq!(lanes_in_use, 1);
    for child in children {
        assert_eq!(output(child), parent);
    }
    busy.release();
}

/// The parent waits for a gate, which one of its children opens on the other thread.
#[test]
fn children_are_reachable_while_their_parent_runs() {
    for children in [1, 10, 64, 1_000] {
        let pool = of(2);
        let (own, gate, ran) = (pool.clone(), Gate::new(), Count::default());
        let all = ran.clone();
        let parent = pool.spawn(move || {
            for child in 0..children {
                let (ran, gate) = (ran.clone(), gate.clone());
                own.execute(move || {
                    ran.add();
                    if child + 1 == children {
                        gate.open();
                    }
                });
            }
            gate.pass();
            thread_name()
        });
        output(parent);
        wait_until("all children have run", || all.get() == children);
        let metrics = rest(&pool);
        let stolen: u64 = metrics.lanes.iter().map(|lane| lane.stolen).sum();
        assert!(stolen > 0, "{metrics:?}");
    }
}

#[test]
fn tasks_submit_tasks_generation_after_generation() {
    fn grow(pool: &ComputePool, ran: &Count, generations: u32) {
        ran.add();
        if generations == 0 {
            return;
        }
        for _ in 0..2 {
            let (own, ran) = (pool.clone(), ran.clone());
            pool.execute(move || grow(&own, &ran, generations - 1));
        }
    }
    const GENERATIONS: u32 = 13;
    let all = (2 << GENERATIONS) - 1;
    for threads in [1, 2, 4] {
        let (pool, ran) = (of(threads), Count::default());
        grow(&pool, &ran, GENERATIONS);
        wait_until("all generations have run", || ran.get() == all);
        rest(&pool);
        assert_eq!(ran.get(), all);
    }
}

#[test]
fn tasks_of_two_pools_submit_to_one_another() {
    fn bounce(to: &ComputePool, from: &ComputePool, left: u32, ended: &mpsc::Sender<()>) {
        if left == 0 {
            return ended.send(()).unwrap();
        }
        let (own, other, ended) = (to.clone(), from.clone(), ended.clone());
        match left % 3 {
            0 => to.execute(move || bounce(&other, &own, left - 1, &ended)),
            1 => drop(to.spawn(move || bounce(&other, &own, left - 1, &ended))),
            _ => drop(to.spawn_keyed(&left, move || bounce(&other, &own, left - 1, &ended))),
        }
    }
    let (one, two) = (of(1), of(2));
    let (ended, ends) = mpsc::channel();
    for _ in 0..4 {
        bounce(&one, &two, 3_000, &ended);
    }
    for _ in 0..4 {
        receive(&ends);
    }
    let [one, two] = [one, two].map(|pool| rest(&pool));
    assert!(one.completed > 4_000 && two.completed > 4_000);
}

/// Also by way of what a task brings along.
#[test]
fn what_a_task_brings_along_may_use_the_pool_in_its_drop() {
    struct UsesPool(ComputePool, Count);
    impl Drop for UsesPool {
        fn drop(&mut self) {
            self.0.execute(self.1.adder());
            drop(self.0.spawn_keyed("key", self.1.adder()));
            self.0.metrics();
        }
    }
    let (pool, ran) = (of(1), Count::default());
    let uses_pool = || UsesPool(pool.clone(), ran.clone());
    let busy = Busy::keep(&pool, 1);
    let [aborted, executed, captured, keyed, output] = [(); 5].map(|()| uses_pool());
    pool.spawn(move || drop(aborted)).abort();
    pool.execute(move || drop(executed));
    drop(pool.spawn(move || drop(captured)));
    drop(pool.spawn_keyed("key", move || drop(keyed)));
    drop(pool.spawn(move || output));
    busy.release();
    wait_until("all of them have used it", || ran.get() == 10);
}
