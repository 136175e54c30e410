//! [`findings`]: examines the server and the tables of a store, as far as its user may see them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::error::Fault;
use super::view::View;
use super::{migrate, probe};
use crate::durable::{Durability, Finding, FindingLevel};

/// Selects the state of the server, and the settings of the user.
const SERVER: &str = "SELECT pg_is_in_recovery() AS is_standby,
    current_setting('default_transaction_read_only')::boolean AS is_read_only,
    current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean AS vacuums,
    (SELECT coalesce(sum(numbackends), 0)::bigint FROM pg_stat_database) AS connections,
    current_setting('max_connections')::bigint
        - current_setting('superuser_reserved_connections')::bigint AS max_connections,
    pg_has_role('pg_read_all_stats', 'USAGE') AS sees_all";

/// Selects the transaction that has kept the server for longest from removing dead rows of the database: its process and the name of its
/// program or, if it is prepared, its own name; and its age in milliseconds.
const OLDEST_TRANSACTION: &str = "SELECT process, name,
        (extract(epoch FROM clock_timestamp() - since) * 1000)::bigint AS age
    FROM (
        SELECT pid AS process, application_name AS name, xact_start AS since FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
            AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
            AND backend_type IS DISTINCT FROM 'autovacuum worker'
        UNION ALL
        SELECT NULL, gid, prepared FROM pg_prepared_xacts WHERE database = current_database()
    ) AS held WHERE since IS NOT NULL ORDER BY since LIMIT 1";

/// Selects the tables, views and sequences in the schema `$1`, whether the user has the rights on them that a worker needs, and whether
/// the server vacuums them.
const RELATIONS: &str = "SELECT relname::text AS name,
        CASE relkind
            WHEN 'v' THEN has_table_privilege(pg_class.oid, 'SELECT')
            WHEN 'S' THEN has_sequence_privilege(pg_class.oid, 'USAGE')
                AND has_sequence_privilege(pg_class.oid, 'SELECT')
                AND has_sequence_privilege(pg_class.oid, 'UPDATE')
            ELSE has_table_privilege(pg_class.oid, 'SELECT')
                AND has_table_privilege(pg_class.oid, 'INSERT')
                AND has_table_privilege(pg_class.oid, 'UPDATE')
                AND has_table_privilege(pg_class.oid, 'DELETE')
        END AS is_usable,
        NOT coalesce('autovacuum_enabled=false' = ANY (reloptions), false) AS is_vacuumed
    FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = $1 AND relkind IN ('r', 'p', 'v', 'S')";

/// The age from which a transaction is reported.
const MIN_AGE: Duration = Duration::from_secs(60);

/// If more than this percentage of the connections is in use, there is a warning.
const MAX_CONNECTIONS_PERCENT: i64 = 90;

/// The number of names in a finding.
const MAX_NAMES: usize = 5;

/// The facts about the server, the user and the tables.
#[derive(Debug, Default)]
struct PostgresFacts {
    durability: Option<Durability>,
    is_standby: bool,
    is_read_only: bool,
    /// The tables that the server does not vacuum, or `None` if it vacuums none at all.
    unvacuumed: Option<Vec<String>>,
    connections: i64,
    max_connections: i64,
    /// `true` if the user sees the transactions of other users.
    sees_all: bool,
    oldest: Option<HeldTransaction>,
    missing: Vec<String>,
    unusable: Vec<String>,
    /// `true` if this process should receive notifications and does not.
    is_mute: bool,
}

/// An open transaction.
#[derive(Debug)]
pub(super) struct HeldTransaction {
    /// The process of the server that runs it, unless it is prepared.
    pub(super) process: Option<i32>,
    pub(super) name: String,
    age: Duration,
}

/// Examines the server and the tables.
pub(super) async fn findings(view: &View) -> Result<Vec<Finding>, Fault> {
    Ok(PostgresFacts::read(view).await?.findings())
}

impl PostgresFacts {
    async fn read(view: &View) -> Result<Self, Fault> {
        let row = view.row(SERVER, &[]).await?;
        let row = row.ok_or_else(|| Fault::Corrupt(String::from("the server has no settings")))?;
        let mut facts = Self {
            durability: Some(probe::probe(view).await?),
            is_standby: row.try_get("is_standby")?,
            is_read_only: row.try_get("is_read_only")?,
            unvacuumed: row.try_get::<_, bool>("vacuums")?.then(Vec::new),
            connections: row.try_get("connections")?,
            max_connections: row.try_get("max_connections")?,
            sees_all: row.try_get("sees_all")?,
            oldest: oldest_transaction(view).await?,
            is_mute: !view.shared.is_observer && !view.shared.is_listening(),
            ..Self::default()
        };
        facts.read_relations(view).await?;
        Ok(facts)
    }

