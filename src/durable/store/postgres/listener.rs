//! Receives the notifications of other processes, on a connection of its own.
//!
//! A notification is a letter and a list: `w` and sessions to wake, `e` and tasks that have ended, or `c` and tasks to cancel. With `p`, a
//! process finds out whether it receives notifications at all: a pooler in transaction mode accepts `LISTEN`, and passes on none. Then
//! workers look for tasks at intervals, as they do while the listener has no connection.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::connection::{Connection, quoted};
use super::error::{failure, no_answer};
use super::reader::Reader;
use super::server::BACKOFF;
use super::shared::{Shared, channel};
use crate::durable::failure::{Effect, Failure};
use crate::durable::store::{Event, SessionId};
use crate::durable::{TaskId, report};
use crate::sync::Ordering;

/// Sends the notification by which this process finds out whether it receives any.
const PROBE: &str = "SELECT pg_notify($1, 'p')";

/// The time within which it must arrive.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause before the next attempt if it has not arrived.
const DEAF_PAUSE: Duration = Duration::from_secs(10);

/// Receives the notifications of other processes.
pub(super) struct NoticeListener {
    pub(super) shared: Arc<Shared>,
    /// Sends the probe. It has another connection than the listener: a pooler could pass on what a connection sends to itself.
    pub(super) reader: Reader,
    /// The name of the store.
    pub(super) name: Arc<str>,
    pub(super) events: mpsc::UnboundedSender<Event>,
}

impl NoticeListener {
    /// Receives notifications until nobody receives the events. Tells `tried` when it has tried to listen.
    pub(super) async fn listen(self, tried: oneshot::Sender<()>) {
        let (mut failures, mut tried, mut is_deaf) = (0, Some(tried), false);
        while !self.events.is_closed() {
            let (sender, mut notices) = mpsc::unbounded_channel();
            let limit = self.shared.server.answer_timeout;
            let listening = timeout(limit, self.begin(sender, &mut notices)).await;
            let listening = listening.unwrap_or_else(|_| Err(no_answer(Effect::None)));
            self.shared.set_listening(matches!(listening, Ok(Some(_))));
            if let Some(tried) = tried.take() {
                tried.send(()).ok();
            }
            match listening {
                Ok(Some(connection)) => {
                    (failures, is_deaf) = (0, false);
                    self.events.send(Event::Ready).ok();
                    forward(notices, &self.events).await;
                    self.shared.set_listening(false);
                    drop(connection);
                }
                Ok(None) => {
                    if !std::mem::replace(&mut is_deaf, true) {
                        report::receives_no_notifications(&self.name);
                        // Idle sessions look at intervals from now on.
                        self.events.send(Event::Wake(None)).ok();
                    }
                    sleep(DEAF_PAUSE).await;
                }
                Err(_) => {
                    failures += 1;
                    sleep(BACKOFF.delay(failures).unwrap_or_default()).await;
                }
            }
        }
    }

    /// Opens a connection that receives the notifications of this process. Returns `None` if none arrive there.
    async fn begin(
        &self,
        sender: mpsc::UnboundedSender<String>,
        notices: &mut mpsc::UnboundedReceiver<String>,
    ) -> Result<Option<Connection>, Failure> {
        let connection = self.shared.connect(Some(sender)).await?;
        let channel = channel(self.shared.endpoint);
        let run = async |sql: String| {
            let done = connection.batch(&sql).await;
            done.map_err(|error| failure(Effect::None, error))
        };
        run(format!("LISTEN {}", quoted(&channel))).await?;
        let probe = self.reader.work(channel, |db, _, channel| {
            Box::pin(async move { Ok(db.rows(PROBE, &[channel]).await?) })
        });
        probe.await?;
        // Other notifications that arrive meanwhile need not be passed on: the receiver of the events looks at everything next.
        let arrives = async { while notices.recv().await.is_some_and(|it| it != "p") {} };
        if timeout(PROBE_TIMEOUT, arrives).await.is_err() {
            return Ok(None);
        }
        // While the connection is open, the lock tells others that this process lives: see `silent_sessions.rs`.
        let endpoint = self.shared.endpoint;
        run(format!("SELECT pg_advisory_lock_shared({endpoint})")).await?;
        Ok(Some(connection))
    }
}

/// Passes notifications on until the connection breaks.
async fn forward(
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
                // Its row may be that of a later wait, so the next turn removes it if it still exists.
                for session in parsed::<SessionId>(list) {
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
