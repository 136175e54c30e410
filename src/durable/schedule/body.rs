//! [`Body`]: the part of a schedule's row that stores do not read.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::options::{MAX_JITTER, MAX_MISSED_TICKS, Missed, Overlap};
use super::when::{MAX_TICK, Spec, Ticks};
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::envelope::{LONG_ENVELOPE, seal_tick};
use crate::durable::key::{Conflict, KeyHash, NewKey};
use crate::durable::policy::Policy;
use crate::durable::queue::Priority;
use crate::durable::queue::group::GroupName;
use crate::durable::queue::name::QueueName;
use crate::durable::store::NewTask;

/// The definition of a user, apart from the revision. If it equals the stored definition, and the schedule has a next tick, defining
/// the schedule changes nothing but the revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Definition {
    pub(crate) spec: Spec,
    pub(crate) missed: Missed,
    pub(crate) overlap: Overlap,
    /// The maximum delay of a tick, in milliseconds.
    pub(crate) jitter: u64,
    pub(crate) template: Template,
}

/// The properties that all tasks of a schedule have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Template {
    pub(crate) name: String,
    /// The version of the payload.
    pub(crate) version: u8,
    pub(crate) queue: QueueName,
    pub(crate) group: Option<GroupName>,
    pub(crate) priority: Priority,
    /// The time for which the end of a task is kept, in milliseconds.
    pub(crate) retention: u64,
    pub(crate) max_crashes: u32,
    pub(crate) policy: Policy,
    /// The encoded task, without an envelope. It is stored after the JSON text, not in it: see [`Body::encode`].
    #[serde(skip)]
    pub(crate) payload: Vec<u8>,
}

/// The part of a schedule's row that stores do not read. Times are in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Body {
    #[serde(skip)]
    pub(crate) head: BodyHead,
    pub(crate) definition: Definition,
    /// The next tick, or `None` if none is known.
    pub(crate) next: Option<NextTick>,
    /// The last tick that was handled. A task was stored for it, unless it was missed or skipped.
    pub(crate) last: Option<u64>,
}

/// The part of a body that every version of the crate can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BodyHead {
    pub(crate) revision: u32,
    pub(crate) is_paused: bool,
}

/// A tick, and the time at which it fires: the tick plus a part of the jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NextTick {
    pub(crate) tick: u64,
    pub(crate) time: u64,
}

/// The maximum size of the payload of a schedule's tasks. It is small because one request may hand out many schedules.
pub(crate) const MAX_SCHEDULE_PAYLOAD_BYTES: usize = 16 << 10;

impl Body {
    /// Returns the body as it is stored: the revision in four bytes, one byte that is 1 if the schedule is paused and 0 otherwise,
    /// the length of a JSON text in four bytes, the text, and the payload of the tasks.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let len = u32::try_from(text.len()).unwrap_or_default();
        let mut stored = self.head.revision.to_be_bytes().to_vec();
        stored.push(u8::from(self.head.is_paused));
        stored.extend(len.to_be_bytes());
        stored.extend(text);
        stored.extend(&self.definition.template.payload);
        stored
    }

    /// Reads a stored body. Returns `None` if the body is damaged, or if only later versions of the crate can read it.
    pub(crate) fn decode(stored: &[u8]) -> Option<Self> {
        let (head, rest) = BodyHead::split(stored)?;
        let (len, rest) = rest.split_first_chunk()?;
        let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
        let (text, payload) = rest.split_at_checked(len)?;
        let mut body: Self = serde_json::from_slice(text).ok()?;
        body.definition.template.payload = payload.to_vec();
        body.head = head;
        Some(body).filter(Self::is_possible)
    }

    /// Returns `true` if no computation with the times can overflow or divide by zero, and no request has too many tasks.
    fn is_possible(&self) -> bool {
        let next = self.next.map(|next| next.time);
        let times = [next, self.last];
        let is_every = |spec: &Spec| match spec {
            Spec::Every(ticks) => ticks.period() > 0,
            Spec::Cron { .. } => true,
        };
        is_every(&self.definition.spec)
            && self.definition.template.version > 0
            && times.iter().flatten().all(|&time| time <= LAST_TIME)
            // A tick that is delayed still fits into a row.
            && self.definition.jitter <= millis(MAX_JITTER)
            && self.next.is_none_or(|next| next.tick <= next.time)
            && !matches!(self.definition.missed, Missed::All(MAX_MISSED_TICKS..))
    }
}

/// The latest time that a body may contain: the largest number that fits into six bytes, since Redis stores times in six bytes.
const LAST_TIME: u64 = 2 * MAX_TICK - 1;

