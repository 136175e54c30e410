//! [`forward`]: a future of ours completes a slot, without a task that awaits it.

use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
// Wakers are made of the standard library's, also where `sync` has another.
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::coop;

use super::Slot;
use crate::sync::{Mutex, lock};
use crate::task::{Fault, Outcome};
use crate::unwind::contain;

/// Completes the slot with what the future returns, which is polled here, and then by whoever wakes it.
///
/// For futures that do little when they are polled: the handles of this crate.
pub(crate) fn forward<T, K, F>(future: F, slot: Slot<T, K>)
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = Outcome<T>> + Send + Unpin + 'static,
{
    let forward = Forward {
        state: Mutex::new(State::Woken),
    };
    StdArc::new(forward).poll(Way { future, slot });
}

/// What waits for the future: the waker that it is polled with.
struct Forward<T, K, F> {
    state: Mutex<State<T, K, F>>,
}

/// | state | when |
/// |---|---|
/// | `Polling` | somebody polls, or has ended |
/// | `Woken` | the same, and was woken meanwhile: polls again |
/// | `Waiting` | nobody polls, and who wakes does |
enum State<T, K, F> {
    Polling,
    Woken,
    Waiting(Way<T, K, F>),
}

/// From a future to a slot.
struct Way<T, K, F> {
    future: F,
    slot: Slot<T, K>,
}

impl<T, K, F> Forward<T, K, F>
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = Outcome<T>> + Send + Unpin + 'static,
{
    /// Polls until the future is ready, or waits.
    fn poll(self: StdArc<Self>, mut way: Way<T, K, F>) {
        let waker = Waker::from(StdArc::clone(&self));
        let mut cx = Context::from_waker(&waker);
        loop {
            self.set(State::Polling);
            match way.poll(&mut cx) {
                Poll::Ready(outcome) => return way.end(outcome),
                Poll::Pending => match self.wait(way) {
                    Ok(()) => return,
                    Err(woken) => way = woken,
                },
            }
        }
    }

    /// Leaves the way to who wakes next; hands it back if somebody has done so since the last poll began.
    fn wait(&self, way: Way<T, K, F>) -> Result<(), Way<T, K, F>> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Woken) {
            return Err(way);
        }
        *state = State::Waiting(way);
        Ok(())
    }

    /// Returns what was there before, which is not dropped under the lock.
    fn set(&self, next: State<T, K, F>) -> State<T, K, F> {
        std::mem::replace(&mut *lock(&self.state), next)
    }
}

impl<T, K, F> Wake for Forward<T, K, F>
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = Outcome<T>> + Send + Unpin + 'static,
{
    fn wake(self: StdArc<Self>) {
        if let State::Waiting(way) = self.set(State::Woken) {
            self.poll(way);
        }
    }
}

impl<T, K, F> Way<T, K, F>
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = Outcome<T>> + Unpin,
{
    /// Unconstrained: who wakes may be a task that has used its budget up, which is not this one's.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<T>> {
        let mut future = coop::unconstrained(&mut self.future);
        let poll = || Pin::new(&mut future).poll(cx);
        match panic::catch_unwind(AssertUnwindSafe(poll)) {
            Ok(polled) => polled,
            Err(payload) => Poll::Ready(Err(Fault::panicked(payload))),
        }
    }

    /// The future goes first: who reads the completion finds it gone.
    fn end(self, outcome: Outcome<T>) {
        let Self { future, slot } = self;
        contain(|| drop(future));
        slot.end(outcome);
    }
}
