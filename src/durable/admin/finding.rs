//! [`Finding`]: a fact about a store that needs attention.

use std::fmt;

use serde::Serialize;

use crate::durable::TaskId;

/// A fact about a store that needs attention: see [`Report::findings`](crate::durable::Report::findings).
///
/// Its texts are for people, and may change. Control characters in names are escaped. The ids stay the same:
///
/// | id | level | what was found |
/// | --- | --- | --- |
/// | `dead_letters.crashes` | warn | Some of the 50 newest dead letters have [crashed](crate::durable::DeadReason::Crashes) as many workers as `max_crashes` allows. |
/// | `dead_letters.many` | warn | There are more than 90% of the maximum number of [dead letters](crate::durable::Retention::dead_most). |
/// | `leases.overdue` | error | The leases of some claims expired more than two lease times ago, and no worker takes back their tasks. |
/// | `outbox.newer` | warn | Tasks in the [outbox](crate::durable::Outbox) were encoded by a later version of this crate. |
/// | `partitions.missing` | error | Some partitions of a `RedisStore` do not answer. |
/// | `postgres.autovacuum` | warn | The server does not remove dead rows of all tables. |
/// | `postgres.connections` | warn | More than 90% of the server's connections are in use. |
/// | `postgres.durability` | warn or info | A failure of the server would lose tasks. |
/// | `postgres.notifications` | warn | The server sends no notifications, so workers poll. |
/// | `postgres.permissions` | warn | The user lacks rights that workers need. |
/// | `postgres.read_only` | warn | The transactions of the user are read-only. |
/// | `postgres.settings` | info | The user does not see the transactions of other users. |
/// | `postgres.standby` | warn | The server is a standby, which accepts no writes. |
/// | `postgres.tables` | error | Tables or sequences of the store are missing. |
/// | `postgres.transactions` | warn | A transaction has kept the server for a minute from removing dead rows. |
/// | `queues.paused` | warn | Tasks wait in [paused](crate::durable::Queue::pause) queues. |
/// | `queues.unserved` | warn | Tasks wait in queues that no live worker serves. |
/// | `redis.durability` | warn or info | A failure of the server would lose tasks. |
/// | `redis.eviction` | error | The server may evict tasks when its memory is full. |
/// | `redis.messages` | warn | The server sends no messages, so workers poll. |
/// | `redis.replica` | warn | The server is a replica, which accepts no writes. |
/// | `redis.settings` | info | The user may not read settings of the server. |
/// | `schedules.late` | warn | Schedules have been due for more than a minute. |
/// | `schedules.stuck` | warn | Schedules are [stuck](crate::durable::ScheduleInfo::stuck). |
/// | `store.damaged` | error | Rows of the store are missing or cannot be read. |
/// | `types.paused` | warn | Tasks of [paused](crate::durable::TaskTypes::pause) types wait. |
/// | `types.unserved` | warn | Tasks wait in a queue that live workers serve, but none of them knows their types. |
/// | `workers.none` | error | A task has waited for more than a minute, and there is no live worker. |
/// | `workers.suspect` | warn | Workers are [suspect](crate::durable::WorkerState::Suspect) or gone. |
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The kind of this finding. A report has at most one finding of a kind.
    pub id: &'static str,
    /// Its severity.
    pub level: FindingLevel,
    /// The problem, as a sentence without a full stop.
    pub what: String,
    /// The remedy, in the same form.
    pub remedy: String,
    /// The tasks that the problem names: at most 10.
    pub tasks: Vec<TaskId>,
}

/// The severity of a [finding](Finding). It is displayed and serialised as `info`, `warn` or `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingLevel {
    /// This may be intended.
    Info,
    /// Some tasks wait, or data may soon be lost.
    Warn,
    /// Tasks do not run, or data is lost.
    Error,
}

impl Finding {
    pub(crate) fn new(
        id: &'static str,
        level: FindingLevel,
        what: String,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = remedy.into();
        Self {
            id,
            level,
            what,
            remedy,
            tasks: Vec::new(),
        }
    }
}

impl fmt::Display for Finding {
    /// Writes what was found, and what to do, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.level, self.what, self.remedy)
    }
}

impl fmt::Display for FindingLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_displayed_as_it_is_serialised() {
        for (level, word) in [
            (FindingLevel::Info, "info"),
            (FindingLevel::Warn, "warn"),
            (FindingLevel::Error, "error"),
        ] {
            assert_eq!(level.to_string(), word);
            assert_eq!(serde_json::to_value(level).unwrap(), word);
        }
    }
}
