//! [`Line`]: what is spawned, until a request draws it.

use std::collections::VecDeque;
use std::collections::vec_deque::Drain;
use std::mem;
use std::sync::Arc as StdArc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::patience::PATIENCE;
use crate::durable::error::Failure;
use crate::durable::store::{Batch, MAX_BATCH, MAX_BATCH_BYTES, NewTask};
use crate::sync::{Mutex, lock};
use crate::unwind::contain;
use crate::wait_queue::WaitQueue;

/// What is spawned, in the order in which it was.
///
/// Whoever sends a request to the store asks for a [`Load`] first, and sends it empty: what is in it is
/// drawn from the line when the store looks. One load at most is yet to be drawn. While there is one,
/// no other is needed: what is ordered goes with it.
pub(crate) struct Line {
    state: Mutex<State>,
    /// Rings when a load is needed, and when none will be any more.
    bell: WaitQueue,
}

#[derive(Default)]
struct State {
    orders: VecDeque<Order>,
    /// How many orders there have been.
    ordered: usize,
    /// How many loads there have been.
    loads: u64,
    /// The load that is yet to be drawn.
    awaited: Option<u64>,
    /// Nothing can be ordered any more.
    closed: bool,
}

/// Tasks that are stored together: at most [`MAX_BATCH`].
pub(crate) struct Order {
    pub(crate) tasks: Vec<NewTask>,
    /// When it was given.
    pub(crate) since: Instant,
    pub(crate) reply: Reply,
}

type Reply = oneshot::Sender<Result<(), Failure>>;

/// The tasks of one request.
pub(crate) struct Load {
    pub(crate) tasks: StdArc<Batch>,
    draw: StdArc<Draw>,
}

/// How a load is drawn, and whom it concerns then.
struct Draw {
    line: StdArc<Line>,
    load: u64,
    /// How many orders there had been when it was asked for.
    ordered: usize,
    replies: Mutex<Vec<Reply>>,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            bell: WaitQueue::new(),
        }
    }

    /// Takes an order, or drops it if nothing can be ordered any more.
    pub(crate) fn order(&self, order: Order) {
        let mut state = lock(&self.state);
        if state.closed {
            drop(state);
            return drop(order);
        }
        let is_first = state.orders.is_empty();
        state.orders.push_back(order);
        state.ordered += 1;
        let is_load_needed = is_first && state.awaited.is_none();
        drop(state);
        if is_load_needed {
            self.bell.notify_one();
        }
    }

    /// Waits until a load is needed; `None`: never again.
    pub(crate) async fn load(self: &StdArc<Self>) -> Option<Load> {
        // The look is made under the lock under which orders are taken: of the two, one comes first.
        let load = self.bell.wait(|| self.try_load()).await;
        if load.is_none() {
            // Whoever else waits will wait in vain.
            self.bell.notify_one();
        }
        load
    }

    /// `None`: not now.
    fn try_load(self: &StdArc<Self>) -> Option<Option<Load>> {
        let mut state = lock(&self.state);
        if state.orders.is_empty() {
            return state.closed.then_some(None);
        }
        if state.awaited.is_some() {
            return None;
        }
        state.loads += 1;
        state.awaited = Some(state.loads);
        Some(Some(Load::new(Draw {
            line: StdArc::clone(self),
            load: state.loads,
            ordered: state.ordered,
            replies: Mutex::default(),
        })))
    }

    /// Nothing can be ordered any more. What was ordered is there.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.bell.notify_all();
    }

    /// Nobody asks for loads any more: drops what was ordered.
    pub(crate) fn abandon(&self) {
        self.close();
        let orders = mem::take(&mut lock(&self.state).orders);
        contain(|| drop(orders));
    }
}

impl State {
    /// What fits into one request, of what was ordered first.
    fn draw(&mut self) -> Drain<'_, Order> {
        let (mut tasks, mut bytes) = (0, 0);
        let fits = |order: &&Order| {
            tasks += order.tasks.len();
            bytes += bytes_of(&order.tasks);
            tasks <= MAX_BATCH && bytes <= MAX_BATCH_BYTES
        };
        // The first does in any case.
        let drawn = self.orders.iter().take_while(fits).count().max(1);
        self.orders.drain(..drawn.min(self.orders.len()))
    }

    /// A load has failed: it takes those along that it would have had when it was asked for, and
    /// those that have waited too long for another.
    fn refuse(&mut self, draw: &Draw) -> Drain<'_, Order> {
        let later = match self.awaited == Some(draw.load) {
            true => self.ordered - draw.ordered,
            // Those it has had.
            false => self.orders.len(),
        };
        let earlier = self.orders.len().saturating_sub(later);
        let is_old = |order: &&Order| order.since.elapsed() > PATIENCE;
        let old = self.orders.iter().take_while(is_old).count();
        self.orders.drain(..old.max(earlier))
    }
}

impl Load {
    fn new(draw: Draw) -> Self {
        let draw = StdArc::new(draw);
        let (drawn, told) = (StdArc::clone(&draw), StdArc::clone(&draw));
        let batch = Batch::drawn_by(move || drawn.draw()).telling(move || told.tell(&Ok(())));
        Self {
            tasks: StdArc::new(batch),
            draw,
        }
    }

    /// The request is answered, and not sent again: tells those whom it concerns.
    ///
    /// If it has failed, that concerns also those who are still in line although they were there when
    /// the load was asked for, or for as long as anybody has to be patient.
    pub(crate) fn end(self, stored: &Result<(), Failure>) {
        let refused = self.draw.end(stored.is_err());
        self.draw.tell(stored);
        if let Err(failure) = stored {
            let failure = failure.clone().without_effect();
            tell(refused.into_iter().map(|it| it.reply), &Err(failure));
        }
    }
}

impl Draw {
    /// Nothing, if the request has ended meanwhile: this is a copy of it that comes late.
    fn draw(&self) -> Vec<NewTask> {
        let mut state = lock(&self.line.state);
        if state.awaited != Some(self.load) {
            return Vec::new();
        }
        state.awaited = None;
        let (tasks, replies): (Vec<_>, Vec<_>) =
            state.draw().map(|order| (order.tasks, order.reply)).unzip();
        // Under the lock: whoever ends the load finds all of them.
        *lock(&self.replies) = replies;
        let is_load_needed = !state.orders.is_empty();
        drop(state);
        if is_load_needed {
            self.line.bell.notify_one();
        }
        tasks.into_iter().flatten().collect()
    }

    /// Tells those whose tasks were drawn, once.
    fn tell(&self, stored: &Result<(), Failure>) {
        let replies = mem::take(&mut *lock(&self.replies));
        tell(replies, stored);
    }

    /// From here on, nothing is drawn. Returns who is refused.
    fn end(&self, has_failed: bool) -> Vec<Order> {
        let mut state = lock(&self.line.state);
        let refused = match has_failed {
            true => state.refuse(self).collect(),
            false => Vec::new(),
        };
        if state.awaited == Some(self.load) {
            state.awaited = None;
        }
        refused
    }
}

fn tell(replies: impl IntoIterator<Item = Reply>, stored: &Result<(), Failure>) {
    for reply in replies {
        // Whoever has dropped the future does not want to know.
        contain(|| drop(reply.send(stored.clone())));
    }
}

/// What tasks take up in a request.
pub(crate) fn bytes_of(tasks: &[NewTask]) -> usize {
    tasks.iter().map(|task| task.payload.len()).sum()
}
