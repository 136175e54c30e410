//! Entries: the rows in which Redis stores tasks.
//!
//! An entry is moved from key to key as a whole. The scripts read and change its header, at fixed positions. This module
//! encodes and decodes entries. Numbers are big-endian.
//!
//! | bytes | content |
//! | --- | --- |
//! | 16 | id |
//! | 8 | client id of the process that has stored the task |
//! | 6 | retention, in milliseconds |
//! | 2 | `max_crashes` |
//! | 4 | failures |
//! | 2, 2 | crashes, and losses |
//! | 6 | time at which the task became ready, in milliseconds since 1970; for a new task, as its producer estimates it |
//! | 8 | kind |
//! | 1 | flags. 1: the entry contains the payload; 2: it has an extension; 4: `errors` may have a row for the task; 8 and 16 are reserved |
//! | 4 | length of the payload |
//! | | extension, if there is one: see below |
//! | | payload, if the entry contains it; otherwise, it is in `payloads` |
//! | | name |
//!
//! The extension contains what few tasks have.
//!
//! | bytes | content of the extension |
//! | --- | --- |
//! | 2 | length of the rest |
//! | 1 | flags. 1: the task is in a named queue; 2: it has a key; 4: it has a group; 8: it has a parent |
//! | 1 | if in a named queue: priority: 0 high, 1 normal, 2 low |
//! | 1 | if in a named queue: length of the queue's name |
//! | | name of the queue |
//! | 1 | if with a group: length of its name |
//! | | if with a group: its name |
//! | 16 | if with a parent: the id of the parent |
//! | 16 | if with a key: the key |
//! | 1 | if with a key: 16 times the priority, plus 1 if the task holds the key only until a worker claims it |

use std::sync::Arc;
use std::time::Duration;

use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::queue::group::GroupName;
use crate::durable::store::kind::Kind;
use crate::durable::store::{Beginning, Claimed, DeadPayload, NewTask, StepWait, is_quarantined};

/// The byte positions of the fields of an entry, counted from zero. The scripts have the same ones, counted from one: see
/// `lua/layout.lua`.
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "only the scripts need some of the fields")
)]
mod layout {
    use std::ops::Range;

    pub(super) const ID: Range<usize> = 0..16;
    pub(super) const CLIENT: Range<usize> = 16..24;
    pub(super) const RETENTION: Range<usize> = 24..30;
    pub(super) const MAX_CRASHES: Range<usize> = 30..32;
    pub(super) const FAILURES: Range<usize> = 32..36;
    pub(super) const CRASHES: Range<usize> = 36..38;
    pub(super) const LOST: Range<usize> = 38..40;
    pub(super) const READY_AT: Range<usize> = 40..46;
    pub(super) const KIND: Range<usize> = 46..54;
    pub(super) const FLAGS: usize = 54;
    pub(super) const LENGTH: Range<usize> = 55..59;
    pub(super) const PAYLOAD: usize = 59;

    // If there is an extension, it is here, before the payload. First, it has its length.
    pub(super) const EXTENSION: usize = 61;
    pub(super) const QUEUE_LENGTH: usize = 63;
}

/// The maximum length of a payload in an entry. Larger payloads are stored separately, so that they are not moved.
pub(super) const MAX_INLINE_PAYLOAD: usize = 512;

/// The flag of an entry that contains its payload.
const HAS_PAYLOAD: u8 = 1;
/// The flag of an entry that has an extension.
const HAS_EXTENSION: u8 = 2;
/// The flag of an entry of a task for which `errors` may have a row.
const HAS_ERRORS: u8 = 4;
/// The flag of an extension that names a queue.
const HAS_QUEUE: u8 = 1;
/// The flag of an extension that has a key.
const HAS_KEY: u8 = 2;
/// The flag of an extension that names a group.
const HAS_GROUP: u8 = 4;
/// The flag of an extension that has the id of a parent.
const HAS_PARENT: u8 = 8;

/// The maximum of times that are stored in six bytes: four thousand years, to which another time can be added.
pub(super) const MAX_MILLIS: u64 = 1 << 47;

/// Returns the milliseconds of a time that is stored in six bytes.
pub(super) fn short_millis(time: Duration) -> u64 {
    millis(time).min(MAX_MILLIS)
}

/// Returns the duration of a run as it is stored. The largest number stands for an unknown duration.
pub(super) fn run_time_bytes(took: Option<Duration>) -> [u8; 4] {
    let millis = |took| u32::try_from(millis(took)).unwrap_or(u32::MAX - 1);
    took.map_or(u32::MAX, millis).to_be_bytes()
}

