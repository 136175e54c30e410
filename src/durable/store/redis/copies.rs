//! [`Copies`]: the copies of a write that must exist before the write is acknowledged. [`CopyWaits`]: the waits for them.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::error::Fault;
use super::keys::Keys;

/// The copies of a write that must exist before the write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Copies {
    /// `true` if the write must be on the disk of the server.
    pub(super) on_disk: bool,
    /// The number of replicas that must have received the write.
    pub(super) replicas: usize,
}

impl Copies {
    /// Waits for the copies of the writes of a connection. Returns `false` if they do not exist in time.
    pub(super) async fn wait(
        self,
        mut connection: MultiplexedConnection,
        keys: &Keys,
        time: Duration,
    ) -> RedisResult<bool> {
        let mut wait = redis::pipe();
        // The server waits only for writes of this connection. The script may have changed nothing because it already ran on an earlier
        // connection, so this one writes something after those changes.
        wait.hset(keys.meta(), "disk", 1).ignore();
        let limit = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        if self.on_disk {
            wait.cmd("WAITAOF").arg(1).arg(0).arg(limit);
        }
        if self.replicas > 0 {
            wait.cmd("WAIT").arg(self.replicas).arg(limit);
        }
        let answers: Vec<Value> = wait.query_async(&mut connection).await?;
        Ok(answers.iter().all(|answer| self.exist(answer)))
    }

    /// Returns `true` if an answer says that there are enough copies.
    fn exist(self, answer: &Value) -> bool {
        match answer {
            // The numbers of disks that have the writes: the server's own, and those of its replicas.
            Value::Array(disks) => disks.first() == Some(&Value::Int(1)),
            Value::Int(replicas) => usize::try_from(*replicas).is_ok_and(|it| it >= self.replicas),
            _ => false,
        }
    }
}

/// The waits for copies on the connections of a link. While one goes on, the server executes no other command of its connection, so there
/// is one at a time, and requests share it.
#[derive(Default)]
pub(super) struct CopyWaits(Mutex<Option<EndedWait>>);

struct EndedWait {
    /// The number of the connection.
    connection: u64,
    begun: Instant,
    are_there: bool,
}

impl CopyWaits {
    /// Returns the result of a wait for copies that has begun after this time, at which the write was answered: that of another request,
    /// or that of `wait`. `wait` fails if the connection with this number is not in use any more.
    pub(super) async fn share<F>(
        &self,
        connection: u64,
        answered: Instant,
        wait: impl FnOnce() -> F,
    ) -> Result<bool, Fault>
    where
        F: Future<Output = Result<bool, Fault>>,
    {
        let mut last = self.0.lock().await;
        let shared = last.as_ref();
        let shared = shared.filter(|it| it.connection == connection && answered <= it.begun);
        if let Some(it) = shared {
            return Ok(it.are_there);
        }
        let begun = Instant::now();
        let are_there = wait().await?;
        *last = Some(EndedWait {
            connection,
            begun,
            are_there,
        });
        Ok(are_there)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Shares a wait that ends when other futures have been polled.
    async fn share(waits: &CopyWaits, connection: u64, begun: &Cell<usize>, end: bool) -> bool {
        let wait = || async {
            begun.set(begun.get() + 1);
            tokio::task::yield_now().await;
            Ok(end)
        };
        let shared = waits.share(connection, Instant::now(), wait).await;
        shared.unwrap_or_else(|_| panic!("no wait has failed"))
    }

    #[tokio::test]
    async fn requests_share_a_wait_that_begins_after_their_answers() {
        let (waits, begun) = (CopyWaits::default(), Cell::new(0));
        for end in [true, false] {
            begun.set(0);
            let all = futures::future::join_all((0..8).map(|_| share(&waits, 1, &begun, end)));
            assert_eq!(all.await, [end; 8]);
            // The second one begins after all others have been answered.
            assert!((1..=2).contains(&begun.get()), "{}", begun.get());
        }
        let later = Instant::now() + Duration::from_secs(60);
        let own = waits.share(1, later, || async { Ok(true) });
        assert!(own.await.is_ok_and(|it| it));
    }

    #[tokio::test]
    async fn a_wait_on_another_connection_is_not_shared() {
        let (waits, begun, early) = (CopyWaits::default(), Cell::new(0), Instant::now());
        assert!(!share(&waits, 1, &begun, false).await);
        let own = waits.share(2, early, || async { Ok(true) });
        assert!(own.await.is_ok_and(|it| it));
    }
}
