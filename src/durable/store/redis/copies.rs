//! [`Copies`]: the copies of a write that must exist before the write is acknowledged.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};

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
