//! `CompletionStream`, `JoinSet` and `JoinMap`, through the public API.

#[path = "completion/abort.rs"]
mod abort;
#[path = "completion/combinators.rs"]
mod combinators;
#[path = "completion/debug.rs"]
mod debug;
#[path = "completion/dropped.rs"]
mod dropped;
#[path = "completion/end.rs"]
mod end;
#[path = "completion/in_place.rs"]
mod in_place;
#[path = "completion/items.rs"]
mod items;
#[path = "completion/join_map.rs"]
mod join_map;
#[path = "completion/join_set.rs"]
mod join_set;
#[path = "completion/large.rs"]
mod large;
#[path = "completion/limits.rs"]
mod limits;
#[path = "completion/metrics.rs"]
mod metrics;
#[path = "completion/ordered.rs"]
mod ordered;
#[path = "completion/other_parts.rs"]
mod other_parts;
#[path = "completion/panics.rs"]
mod panics;
#[path = "completion/read.rs"]
mod read;
#[path = "completion/reserve.rs"]
mod reserve;
#[path = "completion/retry.rs"]
mod retry;
#[path = "completion/runners.rs"]
mod runners;
#[path = "completion/shutdown.rs"]
mod shutdown;
#[path = "completion/size_hint.rs"]
mod size_hint;
#[path = "completion/slots.rs"]
mod slots;
#[path = "completion/spill.rs"]
mod spill;
#[path = "completion/submit.rs"]
mod submit;
mod support;
#[path = "completion/suspended.rs"]
mod suspended;
#[path = "completion/until_idle.rs"]
mod until_idle;
#[path = "completion/wakes.rs"]
mod wakes;

use std::iter;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures::stream::Stream;
use throng::completion::{Completed, Submitter};
use throng::{Closed, CompletionStream, Id, Slot};
use tokio::runtime::Handle;

use self::support::ready;

type Ends<T> = (Submitter<T, usize>, CompletionStream<T, usize>);

fn unbounded<T: Send + 'static>() -> Ends<T> {
    CompletionStream::builder()
        .max_running(1 << 20)
        .build()
        .unwrap()
}

fn bounded<T: Send + 'static>(max_running: usize, max_outstanding: usize) -> Ends<T> {
    CompletionStream::builder()
        .max_running(max_running)
        .max_outstanding(max_outstanding)
        .build()
        .unwrap()
}

/// Takes an item that must be there.
#[track_caller]
fn take<T: Send + 'static>(done: &mut CompletionStream<T, usize>) -> Completed<T, usize> {
    ready(pin!(done.next())).expect("the stream has not ended")
}

/// Takes the completions that have arrived.
fn drain<T: Send + 'static>(
    done: &mut CompletionStream<T, usize>,
) -> impl Iterator<Item = Completed<T, usize>> {
    iter::from_fn(|| done.try_next())
}

/// Submits a future on another runtime.
async fn submit_on<T, K, F>(
    jobs: &Submitter<T, K>,
    runtime: &Handle,
    tag: K,
    future: F,
) -> Result<Id, Closed<(K, F)>>
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let permit = jobs.reserve().await.expect("it is open");
    let _entered = runtime.enter();
    permit.submit(tag, future)
}

/// Polls the stream once.
fn poll_next<T, K>(
    waker: &Waker,
    done: &mut CompletionStream<T, K>,
) -> Poll<Option<Completed<T, K>>>
where
    T: Send + 'static,
    K: Send + 'static,
{
    Pin::new(done).poll_next(&mut Context::from_waker(waker))
}

/// Reserves a slot, for which there must be room.
#[track_caller]
fn slot<T: Send + 'static>(jobs: &Submitter<T, usize>, tag: usize) -> Slot<T, usize> {
    ready(pin!(jobs.slot(tag))).expect("the stream is open")
}

/// A closed stream with completed jobs of these outputs.
fn completed<T: Send + 'static>(
    outputs: impl IntoIterator<Item = T>,
) -> CompletionStream<T, usize> {
    let (jobs, done) = unbounded();
    for (tag, output) in outputs.into_iter().enumerate() {
        slot(&jobs, tag).complete(output);
    }
    done
}

fn output<T>(completed: Completed<T, usize>) -> T {
    completed.outcome.expect("it has completed")
}
