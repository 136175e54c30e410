//! [`SentinelWatcher`]: learns of failovers at once.
//!
//! Without it, a client would notice a failover only when its connection breaks, and then by asking at intervals. And a connection to a
//! former primary may not break for a long time, if that server runs but cannot reach the others. All that is stored there meanwhile is
//! lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::sentinel_problems::Problem;
use super::sentinels::{Sentinel, Sentinels};
use super::timeouts::BACKOFF;

/// The events of a Sentinel after which it may name another server: it has heard of a failover, or carries one out.
const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];

/// Keeps a connection to one of the Sentinels, and asks it for the primary when it reports a failover, and at intervals.
pub(super) struct SentinelWatcher {
    sentinels: Weak<Sentinels>,
    sentinel: Sentinel,
    interval: Duration,
}

/// A connection on which the events of a Sentinel arrive.
struct Subscribed {
    connection: MultiplexedConnection,
    events: mpsc::UnboundedReceiver<PushInfo>,
}

impl SentinelWatcher {
    /// Watches each Sentinel, since one that is cut off together with the primary does not learn that the others have replaced it.
    pub(super) fn watch_all(sentinels: &Arc<Sentinels>, interval: Duration) {
        for sentinel in sentinels.in_order() {
            let watcher = Self {
                sentinels: Arc::downgrade(sentinels),
                sentinel,
                interval,
            };
            tokio::spawn(watcher.run());
        }
    }

    /// Watches for as long as there are connections to the server, or attempts to connect.
    async fn run(self) {
        let mut failures: u32 = 0;
        while let Some(sentinels) = self.sentinels.upgrade() {
            let subscribed = subscribe(&sentinels, &self.sentinel).await;
            drop(sentinels);
            failures = failures.saturating_add(1);
            if let Ok(subscribed) = subscribed {
                self.receive(subscribed).await;
                failures = 1;
            }
            sleep(BACKOFF.delay(failures).unwrap_or_default()).await;
        }
    }

    /// Receives events until the connection breaks, or does not answer, or the Sentinel is out of date.
    async fn receive(&self, mut it: Subscribed) {
        loop {
            match timeout(self.interval, it.events.recv()).await {
                Ok(Some(event)) if event.kind == PushKind::Disconnection => return,
                Ok(None) => return,
                // A failover, or the time to ask.
                Ok(Some(PushInfo {
                    kind: PushKind::Message,
                    ..
                }))
                | Err(_) => {
                    let Some(sentinels) = self.sentinels.upgrade() else {
                        return;
                    };
                    if sentinels.ask(&mut it.connection).await.is_err() {
                        return;
                    }
                }
                Ok(Some(_)) => {}
            }
        }
    }
}

/// Subscribes to the events of a Sentinel. Then asks it for the primary, since an earlier event may have been missed.
async fn subscribe(sentinels: &Sentinels, sentinel: &Sentinel) -> Result<Subscribed, Problem> {
    let (sender, events) = mpsc::unbounded_channel();
    let config = sentinels.config().set_push_sender(sender);
    let mut connection = sentinel.for_messages().connect(&config).await?;
    let subscribed = connection.subscribe(&CHANNELS[..]).await;
    subscribed.map_err(Problem::from_sentinel)?;
    sentinels.ask(&mut connection).await?;
    Ok(Subscribed { connection, events })
}