/// Returns the duration of a run that was stored, or `None` if it is not known.
pub(super) fn run_time(bytes: &[u8]) -> Option<Duration> {
    let millis = u32::from_be_bytes(bytes.try_into().ok()?);
    (millis < u32::MAX).then(|| Duration::from_millis(millis.into()))
}

/// Returns the entry of a new task.
pub(super) fn pack(task: &NewTask, client_id: &str, kind: Kind, now: u64) -> Vec<u8> {
    let is_inline = task.payload.len() <= MAX_INLINE_PAYLOAD;
    let payload = if is_inline { &*task.payload } else { &[] };
    let extension = extension(task);
    let len = layout::PAYLOAD + extension.len() + payload.len() + task.name.len();
    let mut entry = Vec::with_capacity(len);
    entry.extend(task.id.to_bytes());
    entry.extend(client_id.as_bytes());
    entry.extend(&short_millis(task.retention).to_be_bytes()[2..]);
    let max_crashes = u16::try_from(task.max_crashes).unwrap_or(u16::MAX);
    entry.extend(max_crashes.to_be_bytes());
    // Failures, crashes and losses.
    entry.extend([0; 4 + 2 + 2]);
    let ready_at = now.saturating_add(short_millis(task.delay));
    entry.extend(&ready_at.to_be_bytes()[2..]);
    entry.extend(kind.to_bytes());
    let has_extension = if extension.is_empty() {
        0
    } else {
        HAS_EXTENSION
    };
    entry.push(has_extension | if is_inline { HAS_PAYLOAD } else { 0 });
    let len = u32::try_from(task.payload.len()).unwrap_or(u32::MAX);
    entry.extend(len.to_be_bytes());
    entry.extend(extension);
    entry.extend(payload);
    entry.extend(task.name.as_bytes());
    entry
}

/// Returns the extension of an entry, with its length, or nothing.
fn extension(task: &NewTask) -> Vec<u8> {
    if task.queue.is_default() && task.key.is_none() && task.parent.is_none() {
        return Vec::new();
    }
    let mut extension = Vec::with_capacity(64);
    extension.extend([0, 0, 0]);
    if !task.queue.is_default() {
        let queue = task.queue.as_str().as_bytes();
        extension[2] |= HAS_QUEUE;
        extension.extend([task.priority as u8, queue.len() as u8]);
        extension.extend(queue);
    }
    if let Some(group) = &task.group {
        let group = group.as_str().as_bytes();
        extension[2] |= HAS_GROUP;
        extension.push(group.len() as u8);
        extension.extend(group);
    }
    if let Some(parent) = task.parent {
        extension[2] |= HAS_PARENT;
        extension.extend(parent.to_bytes());
    }
    if let Some(key) = task.key {
        extension[2] |= HAS_KEY;
        extension.extend(key.hash.0);
        extension.push(task.priority as u8 * 16 + u8::from(key.is_until_started));
    }
    // The names of a queue and of a group have at most 64 bytes.
    extension[1] = extension.len() as u8 - 2;
    extension
}

/// The description of the damage if a payload is missing.
const LOST_PAYLOAD: &str = "its payload is missing";

/// A decoded entry.
pub(super) struct Entry<'a> {
    pub(super) id: TaskId,
    pub(super) failures: u32,
    pub(super) crashes: u32,
    max_crashes: u32,
    lost: u32,
    /// `None` if the payload is stored separately.
    payload: Option<&'a [u8]>,
    /// The length of the payload, even if it is stored separately.
    payload_len: usize,
    group: Option<&'a str>,
    name: &'a str,
}

impl<'a> Entry<'a> {
    /// Decodes an entry. Returns `None` if it is unreadable.
    pub(super) fn read(entry: &'a [u8]) -> Option<Self> {
        let (header, rest) = entry.split_at_checked(layout::PAYLOAD)?;
        let is_inline = header[layout::FLAGS] & HAS_PAYLOAD != 0;
        let payload_len = usize::try_from(number(&header[layout::LENGTH])).ok()?;
        let (extension, rest) = match header[layout::FLAGS] & HAS_EXTENSION {
            0 => (&[][..], rest),
            _ => {
                let (len, rest) = rest.split_at_checked(2)?;
                rest.split_at_checked(number(len) as usize)?
            }
        };
        let (payload, name) = rest.split_at_checked(if is_inline { payload_len } else { 0 })?;
        Some(Self {
            id: TaskId::from_bytes(header[layout::ID].try_into().ok()?),
            max_crashes: number(&header[layout::MAX_CRASHES]) as u32,
            failures: number(&header[layout::FAILURES]) as u32,
            crashes: number(&header[layout::CRASHES]) as u32,
            lost: number(&header[layout::LOST]) as u32,
            payload: is_inline.then_some(payload),
            payload_len,
            group: group(extension),
            name: std::str::from_utf8(name).ok()?,
        })
    }

