//! Schedules: stores their rows, and hands out those that are due.

use super::error::{Fault, unwritten};
use super::transaction::Transaction;
use super::view::View;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{Enqueued, HandOut, ScheduleAnswer, ScheduleChange, StoredSchedule};
use std::time::Duration;

/// Hands out due schedules.
pub(super) async fn hand_out(_tx: &mut Transaction, _computes: u8) -> Result<HandOut, Fault> {
    Err(unwritten("hand_out"))
}

/// Returns a schedule.
pub(super) async fn get(_view: &View, _name: &ScheduleName) -> Result<ScheduleAnswer, Fault> {
    Err(unwritten("schedule"))
}

/// Returns schedules in the order of their names.
pub(super) async fn list(
    _view: &View,
    _after: Option<&ScheduleName>,
    _limit: usize,
) -> Result<Vec<StoredSchedule>, Fault> {
    Err(unwritten("schedules"))
}

/// Returns the schedules that are handed out next, of each kind of build.
pub(super) async fn next(_view: &View) -> Result<Vec<StoredSchedule>, Fault> {
    Ok(Vec::new())
}

/// Changes a schedule, and stores tasks in the same step.
pub(super) async fn change(
    _tx: &mut Transaction,
    _change: &ScheduleChange,
) -> Result<Option<Enqueued>, Fault> {
    Err(unwritten("change_schedule"))
}

/// Returns the time until the next schedule is due, of those that need one of these bits.
pub(super) async fn wait(_view: &View, _computes: u8) -> Result<Option<Duration>, Fault> {
    Ok(None)
}
