//! Waiting for a permit.

use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;

use crate::pools::{Busy, Count, bounded, free_places, of, output, rest, run, within};
use crate::support::{Wakes, join, multi_thread, poll_with, wait_until};

#[test]
fn there_is_always_room_without_a_bound() {
    let (pool, ran) = (of(1), Count::default());
    let busy = Busy::keep(&pool, 1);
    for _ in 0..1_000 {
        let permit = pool.reserve().now_or_never().expect("at once").unwrap();
        permit.execute(ran.adder()).unwrap();
        let permit = pool.reserve().now_or_never().expect("at once").unwrap();
        drop(permit.spawn(ran.adder()));
    }
    assert_eq!(pool.metrics().queued, 2_000);
    busy.release();
    wait_until("all have run", || ran.get() == 2_000);
}

#[test]
fn it_waits_for_a_place_and_keeps_it() {
    let pool = bounded(1, 2);
    let busy = Busy::keep(&pool, 1);
    let queued = pool.spawn(|| 1);
    let (woken, waker) = Wakes::new();
    let mut waiting = Box::pin(pool.reserve());
    assert!(poll_with(&waker, &mut waiting).is_pending());
    assert_eq!(woken.count(), 0);

    busy.release();
    output(queued);
    wait_until("the waiting one is woken", || woken.count() > 0);
    let Poll::Ready(Ok(permit)) = poll_with(&waker, &mut waiting) else {
        panic!("a permit is free")
    };
    let other = pool.reserve().now_or_never().expect("for two").unwrap();
    assert!(pool.try_execute(|| ()).unwrap_err().is_full());
    assert_eq!(output(permit.spawn(|| 2)), 2);
    assert_eq!(output(other.spawn(|| 3)), 3);
    assert_eq!(free_places(&pool), 2);
}

#[test]
fn a_dropped_permit_gives_its_place_back() {
    let pool = bounded(1, 1);
    for _ in 0..10 {
        let permit = pool.reserve().now_or_never().expect("at once").unwrap();
        assert!(pool.reserve().now_or_never().is_none());
        assert!(pool.try_execute(|| ()).unwrap_err().is_full());
        drop(permit);
    }
    output(pool.spawn(|| ()));
}

/// Waiting futures are dropped before and after they are woken. The permit goes to the one that still waits.
#[test]
fn a_dropped_waiting_future_loses_nothing() {
    for woken_first in [false, true] {
        let pool = bounded(1, 1);
        let permit = pool.reserve().now_or_never().expect("at once").unwrap();
        let wakes = [(); 3].map(|()| Wakes::new());
        let mut waiting = [(); 3].map(|()| Box::pin(pool.reserve()));
        for (waiting, (_, waker)) in waiting.iter_mut().zip(&wakes) {
            assert!(poll_with(waker, waiting).is_pending());
        }
        let [first, second, mut third] = waiting;
        if woken_first {
            drop(permit);
            assert_eq!(wakes.each_ref().map(|(wakes, _)| wakes.count()), [1, 0, 0]);
            drop((first, second));
        } else {
            drop((first, second));
            drop(permit);
        }
        let (wakes, waker) = &wakes[2];
        assert_eq!(wakes.count(), 1);
        assert!(matches!(poll_with(waker, &mut third), Poll::Ready(Ok(_))));
    }
}

#[test]
fn many_who_wait_all_get_through() {
    const TASKS: usize = 2_000;
    let (pool, ran) = (bounded(2, 2), Count::default());
    let runtime = multi_thread(2, "waiting");
    let waiting: Vec<_> = (0..TASKS)
        .map(|n| {
            let (pool, task) = (pool.clone(), ran.adder());
            runtime.spawn(async move {
                if n % 5 == 0 {
                    // This wait may be cancelled.
                    let _ =
                        tokio::time::timeout(Duration::from_micros(n as u64), pool.reserve()).await;
                }
                let permit = pool.reserve().await.unwrap();
                match n % 2 {
                    0 => permit.execute(task).unwrap(),
                    _ => permit.spawn(task).await.unwrap(),
                }
            })
        })
        .collect();
    runtime.block_on(async {
        within(futures::future::try_join_all(waiting))
            .await
            .unwrap();
    });
    wait_until("all have run", || ran.get() == TASKS);
    assert_eq!(rest(&pool).rejected, 0);
    assert_eq!(free_places(&pool), 2);
}

#[test]
fn each_of_several_who_always_want_room_gets_on() {
    let pool = bounded(1, 2);
    let done = [(); 4].map(|()| Count::default());
    run(async {
        let users = done.clone().map(|done| {
            let pool = pool.clone();
            tokio::spawn(async move {
                loop {
                    let permit = pool.reserve().await.unwrap();
                    permit.execute(done.adder()).unwrap();
                }
            })
        });
        // Until the slowest has had its turns.
        while done.iter().any(|done| done.get() < 500) {
            tokio::task::yield_now().await;
        }
        for user in users {
            user.abort();
        }
    });
    println!("{:?}", done.map(|done| done.get()));
}

#[test]
fn a_shutdown_ends_the_wait() {
    for now in [false, true] {
        let pool = bounded(1, 1);
        let busy = Busy::keep(&pool, 1);
        run(async {
            let waiting: Vec<_> = (0..10)
                .map(|_| {
                    let pool = pool.clone();
                    tokio::spawn(async move { pool.reserve().await.map(drop) })
                })
                .collect();
            tokio::task::yield_now().await;
            match now {
                true => assert_eq!(pool.shutdown_now(), 0),
                false => pool.close(),
            }
            for waiting in waiting {
                assert!(waiting.await.unwrap().is_err());
            }
            assert!(pool.reserve().await.is_err());
        });
        busy.release();
    }
    let unbounded = of(1);
    unbounded.close();
    assert!(run(unbounded.reserve()).is_err());
}

#[test]
fn a_permit_from_before_the_shutdown_is_of_no_use_after_it() {
    for pool in [bounded(1, 3), of(1)] {
        let permits = [(); 2].map(|()| pool.reserve().now_or_never().expect("at once").unwrap());
        let [executes, spawns] = permits;
        pool.close();
        assert_eq!(executes.execute(|| ()).unwrap_err().into_inner()(), ());
        assert!(join(spawns.spawn(|| ())).unwrap_err().is_closed());
        assert_eq!(pool.metrics().rejected, 2);
        run(pool.closed());
    }
}
