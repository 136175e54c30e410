//! Invalid rows: a value has another type than its column, or is out of range.

use std::ops::RangeInclusive;

use rusqlite::types::{ToSql, ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Row, Statement, params, params_from_iter};

use super::steps;

use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::DeadReason;
use crate::durable::store::reason_numbers::reason_number;
use crate::durable::store::sqlite::claimed_tasks::ClaimedTasks;
use crate::durable::store::sqlite::damage::Damage;
use crate::durable::store::sqlite::error::Fault;
use crate::durable::store::sqlite::meta::{MAX_ISSUED, read_expiry};
use crate::durable::store::sqlite::time::Now;

/// A column: its name, its valid values, and the SQL expression that replaces an invalid one.
struct Column(&'static str, Values, &'static str);

enum Values {
    /// 16 bytes.
    Id,
    Number(RangeInclusive<i64>),
    Text,
    ScheduleName,
    Bytes,
    /// The tasks that a claim holds.
    ClaimedTasks,
    Optional(&'static Self),
}

const ANY: Values = Values::Number(i64::MIN..=i64::MAX);
const COUNT: Values = Values::Number(0..=u32::MAX as i64);
const TIME: Values = Values::Number(0..=1 << 60);
/// The interval of a rate, in microseconds: at most a year.
const INTERVAL: Values = Values::Number(1..=1 << 45);
const FLAG: Values = Values::Number(0..=1);
const PRIORITY: Values = Values::Number(0..=2);
/// A limit of a queue.
const LIMIT: Values = Values::Optional(&Values::Number(1..=u32::MAX as i64));

const SESSION: &[Column] = &[
    Column("endpoint", ANY, ""),
    Column("layout", ANY, ""),
    Column("process", ANY, ""),
    Column("types", Values::Optional(&ANY), ""),
    Column("number", ANY, ""),
    Column("claim", Values::Optional(&ANY), ""),
    Column("first", Values::Optional(&Values::Id), ""),
    Column("answer", Values::Optional(&Values::Bytes), ""),
    Column("opened", ANY, ""),
    Column("card", Values::Optional(&Values::Bytes), ""),
];
const CLAIM: &[Column] = &[
    Column("session", ANY, ""),
    Column("until", ANY, ""),
    Column("lease", TIME, ""),
    Column("suspect", Values::Number(0..=2), ""),
    Column("delivered", FLAG, ""),
    Column("cancels", FLAG, ""),
    Column("queue", Values::Optional(&Values::Text), ""),
    Column("claimed_at", ANY, "0"),
    Column("held", Values::ClaimedTasks, ""),
];
const READY: &[Column] = &[
    Column("list", ANY, ""),
    Column("sublist", COUNT, ""),
    Column("place", ANY, ""),
    Column("id", Values::Id, ""),
];
const GROUP_HOLD: &[Column] = &[
    Column("queue", Values::Text, ""),
    Column("name", Values::Text, ""),
    Column("until", ANY, ""),
];
const ERROR: &[Column] = &[
    Column("id", Values::Id, ""),
    Column("attempt", COUNT, ""),
    Column("at", TIME, ""),
    Column("error", Values::Text, ""),
    Column("took", Values::Optional(&TIME), "NULL"),
];
const PROGRESS: &[Column] = &[
    Column("id", Values::Id, ""),
    Column("epoch", ANY, ""),
    Column("number", ANY, ""),
    Column("bytes", Values::Bytes, ""),
];
const STEP: &[Column] = &[
    Column("id", Values::Id, ""),
    Column("name", Values::Text, ""),
    Column("number", COUNT, ""),
    Column("at", TIME, ""),
    Column("value", Values::Bytes, ""),
];
const WORKFLOW: &[Column] = &[
    Column("id", Values::Id, ""),
    Column("steps", COUNT, ""),
    Column("bytes", COUNT, ""),
    Column("until", Values::Optional(&COUNT), ""),
    Column("waits_for", Values::Optional(&Values::Text), "NULL"),
];
const STAT: &[Column] = &[
    Column("hours", FLAG, ""),
    Column("bucket", TIME, ""),
    Column("name", Values::Text, ""),
    Column("queue", Values::Text, ""),
    Column("started", TIME, ""),
    Column("done", TIME, ""),
    Column("retried", TIME, ""),
    Column("died", TIME, ""),
    Column("cancelled", TIME, ""),
    Column("micros", TIME, ""),
];
const STAT_REPORT: &[Column] = &[Column("number", TIME, ""), Column("at", TIME, "")];
const DAMAGED: &[Column] = &[
    Column("number", Values::Number(0..=MAX_ISSUED), ""),
    Column("at", TIME, ""),
    Column("found", COUNT, ""),
    Column("what", Values::Text, ""),
];
const QUEUE: &[Column] = &[
    Column("name", Values::Text, ""),
    // A limit that cannot be read is replaced with a strict one.
    Column("paused", FLAG, "1"),
    Column("max_running", LIMIT, "1"),
    Column("interval", Values::Optional(&INTERVAL), "3600000000"),
    Column("burst", LIMIT, "1"),
    Column("group_max", LIMIT, "1"),
    Column("quantum", Values::Number(1..=u32::MAX as i64), "1"),
    Column("revision", COUNT, "0"),
    Column("used_until", TIME, "0"),
    Column("since_normal", TIME, "0"),
    Column("since_low", TIME, "0"),
];
const SCHEDULE: &[Column] = &[
    Column("name", Values::ScheduleName, ""),
    Column("version", ANY, "random()"),
    Column("needs", Values::Number(1..=2), ""),
    // With 0, the schedule is handed out at once. The worker then finds out when it is due, or that it is paused.
    Column("time", Values::Optional(&TIME), "0"),
    Column("hand_out", Values::Optional(&TIME), "0"),
    Column("started", TIME, "0"),
    Column("skipped", TIME, "0"),
    Column("last_task", Values::Optional(&Values::Id), "NULL"),
    Column("body", Values::Bytes, ""),
];
const TASK: &[Column] = &[
    Column("state", Values::Number(0..=5), "4"),
    Column("list", Values::Optional(&ANY), "NULL"),
    Column("sublist", COUNT, "0"),
    Column("place", Values::Optional(&ANY), "NULL"),
    Column("at", Values::Optional(&ANY), "NULL"),
    Column("ready_at", Values::Optional(&ANY), "NULL"),
    Column("name", Values::Text, "''"),
    Column("failures", COUNT, "0"),
    Column("failing_since", Values::Optional(&TIME), "NULL"),
    Column("crashes", COUNT, "0"),
    Column("lost", COUNT, "0"),
    Column("cancel", FLAG, "0"),
    Column("max_crashes", COUNT, "0"),
    Column("retention", TIME, "0"),
    Column("kind", ANY, "0"),
    Column("endpoint", ANY, "0"),
    Column("queue", Values::Optional(&Values::Text), "NULL"),
    Column("group_name", Values::Optional(&Values::Text), "NULL"),
    Column("priority", PRIORITY, "1"),
    Column("key", Values::Optional(&Values::Id), "NULL"),
    Column("key_since", Values::Optional(&TIME), "NULL"),
    Column("key_until", Values::Optional(&ANY), "NULL"),
    Column("parent", Values::Optional(&Values::Id), "NULL"),
    Column("payload", Values::Optional(&Values::Bytes), "NULL"),
    Column("output", Values::Optional(&Values::Bytes), "NULL"),
    Column("error", Values::Optional(&Values::Text), "''"),
    Column("reason", Values::Optional(&Values::Number(0..=1000)), "0"),
    Column("took", Values::Optional(&TIME), "NULL"),
];

impl Values {
    fn has(&self, value: ValueRef<'_>) -> bool {
        match (self, value) {
            (Self::Optional(_), ValueRef::Null) => true,
            (Self::Optional(values), value) => values.has(value),
            (Self::Id, ValueRef::Blob(bytes)) => bytes.len() == 16,
            (Self::Number(range), ValueRef::Integer(number)) => range.contains(&number),
            (Self::Text, ValueRef::Text(bytes)) => std::str::from_utf8(bytes).is_ok(),
            (Self::ScheduleName, ValueRef::Text(bytes)) => {
                std::str::from_utf8(bytes).is_ok_and(|name| ScheduleName::new(name).is_ok())
            }
            (Self::ClaimedTasks, ValueRef::Blob(bytes)) => {
                bytes.len() % ClaimedTasks::ENTRY_LEN == 0
            }
            (Self::Bytes, ValueRef::Blob(_)) => true,
            _ => false,
        }
    }
}

/// The columns of a table, with their positions in the rows of a statement. A check of a row would take twice as long if
/// it looked up their names.
pub(super) struct Columns(Vec<(usize, &'static Column)>);

impl Columns {
    /// Returns the columns of the table of the tasks.
    pub(super) fn of_tasks(statement: &Statement<'_>) -> Self {
        Self::new(statement, TASK)
    }

    fn new(statement: &Statement<'_>, columns: &'static [Column]) -> Self {
        let found = columns.iter().filter_map(|column| {
            let position = statement.column_index(column.0).ok()?;
            Some((position, column))
        });
        Self(found.collect())
    }

    /// Returns the columns of a row whose values are invalid.
    fn invalid(&self, row: &Row<'_>) -> Vec<&'static Column> {
        let bad = self.0.iter().filter(|(position, Column(_, values, _))| {
            let value = row.get_ref(*position);
            value.is_ok_and(|value| !values.has(value))
        });
        bad.map(|it| it.1).collect()
    }
}

/// Returns `true` if the row of a task is valid.
pub(super) fn is_valid(row: &Row<'_>, columns: &Columns) -> bool {
    columns.invalid(row).is_empty() && is_consistent(row)
}

/// Returns `true` if the values of a task fit together.
fn is_consistent(row: &Row<'_>) -> bool {
    let is_null = |name: &str| matches!(row.get_ref(name), Ok(ValueRef::Null));
    let is_id = row.get_ref("id").is_ok_and(|id| Values::Id.has(id));
    is_id
        && match row.get("state") {
            Ok(0) => true,
            // This is a state of the view `throng_now`, not of a row.
            Ok(2) => false,
            Ok(4) => !["at", "reason", "error"].into_iter().any(is_null),
            // The time when the task is due, or when its retention is over.
            _ => !is_null("at"),
        }
}

// ===== Rows =====

/// Removes invalid rows from all tables except that of the tasks.
pub(super) fn remove_invalid(db: &Connection, now: Now, damage: &mut Damage) -> Result<(), Fault> {
    for (table, key, columns) in [
        ("throng_session", &["id"][..], SESSION),
        ("throng_claim", &["epoch"], CLAIM),
        ("throng_ready", &["list", "sublist", "place"], READY),
        ("throng_group_hold", &["queue", "name"], GROUP_HOLD),
        ("throng_error", &["id", "attempt"], ERROR),
        ("throng_progress", &["id"], PROGRESS),
        ("throng_step", &["id", "name"], STEP),
        ("throng_workflow", &["id"], WORKFLOW),
        ("throng_stat", &["hours", "bucket", "name", "queue"], STAT),
        ("throng_stat_report", &["reporter"], STAT_REPORT),
        ("throng_damaged", &["number"], DAMAGED),
    ] {
        for bad in find_invalid(db, table, key, columns, |_| true)? {
            damage.add(1, || bad.describe(table));
            if table == "throng_workflow" {
                steps::end_wait(db, now, &bad.key[0])?;
            }
            bad.remove(db, table, key)?;
        }
    }
    Ok(())
}

/// Repairs the rows of queues. A limit that is lost is replaced with a strict one, which holds until the limits are set again.
pub(super) fn repair_queues(db: &Connection, damage: &mut Damage) -> Result<(), Fault> {
    for bad in find_invalid(db, "throng_queue", &["name"], QUEUE, |_| true)? {
        damage.add(1, || bad.describe("throng_queue"));
        match Values::Text.has(bad.key[0].0.value()) {
            true => bad.replace(db, "throng_queue", "name", QUEUE)?,
            false => bad.remove(db, "throng_queue", &["name"])?,
        }
    }
    Ok(())
}

/// Repairs the rows of schedules. Removes rows whose name, build or body is lost: such a schedule is defined again when a process
/// of its program starts.
pub(super) fn repair_schedules(db: &Connection, damage: &mut Damage) -> Result<(), Fault> {
    let table = "throng_schedule";
    for bad in find_invalid(db, table, &["name"], SCHEDULE, |_| true)? {
        damage.add(1, || bad.describe(table));
        let is_lost = |column: &Column| column.2.is_empty() && bad.columns.contains(&column.0);
        match SCHEDULE.iter().any(is_lost) {
            true => bad.remove(db, table, &["name"])?,
            false => bad.replace(db, table, "name", SCHEDULE)?,
        }
    }
    Ok(())
}

/// Makes dead letters of tasks whose rows are invalid.
pub(super) fn end_invalid_tasks(
    db: &Connection,
    now: Now,
    damage: &mut Damage,
) -> Result<(), Fault> {
    let time = read_expiry(db, now)?.store_time;
    for bad in find_invalid(db, "throng_task", &["id"], TASK, is_consistent)? {
        damage.add(1, || bad.describe("throng_task"));
        match Values::Id.has(bad.key[0].0.value()) {
            true => bad.end(db, time)?,
            false => bad.remove(db, "throng_task", &["id"])?,
        }
    }
    Ok(())
}

/// An invalid row.
struct InvalidRow {
    key: Vec<OwnedValue>,
    columns: Vec<&'static str>,
}

fn find_invalid(
    db: &Connection,
    table: &str,
    key: &[&str],
    columns: &'static [Column],
    is_consistent: impl Fn(&Row<'_>) -> bool,
) -> Result<Vec<InvalidRow>, rusqlite::Error> {
    let mut statement = db.prepare(&format!("SELECT * FROM {table}"))?;
    let columns = Columns::new(&statement, columns);
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let bad = columns.invalid(row);
        if !bad.is_empty() || !is_consistent(row) {
            let key = key
                .iter()
                .map(|column| row.get_ref(*column).map(OwnedValue::of));
            found.push(InvalidRow {
                key: key.collect::<Result<_, _>>()?,
                columns: bad.iter().map(|column| column.0).collect(),
            });
        }
    }
    Ok(found)
}

impl InvalidRow {
    fn describe(&self, table: &str) -> String {
        match &*self.columns {
            [] => format!("the values of a row of {table} do not fit together"),
            columns => format!("a row of {table} has no valid {}", columns.join(", ")),
        }
    }

    fn remove(&self, db: &Connection, table: &str, key: &[&str]) -> Result<(), rusqlite::Error> {
        let is_row: Vec<_> = key.iter().map(|column| format!("{column} IS ?")).collect();
        let sql = format!("DELETE FROM {table} WHERE {}", is_row.join(" AND "));
        db.execute(&sql, params_from_iter(&self.key))?;
        Ok(())
    }

    /// Replaces the invalid values.
    fn replace(
        &self,
        db: &Connection,
        table: &str,
        key: &str,
        columns: &[Column],
    ) -> Result<(), rusqlite::Error> {
        let bad = columns.iter().filter(|it| self.columns.contains(&it.0));
        for Column(name, _, instead) in bad {
            let sql = format!("UPDATE {table} SET {name} = {instead} WHERE {key} = ?1");
            db.execute(&sql, [&self.key[0]])?;
        }
        Ok(())
    }

    /// Makes a dead letter of the task.
    fn end(&self, db: &Connection, time: i64) -> Result<(), rusqlite::Error> {
        self.replace(db, "throng_task", "id", TASK)?;
        db.execute(
            "UPDATE throng_task SET state = 4, list = NULL, place = NULL, at = ?2, cancel = 0,
                 error = ?3, reason = ?4
             WHERE id = ?1",
            params![
                self.key[0],
                time,
                self.describe("throng_task"),
                reason_number(DeadReason::Damaged)
            ],
        )?;
        Ok(())
    }
}

/// A copy of a value, to be used while its table is written.
struct OwnedValue(Copied);

enum Copied {
    Value(Value),
    /// A text that may not be valid UTF-8.
    Text(Vec<u8>),
}

impl OwnedValue {
    fn of(value: ValueRef<'_>) -> Self {
        Self(match value {
            ValueRef::Text(bytes) => Copied::Text(bytes.to_vec()),
            value => Copied::Value(Value::try_from(value).unwrap_or(Value::Null)),
        })
    }
}

impl Copied {
    fn value(&self) -> ValueRef<'_> {
        match self {
            Self::Value(value) => value.into(),
            Self::Text(bytes) => ValueRef::Text(bytes),
        }
    }
}

impl ToSql for OwnedValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.0.value()))
    }
}
