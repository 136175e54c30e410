//! The rows in which Redis stores schedules.

use std::time::Duration;

use super::entry;
use crate::durable::TaskId;
use crate::durable::schedule::when::{COMPUTES, COMPUTES_CRON, COMPUTES_EVERY};
use crate::durable::store::ScheduleRow;

/// The positions in a row, counted from zero: see `lua/layout.lua`.
mod layout {
    use std::ops::Range;

    pub(super) const VERSION: Range<usize> = 0..8;
    pub(super) const NEEDS: usize = 8;
    pub(super) const TIME: Range<usize> = 9..15;
    pub(super) const STARTED: Range<usize> = 15..21;
    pub(super) const SKIPPED: Range<usize> = 21..27;
    pub(super) const LAST_TASK: Range<usize> = 27..43;
    pub(super) const BODY: usize = 43;
}

/// Returns a row as it is stored.
pub(super) fn pack(row: &ScheduleRow) -> Vec<u8> {
    let mut packed = row.version.to_be_bytes().to_vec();
    packed.push(row.needs);
    for number in [row.time.unwrap_or(0), row.started, row.skipped] {
        packed.extend(&number.to_be_bytes()[2..]);
    }
    packed.extend(row.last_task.map_or([0; 16], TaskId::to_bytes));
    packed.extend(&row.body);
    packed
}

/// Reads a stored row. Returns `None` if a part of it is missing.
pub(super) fn unpack(packed: &[u8]) -> Option<ScheduleRow> {
    let body = packed.get(layout::BODY..)?;
    let last_task = task(&packed[layout::LAST_TASK]);
    Some(ScheduleRow {
        version: entry::number(&packed[layout::VERSION]),
        needs: packed[layout::NEEDS],
        time: Some(entry::number(&packed[layout::TIME])).filter(|&time| time > 0),
        started: entry::number(&packed[layout::STARTED]),
        skipped: entry::number(&packed[layout::SKIPPED]),
        last_task,
        body: body.to_vec(),
    })
}

/// Reads the id of a task. Returns `None` if there is none.
pub(super) fn task(stored: &[u8]) -> Option<TaskId> {
    let id = stored.try_into().ok()?;
    Some(TaskId::from_bytes(id)).filter(|_| id != [0; 16])
}

/// Reads the time until the next schedule is handed out, of those whose ticks this build computes.
pub(super) fn next_tick(field: Option<Vec<u8>>, now: u64) -> Option<Duration> {
    let Ok(field) = <[u8; 12]>::try_from(field?) else {
        // The script that hands schedules out writes the field again.
        return Some(Duration::ZERO);
    };
    let firsts = [(COMPUTES_EVERY, &field[..6]), (COMPUTES_CRON, &field[6..])];
    let computed = firsts.iter().filter(|(needs, _)| COMPUTES & needs != 0);
    let times = computed.map(|(_, first)| entry::number(first));
    let first = times.filter(|&time| time > 0).min();
    first.map(|first| Duration::from_millis(first.saturating_sub(now)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::names;
    use super::*;

    #[test]
    fn a_row_has_the_documented_layout() {
        let mut row = ScheduleRow {
            version: 0x0102_0304_0506_0708,
            needs: 2,
            time: Some(9),
            started: 10,
            skipped: 11,
            last_task: Some(TaskId::from_bytes([12; 16])),
            body: b"body".to_vec(),
        };
        let packed = pack(&row);
        let mut expected = vec![1, 2, 3, 4, 5, 6, 7, 8, 2];
        expected.extend([0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 11]);
        expected.extend([12; 16]);
        expected.extend(b"body");
        assert_eq!(packed, expected);
        assert_eq!(unpack(&packed).as_ref(), Some(&row));
        assert_eq!(unpack(&packed[..layout::BODY - 1]), None);
        (row.time, row.last_task) = (None, None);
        assert_eq!(unpack(&pack(&row)), Some(row));
    }

    #[test]
    fn scripts_have_the_same_layout() {
        let lua: HashMap<_, usize> = names::layout()
            .map(|(name, position)| (name, position.parse().unwrap()))
            .filter(|(name, _)| name.starts_with("SCHEDULE_"))
            .collect();
        // Lua counts positions from one, and includes the last one.
        let expected = HashMap::from([
            ("SCHEDULE_VERSION_END", layout::VERSION.end),
            ("SCHEDULE_NEEDS", layout::NEEDS + 1),
            ("SCHEDULE_TIME", layout::TIME.start + 1),
            ("SCHEDULE_STARTED", layout::STARTED.start + 1),
            ("SCHEDULE_LAST_TASK", layout::LAST_TASK.start + 1),
            ("SCHEDULE_BODY", layout::BODY + 1),
        ]);
        assert_eq!(lua, expected);
    }
}