impl BodyHead {
    /// Reads the head of a stored body. Returns `None` if the body is damaged.
    pub(crate) fn decode(stored: &[u8]) -> Option<Self> {
        Self::split(stored).map(|(head, _)| head)
    }

    fn split(stored: &[u8]) -> Option<(Self, &[u8])> {
        let (revision, rest) = stored.split_first_chunk()?;
        let (&paused, rest) = rest.split_first()?;
        let head = Self {
            revision: u32::from_be_bytes(*revision),
            is_paused: paused == 1,
        };
        Some((head, rest)).filter(|_| paused <= 1)
    }
}

impl Definition {
    /// Returns the first tick after a time.
    pub(crate) fn next_after(&self, name: &str, ticks: &Ticks, time: u64) -> Option<NextTick> {
        let tick = ticks.next_after(time)?;
        let time = match self.jitter {
            0 => tick,
            jitter => tick + jitter_of(name, tick, jitter.min(distance_after(ticks, tick))),
        };
        Some(NextTick { tick, time })
    }

    /// Returns the task of a tick.
    ///
    /// The id is derived from the name and the tick. So while the end of the task is kept, the task is not stored again, even if
    /// the schedule was removed and defined again. `can_have` returns `true` if a task with this id can be in this queue and
    /// have this key.
    pub(crate) fn task(
        &self,
        name: &str,
        tick: u64,
        can_have: impl Fn(TaskId, &QueueName, Option<KeyHash>) -> bool,
    ) -> NewTask {
        // The task must be in the partition of the schedule, even if it has no key.
        let hash = KeyHash::of_schedule(name);
        let template = &self.template;
        let mut ids = (0..).map(|salt| TaskId::derive("schedule", &id_bytes(name, tick, salt)));
        let id = ids.find(|&id| can_have(id, &template.queue, Some(hash)));
        NewTask {
            id: id.unwrap_or_else(TaskId::new),
            name: template.name.clone().into(),
            envelope: LONG_ENVELOPE,
            version: template.version,
            payload: seal_tick(tick, template.version, template.policy, &template.payload),
            queue: template.queue.clone(),
            group: template.group.clone(),
            priority: template.priority,
            key: self.overlap.key(hash),
            delay: Duration::ZERO,
            retention: Duration::from_millis(template.retention),
            max_crashes: template.max_crashes,
            parent: None,
        }
    }
}

impl Overlap {
    /// Returns the key of the tasks of a schedule, if they have one.
    fn key(self, hash: KeyHash) -> Option<NewKey> {
        let conflict = match self {
            Self::Skip => Conflict::Join,
            Self::Allow => return None,
            Self::Replace => Conflict::Replace,
        };
        Some(NewKey {
            hash,
            conflict,
            is_until_started: conflict == Conflict::Replace,
            window: Duration::ZERO,
            latest: None,
        })
    }
}

/// Returns the longest possible delay of a tick. A delayed tick fires before the next tick.
fn distance_after(ticks: &Ticks, tick: u64) -> u64 {
    let next = ticks.next_after(tick).unwrap_or(u64::MAX);
    next - tick - 1
}

/// Returns the delay of a tick, which is at most `jitter`. It depends only on the name and the tick, so all processes compute the
/// same delay.
fn jitter_of(name: &str, tick: u64, jitter: u64) -> u64 {
    let mixed = TaskId::derive("jitter", &id_bytes(name, tick, 0)).to_bytes();
    let number = mixed[..6]
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte));
    number % (jitter + 1)
}

