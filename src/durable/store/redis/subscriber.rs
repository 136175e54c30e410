//! [`Subscriber`]: receives messages for this process, on a connection of its own.

use std::io;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::connector::{Connector, NewConnection};
use super::error::not_connected;
use super::server_clock::ServerClock;
use super::session_state::Sessions;
use super::{push_message, reply};
use crate::durable::failure::Failure;
use crate::durable::store::{Event, PushedClaim, SessionId};

/// The message that a process sends to itself to check a subscription. It means nothing.
const CHECK: &[u8] = b"";

/// The state of the subscription. Of several, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subscription {
    /// Messages arrive.
    Active,
    /// The first attempt to subscribe has not ended yet.
    Unknown,
    /// Messages do not arrive.
    Inactive,
}

/// Receives the messages from a server until its [node](super::node::Node) is dropped.
pub(super) struct Subscriber {
    pub(super) connector: Connector,
    /// The channels of all partitions.
    pub(super) channels: Vec<String>,
    /// The partitions whose messages come from this server.
    pub(super) partitions: watch::Receiver<Vec<usize>>,
    /// `true` if the server is a cluster node, from which only messages of its own cluster slots come.
    pub(super) is_sharded: bool,
    pub(super) clock: Arc<ServerClock>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) state: watch::Sender<Subscription>,
    /// Changes when the connection is lost. The other connections to the server, which are probably lost, too, are
    /// checked then.
    pub(super) checks: watch::Sender<()>,
    /// Notified when messages do not arrive: another server may have the partitions now.
    pub(super) is_lost: Arc<Notify>,
}

type Pushes = mpsc::UnboundedReceiver<PushInfo>;

impl Subscriber {
    pub(super) async fn run(mut self) {
        let mut failures = 0;
        while let Some(channels) = self.wanted_channels().await {
            failures += 1;
            if let Ok((new, pushes)) = self.subscribe(&channels).await {
                self.state.send_replace(Subscription::Active);
                // Messages may have been missed. On this event, the engine looks for what they announced.
                self.sessions.miss_messages();
                self.events.send(Event::Ready).ok();
                let NewConnection {
                    connection,
                    mut watch,
                } = new;
                tokio::select! {
                    () = self.receive(connection, pushes) => {}
                    () = watch.replaced() => {}
                }
                self.checks.send_replace(());
                failures = 1;
            }
            self.state.send_replace(Subscription::Inactive);
            self.is_lost.notify_one();
            self.connector.pause(failures).await;
        }
    }

    /// Returns the channels of the partitions whose messages come from this server, as soon as there is one. Returns `None` at the end.
    async fn wanted_channels(&mut self) -> Option<Vec<String>> {
        let partitions = self.partitions.wait_for(|it| !it.is_empty()).await.ok()?;
        let channels = partitions.iter().map(|&it| self.channels[it].clone());
        Some(channels.collect())
    }

    /// Connects, subscribes, and checks that messages arrive.
    async fn subscribe(&self, channels: &[String]) -> Result<(NewConnection, Pushes), Failure> {
        let (sender, mut pushes) = mpsc::unbounded_channel();
        let mut new = self.connector.connect(Some(sender)).await?;
        let connection = &mut new.connection;
        let subscribed = async {
            match self.is_sharded {
                true => subscribe_sharded(connection, channels).await?,
                false => connection.subscribe(channels).await?,
            }
            let delivered = self.check_delivery(channels, connection, &mut pushes);
            delivered.await
        };
        subscribed.await.map_err(not_connected)?;
        Ok((new, pushes))
    }

    /// Checks that messages on all channels arrive. A user who may subscribe may lack the permission to publish, and
    /// other processes probably lack it, too.
    async fn check_delivery(
        &self,
        channels: &[String],
        connection: &mut MultiplexedConnection,
        pushes: &mut Pushes,
    ) -> RedisResult<()> {
        let publish = if self.is_sharded {
            "SPUBLISH"
        } else {
            "PUBLISH"
        };
        for channel in channels {
            let publish = redis::cmd(publish).arg(channel).arg(CHECK).to_owned();
            connection
                .send_packed_command(&publish)
                .await?
                .extract_error()?;
            let arrives = async {
                while let Some(push) = pushes.recv().await {
                    if push.kind == PushKind::SUnsubscribe {
                        return false;
                    }
                    if is_message(&push) && is_check(&push, channel) {
                        return true;
                    }
                    self.forward_early(&push);
                }
                false
            };
            if !timeout(self.connector.timeouts.answer, arrives)
                .await
                .unwrap_or(false)
            {
                return Err(io::Error::from(io::ErrorKind::NotConnected).into());
            }
        }
        Ok(())
    }

