//! Entries: the form in which Redis stores tasks.
//!
//! An entry is moved from key to key as a whole. The scripts read and change its header, at fixed
//! offsets. This module encodes and decodes entries. Numbers are big-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 16 | the id |
//! | 8 | the client id of the process that has stored it |
//! | 6 | how long its end is kept, in milliseconds |
//! | 2 | `max_crashes` |
//! | 4 | failures |
//! | 2, 2 | crashes, and losses |
//! | 6 | the time at which it became ready by its producer's clock, in milliseconds since 1970 |
//! | 8 | its kind |
//! | 1 | flags. 1: the entry holds the payload, and `payloads` does not; 4: `errors` may have a row for the task; 2, 8 and 16 are reserved |
//! | 4 | the length of the payload |
//! | | the payload, if the entry holds it, and the name |

use std::sync::Arc;
use std::time::Duration;

use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::store::kind::Kind;
use crate::durable::store::{Claimed, NewTask, is_quarantined};

/// Payloads up to here are in the entry; larger ones are not moved about.
pub(super) const INLINE: usize = 512;

const HEADER: usize = 59;

/// The flag of an entry that has its payload.
const PAYLOAD_HERE: u8 = 1;

/// Four thousand years: as long as six bytes can say, and some time can be added to it.
const MOST_MILLIS: u64 = 1 << 47;

/// The milliseconds of a time that is kept in six bytes.
pub(super) fn short_millis(time: Duration) -> u64 {
    millis(time).min(MOST_MILLIS)
}

/// The entry of a new task.
pub(super) fn pack(task: &NewTask, client_id: &str, kind: Kind, now: u64) -> Vec<u8> {
    let is_inline = task.payload.len() <= INLINE;
    let payload = if is_inline { &*task.payload } else { &[] };
    let mut entry = Vec::with_capacity(HEADER + payload.len() + task.name.len());
    entry.extend(task.id.to_bytes());
    entry.extend(client_id.as_bytes());
    entry.extend(&short_millis(task.retention).to_be_bytes()[2..]);
    let max_crashes = u16::try_from(task.max_crashes).unwrap_or(u16::MAX);
    entry.extend(max_crashes.to_be_bytes());
    entry.extend([0; 4 + 2 + 2]);
    let ready_at = now.saturating_add(short_millis(task.delay));
    entry.extend(&ready_at.to_be_bytes()[2..]);
    entry.extend(kind.to_bytes());
    entry.push(if is_inline { PAYLOAD_HERE } else { 0 });
    let len = u32::try_from(task.payload.len()).unwrap_or(u32::MAX);
    entry.extend(len.to_be_bytes());
    entry.extend(payload);
    entry.extend(task.name.as_bytes());
    entry
}

/// What an entry says of a task.
pub(super) struct Entry<'a> {
    pub(super) id: TaskId,
    pub(super) failures: u32,
    pub(super) crashes: u32,
    max_crashes: u32,
    lost: u32,
    /// Nothing if it is elsewhere.
    payload: Option<&'a [u8]>,
    /// The length of the payload, wherever it is.
    payload_len: usize,
    name: &'a str,
}

impl<'a> Entry<'a> {
    /// Reads an entry. Nothing: it is none.
    pub(super) fn read(entry: &'a [u8]) -> Option<Self> {
        let (header, rest) = entry.split_at_checked(HEADER)?;
        let is_inline = header[54] & PAYLOAD_HERE != 0;
        let payload_len = usize::try_from(number(&header[55..])).ok()?;
        let (payload, name) = rest.split_at_checked(if is_inline { payload_len } else { 0 })?;
        Some(Self {
            id: TaskId::from_bytes(header[..16].try_into().ok()?),
            max_crashes: number(&header[30..32]) as u32,
            failures: number(&header[32..36]) as u32,
            crashes: number(&header[36..38]) as u32,
            lost: number(&header[38..40]) as u32,
            payload: is_inline.then_some(payload),
            payload_len,
            name: std::str::from_utf8(name).ok()?,
        })
    }