    /// Returns the claimed task. `payload` is its payload if that is stored separately, and `before` the previous task of
    /// the claim, which is likely to have the same name. `failing_for` and `waited` are `None`, since the entry does not contain the
    /// time of the first failure, nor the time of the claim.
    pub(super) fn claimed(&self, payload: Option<Vec<u8>>, before: Option<&Claimed>) -> Claimed {
        Claimed {
            id: self.id,
            name: match before {
                Some(before) if *before.name == *self.name => Arc::clone(&before.name),
                _ => self.name.into(),
            },
            group: self.group.and_then(|group| GroupName::new(group).ok()),
            payload: self.payload(payload),
            failures: self.failures,
            failing_for: None,
            waited: None,
            crashes: self.crashes,
            lost: self.lost,
            quarantined: is_quarantined(self.crashes, self.lost, self.max_crashes),
            steps: 0,
            wait: StepWait::Over,
        }
    }

    /// Returns the dead letter. `payload` is its payload if that is stored separately.
    pub(super) fn dead(&self, payload: Option<Vec<u8>>) -> DeadPayload {
        let payload = match payload {
            Some(payload) if self.is_rebuilt() => Ok(payload),
            payload => self.payload(payload),
        };
        DeadPayload {
            name: self.name.into(),
            payload,
        }
    }

    /// Returns the beginning of the payload. If the payload is stored separately, `separate` is its beginning. The error describes the
    /// damage.
    pub(super) fn beginning(&self, separate: Option<Beginning>) -> Result<Beginning, String> {
        match (self.payload, separate) {
            (Some(inline), _) => Ok(Beginning::of(inline.to_vec())),
            (None, None) => Err(String::from(LOST_PAYLOAD)),
            (None, Some(separate)) => match self.is_rebuilt() {
                true => Ok(separate),
                false => self.check_len(separate.len).map(|()| separate),
            },
        }
    }

    /// Returns `true` if a script has rebuilt a lost entry. It knows neither the name nor the length of the payload, so
    /// both are empty. The payload is intact if it is stored separately.
    fn is_rebuilt(&self) -> bool {
        self.payload.is_none() && self.payload_len == 0 && self.name.is_empty()
    }

    /// Returns the payload in the entry, or else the separate one.
    fn payload(&self, separate: Option<Vec<u8>>) -> Result<Vec<u8>, String> {
        match self.payload {
            Some(inline) => Ok(inline.to_vec()),
            None => self.check(separate),
        }
    }

    /// Returns the separate payload if it has the length in the entry.
    fn check(&self, payload: Option<Vec<u8>>) -> Result<Vec<u8>, String> {
        let payload = payload.ok_or(LOST_PAYLOAD)?;
        self.check_len(payload.len()).map(|()| payload)
    }

    fn check_len(&self, len: usize) -> Result<(), String> {
        match len == self.payload_len {
            true => Ok(()),
            false => Err(format!(
                "its payload has {len} bytes instead of {}",
                self.payload_len
            )),
        }
    }
}

/// Returns the group in an extension without its length.
fn group(extension: &[u8]) -> Option<&str> {
    let (flags, rest) = extension.split_first()?;
    if flags & HAS_GROUP == 0 {
        return None;
    }
    // The priority, and the name of the queue.
    let rest = rest.get(2 + usize::from(*rest.get(1)?)..)?;
    let (len, rest) = rest.split_first()?;
    std::str::from_utf8(rest.get(..usize::from(*len))?).ok()
}

/// Returns `true` if the entry contains the payload, by the same test as the scripts.
pub(super) fn has_payload(entry: &[u8]) -> bool {
    let flags = entry.get(layout::FLAGS);
    flags.is_some_and(|flags| flags & HAS_PAYLOAD != 0)
}

/// Returns `true` if `errors` may have a row for the task of the entry, by the same test as the scripts.
pub(super) fn has_errors(entry: &[u8]) -> bool {
    let flags = entry.get(layout::FLAGS);
    flags.is_some_and(|flags| flags & HAS_ERRORS != 0)
}

