//! Permits that own their pool, and permits that a service reserves by polling.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use futures::FutureExt;
use throng::{BlockingPool, Closed, PollReserve};

use crate::pools::{Busy, output, run, when_idle};
use crate::support::{Wakes, join, multi_thread, wait_until, within};

/// A pool with one thread and a queue of this capacity.
fn bounded(capacity: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(capacity)
        .build()
        .unwrap()
}

fn poll(reservation: &mut PollReserve<BlockingPool>) -> Poll<Result<(), Closed>> {
    reservation.poll_reserve(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn an_owned_permit_keeps_its_pool_open() {
    let pool = bounded(0);
    let permit = pool.clone().reserve_owned().now_or_never();
    let permit = permit.expect("at once").unwrap();
    assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
    drop(pool);
    // It may move to another thread.
    let handle = std::thread::spawn(move || permit.spawn_blocking(|| "runs"));
    assert_eq!(output(handle.join().unwrap()), "runs");
}

#[test]
fn dropping_an_owned_permit_releases_it() {
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
fn an_owned_permit_of_a_closed_pool_spawns_nothing() {
    let pool = bounded(0);
    let permit = pool.clone().reserve_owned().now_or_never();
    let permit = permit.expect("at once").unwrap();
    pool.close();
    assert!(join(permit.spawn_blocking(|| ())).unwrap_err().is_closed());
    assert!(run(pool.clone().reserve_owned()).is_err());
    run(pool.closed());
}

#[test]
fn polling_again_returns_the_same_permit() {
    let pool = bounded(1);
    let mut reservation = PollReserve::new(pool.clone());
    for _ in 0..5 {
        assert!(matches!(poll(&mut reservation), Poll::Ready(Ok(()))));
    }
    let other = pool.reserve().now_or_never().expect("at once").unwrap();
    assert!(pool.reserve().now_or_never().is_none());
    drop(other);
    assert_eq!(output(reservation.take_permit().spawn_blocking(|| 1)), 1);
    // The next one is another permit.
    when_idle(&pool);
    assert!(matches!(poll(&mut reservation), Poll::Ready(Ok(()))));
    assert_eq!(output(reservation.take_permit().spawn_blocking(|| 2)), 2);
}

#[test]
fn a_released_permit_wakes_a_polled_reservation() {
    let pool = bounded(0);
    let busy = Busy::keep(&pool, 1);
    let (woken, waker) = Wakes::new();
    let mut reservation = PollReserve::new(pool.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(reservation.poll_reserve(&mut cx).is_pending());
    assert!(reservation.poll_reserve(&mut cx).is_pending());
    assert_eq!(woken.count(), 0);
    busy.release();
    wait_until("it is woken", || woken.count() > 0);
    assert!(matches!(
        reservation.poll_reserve(&mut cx),
        Poll::Ready(Ok(()))
    ));
    assert_eq!(
        output(reservation.take_permit().spawn_blocking(|| "runs")),
        "runs"
    );
}

#[test]
fn release_gives_up_a_permit_or_the_wait_for_one() {
    let pool = bounded(0);
    let mut reservation = PollReserve::new(pool.clone());
    assert!(poll(&mut reservation).is_ready());
    reservation.release();
    let permit = pool.reserve().now_or_never().expect("at once").unwrap();
    // The first waiter gives up, or is dropped.
    for dropped in [false, true] {
        let mut other = PollReserve::new(reservation.executor().clone());
        let (woken, waker) = Wakes::new();
        assert!(poll(&mut reservation).is_pending());
        let mut cx = Context::from_waker(&waker);
        assert!(other.poll_reserve(&mut cx).is_pending());
        match dropped {
            false => reservation.release(),
            true => drop(std::mem::replace(
                &mut reservation,
                PollReserve::new(pool.clone()),
            )),
        }
        assert_eq!(woken.count(), 0);
        other.release();
    }
    let (woken, waker) = Wakes::new();
    let mut other = PollReserve::new(pool.clone());
    assert!(poll(&mut reservation).is_pending());
    assert!(
        other
            .poll_reserve(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(permit);
    drop(reservation);
    assert_eq!(woken.count(), 1);
    assert!(poll(&mut other).is_ready());
}

#[test]
fn dropping_a_reservation_releases_its_permit() {
    let pool = bounded(0);
    for _ in 0..3 {
        let mut reservation = PollReserve::new(pool.clone());
        assert!(poll(&mut reservation).is_ready());
        assert!(pool.reserve().now_or_never().is_none());
    }
    output(pool.try_spawn_blocking(|| ()).unwrap());
}

#[test]
fn a_clone_holds_no_permit() {
    let pool = bounded(0);
    let mut reservation = PollReserve::new(pool.clone());
    assert!(poll(&mut reservation).is_ready());
    let mut clone = reservation.clone();
    assert!(poll(&mut clone).is_pending());
    drop(clone);
    assert_eq!(
        output(reservation.take_permit().spawn_blocking(|| "kept")),
        "kept"
    );
}

#[test]
fn closing_the_pool_ends_the_wait() {
    let pool = bounded(0);
    let busy = Busy::keep(&pool, 1);
    let mut reservation = PollReserve::new(pool.clone());
    assert!(poll(&mut reservation).is_pending());
    pool.close();
    for _ in 0..3 {
        assert!(matches!(poll(&mut reservation), Poll::Ready(Err(_))));
    }
    busy.release();
    let unbounded = BlockingPool::builder().build().unwrap();
    unbounded.close();
    assert!(matches!(
        poll(&mut PollReserve::new(unbounded)),
        Poll::Ready(Err(_))
    ));
}

#[test]
#[should_panic(expected = "`poll_reserve` must be ready first")]
fn taking_a_permit_that_was_not_reserved_panics() {
    drop(
        PollReserve::new(bounded(1))
            .take_permit()
            .spawn_blocking(|| ()),
    );
}

#[test]
#[should_panic(expected = "`poll_reserve` must be ready first")]
fn taking_a_permit_while_waiting_for_it_panics() {
    let pool = bounded(0);
    let _permit = pool.reserve().now_or_never().expect("at once").unwrap();
    let mut reservation = PollReserve::new(pool.clone());
    assert!(poll(&mut reservation).is_pending());
    drop(reservation.take_permit().spawn_blocking(|| ()));
}

/// The shape of `tower::Service`.
trait Service<Request> {
    type Response;
    type Error;
    type Future: Future<Output = Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>>;
    fn call(&mut self, request: Request) -> Self::Future;
}

#[derive(Clone)]
struct Square(PollReserve<BlockingPool>, Arc<AtomicUsize>);

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
        let handle = self.0.take_permit().spawn_blocking(task);
        Box::pin(handle.map(|squared| squared.map_err(|error| error.to_string())))
    }
}

#[test]
fn a_service_is_ready_when_the_pool_has_a_permit() {
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
    let metrics = when_idle(&pool);
    assert_eq!(
        (metrics.completed, metrics.rejected),
        (10 * CLIENTS as u64, 0)
    );
}
