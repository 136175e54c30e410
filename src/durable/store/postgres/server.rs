//! [`PostgresServer`]: a description of the connections to the server, which opens them.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::TlsStream;
use tokio_postgres::{AsyncMessage, Client, Error, NoTls, Socket};

use super::address::PostgresAddress;
use super::connection::Connection;
use super::error::{connect_failure, no_answer};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::retry::Retry;

/// The pauses between attempts to connect, and between attempts of a transaction that met a conflict.
pub(super) const BACKOFF: Retry = Retry::exponential()
    .attempts(u32::MAX)
    .base(Duration::from_millis(50))
    .cap(Duration::from_secs(1));

/// The oldest version that the store supports.
const OLDEST_VERSION: u32 = 13;

/// The encoding of a database that can store any text.
const ENCODING: &str = "UTF8";

/// The texts of notifications, which other processes have sent.
pub(super) type NoticeSender = mpsc::UnboundedSender<String>;

/// A description of the connections to the server.
#[derive(Clone)]
pub(super) struct PostgresServer {
    pub(super) address: PostgresAddress,
    /// The address for notifications, if the other one is that of a pooler in transaction mode.
    pub(super) listen_address: Option<PostgresAddress>,
    /// The name of the schema.
    pub(super) schema: Arc<str>,
    pub(super) connect_timeout: Duration,
    /// The time after which a transaction has failed, if the server does not answer.
    pub(super) answer_timeout: Duration,
}

/// The reason for which a connection cannot be opened.
enum ConnectError {
    Postgres(Error),
    Unfit(String),
}

/// The failure of an attempt to connect.
#[derive(Debug)]
pub(super) struct Unconnected {
    pub(super) failure: Failure,
    /// `true` if the server allows no more connections.
    pub(super) is_full: bool,
}

impl Unconnected {
    fn new(refused: ConnectError, has_others: bool) -> Self {
        match refused {
            ConnectError::Postgres(error) => Self {
                is_full: error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS),
                failure: connect_failure(error, has_others),
            },
            ConnectError::Unfit(text) => Failure::new(Effect::None, Cause::Unfit(text))
                .reported_by_store()
                .into(),
        }
    }
}

impl From<Failure> for Unconnected {
    fn from(failure: Failure) -> Self {
        let is_full = false;
        Self { failure, is_full }
    }
}

impl From<Unconnected> for Failure {
    fn from(unconnected: Unconnected) -> Self {
        unconnected.failure
    }
}

impl PostgresServer {
    /// Connects. The notifications of the connection go to `notices`.
    pub(super) async fn connect(
        &self,
        notices: Option<NoticeSender>,
    ) -> Result<Connection, Unconnected> {
        let has_others = self.address_for(&notices).config.get_hosts().len() > 1;
        let connected = timeout(self.connect_timeout, self.try_connect(notices)).await;
        let connected = connected.map_err(|_| no_answer(Effect::None))?;
        connected.map_err(|refused| Unconnected::new(refused, has_others))
    }

    /// Returns the address of a connection that receives notifications, or of another one.
    fn address_for(&self, notices: &Option<NoticeSender>) -> &PostgresAddress {
        let listen_address = self.listen_address.as_ref().filter(|_| notices.is_some());
        listen_address.unwrap_or(&self.address)
    }

    async fn try_connect(&self, notices: Option<NoticeSender>) -> Result<Connection, ConnectError> {
        match &self.listen_address {
            Some(_) if notices.is_none() => {
                let client = open(&self.address, notices).await?;
                let settings = self.settings(true);
                Ok(Connection::pooled(client, &self.schema, settings))
            }
            _ => {
                let client = open(self.address_for(&notices), notices).await?;
                let settings = client.batch_execute(&self.settings(false)).await;
                settings.map_err(ConnectError::Postgres)?;
                Ok(Connection::new(client, &self.schema))
            }
        }
    }

    /// Has the server give up the statement that a connection runs, whose answer nobody awaits any longer.
    ///
    /// The server limits the time of all statements but a COMMIT. If that waits for a standby which is gone, it holds its locks until the
    /// standby returns, although the client is gone. A COMMIT that is cancelled has taken effect, on the primary alone.
    pub(super) fn cancel(&self, connection: &Connection) {
        let (token, limit) = (connection.cancel_token(), self.connect_timeout);
        #[cfg(feature = "postgres-tls")]
        if let Some(encryption) = self.address.encryption.clone() {
            tokio::spawn(async move { timeout(limit, token.cancel_query(encryption.0)).await });
            return;
        }
        tokio::spawn(async move { timeout(limit, token.cancel_query(NoTls)).await });
    }

