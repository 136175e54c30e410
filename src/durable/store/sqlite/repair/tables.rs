//! Rebuilds tables of which a page cannot be read.

use std::collections::BTreeSet;

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, Statement, params_from_iter};

use crate::durable::TaskId;
use crate::durable::store::sqlite::claimed_tasks::ClaimedTasks;
use crate::durable::store::sqlite::damage::Damage;
use crate::durable::store::sqlite::error::{Fault, corrupt, is_corrupt};
use crate::durable::store::sqlite::schema::has_outbox;

/// A table that can be rebuilt.
struct Table {
    name: &'static str,
    /// The columns that identify a row.
    key: &'static [&'static str],
    /// Queries for the keys of all rows, which together read every page except those of large values. `{}` is
    /// the table. An error ends one query, and the next may reach the rows behind the damage.
    scans: &'static [&'static str],
}

const TABLES: [Table; 18] = [
    Table {
        name: "throng_session",
        key: &["id"],
        scans: &[
            "SELECT id, * FROM {} NOT INDEXED ORDER BY id",
            "SELECT id, * FROM {} NOT INDEXED ORDER BY id DESC",
            "SELECT id FROM {} ORDER BY endpoint",
        ],
    },
    Table {
        name: "throng_claim",
        key: &["epoch"],
        scans: &[
            "SELECT epoch, * FROM {} NOT INDEXED ORDER BY epoch",
            "SELECT epoch, * FROM {} NOT INDEXED ORDER BY epoch DESC",
            "SELECT epoch FROM {} ORDER BY session",
            "SELECT epoch FROM {} ORDER BY until",
            "SELECT epoch FROM {} WHERE queue IS NOT NULL ORDER BY queue",
        ],
    },
    Table {
        name: "throng_ready",
        key: &["list", "sublist", "place"],
        scans: &[
            "SELECT list, sublist, place, id FROM {} ORDER BY list, sublist, place",
            "SELECT list, sublist, place, id FROM {} ORDER BY list DESC, sublist DESC, place DESC",
        ],
    },
    Table {
        name: "throng_group",
        key: &["list", "sublist"],
        scans: &[
            "SELECT list, sublist, * FROM {} ORDER BY list, sublist",
            "SELECT list, sublist, * FROM {} ORDER BY list DESC, sublist DESC",
            "SELECT list, sublist FROM {} ORDER BY queue, name, list",
            "SELECT list, sublist FROM {} WHERE turn IS NOT NULL ORDER BY list, turn, name",
        ],
    },
    Table {
        name: "throng_group_run",
        key: &["id"],
        scans: &[
            "SELECT id, * FROM {} NOT INDEXED ORDER BY id",
            "SELECT id, * FROM {} NOT INDEXED ORDER BY id DESC",
            "SELECT id FROM {} ORDER BY queue, name",
        ],
    },
    Table {
        name: "throng_group_hold",
        key: &["queue", "name"],
        scans: &[
            "SELECT queue, name, * FROM {} ORDER BY queue, name",
            "SELECT queue, name, * FROM {} ORDER BY queue DESC, name DESC",
            "SELECT queue, name FROM {} ORDER BY queue, until",
        ],
    },
    Table {
        name: "throng_task",
        key: &["id"],
        scans: &[
            "SELECT id, * FROM {} NOT INDEXED ORDER BY id",
            "SELECT id FROM {} NOT INDEXED ORDER BY id",
            "SELECT id FROM {} NOT INDEXED ORDER BY id DESC",
            "SELECT id FROM {} WHERE at IS NOT NULL ORDER BY state, at",
            "SELECT id FROM {} WHERE at IS NOT NULL ORDER BY state DESC, at DESC",
            "SELECT id FROM {} WHERE key IS NOT NULL AND state < 2 ORDER BY key",
            "SELECT id FROM {} WHERE key IS NOT NULL AND key_until IS NOT NULL ORDER BY key, key_until",
        ],
    },
    Table {
        name: "throng_payload",
        key: &["rowid"],
        scans: &[
            "SELECT rowid, id FROM {} NOT INDEXED ORDER BY rowid",
            "SELECT rowid, id FROM {} NOT INDEXED ORDER BY rowid DESC",
            "SELECT rowid FROM {} ORDER BY id",
            "SELECT rowid FROM {} ORDER BY id DESC",
        ],
    },
    Table {
        name: "throng_error",
        key: &["id", "attempt"],
        scans: &[
            "SELECT id, attempt, * FROM {} ORDER BY id, attempt",
            "SELECT id, attempt, * FROM {} ORDER BY id DESC, attempt DESC",
        ],
    },
    Table {
        name: "throng_progress",
        key: &["id"],
        scans: &[
            "SELECT id, * FROM {} ORDER BY id",
            "SELECT id, * FROM {} ORDER BY id DESC",
        ],
    },
    Table {
        name: "throng_step",
        key: &["id", "name"],
        scans: &[
            "SELECT id, name, * FROM {} ORDER BY id, name",
            "SELECT id, name, * FROM {} ORDER BY id DESC, name DESC",
        ],
    },
    Table {
        name: "throng_workflow",
        key: &["id"],
        scans: &[
            "SELECT id, * FROM {} ORDER BY id",
            "SELECT id, * FROM {} ORDER BY id DESC",
        ],
    },
    Table {
        name: "throng_queue",
        key: &["name"],
        scans: &[
            "SELECT name, * FROM {} ORDER BY name",
            "SELECT name, * FROM {} ORDER BY name DESC",
        ],
    },
    Table {
        name: "throng_schedule",
        key: &["name"],
        scans: &[
            "SELECT name, * FROM {} ORDER BY name",
            "SELECT name, * FROM {} ORDER BY name DESC",
            "SELECT name FROM {} WHERE hand_out IS NOT NULL ORDER BY needs, hand_out",
        ],
    },
    Table {
        name: "throng_stat",
        key: &["hours", "bucket", "name", "queue"],
        scans: &[
            "SELECT hours, bucket, name, queue, * FROM {} ORDER BY hours, bucket, name, queue",
            "SELECT hours, bucket, name, queue, * FROM {}
             ORDER BY hours DESC, bucket DESC, name DESC, queue DESC",
        ],
    },
    Table {
        name: "throng_stat_report",
        key: &["reporter"],
        scans: &[
            "SELECT reporter, * FROM {} NOT INDEXED ORDER BY reporter",
            "SELECT reporter, * FROM {} NOT INDEXED ORDER BY reporter DESC",
        ],
    },
    Table {
        name: "throng_outbox",
        key: &["rowid"],
        scans: &[
            // This reads each body in full, since the queries for the next rows read the bodies.
            "SELECT rowid, substr(body, -1) FROM {} NOT INDEXED ORDER BY rowid",
            "SELECT rowid FROM {} NOT INDEXED ORDER BY rowid",
            "SELECT rowid FROM {} NOT INDEXED ORDER BY rowid DESC",
            "SELECT rowid FROM {} ORDER BY id",
        ],
    },
    Table {
        name: "throng_damaged",
        key: &["number"],
        scans: &[
            "SELECT number, * FROM {} ORDER BY number",
            "SELECT number, * FROM {} ORDER BY number DESC",
        ],
    },
];