/// Returns the claimed task of an entry of which only the id is readable.
pub(super) fn damaged(entry: &[u8]) -> Option<Claimed> {
    Some(Claimed {
        id: TaskId::from_bytes(*entry.first_chunk()?),
        name: "".into(),
        group: None,
        payload: Err(String::from("its entry cannot be read")),
        failures: 0,
        failing_for: None,
        waited: None,
        crashes: 0,
        lost: 0,
        quarantined: false,
        steps: 0,
        wait: StepWait::Over,
    })
}

/// Sets what a turn says about the steps of claimed tasks.
pub(super) fn set_steps(tasks: &mut [Claimed], numbers: &[u8]) {
    let (numbers, _) = numbers.as_chunks::<8>();
    for (task, numbers) in tasks.iter_mut().zip(numbers) {
        let [steps, until] = [&numbers[..4], &numbers[4..]].map(|it| number(it) as u32);
        task.steps = steps;
        task.wait = StepWait::of(steps, Some(until).filter(|&until| until > 0));
    }
}

/// Decodes a number of at most eight bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Returns the numbers of failures and crashes in the header of an entry.
pub(super) fn failures_and_crashes(header: &[u8]) -> (u32, u32) {
    let at = |field| header.get(field).map_or(0, |bytes| number(bytes) as u32);
    (at(layout::FAILURES), at(layout::CRASHES))
}

