//! [`SpareConnection`]: the connection of a process that gives way to its other ones.
//!
//! It writes while the main connection commits. If the server allows no more connections, a reader or a listener that has lost its own one
//! could never connect again: the process would lose a function in order to be faster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::connection::Connection;
use super::server::{BACKOFF, NoticeSender, PostgresServer, Unconnected};
use crate::sync::{Mutex, lock};

/// The time for which the connection stays closed after it could not be opened, or has given way.
pub(super) const SPARE_PAUSE: Duration = Duration::from_secs(1);

/// The maximum number of further attempts to connect after the connection has given way. The server ends it a little later.
const MAX_ATTEMPTS: u32 = 5;

/// The connection that writes beside the main one.
#[derive(Default)]
pub(super) struct SpareConnection(Mutex<SpareState>);

#[derive(Default)]
struct SpareState {
    connection: Option<Arc<Connection>>,
    /// The time at which it has last given way.
    gave_way: Option<Instant>,
}

impl SpareConnection {
    pub(super) fn get(&self) -> Option<Arc<Connection>> {
        lock(&self.0).connection.clone()
    }

    pub(super) fn set(&self, connection: Option<Arc<Connection>>) {
        lock(&self.0).connection = connection;
    }

    /// Returns the time for which the connection must not be opened.
    pub(super) fn pause(&self) -> Duration {
        let gave_way = lock(&self.0).gave_way;
        let passed = gave_way.map_or(SPARE_PAUSE, |at| at.elapsed());
        SPARE_PAUSE.saturating_sub(passed)
    }

    /// Opens another connection of the process. If the server allows no more of them, this one is closed.
    pub(super) async fn connect_other(
        &self,
        server: &PostgresServer,
        notices: Option<NoticeSender>,
    ) -> Result<Connection, Unconnected> {
        for attempt in 1..=MAX_ATTEMPTS {
            match server.connect(notices.clone()).await {
                Err(refused) if refused.is_full && self.give_way() => {
                    sleep(BACKOFF.delay(attempt).unwrap_or_default()).await;
                }
                done => return done,
            }
        }
        server.connect(notices).await
    }

    /// Closes the connection, as soon as its transaction has ended, and keeps it closed for a while. Returns `false` if it has not been
    /// open for a while.
    fn give_way(&self) -> bool {
        let mut state = lock(&self.0);
        if state.connection.take().is_some() {
            state.gave_way = Some(Instant::now());
        }
        let recent = |at: Instant| at.elapsed() < SPARE_PAUSE;
        state.gave_way.is_some_and(recent)
    }
}
