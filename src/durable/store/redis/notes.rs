//! Relays notes: a partition in which children end has a note of each end until the partition of the parent has stored it as a step. See
//! `lua/children.lua`.
//!
//! A note is removed after its step is stored, so a process that dies in between leaves it to others. They store the step again, which has
//! no effect: the first end of a child counts.

use std::sync::Arc;

use super::inner::Inner;
use super::reply::{self, Reader};
use super::scripts::Arguments;
use crate::durable::TaskId;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::Failure;

/// Relays the notes of a partition, unless this process does so already. The caller does not wait for that: another partition may not
/// answer. If a request fails, a later turn or pass of maintenance repeats this.
pub(super) fn relay(inner: &Arc<Inner>, partition: usize) {
    if !inner.relays.begin(partition) {
        return;
    }
    let inner = Arc::clone(inner);
    tokio::spawn(async move {
        loop {
            let relayed = relay_all(&inner, partition).await;
            if inner.relays.end(partition, relayed.is_err()) {
                break;
            }
        }
    });
}

pub(super) async fn relay_all(inner: &Inner, partition: usize) -> Result<(), Failure> {
    let mut told = Vec::new();
    loop {
        let notes = take(inner, partition, &told).await?;
        told.clear();
        let mut failure = None;
        for (of_parents, notes) in inner.partitions.split(notes, |note| note.parent) {
            match tell(inner, of_parents, &notes).await {
                Ok(gone) => told.extend(gone),
                Err(failed) => failure = Some(failed),
            }
        }
        failpoint("redis.before-notes-are-removed");
        match failure {
            // The notes of the other partitions are relayed.
            Some(failure) => {
                take(inner, partition, &told).await?;
                return Err(failure);
            }
            None if told.is_empty() => return Ok(()),
            None => {}
        }
    }
}

/// The end of a child that is to be told to its parent.
struct Note {
    child: TaskId,
    parent: TaskId,
    /// The row of `notes`.
    row: Vec<u8>,
}

/// Removes the notes of these children, and returns some others. Leaves out notes that cannot be read, which maintenance removes.
async fn take(inner: &Inner, partition: usize, told: &[TaskId]) -> Result<Vec<Note>, Failure> {
    let mut arguments = Arguments::default();
    arguments.push_ids(told);
    let script = &inner.scripts.take_notes;
    let answer = inner.run(script, partition, arguments).await?;
    let rows = Reader::new(answer)?.rest(Reader::bytes)?;
    let (pairs, _) = rows.as_chunks::<2>();
    let notes = pairs.iter().filter_map(|[child, row]| {
        Some(Note {
            child: reply::id(child)?,
            parent: reply::id(row.get(..16)?)?,
            row: row.clone(),
        })
    });
    Ok(notes.collect())
}

/// Stores ends of children as steps of parents in a partition. Returns the children of which the notes are of no use any more.
async fn tell(inner: &Inner, partition: usize, notes: &[Note]) -> Result<Vec<TaskId>, Failure> {
    let mut arguments = Arguments::default();
    arguments.push_number(notes.len());
    for note in notes {
        arguments.push(note.child.to_bytes());
        arguments.push(&*note.row);
    }
    let script = &inner.scripts.tell_parents;
    let answer = inner.run(script, partition, arguments).await?;
    Reader::new(answer)?.rest(Reader::id)
}
