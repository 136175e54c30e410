//! Tests of the store in PostgreSQL, beside those that all stores share. They need `postgresql`.

use std::sync::LazyLock;

use tokio::runtime::{self, Runtime};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use self::server::Server;
pub(in crate::durable::store) use self::server::is_installed as is_server_installed;

mod commits_tests;
mod concurrency_tests;
mod dead_letters_tests;
mod errors_tests;
mod findings_tests;
mod hosts_tests;
mod lost_answers_tests;
mod low_marks_tests;
mod maintenance_tests;
mod permissions_tests;
mod plans_tests;
pub(in crate::durable::store) mod pooler;
mod pooler_tests;
mod probe_tests;
mod proxy;
mod reconnects_tests;
mod recovery_tests;
mod scene;
#[path = "../../../../tests/support/postgres_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
pub(in crate::durable::store) mod server;
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

/// Drives the connections of all tests. A test drops its connection within a runtime of its own, where no other one can be dropped.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build();
    runtime.expect("a runtime can be built")
});

/// A connection of a test to the server, which runs statements one after the other.
pub(in crate::durable::store) struct ServerConnection(Client);

impl ServerConnection {
    pub(in crate::durable::store) fn to(server: &Server) -> Self {
        Self::to_url(server.url())
    }

    pub(in crate::durable::store) fn to_url(url: String) -> Self {
        let connecting = RUNTIME.spawn(async move {
            let (client, driver) = tokio_postgres::connect(&url, NoTls).await?;
            tokio::spawn(driver);
            Ok::<_, tokio_postgres::Error>(client)
        });
        let client = futures::executor::block_on(connecting).expect("it connects");
        Self(client.expect("the server can be reached"))
    }

    /// Runs statements. Returns the rows of all of them, as texts.
    pub(in crate::durable::store) fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        let answer = futures::executor::block_on(self.0.simple_query(sql));
        let answer = answer.unwrap_or_else(|error| panic!("{error:?}: {sql}"));
        let rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let text = |text: Option<&str>| text.unwrap_or("NULL").to_owned();
        rows.map(|row| (0..row.len()).map(|i| text(row.get(i))).collect())
            .collect()
    }

    /// Returns the one number that a statement selects.
    pub(in crate::durable::store) fn number(&self, sql: &str) -> i64 {
        let rows = self.ask(sql);
        rows[0][0].parse().expect("it is a number")
    }
}