    async fn read_relations(&mut self, view: &View) -> Result<(), Fault> {
        let rows = view
            .rows(RELATIONS, &[&&*view.shared.server.schema])
            .await?;
        let mut relations = BTreeMap::<String, (bool, bool)>::new();
        for row in &rows {
            let rights = (row.try_get("is_usable")?, row.try_get("is_vacuumed")?);
            relations.insert(row.try_get("name")?, rights);
        }
        for name in migrate::relations().collect::<BTreeSet<_>>() {
            let Some((is_usable, is_vacuumed)) = relations.get(name) else {
                self.missing.push(name.to_owned());
                continue;
            };
            if !is_usable {
                self.unusable.push(name.to_owned());
            }
            if let Some(unvacuumed) = self.unvacuumed.as_mut().filter(|_| !is_vacuumed) {
                unvacuumed.push(name.to_owned());
            }
        }
        Ok(())
    }

    fn findings(&self) -> Vec<Finding> {
        let found = [
            self.missing_tables(),
            self.durability(),
            self.standby(),
            self.read_only(),
            self.permissions(),
            self.notifications(),
            self.transactions(),
            self.autovacuum(),
            self.connections(),
            self.visibility(),
        ];
        found.into_iter().flatten().collect()
    }

    fn missing_tables(&self) -> Option<Finding> {
        (!self.missing.is_empty()).then(|| {
            Finding::new(
                "postgres.tables",
                FindingLevel::Error,
                format!(
                    "tables or sequences of the store are missing: {}",
                    list(&self.missing)
                ),
                "restore them from a backup of the schema, or open the store in another schema",
            )
        })
    }

    fn durability(&self) -> Option<Finding> {
        let (level, what, remedy) = match self.durability? {
            Durability::Process => (
                FindingLevel::Warn,
                "a power failure may lose acknowledged writes and damage the database, since `fsync` or `full_page_writes` is off",
                "set both to `on`",
            ),
            Durability::Unknown => (
                FindingLevel::Warn,
                "a server that is killed may lose the acknowledged writes of more than two seconds, since `synchronous_commit` is off and \
                 `wal_writer_delay` is long",
                "set `synchronous_commit` to `on`, or `wal_writer_delay` to its default",
            ),
            Durability::Buffered => (
                FindingLevel::Info,
                "a server that is killed loses up to two seconds of acknowledged writes, since `synchronous_commit` is off",
                "set `synchronous_commit` to `on` if that is too much",
            ),
            _ => return None,
        };
        Some(Finding::new(
            "postgres.durability",
            level,
            what.into(),
            remedy,
        ))
    }

    fn standby(&self) -> Option<Finding> {
        self.is_standby.then(|| {
            warning(
                "postgres.standby",
                "the server is a standby, which accepts no writes and may be behind",
                "open the store at the primary, unless this is intended: with several hosts, add `target_session_attrs=read-write`",
            )
        })
    }

    fn read_only(&self) -> Option<Finding> {
        // A standby is another finding.
        (self.is_read_only && !self.is_standby).then(|| {
            warning(
                "postgres.read_only",
                "`default_transaction_read_only` is on, so the user can only observe the store",
                "set it to `off` for the user, and for the database",
            )
        })
    }

    fn permissions(&self) -> Option<Finding> {
        (!self.unusable.is_empty()).then(|| {
            let what = format!(
                "the user may not read and change {}, so it can at most observe the store",
                list(&self.unusable)
            );
            warning(
                "postgres.permissions",
                what,
                "workers and producers need all rights on the schema of the store, its tables and its sequences",
            )
        })
    }

    fn notifications(&self) -> Option<Finding> {
        self.is_mute.then(|| {
            warning(
                "postgres.notifications",
                "this process receives no notifications from the server, so its workers poll for tasks twice a second",
                "connect to the server itself, or set `listen_url` if the address is that of a pooler in transaction mode",
            )
        })
    }

    fn transactions(&self) -> Option<Finding> {
        let oldest = self.oldest.as_ref().filter(|it| it.age >= MIN_AGE)?;
        let (name, seconds) = (&oldest.name, oldest.age.as_secs());
        let (which, remedy) = match oldest.process {
            Some(process) => (
                format!("process {process} of the server, for the program {name:?},"),
                format!(
                    "look for a program that does not end its transactions, or run `SELECT pg_terminate_backend({process})`"
                ),
            ),
            None => (
                format!("the prepared transaction {name:?}"),
                String::from("run `COMMIT PREPARED` or `ROLLBACK PREPARED`"),
            ),
        };
        let what = format!(
            "{which} has kept the server for {seconds} s from removing dead rows, which makes claims slower and slower"
        );
        Some(warning("postgres.transactions", what, remedy))
    }

    fn autovacuum(&self) -> Option<Finding> {
        let what = match &self.unvacuumed {
            None => String::from(
                "the server does not remove dead rows, since `autovacuum` or `track_counts` is off",
            ),
            Some(tables) if tables.is_empty() => return None,
            Some(tables) => format!(
                "the server does not remove dead rows of {}, since `autovacuum_enabled` is off for them",
                list(tables)
            ),
        };
        let remedy =
            "set them to `on`: otherwise, claims become slower and slower, and the disk fills up";
        Some(warning("postgres.autovacuum", what, remedy))
    }

