//! [`Deltas`]: the changes of the numbers of tasks by a transaction.

use super::state::State;
use crate::durable::Counts;
use crate::durable::store::totals::{FIELDS, Field};

/// The changes of the numbers of tasks by a transaction. The fields wrap around, so they can be negative.
#[derive(Debug, Default)]
pub(super) struct Deltas(Counts);

impl Deltas {
    /// Adds to a number.
    pub(super) fn add(&mut self, field: Field, change: i64) {
        let number = field(&mut self.0);
        *number = number.wrapping_add_signed(change);
    }

    /// Returns the changes in the order of [`stored_fields`].
    pub(super) fn numbers(&mut self) -> Vec<i64> {
        stored_fields()
            .map(|field| *field(&mut self.0) as i64)
            .collect()
    }
}

/// Returns the field that counts the tasks in a state.
pub(super) fn field_of(state: State) -> Field {
    match state {
        State::Waiting => |counts| &mut counts.waiting,
        State::Delayed => |counts| &mut counts.delayed,
        State::Running => |counts| &mut counts.running,
        State::Done | State::Cancelled => |counts| &mut counts.kept,
        State::Dead => |counts| &mut counts.dead,
    }
}

/// Returns the fields that have a column, in the order of the columns.
pub(super) fn stored_fields() -> impl Iterator<Item = Field> {
    let fields = FIELDS.into_iter().filter(|(name, _)| *name != "unserved");
    fields.map(|(_, field)| field)
}
