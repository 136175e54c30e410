//! Conflicts of keys, as the stores in SQL databases remember them: those of an enqueue, and that of a task from an outbox.

use crate::durable::TaskId;
use crate::durable::key::Conflict;
use crate::durable::store::{Enqueued, KeyConflict, TaskState};

/// The length of the number of a request, in bytes.
const NUMBER_LEN: usize = 8;
/// The length of a conflict, in bytes: the position, what has happened, and the holder.
const CONFLICT_LEN: usize = 2 + 1 + 16;

const CONFLICTS: [Conflict; 3] = [Conflict::Join, Conflict::Reject, Conflict::Replace];

/// Returns the column `answer` of a session: the number of a request, and its conflicts.
pub(crate) fn answer_column(number: u64, enqueued: &Enqueued) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    for conflict in &enqueued.conflicts {
        let resolution = CONFLICTS.iter().position(|&it| it == conflict.resolution);
        bytes.extend((conflict.position as u16).to_le_bytes());
        bytes.push(resolution.unwrap_or_default() as u8);
        bytes.extend(conflict.holder.to_bytes());
    }
    bytes
}

/// Reads the answer to a request. A request without conflicts does not write the column, which may then be of an earlier request.
pub(crate) fn read_answer(number: u64, column: Option<&[u8]>) -> Enqueued {
    let split = column.and_then(|bytes| bytes.split_at_checked(NUMBER_LEN));
    let (_, conflicts) = split
        .filter(|(of, _)| *of == number.to_le_bytes())
        .unwrap_or_default();
    let (conflicts, _) = conflicts.as_chunks::<CONFLICT_LEN>();
    Enqueued {
        conflicts: conflicts.iter().map(read_conflict).collect(),
    }
}

fn read_conflict(bytes: &[u8; CONFLICT_LEN]) -> KeyConflict {
    let resolution = CONFLICTS.get(usize::from(bytes[2]));
    KeyConflict {
        position: u16::from_le_bytes([bytes[0], bytes[1]]).into(),
        holder: TaskId::from_bytes(std::array::from_fn(|i| bytes[3 + i])),
        resolution: resolution.copied().unwrap_or(Conflict::Join),
    }
}

/// Returns the column `output` of a task that came from an outbox and has ended because of this conflict. It is stored in the state of a
/// cancelled task, which otherwise has no output.
pub(crate) fn output_of_conflict(conflict: &KeyConflict) -> Vec<u8> {
    let resolution = CONFLICTS.iter().position(|&it| it == conflict.resolution);
    let mut output = vec![resolution.unwrap_or_default() as u8];
    output.extend(conflict.holder.to_bytes());
    output
}

/// Returns the state of a task that is stored as cancelled.
pub(crate) fn cancelled_state(output: Option<&[u8]>) -> TaskState {
    let conflict = output.and_then(|output| {
        let (&resolution, holder) = output.split_first()?;
        Some(TaskState::Conflict {
            holder: TaskId::from_bytes(holder.try_into().ok()?),
            resolution: *CONFLICTS.get(usize::from(resolution))?,
        })
    });
    conflict.unwrap_or(TaskState::Cancelled)
}
