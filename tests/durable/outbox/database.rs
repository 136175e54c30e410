//! [`Database`]: a database with a store and a table of the user.

use std::path::PathBuf;
use std::time::Duration;

use throng::durable::{DurableClient, Outbox, OutboxRow, PostgresStore, SqliteStore, TaskId};
use tokio_postgres::NoTls;

use crate::postgres_server::Server;

/// A database with a store, an outbox, and the user's table `orders (id)`.
pub(super) enum Database {
    File(tempfile::TempDir),
    /// A schema of a server. It also contains the table of the user.
    Server(String),
}

/// A statement of a user's transaction.
pub(super) enum Statement {
    Sql(&'static str),
    /// Inserts a row with this id and this body into the outbox.
    Add(Vec<u8>, Vec<u8>),
}

/// Returns the statement that adds a row.
pub(super) fn add<T>(row: &OutboxRow<T>) -> Statement {
    Statement::Add(row.id_bytes().to_vec(), row.body().to_vec())
}

impl Database {
    pub(super) async fn file() -> Self {
        let file = Self::File(tempfile::tempdir().expect("a folder"));
        let tables = [
            Outbox::CREATE,
            "CREATE TABLE orders (id INTEGER PRIMARY KEY)",
        ];
        file.run(&tables.map(Statement::Sql)).await;
        file
    }

    pub(super) async fn server() -> Self {
        let server = Self::Server(format!("t{}", TaskId::new()).replace('-', ""));
        // The store creates its schema.
        server.client().await.close().await.expect("it is closed");
        let tables = ["CREATE TABLE orders (id bigint PRIMARY KEY)"];
        server.run(&tables.map(Statement::Sql)).await;
        server
    }

    /// Returns a client that shares only the store with others.
    pub(super) async fn client(&self) -> DurableClient {
        match self {
            Self::File(_) => {
                let store = SqliteStore::open(self.path()).await;
                DurableClient::open(store.expect("the file can be opened"))
            }
            Self::Server(schema) => {
                let mut builder = PostgresStore::builder(&Server::shared().url());
                let store = builder.schema(&**schema).open().await;
                DurableClient::open(store.expect("the server can be reached"))
            }
        }
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::File(folder) => folder.path().join("app.db"),
            Self::Server(_) => unreachable!("it is not a file"),
        }
    }

    /// Returns the number of rows of the outbox.
    pub(super) async fn rows(&self) -> i64 {
        let table = match self {
            Self::File(_) => "throng_outbox",
            Self::Server(_) => "outbox",
        };
        self.count(table).await
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
            Self::Server(_) => {
                let row = self.connect().await.query_one(&sql, &[]).await;
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
            Self::Server(schema) => {
                let db = self.connect().await;
                let insert = Outbox::INSERT_POSTGRES.replace("throng.", &format!("{schema}."));
                for statement in statements {
                    match statement {
                        Statement::Sql(sql) => db.batch_execute(sql).await,
                        Statement::Add(id, body) => {
                            db.execute(&insert, &[id, body]).await.map(drop)
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

    /// Connects to the server as a user does.
    pub(super) async fn connect(&self) -> tokio_postgres::Client {
        let Self::Server(schema) = self else {
            unreachable!("it is not a server")
        };
        let client = connect_to(&Server::shared().url()).await;
        let path = format!("SET search_path = {schema}");
        client.batch_execute(&path).await.expect("it is set");
        client
    }
}

pub(super) async fn connect_to(url: &str) -> tokio_postgres::Client {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, driver) = connected.expect("the server can be reached");
    tokio::spawn(driver);
    client
}
