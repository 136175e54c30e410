//! Reading what Redis answers.

use redis::Value;

use super::entry::Entry;
use super::error::nonsense;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::error::Failure;
use crate::durable::store::{Claim, Claimed, DeadReason, Epoch, Seen, Turned};
use crate::durable::{Counts, DeadLetter};
use std::time::Duration;

/// The parts of an answer, as they are expected one after the other.
pub(super) struct Reader(std::vec::IntoIter<Value>);

impl Reader {
    pub(super) fn new(answer: Value) -> Result<Self, Failure> {
        match answer {
            Value::Array(parts) => Ok(Self(parts.into_iter())),
            other => Err(nonsense(&other)),
        }
    }

    pub(super) fn list(&mut self) -> Result<Self, Failure> {
        self.next().and_then(Self::new)
    }

    pub(super) fn number(&mut self) -> Result<i64, Failure> {
        self.next().and_then(|part| number(&part))
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, Failure> {
        self.next().and_then(bytes)
    }

    fn text(&mut self) -> Result<String, Failure> {
        let bytes = self.bytes()?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn id(&mut self) -> Result<TaskId, Failure> {
        let bytes = self.bytes()?;
        id(&bytes).ok_or_else(|| nonsense(&Value::BulkString(bytes)))
    }

    fn next(&mut self) -> Result<Value, Failure> {
        self.0.next().ok_or_else(|| nonsense(&Value::Nil))
    }

    /// The rest, each read by `read`.
    pub(super) fn rest<T>(
        mut self,
        read: impl Fn(&mut Self) -> Result<T, Failure>,
    ) -> Result<Vec<T>, Failure> {
        let mut all = Vec::with_capacity(self.0.len());
        while self.0.len() != 0 {
            all.push(read(&mut self)?);
        }
        Ok(all)
    }
}

pub(super) fn number(part: &Value) -> Result<i64, Failure> {
    match part {
        Value::Int(number) => Ok(*number),
        other => Err(nonsense(other)),
    }
}

pub(super) fn bytes(part: Value) -> Result<Vec<u8>, Failure> {
    match part {
        Value::BulkString(bytes) => Ok(bytes),
        other => Err(nonsense(&other)),
    }
}

pub(super) fn id(bytes: &[u8]) -> Option<TaskId> {
    bytes.try_into().ok().map(TaskId::from_bytes)
}

/// Ids, one after the other.
pub(super) fn ids(bytes: &[u8]) -> Vec<TaskId> {
    bytes.chunks_exact(16).filter_map(id).collect()
}

/// An epoch as the scripts write it: as long as all others.
pub(super) fn epoch_text(epoch: Epoch) -> String {
    format!("{epoch:016}")
}

fn epoch(text: &[u8]) -> Option<Epoch> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

// ===== Turns =====

/// The answer to a turn, and which of its verdicts were refused, by their places.
pub(super) fn turned(answer: Value) -> Result<(Turned, Vec<usize>), Failure> {
    let mut parts = Reader::new(answer)?;
    let refused = parts.list()?.rest(|part| Ok(part.number()? as usize))?;
    let epoch = parts.bytes()?;
    let entries = parts.list()?.rest(Reader::bytes)?;
    let bodies = parts.list()?.rest(Reader::bytes)?;
    let more = parts.number()? != 0;
    let next = u64::try_from(parts.number()?).ok();
    let now = parts.number()? as u64;
    let mut claim = claim(&epoch, &entries, bodies, now)?;
    let is_repeated = parts.number()? != 0;
    if let Some(claim) = claim.as_mut().filter(|_| is_repeated) {
        claim.tasks.sort_unstable_by_key(|task| task.id);
    }
    let turned = Turned {
        refused: Vec::new(),
        claim,
        more,
        next: next.map(Duration::from_millis),
    };
    Ok((turned, refused))
}

fn claim(
    text: &[u8],
    entries: &[Vec<u8>],
    bodies: Vec<Vec<u8>>,
    now: u64,
) -> Result<Option<Claim>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let broken = || nonsense(&Value::BulkString(text.to_vec()));
    let epoch = epoch(text).ok_or_else(broken)?;
    let mut bodies = bodies.into_iter();
    let mut tasks: Vec<Claimed> = Vec::with_capacity(entries.len());
    for entry in entries {
        let entry = Entry::read(entry).ok_or_else(broken)?;
        let body = match entry.is_inline() {
            true => Vec::new(),
            false => bodies.next().ok_or_else(broken)?,
        };
        tasks.push(entry.claimed(now, body, tasks.last()));
    }
    Ok(Some(Claim { epoch, tasks }))
}

pub(super) fn beaten(answer: Value) -> Result<(Vec<Epoch>, Vec<TaskId>), Failure> {
    let mut parts = Reader::new(answer)?;
    let lost = parts.list()?.rest(|part| {
        let text = part.bytes()?;
        epoch(&text).ok_or_else(|| nonsense(&Value::BulkString(text)))
    })?;
    Ok((lost, parts.list()?.rest(Reader::id)?))
}

// ===== Looks =====

/// What a look has seen: fewer than asked for, if the rest did not fit.
pub(super) fn seen(answer: Value) -> Result<Vec<Seen>, Failure> {
    Reader::new(answer)?.rest(|part| {
        let row = part.bytes()?;
        one_seen(&row).ok_or_else(|| nonsense(&Value::BulkString(row)))
    })
}

fn one_seen(row: &[u8]) -> Option<Seen> {
    let (what, rest) = row.split_first()?;
    Some(match what {
        b'a' => Seen::Absent,
        b'w' => Seen::Waiting,
        b'l' => Seen::Delayed,
        b'r' => Seen::Running,
        b'c' => Seen::Cancelled,
        b'd' => Seen::Done(rest.to_vec()),
        b'x' => {
            let (reason, error) = rest.split_first()?;
            Seen::Dead {
                reason: reason_of(*reason)?,
                error: String::from_utf8_lossy(error).into_owned(),
            }
        }
        _ => return None,
    })
}

// ===== Dead letters =====

pub(super) fn letters(answer: Value) -> Result<Vec<DeadLetter>, Failure> {
    Reader::new(answer)?.rest(|part| letter(part.list()?))
}

fn letter(mut parts: Reader) -> Result<DeadLetter, Failure> {
    let id = parts.id()?;
    let age = parts.number()?;
    let reason = parts.number()?;
    let error = parts.text()?;
    let header = parts.bytes()?;
    let name = parts.text()?;
    let (failures, crashes) = super::entry::counted(&header);
    let reason = u8::try_from(reason).ok().and_then(reason_of);
    Ok(DeadLetter {
        id,
        name,
        reason: reason.ok_or_else(|| nonsense(&Value::Nil))?,
        error,
        failures,
        crashes,
        age: Duration::from_millis(u64::try_from(age).unwrap_or_default()),
    })
}

const REASONS: [DeadReason; 6] = [
    DeadReason::Fatal,
    DeadReason::Attempts,
    DeadReason::Crashes,
    DeadReason::Unreadable,
    DeadReason::OutputTooLarge,
    DeadReason::Unknown,
];

/// How a reason is stored.
pub(super) fn reason_number(reason: DeadReason) -> u8 {
    let place = REASONS.iter().position(|&other| other == reason);
    place.map_or(0, |place| place as u8 + 1)
}

fn reason_of(number: u8) -> Option<DeadReason> {
    let place = usize::from(number).checked_sub(1)?;
    REASONS.get(place).copied()
}

// ===== Counts =====

pub(super) fn counts(answer: Value) -> Result<Counts, Failure> {
    let mut parts = Reader::new(answer)?;
    let mut next = || {
        parts
            .number()
            .map(|number| u64::try_from(number).unwrap_or_default())
    };
    Ok(Counts {
        waiting: next()?,
        delayed: next()?,
        running: next()?,
        kept: next()?,
        dead: next()?,
        stored: next()?,
        claimed: next()?,
        done: next()?,
        retried: next()?,
        snoozed: next()?,
        died: next()?,
        released: next()?,
        crashed: next()?,
        lost: next()?,
        cancelled: next()?,
    })
}

/// The milliseconds of a time, as an argument.
pub(super) fn millis_text(time: Duration) -> String {
    millis(time).min(1 << 47).to_string()
}