    /// The task as it is claimed now, with its payload if that is elsewhere. The neighbours in a claim
    /// are likely to have the same name.
    pub(super) fn claimed(&self, body: Option<Vec<u8>>, before: Option<&Claimed>) -> Claimed {
        Claimed {
            id: self.id,
            name: match before {
                Some(before) if *before.name == *self.name => Arc::clone(&before.name),
                _ => self.name.into(),
            },
            payload: match self.payload {
                Some(payload) => Ok(payload.to_vec()),
                None => self.whole(body),
            },
            failures: self.failures,
            crashes: self.crashes,
            lost: self.lost,
            quarantined: is_quarantined(self.crashes, self.lost, self.max_crashes),
        }
    }

    /// Returns the payload that is elsewhere, if it has the length that the entry says.
    fn whole(&self, payload: Option<Vec<u8>>) -> Result<Vec<u8>, String> {
        let payload = payload.ok_or("its payload is missing")?;
        match payload.len() == self.payload_len {
            true => Ok(payload),
            false => Err(format!(
                "its payload has {} bytes instead of {}",
                payload.len(),
                self.payload_len
            )),
        }
    }
}

/// Returns `true` if the payload is in the entry, as the scripts see it.
pub(super) fn has_payload(entry: &[u8]) -> bool {
    entry.get(54).is_some_and(|flags| flags & PAYLOAD_HERE != 0)
}

/// The claimed task of an entry that cannot be read but for its id.
pub(super) fn damaged(entry: &[u8]) -> Option<Claimed> {
    Some(Claimed {
        id: TaskId::from_bytes(*entry.first_chunk()?),
        name: "".into(),
        payload: Err(String::from("its entry cannot be read")),
        failures: 0,
        crashes: 0,
        lost: 0,
        quarantined: false,
    })
}

/// A number of at most eight bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// How many failures and crashes the header of an entry counts.
pub(super) fn counted(header: &[u8]) -> (u32, u32) {
    let at = |from, to| header.get(from..to).map_or(0, |bytes| number(bytes) as u32);
    (at(32, 36), at(36, 38))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scripts rely on these places.
    #[test]
    fn a_header_has_its_fields_where_they_were_agreed() {
        let task = NewTask {
            id: TaskId::from_bytes([7; 16]),
            name: "mail".into(),
            envelope: 1,
            payload: b"{}".to_vec(),
            delay: Duration::ZERO,
            retention: Duration::from_millis(0x0102_0304_0506),
            max_crashes: 3,
        };
        let entry = pack(&task, "A-client", task.kind(), 0x0708_090a);
        assert_eq!(entry.len(), 59 + 2 + 4);
        assert_eq!(entry[..16], [7; 16]);
        assert_eq!(&entry[16..24], b"A-client");
        assert_eq!(entry[24..30], [1, 2, 3, 4, 5, 6]);
        assert_eq!(entry[30..32], [0, 3]);
        assert_eq!(entry[32..40], [0; 8]);
        assert_eq!(entry[40..46], [0, 0, 7, 8, 9, 10]);
        // printf '\\001mail' | sha256sum, with the highest bit set.
        let kind = [0x88, 0xd9, 0x24, 0x48, 0x0b, 0x40, 0x23, 0xe1];
        assert_eq!(entry[46..54], kind);
        assert_eq!(entry[54..59], [1, 0, 0, 0, 2]);
        assert_eq!(&entry[59..], b"{}mail");
        let large = pack(
            &NewTask {
                payload: vec![0; INLINE + 1],
                ..task
            },
            "A-client",
            Kind::of("mail"),
            0,
        );
        assert_eq!(large[54..59], [0, 0, 0, 2, 1]);
        assert_eq!(&large[59..], b"mail");

        // A payload elsewhere has this length, or is damaged.
        let claimed = |payload| Entry::read(&large).unwrap().claimed(payload, None).payload;
        assert!(claimed(Some(vec![0; INLINE + 1])).is_ok());
        for damaged in [None, Some(vec![0; INLINE]), Some(vec![0; INLINE + 2])] {
            assert!(claimed(damaged).is_err());
        }
    }
}
