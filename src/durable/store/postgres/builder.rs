//! [`PostgresStoreBuilder`]: the settings of a store in PostgreSQL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::server::PostgresServer;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::layouts::Layouts;

/// The form of an address.
const FORM: &str =
    "use postgres://user:password@host:port/database, with special characters as %40";

/// The longest name of a schema in bytes. PostgreSQL cuts longer ones.
const MAX_SCHEMA_LEN: usize = 63;

/// The time after which the system asks whether a silent server still exists, and the interval at which it asks again.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// The time for which the system sends data again that the server does not acknowledge.
const SEND_TIMEOUT: Duration = Duration::from_secs(15);

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
        let mut config = self.config().map_err(invalid)?;
        if config.get_application_name().is_none() {
            config.application_name("throng");
        }
        // These find out that a server is gone on a connection that only waits for notifications.
        config.keepalives_idle(KEEPALIVE_IDLE);
        config.keepalives_interval(KEEPALIVE_INTERVAL);
        config.tcp_user_timeout(SEND_TIMEOUT);
        // A host that does not answer leaves time for the others.
        let hosts = config.get_hosts().len() as u32;
        if hosts > 1 && config.get_connect_timeout().is_none() {
            config.connect_timeout(self.connect_timeout / hosts);
        }
        Ok(PostgresServer {
            config,
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

    /// Reads the address. An error message contains no part of it, since that could be a part of the password.
    fn config(&self) -> Result<Config, String> {
        let config: Result<Config, _> = self.url.parse();
        let config = config.map_err(|_| String::from(FORM))?;
        let is_split = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        let is_split = config.get_hosts().iter().any(is_split)
            || config.get_dbname().is_some_and(|name| name.contains('@'));
        if config.get_hosts().is_empty() || is_split {
            return Err(String::from(FORM));
        }
        match config.get_ssl_mode() {
            SslMode::Require => Err(String::from(
                "this version of throng does not support `sslmode=require`: connect by a tunnel or a private network",
            )),
            _ => Ok(config),
        }
    }

    /// Returns the name of the store in messages. It contains the hosts, the database and the schema, and neither the user nor the
    /// password.
    pub(super) fn name(&self) -> Arc<str> {
        let Ok(config) = self.config() else {
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
