//! [`ServerConnection`]: a connection of a test to a PostgreSQL server.

use std::sync::LazyLock;

use tokio::runtime::{self, Runtime};
use tokio::task::coop::unconstrained;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Drives the connections of all tests. A test drops its connection within a runtime of its own, where no other one can be dropped.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build();
    runtime.expect("a runtime can be built")
});

/// A connection of a test to the server, which runs statements one after the other.
pub(crate) struct ServerConnection(Client);

impl ServerConnection {
    /// Connects to a server at an address.
    pub(crate) fn to(url: String) -> Self {
        let connecting = RUNTIME.spawn(async move {
            let (client, driver) = tokio_postgres::connect(&url, NoTls).await?;
            tokio::spawn(driver);
            Ok::<_, tokio_postgres::Error>(client)
        });
        // A test that asks often without a wait of its own spends its budget, and then the handle would never be ready.
        let connecting = unconstrained(connecting);
        let client = futures::executor::block_on(connecting).expect("it connects");
        Self(client.expect("the server can be reached"))
    }

    /// Runs statements. Returns the rows of all of them, as texts.
    pub(crate) fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        self.try_ask(sql)
            .unwrap_or_else(|error| panic!("{error:?}: {sql}"))
    }

    /// The same.
    ///
    /// # Errors
    ///
    /// If the server refuses a statement, or the connection breaks.
    pub(crate) fn try_ask(&self, sql: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
        let answer = futures::executor::block_on(self.0.simple_query(sql))?;
        let rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let text = |text: Option<&str>| text.unwrap_or("NULL").to_owned();
        let texts = rows.map(|row| (0..row.len()).map(|i| text(row.get(i))).collect());
        Ok(texts.collect())
    }

    /// Returns the one number that a statement selects.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        let rows = self.ask(sql);
        rows[0][0].parse().expect("it is a number")
    }
}
