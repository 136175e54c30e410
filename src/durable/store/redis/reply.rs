//! Decodes answers of Redis.

use redis::Value;

use super::entry::{self, Entry};
use super::error::unexpected_answer;
use super::{partitions, schedule_row};
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::failure::Failure;
use crate::durable::key::Conflict;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::totals::FIELDS;
use crate::durable::store::{
    Claim, Claimed, DeadPayload, DeadReason, DueSchedule, Epoch, HandOut, KeyConflict,
    StoredSchedule, TaskState, TurnAnswer,
};
use crate::durable::{AttemptError, Counts, DeadLetter};
use std::time::Duration;

/// Reads the parts of an answer, one after the other.
pub(super) struct Reader(std::vec::IntoIter<Value>);

impl Reader {
    pub(super) fn new(answer: Value) -> Result<Self, Failure> {
        match answer {
            Value::Array(parts) => Ok(Self(parts.into_iter())),
            other => Err(unexpected_answer(&other)),
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

    /// Reads bytes, or `None` if the store has none.
    pub(super) fn optional_bytes(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        match self.next()? {
            Value::Nil => Ok(None),
            part => bytes(part).map(Some),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, Failure> {
        let bytes = self.bytes()?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn id(&mut self) -> Result<TaskId, Failure> {
        let bytes = self.bytes()?;
        id(&bytes).ok_or_else(|| unexpected_answer(&Value::BulkString(bytes)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    fn next(&mut self) -> Result<Value, Failure> {
        self.0.next().ok_or_else(|| unexpected_answer(&Value::Nil))
    }

    /// Reads all remaining parts with `read`.
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

/// The answer to a request that stores tasks of a partition.
#[derive(Default)]
pub(super) struct StoredAnswer {
    /// `true` if the routes of the store are not those that the client knows.
    pub(super) has_other_routes: bool,
    /// The tasks that were not stored, with their positions in the request.
    pub(super) conflicts: Vec<KeyConflict>,
}

/// Decodes the answer of `enqueue`.
pub(super) fn enqueued(answer: Value) -> Result<StoredAnswer, Failure> {
    let (answer, conflicts) = match answer {
        Value::Array(_) => {
            let mut parts = Reader::new(answer)?;
            (parts.bytes()?, parts.bytes()?)
        }
        answer => {
            return Ok(StoredAnswer {
                has_other_routes: is_text(&answer, b"ROUTES"),
                conflicts: Vec::new(),
            });
        }
    };
    let (conflicts, _) = conflicts.as_chunks();
    Ok(StoredAnswer {
        has_other_routes: answer == b"ROUTES",
        conflicts: conflicts.iter().map(conflict).collect(),
    })
}

/// Reads the answer of `change_schedule` if the change was made already: the last task in the row, if there is one.
pub(super) fn repeated(answer: &Value) -> Option<Option<TaskId>> {
    match answer {
        Value::Array(parts) => match &**parts {
            [text, Value::BulkString(id)] if is_text(text, b"REPEATED") => {
                Some(schedule_row::task(id))
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_text(answer: &Value, text: &[u8]) -> bool {
    matches!(answer, Value::BulkString(answer) if answer == text)
}

/// Decodes one conflict: a position, the resolution, and the id of the task that holds the key.
fn conflict(bytes: &[u8; 19]) -> KeyConflict {
    KeyConflict {
        position: u16::from_be_bytes([bytes[0], bytes[1]]).into(),
        holder: TaskId::from_bytes(std::array::from_fn(|i| bytes[3 + i])),
        resolution: match bytes[2] {
            b'r' => Conflict::Reject,
            b'p' => Conflict::Replace,
            _ => Conflict::Join,
        },
    }
}

pub(super) fn number(part: &Value) -> Result<i64, Failure> {
    match part {
        Value::Int(number) => Ok(*number),
        other => Err(unexpected_answer(other)),
    }
}

pub(super) fn bytes(part: Value) -> Result<Vec<u8>, Failure> {
    match part {
        Value::BulkString(bytes) => Ok(bytes),
        other => Err(unexpected_answer(&other)),
    }
}

pub(super) fn id(bytes: &[u8]) -> Option<TaskId> {
    bytes.try_into().ok().map(TaskId::from_bytes)
}

/// Splits a string of ids.
pub(super) fn ids(bytes: &[u8]) -> Vec<TaskId> {
    bytes.chunks_exact(16).filter_map(id).collect()
}

/// Returns an epoch as the scripts of its partition write it. All have the same length.
pub(super) fn epoch_text(epoch: Epoch) -> String {
    format!("{:016}", partitions::own(epoch))
}

pub(super) fn epoch_in_partition(text: &[u8]) -> Option<Epoch> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

// ===== Turns =====

/// The answer of a partition to a turn.
pub(super) struct PartitionAnswer {
    pub(super) turned: TurnAnswer,
    /// The time of the server, in milliseconds since 1970.
    pub(super) now: i64,
    /// The refused verdicts, by their positions.
    pub(super) refused: Vec<usize>,
    /// `true` if a draining list is empty.
    pub(super) is_drained: bool,
    /// `true` if the partition may have [notes](super::notes).
    pub(super) has_notes: bool,
}

/// Reads the answer to a turn.
pub(super) fn turned(answer: Value, partition: usize) -> Result<PartitionAnswer, Failure> {
    let mut parts = Reader::new(answer)?;
    let refused = parts.list()?.rest(|part| Ok(part.number()? as usize))?;
    let text = parts.bytes()?;
    let entries = parts.list()?.rest(Reader::bytes)?;
    let payloads = parts.list()?.rest(Reader::optional_bytes)?;
    let more = parts.number()? != 0;
    let next = u64::try_from(parts.number()?).ok();
    let epoch = match &*text {
        [] => None,
        text => Some(epoch_in_partition(text).ok_or_else(|| unexpected_answer(&Value::Nil))?),
    };
    let mut claim = match epoch {
        Some(own) => {
            let epoch = partitions::whole(own, partition);
            Some(claim(epoch, &entries, payloads)?)
        }
        None => None,
    };
    let is_repeated = parts.number()? != 0;
    let is_idle = parts.number()? != 0;
    let is_drained = parts.number()? != 0;
    let failing_for = parts.bytes()?;
    let now = parts.number()?;
    let is_pushed = parts.number()? != 0;
    let idle_sessions = parts.number()? as usize;
    if let Some(claim) = &mut claim {
        set_failing_for(&mut claim.tasks, &entries, &failing_for);
        set_waited(&mut claim.tasks, &entries, now);
    }
    let next_tick = match parts.0.len() {
        0 => None,
        _ => schedule_row::next_tick(parts.optional_bytes()?, now as u64),
    };
    let mut has_notes = false;
    if parts.0.len() > 0 {
        let steps = parts.bytes()?;
        if let Some(claim) = &mut claim {
            entry::set_steps(&mut claim.tasks, &steps);
        }
        has_notes = parts.number()? != 0;
    }
    if let Some(claim) = claim.as_mut().filter(|_| is_repeated) {
        claim.tasks.sort_unstable_by_key(|task| task.id);
    }
    let turned = TurnAnswer {
        claim,
        more,
        next: next.map(Duration::from_millis),
        is_idle,
        is_pushed,
        idle_sessions,
        next_tick,
        ..TurnAnswer::default()
    };
    Ok(PartitionAnswer {
        now,
        turned,
        refused,
        is_drained,
        has_notes,
    })
}

/// Reads the schedules that a partition hands out.
pub(super) fn handed_out(answer: Value, partition: usize) -> Result<HandOut, Failure> {
    let mut parts = Reader::new(answer)?;
    let schedules = parts
        .list()?
        .rest(|part| Ok((part.text()?, part.bytes()?)))?;
    let next = u64::try_from(parts.number()?).ok();
    let now = parts.number()? as u64;
    // Unreadable rows are left out: maintenance removes them.
    let due = schedules.into_iter().filter_map(|(name, row)| {
        let schedule = StoredSchedule {
            name: ScheduleName::new(&name).ok()?,
            partition,
            row: schedule_row::unpack(&row)?,
        };
        Some(DueSchedule { now, schedule })
    });
    Ok(HandOut {
        due: due.collect(),
        next: next.map(Duration::from_millis),
    })
}

pub(super) fn claim(
    epoch: Epoch,
    entries: &[Vec<u8>],
    payloads: Vec<Option<Vec<u8>>>,
) -> Result<Claim, Failure> {
    let broken = || unexpected_answer(&Value::Nil);
    let mut payloads = payloads.into_iter();
    let mut tasks: Vec<Claimed> = Vec::with_capacity(entries.len());
    for row in entries {
        let payload = match entry::has_payload(row) {
            true => None,
            false => payloads.next().ok_or_else(broken)?,
        };
        tasks.push(match Entry::read(row) {
            Some(entry) => entry.claimed(payload, tasks.last()),
            None => entry::damaged(row).ok_or_else(broken)?,
        });
    }
    Ok(Claim { epoch, tasks })
}

/// Sets the times since the first failures of tasks, given their entries in the same order. For each entry that has errors, `times`
/// contains a time in 6 bytes.
fn set_failing_for(tasks: &mut [Claimed], entries: &[Vec<u8>], times: &[u8]) {
    let failed = tasks.iter_mut().zip(entries);
    let failed = failed.filter(|(_, entry)| entry::has_errors(entry));
    for ((task, _), time) in failed.zip(times.chunks_exact(6)) {
        task.failing_for = Some(Duration::from_millis(entry::number(time)));
    }
}

/// Sets how long tasks have waited, given their entries in the same order, and the time in milliseconds since 1970. The time of a task
/// whose entry cannot be read is not known.
pub(super) fn set_waited(tasks: &mut [Claimed], entries: &[Vec<u8>], now: i64) {
    for (task, entry) in tasks.iter_mut().zip(entries) {
        let since_ready = entry::ready_at(entry).map(|at| now.saturating_sub(at));
        let since_ready = since_ready.map(|time| u64::try_from(time).unwrap_or_default());
        task.set_waited(since_ready.map(Duration::from_millis));
    }
}

/// Reads the answer to a renewal: the lost claims, by their epochs in the partition, and the cancelled tasks.
pub(super) fn renewed(answer: Value) -> Result<(Vec<Epoch>, Vec<TaskId>), Failure> {
    let mut parts = Reader::new(answer)?;
    let lost = parts.list()?.rest(|part| {
        let text = part.bytes()?;
        epoch_in_partition(&text).ok_or_else(|| unexpected_answer(&Value::BulkString(text)))
    })?;
    Ok((lost, parts.list()?.rest(Reader::id)?))
}

// ===== States of tasks =====

/// Reads the states of tasks: fewer than requested if the others did not fit into the answer.
pub(super) fn states(answer: Value) -> Result<Vec<TaskState>, Failure> {
    Reader::new(answer)?.rest(|part| {
        let row = part.bytes()?;
        state(&row).ok_or_else(|| unexpected_answer(&Value::BulkString(row)))
    })
}

fn state(row: &[u8]) -> Option<TaskState> {
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
                reason: self::reason((*reason).into())?,
                error: String::from_utf8_lossy(error).into_owned(),
            }
        }
        _ => return None,
    })
}

/// Reads a message about ended tasks: those whose states it contains, and those whose states must be requested.
pub(super) fn ends(mut rest: &[u8]) -> (Vec<(TaskId, TaskState)>, Vec<TaskId>) {
    let (mut states, mut others) = (Vec::new(), Vec::new());
    while let Some((id, row, next)) = end(rest) {
        match state(row) {
            Some(state) => states.push((id, state)),
            None => others.push(id),
        }
        rest = next;
    }
    (states, others)
}

/// Reads the first of some ended tasks: its id, its state, and the remaining bytes.
fn end(bytes: &[u8]) -> Option<(TaskId, &[u8], &[u8])> {
    let (id, rest) = bytes.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    let (row, rest) = rest.split_at_checked(len)?;
    Some((TaskId::from_bytes(*id), row, rest))
}

// ===== Dead letters =====

pub(super) fn dead_letters(answer: Value) -> Result<Vec<DeadLetter>, Failure> {
    Reader::new(answer)?.rest(|part| dead_letter(part.list()?))
}

fn dead_letter(mut parts: Reader) -> Result<DeadLetter, Failure> {
    let id = parts.id()?;
    let age = parts.number()?;
    let reason = parts.number()?;
    let error = parts.text()?;
    let header = parts.bytes()?;
    let name = parts.text()?;
    let errors = parts.bytes()?;
    let errors = attempt_errors(&errors, parts.number()?);
    let (failures, crashes) = entry::failures_and_crashes(&header);
    Ok(DeadLetter {
        id,
        name,
        reason: self::reason(reason).ok_or_else(|| unexpected_answer(&Value::Nil))?,
        error,
        errors,
        failures,
        crashes,
        age: Duration::from_millis(u64::try_from(age).unwrap_or_default()),
    })
}

/// Reads the payload of a dead letter, or `None` if there is no such dead letter.
pub(super) fn dead_letter_payload(answer: Value) -> Result<Option<DeadPayload>, Failure> {
    let mut parts = Reader::new(answer)?;
    if parts.0.len() == 0 {
        return Ok(None);
    }
    let row = parts.bytes()?;
    let payload = parts.optional_bytes()?;
    let found = Entry::read(&row).map(|entry| entry.dead(payload));
    Ok(Some(found.unwrap_or_else(|| DeadPayload {
        name: "".into(),
        payload: Err(String::from(
            "its dead letter is missing, or cannot be read",
        )),
    })))
}

/// Reads the errors of a task.
pub(super) fn errors(answer: Value) -> Result<Vec<AttemptError>, Failure> {
    let mut parts = Reader::new(answer)?;
    let row = parts.bytes()?;
    Ok(attempt_errors(&row, parts.number()?))
}

/// Reads a row of `errors`, up to the first unreadable byte.
pub(super) fn attempt_errors(row: &[u8], now: i64) -> Vec<AttemptError> {
    let (mut row, mut errors) = (row.get(6..).unwrap_or_default(), Vec::new());
    while let Some((header, rest)) = row.split_first_chunk::<16>() {
        let len = usize::from(u16::from_be_bytes([header[14], header[15]]));
        let Some((error, rest)) = rest.split_at_checked(len) else {
            break;
        };
        let at = entry::number(&header[4..10]);
        errors.push(AttemptError {
            attempt: entry::number(&header[..4]) as u32,
            error: String::from_utf8_lossy(error).into_owned(),
            age: Duration::from_millis((now as u64).saturating_sub(at)),
            took: entry::run_time(&header[10..14]),
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

/// Returns the number by which a reason is stored.
pub(super) fn reason_number(reason: DeadReason) -> u8 {
    let index = REASONS.iter().position(|&other| other == reason);
    index.map_or(0, |index| index as u8 + 1)
}

/// Returns the reason that is stored as a number.
pub(super) fn reason(number: i64) -> Option<DeadReason> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    REASONS.get(index).copied()
}

// ===== Counts =====

/// Adds the counts of a partition.
pub(super) fn add_counts(counts: &mut Counts, answer: Value) -> Result<(), Failure> {
    let mut parts = Reader::new(answer)?;
    for (_, field) in FIELDS {
        *field(counts) += u64::try_from(parts.number()?).unwrap_or_default();
    }
    Ok(())
}

/// Returns the milliseconds of a time, as an argument.
pub(super) fn millis_text(time: Duration) -> String {
    millis(time).min(1 << 47).to_string()
}
