//! Tests of the store in PostgreSQL, beside those that all stores share. They need `postgresql`.

pub(in crate::durable::store) use self::connection::ServerConnection;
pub(in crate::durable::store) use self::server::is_installed as is_server_installed;

mod commits_tests;
mod concurrency_tests;
#[path = "../../../../tests/support/postgres_connection.rs"]
mod connection;
mod damage_tests;
mod damaged_rows_tests;
mod dead_letters_tests;
mod errors_tests;
mod findings_tests;
mod held_commits;
mod hosts_tests;
mod lost_answers_tests;
mod low_marks_tests;
mod maintenance_tests;
mod panics_tests;
mod permissions_tests;
mod pipelined_tests;
mod plans_tests;
pub(in crate::durable::store) mod pooler;
mod pooler_tests;
mod probe_tests;
#[path = "../../../../tests/support/postgres_proxy.rs"]
mod proxy;
mod reconnects_tests;
mod recovery_tests;
mod relayed_outbox_tests;
mod scene;
#[path = "../../../../tests/support/postgres_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
pub(in crate::durable::store) mod server;
mod settings_tests;
mod spare_tests;
mod statistics_tests;
mod steps_tests;
mod timeouts_tests;
#[cfg(feature = "postgres-tls")]
mod tls_tests;
mod wakes_tests;
mod writer_tests;

/// Ends the calling test if there is no server. The test above this one fails then.
macro_rules! needs_postgres {
    () => {
        if !$crate::durable::store::postgres::tests::is_server_installed() {
            return;
        }
    };
}
use needs_postgres;

#[test]
fn postgresql_is_installed() {
    assert!(
        is_server_installed(),
        "install PostgreSQL to run the tests of its store: on Debian, `apt-get install postgresql`"
    );
}