/// The number of damaged tables in the file, at most.
const MAX_DAMAGED_TABLES: i64 = 20;

/// Rebuilds the tables that have an unreadable page. Adds the ids of all tasks that it finds to `ids`, including those
/// of rows that cannot be read.
pub(super) fn rebuild_all(
    db: &Connection,
    old: &Connection,
    ids: &mut BTreeSet<TaskId>,
    damage: &mut Damage,
) -> Result<(), Fault> {
    let mut damaged = Vec::new();
    // The outbox exists only if a user has created it.
    let has_outbox = has_outbox(db)?;
    let tables = TABLES.iter();
    for table in tables.filter(|it| has_outbox || it.name != "throng_outbox") {
        if let Some(error) = table.error(old)? {
            damage.add(1, || format!("a page of {}: {error}", table.name));
            damaged.push(table);
        }
    }
    if damaged.is_empty() {
        return Ok(());
    }
    let view = "SELECT sql FROM sqlite_schema WHERE name = 'throng_now'";
    let view: String = db.query_row(view, [], |row| row.get(0))?;
    db.execute_batch("DROP VIEW throng_now")?;
    for table in damaged {
        table.rebuild(db, old, ids)?;
    }
    db.execute_batch(&view)?;
    Ok(())
}

/// Returns the ids of tasks in `throng_ready`, as far as they can be read.
pub(super) fn ids_in_ready_queue(db: &Connection) -> Result<Vec<TaskId>, Fault> {
    let mut ids = Vec::new();
    for order in [
        "list, sublist, place",
        "list DESC, sublist DESC, place DESC",
    ] {
        let sql = format!("SELECT id FROM throng_ready ORDER BY {order}");
        scan(db, &sql, |row| {
            ids.extend(row.get(0).map(TaskId::from_bytes));
            Ok(())
        })?;
    }
    Ok(ids)
}

/// Returns the ids of tasks in claims, as far as they can be read.
pub(super) fn ids_in_claims(db: &Connection) -> Result<Vec<TaskId>, Fault> {
    let mut ids = Vec::new();
    for order in ["ASC", "DESC"] {
        let sql = format!("SELECT held FROM throng_claim NOT INDEXED ORDER BY epoch {order}");
        scan(db, &sql, |row| {
            let tasks: ClaimedTasks = row.get(0).unwrap_or_default();
            ids.extend(tasks.ids());
            Ok(())
        })?;
    }
    Ok(ids)
}

