//! Receives the messages for this process, on a separate connection.

use std::io;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::link::{BACKOFF, Times};
use super::reply;
use crate::durable::store::Event;

/// Whether events arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mail {
    /// It is not known yet.
    Unknown,
    Comes,
    DoesNot,
}

/// Reads the messages on some channels, for as long as the store exists.
pub(super) struct Postman {
    pub(super) client: Client,
    pub(super) times: Times,
    pub(super) channels: Vec<String>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) state: Arc<watch::Sender<Mail>>,
    /// Is notified when the connection is lost. Then the other connections to the same server are most likely lost, too.
    pub(super) doubts: watch::Sender<()>,
}

type Pushes = mpsc::UnboundedReceiver<PushInfo>;

impl Postman {
    pub(super) async fn run(self) {
        let mut failures = 0;
        loop {
            failures += 1;
            if let Ok((connection, pushes)) = self.subscribe().await {
                self.state.send_replace(Mail::Comes);
                // From now on, events arrive. Those that were missed are looked for when this event is received.
                self.events.send(Event::Ready).ok();
                self.read(connection, pushes).await;
                self.doubts.send_replace(());
                failures = 1;
            }
            self.state.send_replace(Mail::DoesNot);
            sleep(BACKOFF.delay(failures).unwrap_or_default()).await;
        }
    }

    /// Connects, and waits until the server has confirmed the subscription.
    async fn subscribe(&self) -> RedisResult<(MultiplexedConnection, Pushes)> {
        let (sender, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.times.connect))
            .set_response_timeout(Some(self.times.answer))
            .set_push_sender(sender);
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let mut connection = connection.await?;
        let mut pushes = pushes;
        connection.subscribe(&self.channels).await?;
        self.hear_ourselves(&mut connection, &mut pushes).await?;
        Ok((connection, pushes))
    }

    /// Sees whether what is said on our channels is heard: who may subscribe may not say anything, and
    /// then nobody else may.
    async fn hear_ourselves(
        &self,
        connection: &mut MultiplexedConnection,
        pushes: &mut Pushes,
    ) -> RedisResult<()> {
        for channel in &self.channels {
            let said = redis::cmd("PUBLISH").arg(channel).arg(NOTHING).to_owned();
            connection
                .send_packed_command(&said)
                .await?
                .extract_error()?;
            let heard = async {
                while let Some(push) = pushes.recv().await {
                    if push.kind == PushKind::Message && is_on(&push, channel) {
                        return true;
                    }
                    self.pass_on(&push);
                }
                false
            };
            if !timeout(self.times.answer, heard).await.unwrap_or(false) {
                return Err(io::Error::from(io::ErrorKind::NotConnected).into());
            }
        }
        Ok(())
    }

    /// Reads until the connection breaks, or gives no sign of life.
    async fn read(&self, mut connection: MultiplexedConnection, mut pushes: Pushes) {
        loop {
            match timeout(self.times.pulse, pushes.recv()).await {
                Ok(Some(push)) if push.kind == PushKind::Disconnection => return,
                Ok(Some(push)) => self.pass_on(&push),
                Ok(None) => return,
                Err(_) => {
                    let ping = redis::cmd("PING");
                    if connection.send_packed_command(&ping).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn pass_on(&self, push: &PushInfo) {
        if push.kind == PushKind::Message
            && let Some(Value::BulkString(message)) = push.data.last()
        {
            for event in events(message).into_iter().flatten() {
                self.events.send(event).ok();
            }
        }
    }
}

/// What a process says to hear itself.
const NOTHING: &[u8] = b"";

/// Whether nothing was said on that channel.
fn is_on(push: &PushInfo, channel: &str) -> bool {
    let said = [channel.as_bytes(), NOTHING].map(|it| Value::BulkString(it.to_vec()));
    push.data == said
}

/// What a message says; nothing if it is none of ours.
fn events(message: &[u8]) -> [Option<Event>; 2] {
    let Some((what, rest)) = message.split_first() else {
        return [None, None];
    };
    match what {
        b'w' => [Some(Event::Wake), None],
        b'c' => [Some(Event::Cancel(reply::ids(rest))), None],
        b'e' => {
            let (seen, others) = reply::told(rest);
            let seen = (!seen.is_empty()).then_some(Event::Ended(seen));
            let others = (!others.is_empty()).then_some(Event::MaybeEnded(others));
            [seen, others]
        }
        _ => [None, None],
    }
}