/// Returns the time at which the task of a header became ready, in milliseconds since 1970.
pub(super) fn ready_at(header: &[u8]) -> Option<i64> {
    let bytes = header.get(layout::READY_AT)?;
    i64::try_from(number(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ops::Range;

    use super::super::names;
    use super::*;
    use crate::durable::key::{Conflict, KeyHash, NewKey};
    use crate::durable::queue::Priority;
    use crate::durable::queue::name::QueueName;

    /// Stored entries of this layout exist, so the positions are written as numbers here.
    #[test]
    fn an_entry_has_the_documented_layout() {
        let task = NewTask {
            id: TaskId::from_bytes([7; 16]),
            name: "mail".into(),
            envelope: 1,
            version: 1,
            queue: QueueName::DEFAULT,
            group: None,
            priority: Priority::Normal,
            key: None,
            payload: b"{}".to_vec(),
            delay: Duration::ZERO,
            retention: Duration::from_millis(0x0102_0304_0506),
            max_crashes: 3,
            parent: None,
        };
        let entry = pack(&task, "A-client", task.kind(), 0x0708_090a);
        assert_eq!(entry.len(), 59 + 2 + 4);
        assert_eq!(entry[..16], [7; 16]);
        assert_eq!(&entry[16..24], b"A-client");
        assert_eq!(entry[24..30], [1, 2, 3, 4, 5, 6]);
        assert_eq!(entry[30..32], [0, 3]);
        assert_eq!(entry[32..40], [0; 8]);
        assert_eq!(entry[40..46], [0, 0, 7, 8, 9, 10]);
        // printf '\\001mail' | sha256sum: 7 bytes, with the highest bit set, and the version minus 1.
        let kind = [0x88, 0xd9, 0x24, 0x48, 0x0b, 0x40, 0x23, 0];
        assert_eq!(entry[46..54], kind);
        assert_eq!(entry[54..59], [1, 0, 0, 0, 2]);
        assert_eq!(&entry[59..], b"{}mail");
        let large = pack(
            &NewTask {
                payload: vec![0; MAX_INLINE_PAYLOAD + 1],
                ..task.clone()
            },
            "A-client",
            Kind::of("mail"),
            0,
        );
        assert_eq!(large[54..59], [0, 0, 0, 2, 1]);
        assert_eq!(&large[59..], b"mail");

        let in_queue = NewTask {
            queue: QueueName::new("gpu").unwrap(),
            priority: Priority::Low,
            ..task.clone()
        };
        let queued = pack(&in_queue, "A-client", in_queue.kind(), 0);
        assert_eq!(queued[54..59], [3, 0, 0, 0, 2]);
        assert_eq!(&queued[59..], b"\x00\x06\x01\x02\x03gpu{}mail");
        let entry = Entry::read(&queued).unwrap();
        assert_eq!(&*entry.claimed(None, None).name, "mail");
        for len in 59..queued.len() - 6 {
            assert!(Entry::read(&queued[..len]).is_none(), "{len}");
        }

        let key = NewKey {
            hash: KeyHash([9; 16]),
            conflict: Conflict::Join,
            is_until_started: true,
            window: Duration::ZERO,
            latest: None,
        };
        for (task, extension) in [
            (task, &b"\x00\x12\x02"[..]),
            (in_queue, &b"\x00\x17\x03\x02\x03gpu"[..]),
        ] {
            let task = NewTask {
                key: Some(key),
                ..task
            };
            let mode = task.priority as u8 * 16 + 1;
            let child = NewTask {
                parent: Some(TaskId::from_bytes([8; 16])),
                ..task.clone()
            };
            let head = [0, extension[1] + 16, extension[2] + 8];
            let of_child = [&head, &extension[3..], &[8; 16]].concat();
            let keyed = pack(&child, "A-client", child.kind(), 0);
            let expected = [&of_child, &[9; 16][..], &[mode], b"{}mail"].concat();
            assert_eq!(&keyed[59..], expected);
            let keyed = pack(&task, "A-client", task.kind(), 0);
            let expected = [extension, &[9; 16], &[mode], b"{}mail"].concat();
            assert_eq!(&keyed[59..], expected);
            let entry = Entry::read(&keyed).unwrap();
            assert_eq!(&*entry.claimed(None, None).name, "mail");
        }

        // A separate payload of another length is damaged.
        let claimed = |payload| Entry::read(&large).unwrap().claimed(payload, None).payload;
        assert!(claimed(Some(vec![0; MAX_INLINE_PAYLOAD + 1])).is_ok());
        for damaged in [
            None,
            Some(vec![0; MAX_INLINE_PAYLOAD]),
            Some(vec![0; MAX_INLINE_PAYLOAD + 2]),
        ] {
            assert!(claimed(damaged).is_err());
        }
    }

    #[test]
    fn scripts_have_the_same_layout() {
        let lua: HashMap<_, usize> = names::layout()
            .map(|(name, position)| (name, position.parse().unwrap()))
            .collect();
        // Lua counts positions from one, and includes the last one.
        let mut expected = HashMap::from([
            ("ENTRY_ID_END", layout::ID.end),
            ("ENTRY_CLIENT", layout::CLIENT.start + 1),
            ("ENTRY_CLIENT_END", layout::CLIENT.end),
            ("ENTRY_RETENTION", layout::RETENTION.start + 1),
            ("ENTRY_RETENTION_END", layout::RETENTION.end),
            ("ENTRY_MAX_CRASHES", layout::MAX_CRASHES.start + 1),
            ("ENTRY_FAILURES", layout::FAILURES.start + 1),
            ("ENTRY_CRASHES", layout::CRASHES.start + 1),
            ("ENTRY_READY_AT", layout::READY_AT.start + 1),
            ("ENTRY_KIND", layout::KIND.start + 1),
            ("ENTRY_KIND_END", layout::KIND.end),
            ("ENTRY_FLAGS", layout::FLAGS + 1),
            ("ENTRY_LENGTH", layout::LENGTH.start + 1),
            ("ENTRY_PAYLOAD", layout::PAYLOAD + 1),
            ("ENTRY_EXTENSION", layout::EXTENSION + 1),
            ("ENTRY_QUEUE_LENGTH", layout::QUEUE_LENGTH + 1),
            ("ENTRY_QUEUE", layout::QUEUE_LENGTH + 2),
        ]);
        let lua_entry = lua.iter().filter(|(name, _)| name.starts_with("ENTRY_"));
        assert_eq!(
            lua_entry
                .map(|(&name, &at)| (name, at))
                .collect::<HashMap<_, _>>(),
            expected
        );

        // A row of `running` is an epoch of 16 digits and an entry.
        expected.retain(|name, _| lua.contains_key(&*name.replace("ENTRY", "RUNNING")));
        for (name, at) in expected {
            let running = lua[&*name.replace("ENTRY", "RUNNING")];
            assert_eq!(running, lua["RUNNING_EPOCH_END"] + at, "{name}");
        }
        assert_eq!(lua["RUNNING_ENTRY"], lua["RUNNING_EPOCH_END"] + 1);

        // A row of `alive` consists of three fields of the entry and, if the task has one, its key.
        let len = Range::<usize>::len;
        let client = len(&layout::CLIENT);
        assert_eq!(lua["ALIVE_CLIENT_END"], client);
        assert_eq!(lua["ALIVE_RETENTION"], client + 1);
        assert_eq!(lua["ALIVE_RETENTION_END"], client + len(&layout::RETENTION));
        assert_eq!(lua["ALIVE_KIND"], lua["ALIVE_RETENTION_END"] + 1);
        assert_eq!(
            lua["ALIVE_KIND_END"],
            lua["ALIVE_RETENTION_END"] + len(&layout::KIND)
        );
        assert_eq!(lua["ALIVE_KEY"], lua["ALIVE_KIND_END"] + 1);
        assert_eq!(lua["ALIVE_KEY_END"], lua["ALIVE_KIND_END"] + 16);
    }
}
