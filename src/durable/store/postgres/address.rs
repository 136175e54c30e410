//! [`PostgresAddress`]: where a server is, and how connections to it are encrypted.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

#[cfg(feature = "postgres-tls")]
use super::tls::Encryption;

/// The form of an address.
const FORM: &str =
    "use postgres://user:password@host:port/database, with special characters as %40";

/// The beginnings of an address in the form of a URL.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// The time after which the system asks whether a silent server still exists, and the interval at which it asks again.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// The time for which the system sends data again that the server does not acknowledge.
const SEND_TIMEOUT: Duration = Duration::from_secs(15);

/// The address of a server.
#[derive(Clone)]
pub(super) struct PostgresAddress {
    pub(super) config: Config,
    /// The encryption of connections, or `None` if they are not encrypted.
    #[cfg(feature = "postgres-tls")]
    pub(super) encryption: Option<Encryption>,
}

/// The parameters of an address that `tokio_postgres` does not know.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OwnParameters {
    /// The file that contains the certificates of the authorities that may have signed that of the server.
    pub(super) root_file: Option<String>,
    /// `true` if the certificate must be valid for the name of the server.
    pub(super) verify_full: bool,
}

impl PostgresAddress {
    /// Reads an address, whose hosts must answer within this time. An error message contains no part of the password.
    pub(super) fn parse(url: &str, connect_timeout: Duration) -> Result<Self, String> {
        let (mut config, own) = config(url)?;
        // A host that does not answer leaves time for the others.
        let hosts = config.get_hosts().len() as u32;
        if hosts > 1 && config.get_connect_timeout().is_none() {
            config.connect_timeout(connect_timeout / hosts);
        }
        Self::with_encryption(config, &own)
    }

    #[cfg(feature = "postgres-tls")]
    fn with_encryption(config: Config, own: &OwnParameters) -> Result<Self, String> {
        let encryption = Encryption::new(config.get_ssl_mode(), own.root_file.as_deref())?;
        Ok(Self { config, encryption })
    }

    #[cfg(not(feature = "postgres-tls"))]
    fn with_encryption(config: Config, own: &OwnParameters) -> Result<Self, String> {
        match config.get_ssl_mode() {
            SslMode::Disable | SslMode::Prefer if own.root_file.is_none() => Ok(Self { config }),
            _ => Err(String::from(
                "encrypted connections to PostgreSQL need the feature `postgres-tls` of throng",
            )),
        }
    }
}

/// Reads an address. An error message contains no part of it, since that could be a part of the password.
pub(super) fn config(url: &str) -> Result<(Config, OwnParameters), String> {
    let (url, own) = split(url)?;
    let config: Result<Config, _> = url.parse();
    let mut config = config.map_err(|_| String::from(FORM))?;
    let is_split = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
    let is_split = config.get_hosts().iter().any(is_split)
        || config.get_dbname().is_some_and(|name| name.contains('@'));
    if config.get_hosts().is_empty() || is_split {
        return Err(String::from(FORM));
    }
    if own.verify_full {
        config.ssl_mode(SslMode::Require);
    }
    set_up(&mut config);
    Ok((config, own))
}

/// Adds what the store needs.
fn set_up(config: &mut Config) {
    if config.get_application_name().is_none() {
        config.application_name("throng");
    }
    // These find out that a server is gone on a connection that only waits for notifications.
    config.keepalives_idle(KEEPALIVE_IDLE);
    config.keepalives_interval(KEEPALIVE_INTERVAL);
    config.tcp_user_timeout(SEND_TIMEOUT);
}

/// Splits the parameters that `tokio_postgres` does not know off an address. Only a URL can have them.
fn split(url: &str) -> Result<(String, OwnParameters), String> {
    let mut own = OwnParameters::default();
    // `tokio_postgres` takes everything before the first `@` for the user and the password.
    let host = url.find('@').unwrap_or_default();
    let query = url[host..].find('?').map(|at| host + at);
    let (Some(query), true) = (query, SCHEMES.iter().any(|it| url.starts_with(it))) else {
        return Ok((url.to_owned(), own));
    };
    let mut others = Vec::new();
    for parameter in url[query + 1..].split('&') {
        match parameter.split_once('=') {
            Some(("sslrootcert", file)) => own.root_file = Some(decoded(file)?),
            Some(("sslmode", "verify-full")) => own.verify_full = true,
            Some(("sslmode", "verify-ca")) => {
                return Err(String::from(
                    "`sslmode=verify-ca` is not supported: use `sslmode=verify-full`, which also checks the name of the server",
                ));
            }
            _ => others.push(parameter),
        }
    }
    let separator = if others.is_empty() { "" } else { "?" };
    let rest = format!("{}{separator}{}", &url[..query], others.join("&"));
    Ok((rest, own))
}

/// Returns a text in which each `%` and two hexadecimal digits are replaced with the byte that they stand for.
fn decoded(text: &str) -> Result<String, String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|it| u8::from_str_radix(it, 16).ok());
        bytes.push(byte.ok_or(FORM)?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| String::from(FORM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parameters_of_tls_are_split_off() {
        let own = |root_file: Option<&str>, verify_full| OwnParameters {
            root_file: root_file.map(String::from),
            verify_full,
        };
        for (url, rest, expected) in [
            (
                "postgres://a:b?c@d/e",
                "postgres://a:b?c@d/e",
                own(None, false),
            ),
            (
                "postgres://d/e?sslmode=require",
                "postgres://d/e?sslmode=require",
                own(None, false),
            ),
            (
                "postgresql://d/e?sslmode=verify-full",
                "postgresql://d/e",
                own(None, true),
            ),
            (
                "postgres://a:b?sslmode=verify-full@d/e?application_name=x&sslrootcert=%2Fa%20b&port=7",
                "postgres://a:b?sslmode=verify-full@d/e?application_name=x&port=7",
                own(Some("/a b"), false),
            ),
            (
                "host=d sslrootcert=x",
                "host=d sslrootcert=x",
                own(None, false),
            ),
        ] {
            assert_eq!(split(url), Ok((rest.into(), expected)), "{url}");
        }
        for url in [
            "postgres://d/e?sslmode=verify-ca",
            "postgres://d/e?sslrootcert=%2",
        ] {
            assert!(split(url).is_err(), "{url}");
        }
    }
}
