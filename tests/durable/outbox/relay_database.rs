//! [`AppDatabase`]: a database without a store, with an outbox and a table of the user.

use std::path::PathBuf;
use std::time::Duration;

use throng::durable::{DurableClient, Outbox, OutboxRelay, TaskId};

use super::database::{Statement, connect_to};
use crate::postgres_server::Server;

/// A database without a store, with the table `orders (id)` of the user, and with an outbox.
pub(super) enum AppDatabase {
    File(tempfile::TempDir),
    /// The name of a database of the shared server.
    Shared(String),
    /// A server of its own.
    Server(Server),
}

impl AppDatabase {
    pub(super) async fn file() -> Self {
        let file = Self::bare_file();
        file.create_outbox().await;
        let orders = "CREATE TABLE orders (id INTEGER PRIMARY KEY)";
        file.run(&[Statement::Sql(orders)]).await;
        file
    }

    pub(super) async fn shared() -> Self {
        let shared = Self::bare_shared().await;
        shared.create_tables().await;
        shared
    }

    pub(super) async fn server() -> Self {
        let server = Self::Server(Server::start());
        server.create_tables().await;
        server
    }

    /// Returns a file without tables.
    pub(super) fn bare_file() -> Self {
        let file = Self::File(tempfile::tempdir().expect("a folder"));
        std::fs::write(file.path(), "").expect("a file");
        file
    }

    /// Returns a database without tables.
    pub(super) async fn bare_shared() -> Self {
        let name = format!("t{}", TaskId::new()).replace('-', "");
        let server = connect_to(&Server::shared().url()).await;
        let create = format!("CREATE DATABASE {name}");
        server.batch_execute(&create).await.expect("it is created");
        Self::Shared(name)
    }

    async fn create_tables(&self) {
        self.create_outbox().await;
        // A migration may run twice.
        self.create_outbox().await;
        let orders = "CREATE TABLE orders (id bigint PRIMARY KEY)";
        self.run(&[Statement::Sql(orders)]).await;
    }

    pub(super) async fn create_outbox(&self) {
        let create = match self {
            Self::File(_) => Outbox::CREATE,
            _ => Outbox::CREATE_POSTGRES,
        };
        self.run(&[Statement::Sql(create)]).await;
    }

    pub(super) async fn drop_outbox(&self) {
        let drop = match self {
            Self::File(_) => "DROP TABLE throng_outbox",
            _ => "DROP TABLE throng.outbox",
        };
        self.run(&[Statement::Sql(drop)]).await;
    }

    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::File(folder) => folder.path().join("app.db"),
            _ => unreachable!("it is not a file"),
        }
    }

    /// Returns the address for a user.
    pub(super) fn url_of(&self, user: &str) -> String {
        match self {
            Self::File(_) => unreachable!("it is a file"),
            Self::Shared(name) => {
                let url = Server::shared().url_of(user);
                url.replace("dbname=postgres", &format!("dbname={name}"))
            }
            Self::Server(server) => server.url_of(user),
        }
    }

    pub(super) fn url(&self) -> String {
        self.url_of("throng")
    }

    /// Opens a relay into the store of a client.
    pub(super) async fn relay(&self, client: &DurableClient) -> OutboxRelay {
        let relay = match self {
            Self::File(_) => OutboxRelay::sqlite(client, self.path()).await,
            _ => OutboxRelay::postgres(client, &self.url()).await,
        };
        relay.expect("it can be opened")
    }

    /// Returns the number of rows of the outbox.
    pub(super) async fn rows(&self) -> i64 {
        match self {
            Self::File(_) => self.count("throng_outbox").await,
            _ => self.count("throng.outbox").await,
        }
    }

    pub(super) async fn orders(&self) -> i64 {
        self.count("orders").await
    }

    async fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        match self {
            Self::File(_) => {
                let db = self.open();
                db.query_row(&sql, [], |row| row.get(0)).expect("a number")
            }
            _ => {
                let row = connect_to(&self.url()).await.query_one(&sql, &[]).await;
                row.expect("a number").get(0)
            }
        }
    }

    /// Runs statements on a connection of their own.
    pub(super) async fn run(&self, statements: &[Statement]) {
        match self {
            Self::File(_) => {
                let db = self.open();
                for statement in statements {
                    match statement {
                        Statement::Sql(sql) => db.execute_batch(sql),
                        Statement::Add(id, body) => {
                            db.execute(Outbox::INSERT_SQLITE, [id, body]).map(drop)
                        }
                    }
                    .expect("it is executed");
                }
            }
            _ => {
                let db = connect_to(&self.url()).await;
                for statement in statements {
                    match statement {
                        Statement::Sql(sql) => db.batch_execute(sql).await,
                        Statement::Add(id, body) => {
                            let added = db.execute(Outbox::INSERT_POSTGRES, &[id, body]).await;
                            added.map(drop)
                        }
                    }
                    .expect("it is executed");
                }
            }
        }
    }

    /// Opens the file as a user does.
    pub(super) fn open(&self) -> rusqlite::Connection {
        let db = rusqlite::Connection::open(self.path()).expect("the file can be opened");
        db.busy_timeout(Duration::from_secs(30)).expect("a timeout");
        db
    }
}