/// Calls `each` for the rows of a query until one cannot be read. Returns that error, if there is one.
fn scan(
    db: &Connection,
    sql: &str,
    mut each: impl FnMut(&Row<'_>) -> Result<(), Fault>,
) -> Result<Option<rusqlite::Error>, Fault> {
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query([])?;
    loop {
        match rows.next() {
            Ok(Some(row)) => each(row)?,
            Ok(None) => return Ok(None),
            Err(error) if is_corrupt(&error) => return Ok(Some(error)),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Table {
    /// Reads the pages of the table, and returns the first error.
    fn error(&self, db: &Connection) -> Result<Option<rusqlite::Error>, Fault> {
        for sql in self.scans {
            let error = scan(db, &sql.replace("{}", self.name), |_| Ok(()))?;
            if error.is_some() {
                return Ok(error);
            }
        }
        Ok(None)
    }

    /// Rebuilds the table from the rows that can be read.
    fn rebuild(
        &self,
        db: &Connection,
        old: &Connection,
        ids: &mut BTreeSet<TaskId>,
    ) -> Result<(), Fault> {
        let damaged = r"SELECT count(*) FROM sqlite_schema
             WHERE type = 'table' AND name LIKE 'throng\_damaged\__%' ESCAPE '\'";
        let number = 1 + db.query_row(damaged, [], |row| row.get::<_, i64>(0))?;
        if number > MAX_DAMAGED_TABLES {
            return Err(corrupt());
        }
        let renamed = format!("throng_damaged_{number}_{}", &self.name["throng_".len()..]);
        let [tables, indices] = ["table", "index"].map(|sort| self.definitions(db, sort));
        db.execute_batch(&format!("ALTER TABLE {} RENAME TO {renamed}", self.name))?;
        for (_, sql) in tables? {
            db.execute_batch(&sql)?;
        }
        self.copy(db, old, ids)?;
        for (name, sql) in indices? {
            // The old index has the old name.
            db.execute_batch(&sql.replacen(&name, &format!("{name}_{number}"), 1))?;
        }
        Ok(())
    }

    /// Returns the names and the SQL of the table or of its indices.
    fn definitions(
        &self,
        db: &Connection,
        sort: &str,
    ) -> Result<Vec<(String, String)>, rusqlite::Error> {
        let mut statement = db.prepare(
            "SELECT name, sql FROM sqlite_schema
             WHERE type = ?1 AND tbl_name = ?2 AND sql IS NOT NULL",
        )?;
        let found = statement.query_map([sort, self.name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        found.collect()
    }

    fn copy(
        &self,
        db: &Connection,
        old: &Connection,
        ids: &mut BTreeSet<TaskId>,
    ) -> Result<(), Fault> {
        let is_row = self.key.iter().map(|column| format!("{column} = ?"));
        let is_row = is_row.collect::<Vec<_>>().join(" AND ");
        let mut find = old.prepare(&format!("SELECT * FROM {} WHERE {is_row}", self.name))?;
        let values = vec!["?"; find.column_count()].join(", ");
        let insert = format!("INSERT OR IGNORE INTO {} VALUES ({values})", self.name);
        let mut insert = db.prepare(&insert)?;
        if self.name == "throng_task" {
            for id in &*ids {
                copy_row(&mut find, &mut insert, &[ValueRef::Blob(&id.to_bytes())])?;
            }
        }
        for sql in self.scans {
            scan(old, &sql.replace("{}", self.name), |row| {
                let key = (0..self.key.len()).map(|column| row.get_ref(column));
                let key = key.collect::<Result<Vec<_>, _>>()?;
                if self.name == "throng_task" {
                    ids.extend(row.get(0).map(TaskId::from_bytes));
                }
                copy_row(&mut find, &mut insert, &key)
            })?;
        }
        Ok(())
    }
}

/// Copies a row if it can be read. Fails if it cannot be written.
fn copy_row(
    find: &mut Statement<'_>,
    insert: &mut Statement<'_>,
    key: &[ValueRef<'_>],
) -> Result<(), Fault> {
    let columns = find.column_count();
    let mut rows = find.query(params_from_iter(key.iter().copied().map(Raw)))?;
    let row = match rows.next() {
        Err(error) if !is_corrupt(&error) => return Err(error.into()),
        Ok(Some(row)) => row,
        _ => return Ok(()),
    };
    let values = (0..columns).map(|column| row.get_ref(column).map(Raw));
    let values = values.collect::<Result<Vec<_>, _>>()?;
    insert.execute(params_from_iter(values))?;
    Ok(())
}

/// A value as it is in the file. A text may not be valid UTF-8.
struct Raw<'a>(ValueRef<'a>);

impl ToSql for Raw<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.0))
    }
}