/// Returns the bytes from which the ids of a tick are derived.
fn id_bytes(name: &str, tick: u64, salt: u32) -> Vec<u8> {
    [name.as_bytes(), &tick.to_be_bytes(), &salt.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::schedule::every::Every;
    use crate::durable::schedule::when::When;

    fn body(payload: &[u8]) -> Body {
        let when = When::from(Every::new(Duration::from_secs(60)));
        Body {
            definition: Definition {
                spec: when.spec().unwrap(),
                missed: Missed::default(),
                overlap: Overlap::default(),
                jitter: 0,
                template: Template {
                    name: "job".into(),
                    version: 2,
                    queue: QueueName::new("q").unwrap(),
                    group: Some(GroupName::new("g").unwrap()),
                    priority: Priority::Low,
                    retention: 1,
                    max_crashes: 3,
                    policy: Policy {
                        timeout: Some(Duration::from_secs(1)),
                        ..Policy::DEFAULT
                    },
                    payload: payload.to_vec(),
                },
            },
            head: BodyHead {
                revision: 7,
                is_paused: true,
            },
            next: Some(NextTick {
                tick: 60_000,
                time: 60_000,
            }),
            last: None,
        }
    }

    #[test]
    fn a_stored_body_can_be_read() {
        for payload in [&b""[..], b"\x00\xff{}"] {
            let body = body(payload);
            assert_eq!(Body::decode(&body.encode()), Some(body));
        }
    }

    #[test]
    fn a_damaged_body_is_refused() {
        let stored = body(b"").encode();
        for len in 0..stored.len() {
            assert_eq!(Body::decode(&stored[..len]), None, "{len}");
        }
        let text = String::from_utf8_lossy(&stored);
        for (from, to) in [
            ("every", "moons"),
            ("\"g\"", "\"\" "),
            ("\"version\":2", "\"version\":0"),
            (":60000", ":00000"),
            ("60000,", "9e18,"),
            ("\"policy\":[2,", "\"policy\":[4,"),
        ] {
            let other = text.replace(from, to);
            assert_ne!(other, text, "{from}");
            assert_eq!(Body::decode(other.as_bytes()), None, "{to}");
            // Its head can still be read.
            assert_eq!(BodyHead::decode(other.as_bytes()), Some(body(b"").head));
        }
        // A request could not contain so many tasks.
        for (limit, is_read) in [(MAX_MISSED_TICKS - 1, true), (MAX_MISSED_TICKS, false)] {
            let mut body = body(b"");
            body.definition.missed = Missed::All(limit);
            assert_eq!(Body::decode(&body.encode()).is_some(), is_read);
        }
        assert_eq!(BodyHead::decode(&stored[..4]), None);
        assert_eq!(BodyHead::decode(b"garbled"), None);
    }

    #[test]
    fn a_body_with_impossible_times_is_refused() {
        let with = |tick, time, last, jitter| {
            let mut body = body(b"");
            (body.next, body.last) = (Some(NextTick { tick, time }), Some(last));
            body.definition.jitter = jitter;
            Body::decode(&body.encode()).is_some()
        };
        let (most, jitter) = (LAST_TIME, millis(MAX_JITTER));
        assert!(with(0, most, 0, 0) && with(most, most, most, jitter));
        assert!(!with(0, most + 1, 0, 0));
        assert!(!with(0, 0, most + 1, 0));
        assert!(!with(0, 0, 0, jitter + 1));
        // No tick fires before its time.
        assert!(!with(1, 0, 0, 0));
    }

    #[test]
    fn an_id_depends_on_the_name_and_the_tick() {
        let definition = body(b"").definition;
        let id = |name, tick| definition.task(name, tick, |_, _, _| true).id;
        assert_eq!(id("a", 1), id("a", 1));
        assert_ne!(id("a", 1), id("b", 1));
        assert_ne!(id("a", 1), id("a", 2));
        // If the task cannot have the first id, it gets the next one.
        let first = id("a", 1);
        let other = definition.task("a", 1, |id, _, _| id != first).id;
        assert_ne!(other, first);
    }

    /// Each delay also ends before the next tick.
    #[test]
    fn each_tick_is_delayed_by_a_part_of_the_jitter() {
        let mut definition = body(b"").definition;
        let ticks = definition.spec.ticks().unwrap();
        for (jitter, most) in [
            (0, 0),
            (30_000, 30_000),
            (60_000, 59_999),
            (86_400_000, 59_999),
        ] {
            definition.jitter = jitter;
            let mut delays = std::collections::BTreeSet::new();
            for nth in 1..=100 {
                let next = definition.next_after("a", &ticks, nth * 60_000 - 1);
                let NextTick { tick, time } = next.unwrap();
                assert_eq!(tick, nth * 60_000);
                delays.insert(time - tick);
            }
            assert!(delays.last() <= Some(&most));
            assert!(delays.len() == 1 || delays.len() > 90);
            assert!(
                delays.first() <= Some(&(most / 10)) && delays.last() >= Some(&(most / 10 * 9))
            );
        }
    }

    /// Among 20,000 ticks, each possible delay occurs.
    #[test]
    fn the_jitter_ends_before_the_next_tick() {
        let mut definition = body(b"").definition;
        definition.spec = When::from(Every::new(Duration::from_secs(1)))
            .spec()
            .unwrap();
        let ticks = definition.spec.ticks().unwrap();
        for (jitter, most) in [(9, 9), (999, 999), (1_000, 999), (60_000, 999)] {
            definition.jitter = jitter;
            let delays = (0..20_000).map(|nth| {
                let next = definition.next_after("a", &ticks, nth * 1_000).unwrap();
                next.time - next.tick
            });
            let delays: std::collections::BTreeSet<_> = delays.collect();
            assert!(delays.into_iter().eq(0..=most), "{jitter}");
        }
    }
}
