//! Permits that own their pool, and permits that a service reserves by polling.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};

use futures::FutureExt;
use throng::{BlockingPool, Closed, Permit, PollReserve};

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

/// An owned permit, or `None` if the caller would have to wait for it.
fn reserve(pool: &BlockingPool) -> Option<Permit<'static, BlockingPool>> {
    let permit = pool.reserve().now_or_never()?;
    Some(permit.unwrap().into_owned())
}

type Polled = Poll<Result<Permit<'static, BlockingPool>, Closed>>;

fn poll(reservation: &mut PollReserve<BlockingPool>) -> Polled {
    reservation.poll_reserve(&mut Context::from_waker(Waker::noop()))
}

/// The permit that a reservation has at once.
#[track_caller]
fn reserved(reservation: &mut PollReserve<BlockingPool>) -> Permit<'static, BlockingPool> {
    match poll(reservation) {
        Poll::Ready(permit) => permit.unwrap(),
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn an_owned_permit_keeps_its_pool_open() {
    let pool = bounded(0);
    let permit = reserve(&pool).expect("at once");
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
        let permit = reserve(&pool).expect("at once");
        assert!(reserve(&pool).is_none());
        drop(permit);
    }
    output(pool.try_spawn_blocking(|| ()).unwrap());
}

#[test]
fn an_owned_permit_of_a_closed_pool_spawns_nothing() {
    let pool = bounded(0);
    let permit = reserve(&pool).expect("at once");
    pool.close();
    assert!(join(permit.spawn_blocking(|| ())).unwrap_err().is_closed());
    assert!(run(pool.reserve()).is_err());
    run(pool.closed());
}

#[test]
fn each_reservation_is_another_permit() {
    let pool = bounded(1);
    let mut reservation = PollReserve::new(pool.clone());
    let [first, second] = [(); 2].map(|()| reserved(&mut reservation));
    assert!(poll(&mut reservation).is_pending());
    assert!(pool.reserve().now_or_never().is_none());
    assert_eq!(output(first.spawn_blocking(|| 1)), 1);
    assert_eq!(output(second.spawn_blocking(|| 2)), 2);
    when_idle(&pool);
    assert_eq!(output(reserved(&mut reservation).spawn_blocking(|| 3)), 3);
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
    let permit = reserved(&mut reservation);
    assert_eq!(output(permit.spawn_blocking(|| "runs")), "runs");
}

#[test]
fn a_dropped_reservation_gives_up_its_wait() {
    let pool = bounded(0);
    let permit = reserve(&pool).expect("at once");
    let mut first = PollReserve::new(pool.clone());
    assert!(poll(&mut first).is_pending());
    let (woken, waker) = Wakes::new();
    let mut second = PollReserve::new(pool.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(second.poll_reserve(&mut cx).is_pending());
    drop(first);
    assert_eq!(woken.count(), 0);
    let mut first = PollReserve::new(pool.clone());
    assert!(poll(&mut first).is_pending());
    drop(permit);
    assert_eq!(woken.count(), 1);
    // The one that was woken is dropped, so the permit is the next one's.
    drop(second);
    drop(reserved(&mut first));
}

#[test]
fn a_clone_waits_for_a_permit_of_its_own() {
    let pool = bounded(0);
    let mut reservation = PollReserve::new(pool.clone());
    let permit = reserved(&mut reservation);
    let mut clone = reservation.clone();
    assert!(poll(&mut clone).is_pending());
    drop(clone);
    assert_eq!(output(permit.spawn_blocking(|| "kept")), "kept");
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

/// The shape of `tower::Service`.
trait Service<Request> {
    type Response;
    type Error;
    type Future: Future<Output = Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>>;
    fn call(&mut self, request: Request) -> Self::Future;
}

struct Square {
    reservation: PollReserve<BlockingPool>,
    permit: Option<Permit<'static, BlockingPool>>,
    called: Arc<AtomicUsize>,
}

impl Square {
    fn new(reservation: PollReserve<BlockingPool>, called: Arc<AtomicUsize>) -> Self {
        Self {
            reservation,
            permit: None,
            called,
        }
    }
}

impl Clone for Square {
    fn clone(&self) -> Self {
        Self::new(self.reservation.clone(), Arc::clone(&self.called))
    }
}

impl Service<usize> for Square {
    type Response = usize;
    type Error = String;
    type Future = futures::future::BoxFuture<'static, Result<usize, String>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        if self.permit.is_none() {
            let permit = ready!(self.reservation.poll_reserve(cx));
            self.permit = Some(permit.map_err(|closed| closed.to_string())?);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, n: usize) -> Self::Future {
        let called = Arc::clone(&self.called);
        let task = move || {
            called.fetch_add(1, Ordering::Relaxed);
            n * n
        };
        let permit = self.permit.take().expect("`poll_ready` was ready");
        let handle = permit.spawn_blocking(task);
        Box::pin(handle.map(|squared| squared.map_err(|error| error.to_string())))
    }
}

#[test]
fn a_service_is_ready_when_the_pool_has_a_permit() {
    const CLIENTS: usize = 50;
    let pool = bounded(1);
    let service = Square::new(PollReserve::new(pool.clone()), Arc::default());
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
    assert_eq!(service.called.load(Ordering::Relaxed), 10 * CLIENTS);
    let metrics = when_idle(&pool);
    assert_eq!(
        (metrics.completed, metrics.rejected),
        (10 * CLIENTS as u64, 0)
    );
}