    /// Returns a statement that sets up a connection, or only its transaction.
    ///
    /// The server gives up before this process does, so an error says the reason. It ends the transaction of a process that hangs.
    ///
    /// The statements of this store are pinned to the plans that they are written for: each row is found by an index, in a nested loop. The
    /// statistics of a queue's tables are always out of date, and then a planner that is free to choose reads whole tables. No plan depends
    /// on parameters, so each statement is planned once.
    ///
    /// A role or a database can have limits of its own, which not every version of the server knows. One of them would end connections that
    /// have nothing to do.
    ///
    /// A role or a database can have another isolation level. In it, a transaction that has waited for the lock of the store would not see
    /// what the last holder of the lock has written. A transaction that is set up itself begins with its level.
    fn settings(&self, is_of_transaction: bool) -> String {
        let third = (self.answer_timeout.as_millis() / 3).max(1);
        let times = [
            ("lock_timeout", third),
            ("statement_timeout", 2 * third),
            ("idle_in_transaction_session_timeout", 6 * third),
            ("max_parallel_workers_per_gather", 0),
        ];
        let times = times.map(|(name, value)| (name, value.to_string()));
        let others = [
            ("client_min_messages", "warning"),
            ("default_transaction_isolation", "read committed"),
            ("enable_hashjoin", "off"),
            ("enable_mergejoin", "off"),
            ("enable_seqscan", "off"),
            ("jit", "off"),
            ("plan_cache_mode", "force_generic_plan"),
        ];
        let others = others.map(|(name, value)| (name, value.to_owned()));
        let settings = times.into_iter().chain(others).map(|(name, value)| {
            format!("pg_catalog.set_config('{name}', '{value}', {is_of_transaction})")
        });
        let unlimited = ["idle_session_timeout", "transaction_timeout"].map(|name| {
            format!(
                "CASE WHEN pg_catalog.current_setting('{name}', true) IS NOT NULL \
                 THEN pg_catalog.set_config('{name}', '0', {is_of_transaction}) END"
            )
        });
        let all: Vec<_> = settings.chain(unlimited).collect();
        format!("SELECT {}", all.join(", "))
    }
}

/// Opens a connection, which lives until the client is dropped.
async fn open(
    address: &PostgresAddress,
    notices: Option<NoticeSender>,
) -> Result<Client, ConnectError> {
    #[cfg(feature = "postgres-tls")]
    if let Some(encryption) = &address.encryption {
        let connected = address.config.connect(encryption.0.clone()).await;
        let (client, driver) = connected.map_err(ConnectError::Postgres)?;
        drive(driver, notices)?;
        return Ok(client);
    }
    let connected = address.config.connect(NoTls).await;
    let (client, driver) = connected.map_err(ConnectError::Postgres)?;
    drive(driver, notices)?;
    Ok(client)
}

/// Checks the server, and drives the connection.
fn drive<T>(
    mut driver: tokio_postgres::Connection<Socket, T>,
    notices: Option<NoticeSender>,
) -> Result<(), ConnectError>
where
    T: TlsStream + Unpin + Send + 'static,
{
    let parameters = ["server_version", "server_encoding"].map(|name| driver.parameter(name));
    check(parameters).map_err(ConnectError::Unfit)?;
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| driver.poll_message(cx)).await {
            if let (AsyncMessage::Notification(it), Some(notices)) = (message, &notices) {
                notices.send(it.payload().to_owned()).ok();
            }
        }
    });
    Ok(())
}

/// Checks the version and the encoding that a server has reported, if it has.
///
/// # Errors
///
/// Returns the remedy.
fn check([version, encoding]: [Option<&str>; 2]) -> Result<(), String> {
    let number = version.and_then(|version| {
        let end = version.find(|it: char| !it.is_ascii_digit());
        version[..end.unwrap_or(version.len())].parse::<u32>().ok()
    });
    if let (Some(version), Some(number)) = (version, number)
        && number < OLDEST_VERSION
    {
        return Err(format!(
            "the server is PostgreSQL {version}: use version {OLDEST_VERSION} or later"
        ));
    }
    match encoding.filter(|encoding| *encoding != ENCODING) {
        Some(encoding) => Err(format!(
            "the encoding of the database is {encoding}: create one with the encoding {ENCODING}"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn an_old_version_is_refused() {
        for version in ["12.22", "12", "9.6.24", "10beta1"] {
            let error = check([Some(version), Some("UTF8")]).unwrap_err();
            assert!(error.contains("13 or later"), "{error}");
        }
        for version in [
            "13.0",
            "15.14 (Debian 15.14-0+deb12u1)",
            "18beta2",
            "unknown",
        ] {
            check([Some(version), Some("UTF8")]).unwrap();
        }
        check([None, None]).unwrap();
    }

    #[test]
    fn another_encoding_is_refused() {
        let error = check([Some("15.1"), Some("LATIN1")]).unwrap_err();
        assert!(
            error.contains("LATIN1") && error.contains("UTF8"),
            "{error}"
        );
    }
}