    /// Forwards a message that arrives before [`Event::Ready`], unless it has a pushed claim. After that event, sessions ask for every
    /// pushed claim that has not arrived.
    fn forward_early(&self, push: &PushInfo) {
        let is_claim = |data: &Value| matches!(data, Value::BulkString(it) if it.starts_with(b"p"));
        if !push.data.last().is_some_and(is_claim) {
            self.forward(push);
        }
    }

    /// Receives messages until the connection breaks, or does not answer a ping, or the partitions are no longer those of the
    /// connection. It is then replaced: if a cluster node ends a subscription unasked, the `redis` crate takes that for an answer.
    async fn receive(&mut self, mut connection: MultiplexedConnection, mut pushes: Pushes) {
        loop {
            let push = tokio::select! {
                push = timeout(self.connector.timeouts.ping_interval, pushes.recv()) => push,
                _ = self.partitions.changed() => return,
            };
            match push {
                Ok(Some(push)) if ends_subscription(&push.kind) => return,
                Ok(Some(push)) => self.forward(&push),
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

    /// Sends the events of a message to the engine.
    fn forward(&self, push: &PushInfo) {
        if is_message(push)
            && let Some(Value::BulkString(message)) = push.data.last()
        {
            for event in self.events_of(message).into_iter().flatten() {
                if let Event::Wake(session) = event {
                    self.record_wake(session, push);
                }
                self.events.send(event).ok();
            }
        }
    }

    /// Records which partition has woken a session, before the engine sends its next turn.
    fn record_wake(&self, session: Option<SessionId>, push: &PushInfo) {
        let is_its = |channel: &String| matches!(push.data.first(), Some(Value::BulkString(it)) if *it == channel.as_bytes());
        if let Some(partition) = self.channels.iter().position(is_its) {
            self.sessions.wake(session, partition);
        }
    }

    /// Returns the events of a message. A message of another form has none.
    fn events_of(&self, message: &[u8]) -> [Option<Event>; 2] {
        let Some((kind, rest)) = message.split_first() else {
            return [None, None];
        };
        match kind {
            b'w' => [Some(Event::Wake(session(rest))), None],
            b'c' => [Some(Event::Cancel(reply::ids(rest))), None],
            b'p' => [Some(self.pushed(rest)), None],
            b'e' => {
                let (states, ids) = reply::ends(rest);
                let states = (!states.is_empty()).then_some(Event::Ended(states));
                let ids = (!ids.is_empty()).then_some(Event::MaybeEnded(ids));
                [states, ids]
            }
            _ => [None, None],
        }
    }

    /// Returns the event of a pushed claim. If the message cannot be read, or the claim cannot be dated, the sessions ask for the claim.
    fn pushed(&self, message: &[u8]) -> Event {
        let dated = push_message::read(message)
            .and_then(|(pushed, time)| Some((pushed, self.clock.date(time)?)));
        match dated {
            Some((pushed, claimed_at)) => Event::Pushed(Arc::new(PushedClaim {
                claimed_at,
                ..pushed
            })),
            None => Event::Wake(None),
        }
    }
}

/// Subscribes to channels of a cluster node, one by one, since they are in different cluster slots.
async fn subscribe_sharded(
    connection: &mut MultiplexedConnection,
    channels: &[String],
) -> RedisResult<()> {
    for channel in channels {
        let subscribe = redis::cmd("SSUBSCRIBE").arg(channel).to_owned();
        let answer = connection.send_packed_command(&subscribe).await?;
        answer.extract_error()?;
    }
    Ok(())
}

fn is_message(push: &PushInfo) -> bool {
    matches!(push.kind, PushKind::Message | PushKind::SMessage)
}

fn ends_subscription(kind: &PushKind) -> bool {
    matches!(kind, PushKind::Disconnection | PushKind::SUnsubscribe)
}

/// Returns the session with these decimal digits.
fn session(digits: &[u8]) -> Option<SessionId> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns `true` if the push is a check on the channel.
fn is_check(push: &PushInfo, channel: &str) -> bool {
    let expected = [channel.as_bytes(), CHECK].map(|it| Value::BulkString(it.to_vec()));
    push.data == expected
}