    fn connections(&self) -> Option<Finding> {
        let (used, most) = (self.connections, self.max_connections);
        (used * 100 > most * MAX_CONNECTIONS_PERCENT).then(|| {
            warning(
                "postgres.connections",
                format!("{used} of the {most} connections that users can have are in use"),
                "raise `max_connections`, or end processes: each process that opens the store has up to four connections",
            )
        })
    }

    fn visibility(&self) -> Option<Finding> {
        (!self.sees_all).then(|| {
            Finding::new(
                "postgres.settings",
                FindingLevel::Info,
                String::from("the user does not see the transactions of other users, so this report does not check them"),
                "grant it the role `pg_read_all_stats`",
            )
        })
    }
}

pub(super) async fn oldest_transaction(view: &View) -> Result<Option<HeldTransaction>, Fault> {
    let Some(row) = view.row(OLDEST_TRANSACTION, &[]).await? else {
        return Ok(None);
    };
    let age: i64 = row.try_get("age")?;
    Ok(Some(HeldTransaction {
        process: row.try_get("process")?,
        name: row
            .try_get::<_, Option<String>>("name")?
            .unwrap_or_default(),
        age: Duration::from_millis(age.max(0) as u64),
    }))
}

fn warning(id: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::new(id, FindingLevel::Warn, what.into(), remedy)
}

/// Lists names. There may be many.
fn list(names: &[String]) -> String {
    let first = names.iter().take(MAX_NAMES).map(|name| format!("`{name}`"));
    let first = first.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server about which there is nothing to say.
    fn healthy() -> PostgresFacts {
        PostgresFacts {
            durability: Some(Durability::Synced),
            unvacuumed: Some(Vec::new()),
            connections: 90,
            max_connections: 100,
            sees_all: true,
            oldest: Some(held(Some(7), 59)),
            ..PostgresFacts::default()
        }
    }

    fn held(process: Option<i32>, seconds: u64) -> HeldTransaction {
        HeldTransaction {
            process,
            name: "psql".into(),
            age: Duration::from_secs(seconds),
        }
    }

    /// Returns the one finding about a server, after a change.
    fn found(change: impl FnOnce(&mut PostgresFacts)) -> Finding {
        let mut facts = healthy();
        change(&mut facts);
        let mut found = facts.findings();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn a_healthy_server_has_no_finding() {
        assert_eq!(healthy().findings(), []);
    }

    #[test]
    fn each_fault_has_a_finding() {
        let names = || vec![String::from("task")];
        for (id, found) in [
            ("postgres.tables", found(|it| it.missing = names())),
            (
                "postgres.durability",
                found(|it| it.durability = Some(Durability::Process)),
            ),
            (
                "postgres.durability",
                found(|it| it.durability = Some(Durability::Unknown)),
            ),
            (
                "postgres.standby",
                found(|it| (it.is_standby, it.is_read_only) = (true, true)),
            ),
            ("postgres.read_only", found(|it| it.is_read_only = true)),
            ("postgres.permissions", found(|it| it.unusable = names())),
            ("postgres.notifications", found(|it| it.is_mute = true)),
            (
                "postgres.transactions",
                found(|it| it.oldest = Some(held(Some(7), 60))),
            ),
            ("postgres.autovacuum", found(|it| it.unvacuumed = None)),
            (
                "postgres.autovacuum",
                found(|it| it.unvacuumed = Some(names())),
            ),
            ("postgres.connections", found(|it| it.connections = 91)),
        ] {
            assert_eq!(found.id, id);
            assert!(found.level >= FindingLevel::Warn, "{found:?}");
        }
    }

    #[test]
    fn what_may_be_intended_is_information() {
        let buffered = found(|it| it.durability = Some(Durability::Buffered));
        let blind = found(|it| it.sees_all = false);
        for found in [buffered, blind] {
            assert_eq!(found.level, FindingLevel::Info, "{found:?}");
        }
    }

    #[test]
    fn a_transaction_is_named_with_the_way_to_end_it() {
        let running = found(|it| it.oldest = Some(held(Some(7), 90)));
        assert!(
            running.what.contains("\"psql\"") && running.what.contains("90 s"),
            "{running}"
        );
        assert!(
            running.remedy.contains("pg_terminate_backend(7)"),
            "{running}"
        );
        let prepared = found(|it| it.oldest = Some(held(None, 90)));
        assert!(prepared.remedy.contains("ROLLBACK PREPARED"), "{prepared}");
    }

    #[test]
    fn a_long_list_of_tables_is_cut() {
        let names = (0..7).map(|it| it.to_string()).collect::<Vec<_>>();
        assert_eq!(list(&names[..5]), "`0`, `1`, `2`, `3`, `4`");
        assert_eq!(list(&names), "`0`, `1`, `2`, `3`, `4` and 2 more");
    }
}
