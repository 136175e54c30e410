//! [`PostgresStoreBuilder`]: the settings of a store in PostgreSQL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::Host;

use super::address::{self, PostgresAddress};
use super::server::PostgresServer;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::layouts::Layouts;

/// The longest name of a schema in bytes. PostgreSQL cuts longer ones.
const MAX_SCHEMA_LEN: usize = 63;

/// Configures and opens a store in PostgreSQL. [`PostgresStore::builder`](crate::durable::PostgresStore::builder) creates one.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use throng::durable::PostgresStore;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::builder("postgres://app:secret@localhost/app")
///     .schema("mail")
///     .answer_timeout(Duration::from_secs(6))
///     .open()
///     .await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `open` is called"]
pub struct PostgresStoreBuilder {
    url: String,
    listen_url: Option<String>,
    schema: String,
    connect_timeout: Duration,
    answer_timeout: Duration,
    /// The layouts that this process knows.
    pub(super) layouts: Layouts,
}

impl PostgresStoreBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            listen_url: None,
            schema: String::from("throng"),
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(15),
            layouts: Layouts::KNOWN,
        }
    }

    /// Sets the schema of the tables, which separates the store from others in the same database. The default is `throng`. The name
    /// consists of letters, digits, `_` and `-`, and has at most 63 bytes.
    ///
    /// If the schema does not exist, the user must be allowed to create it. Otherwise, the user must be allowed to create tables in it,
    /// when the store is opened for the first time.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::PostgresStore;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // These stores share a database, but no tasks.
    /// let mail = PostgresStore::builder("postgres://localhost/app").schema("mail").open().await?;
    /// let images = PostgresStore::builder("postgres://localhost/app").schema("images").open().await?;
    /// # drop((mail, images));
    /// # Ok(()) }
    /// ```
    pub fn schema(&mut self, schema: impl Into<String>) -> &mut Self {
        self.schema = schema.into();
        self
    }

    /// Sets the address of the server itself, if the address of the store is that of a pooler in transaction mode, such as PgBouncer with
    /// `pool_mode = transaction`. Both must lead to the same database. There is no default.
    ///
    /// In transaction mode, a pooler passes on no notifications, and gives each transaction another connection of the server. So the store
    /// has one connection to the server itself, which receives the notifications. The others rely on nothing that lasts longer than a
    /// transaction: each transaction begins with the settings of the store, and no statement is prepared. The server analyses and plans
    /// each statement whenever it runs, so requests take more of its time.
    ///
    /// Without this setting, connect to the server itself, or through a pooler in session mode.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::PostgresStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = PostgresStore::builder("postgres://app:secret@pooler:6432/app");
    /// let store = builder.listen_url("postgres://app:secret@server/app").open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn listen_url(&mut self, url: impl Into<String>) -> &mut Self {
        self.listen_url = Some(url.into());
        self
    }

    /// Sets the maximum time to connect, which must be greater than zero. The default is five seconds.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use throng::durable::PostgresStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = PostgresStore::builder("postgres://localhost/app");
    /// let store = builder.connect_timeout(Duration::from_secs(2)).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn connect_timeout(&mut self, time: Duration) -> &mut Self {
        self.connect_timeout = time;
        self
    }

    /// Sets the time after which a connection that has not answered is closed, which must be greater than zero. The default is 15 seconds.
    ///
    /// The server itself gives up earlier: it waits for a lock for a third of this time, and a statement may take two thirds. It ends the
    /// transaction of a process that hangs after twice this time.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use throng::durable::PostgresStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = PostgresStore::builder("postgres://localhost/app");
    /// let store = builder.answer_timeout(Duration::from_secs(6)).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn answer_timeout(&mut self, time: Duration) -> &mut Self {
        self.answer_timeout = time;
        self
    }

    /// Returns the description of the server.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub(super) fn server(&self) -> Result<PostgresServer, Failure> {
        self.check().map_err(invalid)?;
        let parse = |url: &String| PostgresAddress::parse(url, self.connect_timeout);
        let listen_address = self.listen_url.as_ref().map(parse).transpose();
        let listen_address =
            listen_address.map_err(|text| format!("the listen_url is not valid: {text}"));
        Ok(PostgresServer {
            address: parse(&self.url).map_err(invalid)?,
            listen_address: listen_address.map_err(invalid)?,
            schema: self.schema.as_str().into(),
            connect_timeout: self.connect_timeout,
            answer_timeout: self.answer_timeout,
        })
    }

    /// Returns an error message if a setting has an invalid value.
    fn check(&self) -> Result<(), String> {
        let is_plain = |it: char| it.is_alphanumeric() || it == '_' || it == '-';
        Err(
            if self.schema.is_empty() || !self.schema.chars().all(is_plain) {
                String::from("the name of the schema must consist of letters, digits, `_` and `-`")
            } else if self.schema.len() > MAX_SCHEMA_LEN {
                format!(
                    "the name of the schema has more than {MAX_SCHEMA_LEN} bytes: set a shorter one"
                )
            } else if self.connect_timeout.is_zero() {
                String::from("connect_timeout is zero: set it to a longer time")
            } else if self.answer_timeout.is_zero() {
                String::from("answer_timeout is zero: set it to a longer time")
            } else {
                return Ok(());
            },
        )
    }

    /// Returns the name of the store in messages. It contains the hosts, the database and the schema, and neither the user nor the
    /// password.
    pub(super) fn name(&self) -> Arc<str> {
        let Ok((config, _)) = address::config(&self.url) else {
            return Arc::from("postgres");
        };
        let hosts = config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let user = config.get_user().unwrap_or_default();
        let database = config.get_dbname().unwrap_or(user);
        format!("postgres://{hosts}/{database} ({})", self.schema).into()
    }
}

fn invalid(text: String) -> Failure {
    Failure::new(Effect::None, Cause::Invalid(text))
}

impl fmt::Debug for PostgresStoreBuilder {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStoreBuilder")
            .field("schema", &self.schema)
            .field("connect_timeout", &self.connect_timeout)
            .field("answer_timeout", &self.answer_timeout)
            .finish_non_exhaustive()
    }
}
