//! Places that outlive the handle of the pool, and those that a service asks for by polling.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use futures::FutureExt;
use throng::blocking::PollReserve;
use throng::{BlockingPool, TrySpawnError};

use crate::pools::{Busy, output, rest, run};
use crate::support::{Wakes, join, multi_thread, wait_until, within};

/// A pool with one thread and so many places in its queue.
fn bounded(capacity: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(capacity)
        .build()
        .unwrap()
}

fn poll(place: &mut PollReserve) -> Poll<Result<(), TrySpawnError<()>>> {
    place.poll_reserve(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn an_owned_permit_keeps_its_place_and_its_pool() {
    let pool = bounded(0);
    let permit = pool.clone().reserve_owned().now_or_never();
    let permit = permit.expect("at once").unwrap();
    assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
    drop(pool);
    // It may go to another thread.
    let handle = std::thread::spawn(move || permit.spawn_blocking(|| "runs"));
    assert_eq!(output(handle.join().unwrap()), "runs");
}

#[test]
fn a_dropped_owned_permit_gives_its_place_back() {
    let pool = bounded(0);
    for _ in 0..10 {
        let permit = pool.clone().reserve_owned().now_or_never();
        let permit = permit.expect("at once").unwrap();
        assert!(pool.clone().reserve_owned().now_or_never().is_none());
        drop(permit);
    }
    output(pool.try_spawn_blocking(|| ()).unwrap());
}

#[test]
fn an_owned_permit_is_of_no_use_after_a_shutdown() {
    let pool = bounded(0);
    let permit = pool.clone().reserve_owned().now_or_never();
    let permit = permit.expect("at once").unwrap();
    pool.shutdown();
    assert!(join(permit.spawn_blocking(|| ())).unwrap_err().is_closed());
    assert!(run(pool.clone().reserve_owned()).unwrap_err().is_closed());
    run(pool.terminated());
}

#[test]
fn a_place_that_is_kept_is_ready_at_once_and_is_one_place() {
    let pool = bounded(1);
    let mut place = PollReserve::new(pool.clone());
    for _ in 0..5 {
        assert!(matches!(poll(&mut place), Poll::Ready(Ok(()))));
    }
    let other = pool.reserve().now_or_never().expect("at once").unwrap();
    assert!(pool.reserve().now_or_never().is_none());
    drop(other);
    assert_eq!(output(place.spawn_blocking(|| 1)), 1);
    // It is used up, and the next is another.
    rest(&pool);
    assert!(matches!(poll(&mut place), Poll::Ready(Ok(()))));
    assert_eq!(output(place.spawn_blocking(|| 2)), 2);
}

#[test]
fn it_waits_and_is_woken() {
    let pool = bounded(0);
    let busy = Busy::keep(&pool, 1);
    let (woken, waker) = Wakes::new();
    let mut place = PollReserve::new(pool.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(place.poll_reserve(&mut cx).is_pending());
    assert!(place.poll_reserve(&mut cx).is_pending());
    assert_eq!(woken.count(), 0);
    busy.release();
    wait_until("it is woken", || woken.count() > 0);
    assert!(matches!(place.poll_reserve(&mut cx), Poll::Ready(Ok(()))));
    assert_eq!(output(place.spawn_blocking(|| "runs")), "runs");
}

#[test]
fn a_place_can_be_given_up_when_it_is_kept_and_when_it_is_waited_for() {
    let pool = bounded(0);
    let mut place = PollReserve::new(pool.clone());
    assert!(poll(&mut place).is_ready());
    place.release();
    let permit = pool.reserve().now_or_never().expect("at once").unwrap();
    // The one that waits first gives up, or is dropped: then the other is woken.
    for dropped in [false, true] {
        let mut other = PollReserve::new(place.pool().clone());
        let (woken, waker) = Wakes::new();
        assert!(poll(&mut place).is_pending());
        let mut cx = Context::from_waker(&waker);
        assert!(other.poll_reserve(&mut cx).is_pending());
        match dropped {
            false => place.release(),
            true => drop(std::mem::replace(
                &mut place,
                PollReserve::new(pool.clone()),
            )),
        }
        assert_eq!(woken.count(), 0);
        other.release();
    }
    let (woken, waker) = Wakes::new();
    let mut other = PollReserve::new(pool.clone());
    assert!(poll(&mut place).is_pending());
    assert!(
        other
            .poll_reserve(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(permit);
    drop(place);
    assert_eq!(woken.count(), 1);
    assert!(poll(&mut other).is_ready());
}

#[test]
fn a_dropped_place_is_given_back() {
    let pool = bounded(0);
    for _ in 0..3 {
        let mut place = PollReserve::new(pool.clone());
        assert!(poll(&mut place).is_ready());
        assert!(pool.reserve().now_or_never().is_none());
    }
    output(pool.try_spawn_blocking(|| ()).unwrap());
}

#[test]
fn a_clone_keeps_no_place() {
    let pool = bounded(0);
    let mut place = PollReserve::new(pool.clone());
    assert!(poll(&mut place).is_ready());
    let mut clone = place.clone();
    assert!(poll(&mut clone).is_pending());
    drop(clone);
    assert_eq!(output(place.spawn_blocking(|| "kept")), "kept");
}

#[test]
fn a_shutdown_ends_its_wait_and_it_says_so_again() {
    let pool = bounded(0);
    let busy = Busy::keep(&pool, 1);
    let mut place = PollReserve::new(pool.clone());
    assert!(poll(&mut place).is_pending());
    pool.shutdown();
    for _ in 0..3 {
        let Poll::Ready(Err(refused)) = poll(&mut place) else {
            panic!("it is closed")
        };
        assert!(refused.is_closed());
    }
    busy.release();
    let unbounded = BlockingPool::builder().build().unwrap();
    unbounded.shutdown();
    assert!(matches!(
        poll(&mut PollReserve::new(unbounded)),
        Poll::Ready(Err(_))
    ));
}

#[test]
#[should_panic(expected = "`poll_reserve` comes first")]
fn to_spawn_without_a_place_is_a_mistake() {
    drop(PollReserve::new(bounded(1)).spawn_blocking(|| ()));
}

#[test]
#[should_panic(expected = "`poll_reserve` comes first")]
fn to_spawn_while_waiting_for_a_place_is_a_mistake() {
    let pool = bounded(0);
    let _permit = pool.reserve().now_or_never().expect("at once").unwrap();
    let mut place = PollReserve::new(pool.clone());
    assert!(poll(&mut place).is_pending());
    drop(place.spawn_blocking(|| ()));
}

/// In shape that of `tower`.
trait Service<Request> {
    type Response;
    type Error;
    type Future: Future<Output = Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>>;
    fn call(&mut self, request: Request) -> Self::Future;
}

#[derive(Clone)]
struct Square(PollReserve, Arc<AtomicUsize>);

impl Service<usize> for Square {
    type Response = usize;
    type Error = String;
    type Future = futures::future::BoxFuture<'static, Result<usize, String>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        self.0.poll_reserve(cx).map_err(|closed| closed.to_string())
    }

    fn call(&mut self, n: usize) -> Self::Future {
        let called = Arc::clone(&self.1);
        let task = move || {
            called.fetch_add(1, Ordering::Relaxed);
            n * n
        };
        let handle = self.0.spawn_blocking(task);
        Box::pin(handle.map(|squared| squared.map_err(|error| error.to_string())))
    }
}

#[test]
fn a_service_is_ready_when_the_pool_has_room() {
    const CLIENTS: usize = 50;
    let pool = bounded(1);
    let service = Square(PollReserve::new(pool.clone()), Arc::default());
    let runtime = multi_thread(2, "clients");
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let mut service = service.clone();
            runtime.spawn(async move {
                for _ in 0..10 {
                    poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
                    assert_eq!(service.call(n).await.unwrap(), n * n);
                }
            })
        })
        .collect();
    runtime.block_on(async {
        within(futures::future::try_join_all(clients))
            .await
            .unwrap();
    });
    assert_eq!(service.1.load(Ordering::Relaxed), 10 * CLIENTS);
    let metrics = rest(&pool);
    assert_eq!(
        (metrics.completed, metrics.rejected),
        (10 * CLIENTS as u64, 0)
    );
}
