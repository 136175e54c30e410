//! Decodes the answers of Redis.

use redis::Value;

use super::entry::{self, Entry};
use super::error::nonsense;
use super::partitions;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::failure::Failure;
use crate::durable::store::{Claim, Claimed, DeadReason, Epoch, TaskState, TurnAnswer};
use crate::durable::{AttemptError, Counts, DeadLetter};
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

    /// Nothing if the store has none.
    fn found(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        match self.next()? {
            Value::Nil => Ok(None),
            part => bytes(part).map(Some),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, Failure> {
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

/// An epoch as the scripts of its partition write it: as long as all others.
pub(super) fn epoch_text(epoch: Epoch) -> String {
    format!("{:016}", partitions::own(epoch))
}

fn own_epoch(text: &[u8]) -> Option<Epoch> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

// ===== Turns =====

/// The answer of a partition to a turn.
pub(super) struct Answered {
    pub(super) turned: TurnAnswer,
    /// The refused verdicts, by their positions.
    pub(super) refused: Vec<usize>,
    /// Whether a draining list has become empty.
    pub(super) is_drained: bool,
}

/// The answer to a turn.
pub(super) fn turned(answer: Value, partition: usize) -> Result<Answered, Failure> {
    let mut parts = Reader::new(answer)?;
    let refused = parts.list()?.rest(|part| Ok(part.number()? as usize))?;
    let text = parts.bytes()?;
    let entries = parts.list()?.rest(Reader::bytes)?;
    let bodies = parts.list()?.rest(Reader::found)?;
    let more = parts.number()? != 0;
    let next = u64::try_from(parts.number()?).ok();
    let epoch = match &*text {
        [] => None,
        text => Some(own_epoch(text).ok_or_else(|| nonsense(&Value::Nil))?),
    };
    let mut claim = match epoch {
        Some(own) => {
            let epoch = partitions::whole(own, partition);
            Some(claim(epoch, &entries, bodies)?)
        }
        None => None,
    };
    let is_repeated = parts.number()? != 0;
    let parked = parts.number()? != 0;
    let is_drained = parts.number()? != 0;
    if let Some(claim) = claim.as_mut().filter(|_| is_repeated) {
        claim.tasks.sort_unstable_by_key(|task| task.id);
    }
    let turned = TurnAnswer {
        refused: Vec::new(),
        claim,
        more,
        next: next.map(Duration::from_millis),
        parked,
    };
    Ok(Answered {
        turned,
        refused,
        is_drained,
    })
}

fn claim(
    epoch: Epoch,
    entries: &[Vec<u8>],
    bodies: Vec<Option<Vec<u8>>>,
) -> Result<Claim, Failure> {
    let broken = || nonsense(&Value::Nil);
    let mut bodies = bodies.into_iter();
    let mut tasks: Vec<Claimed> = Vec::with_capacity(entries.len());
    for row in entries {
        let body = match entry::has_payload(row) {
            true => None,
            false => bodies.next().ok_or_else(broken)?,
        };
        tasks.push(match Entry::read(row) {
            Some(entry) => entry.claimed(body, tasks.last()),
            None => entry::damaged(row).ok_or_else(broken)?,
        });
    }
    Ok(Claim { epoch, tasks })
}

/// The answer to a beat: of the claims, the epochs in their partition.
pub(super) fn beaten(answer: Value) -> Result<(Vec<Epoch>, Vec<TaskId>), Failure> {
    let mut parts = Reader::new(answer)?;
    let lost = parts.list()?.rest(|part| {
        let text = part.bytes()?;
        own_epoch(&text).ok_or_else(|| nonsense(&Value::BulkString(text)))
    })?;
    Ok((lost, parts.list()?.rest(Reader::id)?))
}

// ===== Looks =====

/// What a look has seen: fewer than asked for, if the rest did not fit.
pub(super) fn seen(answer: Value) -> Result<Vec<TaskState>, Failure> {
    Reader::new(answer)?.rest(|part| {
        let row = part.bytes()?;
        one_seen(&row).ok_or_else(|| nonsense(&Value::BulkString(row)))
    })
}

fn one_seen(row: &[u8]) -> Option<TaskState> {
    let (what, rest) = row.split_first()?;
    Some(match what {
        b'a' => TaskState::Absent,
        b'w' => TaskState::Waiting,
        b'l' => TaskState::Delayed,
        b'r' => TaskState::Running,
        b'c' => TaskState::Cancelled,
        b'd' => TaskState::Done(rest.to_vec()),
        b'x' => {
            let (reason, error) = rest.split_first()?;
            TaskState::Dead {
                reason: reason_of(*reason)?,
                error: String::from_utf8_lossy(error).into_owned(),
            }
        }
        _ => return None,
    })
}

/// The ends that a process is told of: those that are said, and those that it is to look at.
pub(super) fn told(mut rest: &[u8]) -> (Vec<(TaskId, TaskState)>, Vec<TaskId>) {
    let (mut seen, mut others) = (Vec::new(), Vec::new());
    while let Some((id, row, next)) = one_told(rest) {
        match one_seen(row) {
            Some(it) => seen.push((id, it)),
            None => others.push(id),
        }
        rest = next;
    }
    (seen, others)
}

/// An id, what is said of it, and what comes after that.
fn one_told(bytes: &[u8]) -> Option<(TaskId, &[u8], &[u8])> {
    let (id, rest) = bytes.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    let (row, rest) = rest.split_at_checked(len)?;
    Some((TaskId::from_bytes(*id), row, rest))
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
    let errors = parts.bytes()?;
    let errors = attempt_errors(&errors, parts.number()?);
    let (failures, crashes) = entry::counted(&header);
    let reason = u8::try_from(reason).ok().and_then(reason_of);
    Ok(DeadLetter {
        id,
        name,
        reason: reason.ok_or_else(|| nonsense(&Value::Nil))?,
        error,
        errors,
        failures,
        crashes,
        age: Duration::from_millis(u64::try_from(age).unwrap_or_default()),
    })
}

/// The answer to a question for the errors of a task.
pub(super) fn errors(answer: Value) -> Result<Vec<AttemptError>, Failure> {
    let mut parts = Reader::new(answer)?;
    let row = parts.bytes()?;
    Ok(attempt_errors(&row, parts.number()?))
}

/// Reads a row of `errors`, as far as it can be read.
fn attempt_errors(mut row: &[u8], now: i64) -> Vec<AttemptError> {
    let mut errors = Vec::new();
    while let Some((header, rest)) = row.split_first_chunk::<12>() {
        let len = usize::from(u16::from_be_bytes([header[10], header[11]]));
        let Some((error, rest)) = rest.split_at_checked(len) else {
            break;
        };
        let at = entry::number(&header[4..10]);
        errors.push(AttemptError {
            attempt: entry::number(&header[..4]) as u32,
            error: String::from_utf8_lossy(error).into_owned(),
            age: Duration::from_millis((now as u64).saturating_sub(at)),
        });
        row = rest;
    }
    errors
}

const REASONS: [DeadReason; 6] = [
    DeadReason::Fatal,
    DeadReason::Attempts,
    DeadReason::Crashes,
    DeadReason::Unreadable,
    DeadReason::OutputTooLarge,
    DeadReason::Damaged,
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

/// How many numbers there are in [`Counts`].
pub(super) const COUNTS: usize = 16;

/// Adds what one partition has counted.
pub(super) fn add_counts(sums: &mut [u64; COUNTS], answer: Value) -> Result<(), Failure> {
    let mut parts = Reader::new(answer)?;
    for sum in sums {
        *sum += u64::try_from(parts.number()?).unwrap_or_default();
    }
    Ok(())
}

pub(super) fn counts(sums: &[u64; COUNTS]) -> Counts {
    let [
        waiting,
        unserved,
        delayed,
        running,
        kept,
        dead,
        stored,
        claimed,
        done,
        retried,
        snoozed,
        died,
        released,
        crashed,
        lost,
        cancelled,
    ] = *sums;
    Counts {
        waiting,
        unserved,
        delayed,
        running,
        kept,
        dead,
        stored,
        claimed,
        done,
        retried,
        snoozed,
        died,
        released,
        crashed,
        lost,
        cancelled,
    }
}

/// The milliseconds of a time, as an argument.
pub(super) fn millis_text(time: Duration) -> String {
    millis(time).min(1 << 47).to_string()
}
