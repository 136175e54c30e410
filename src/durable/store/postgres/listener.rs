//! Receives the notifications of other processes, on a connection of its own.
//!
//! A notification is a letter and a list: `w` and sessions to wake, `e` and tasks that have ended, or `c` and tasks to cancel.

use std::str::FromStr;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::connection::{Connection, quoted};
use super::error::failure;
use super::server::BACKOFF;
use super::shared::{Shared, channel};
use crate::durable::TaskId;
use crate::durable::failure::{Effect, Failure};
use crate::durable::store::{Event, SessionId};
use crate::sync::{Ordering, lock};

/// Receives notifications until nobody receives the events. Tells `tried` when it has tried to listen.
pub(super) async fn listen(
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<Event>,
    tried: oneshot::Sender<()>,
) {
    let (mut failures, mut tried) = (0, Some(tried));
    while !events.is_closed() {
        let (sender, notices) = mpsc::unbounded_channel();
        let listening = begin(&shared, sender).await;
        shared.set_listening(listening.is_ok());
        if let Some(tried) = tried.take() {
            tried.send(()).ok();
        }
        match listening {
            Ok(connection) => {
                failures = 0;
                events.send(Event::Ready).ok();
                forward(&shared, notices, &events).await;
                shared.set_listening(false);
                drop(connection);
            }
            Err(_) => {
                failures += 1;
                sleep(BACKOFF.delay(failures).unwrap_or_default()).await;
            }
        }
    }
}

async fn begin(
    shared: &Shared,
    notices: mpsc::UnboundedSender<String>,
) -> Result<Connection, Failure> {
    let connection = shared.server.connect(Some(notices)).await?;
    // While the connection is open, the lock tells others that this process lives: see `silent_sessions.rs`.
    let listen = format!(
        "LISTEN {}; SELECT pg_advisory_lock_shared({})",
        quoted(&channel(shared.endpoint)),
        shared.endpoint
    );
    let listening = connection.batch(&listen).await;
    listening.map_err(|error| failure(Effect::None, error))?;
    Ok(connection)
}

/// Passes notifications on until the connection breaks.
async fn forward(
    shared: &Shared,
    mut notices: mpsc::UnboundedReceiver<String>,
    events: &mpsc::UnboundedSender<Event>,
) {
    while let Some(notice) = notices.recv().await {
        // A message that a later version of the crate has sent is ignored.
        let Some((what, list)) = notice.split_at_checked(1) else {
            continue;
        };
        match what {
            "w" => {
                for session in parsed::<SessionId>(list) {
                    lock(&shared.parked).remove(&session);
                    events.send(Event::Wake(Some(session))).ok();
                }
            }
            "e" => drop(events.send(Event::MaybeEnded(parsed::<TaskId>(list).collect()))),
            "c" => drop(events.send(Event::Cancel(parsed::<TaskId>(list).collect()))),
            _ => {}
        }
    }
}

fn parsed<T: FromStr>(list: &str) -> impl Iterator<Item = T> {
    list.split(',').filter_map(|it| it.parse().ok())
}

impl Shared {
    fn set_listening(&self, is_listening: bool) {
        // Ordering: nothing else is published. A reader that sees an old value checks a little more or less often.
        self.is_listening.store(is_listening, Ordering::Relaxed);
    }

    /// Returns `true` while the process receives notifications.
    pub(super) fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::Relaxed)
    }
}
