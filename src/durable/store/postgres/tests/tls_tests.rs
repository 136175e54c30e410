//! Encrypted connections, to a server whose certificate was signed by an authority of the test.

use std::fs;
use std::os::unix::fs::chown;

use super::scene::refused;
use super::server::{NOBODY, Server, is_root};
use super::{ServerConnection, needs_postgres};
use crate::durable::store::test_authority::TestAuthority;
use crate::durable::{DurableError, PostgresStore};
use crate::sync::Number;

/// A server that listens to an address of this machine, with a certificate or without.
struct TlsServer {
    server: Server,
    address: String,
    authority: TestAuthority,
}

impl TlsServer {
    fn start() -> Self {
        Self::start_with(&["ssl=on"])
    }

    fn start_with(settings: &[&str]) -> Self {
        let authority = TestAuthority::new();
        let [certificate, key] = authority.files("server");
        if is_root() {
            chown(&key, Some(NOBODY), Some(NOBODY)).expect("root can give a file away");
            chown(authority.folder(), Some(NOBODY), Some(NOBODY)).expect("and a folder");
        }
        let address = new_address();
        let own = [
            format!("listen_addresses={address}"),
            format!("ssl_cert_file={}", certificate.display()),
            format!("ssl_key_file={}", key.display()),
        ];
        let own = own.iter().map(String::as_str);
        let settings: Vec<_> = own.chain(settings.iter().copied()).collect();
        Self {
            server: Server::start_with(&settings),
            address,
            authority,
        }
    }

    /// Returns the address of the server under a name, with these parameters.
    fn url(&self, user: &str, name: &str, parameters: &str) -> String {
        let address = &self.address;
        format!(
            "postgres://{user}@{name}/postgres?application_name=tls&hostaddr={address}{parameters}"
        )
    }

    /// Opens a store at `db.example`. Returns how many of its connections are encrypted, and how many are not.
    async fn open(&self, parameters: &str) -> Result<[i64; 2], DurableError> {
        let url = self.url("throng", "db.example", parameters);
        let store = PostgresStore::open(&url).await?;
        let count = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
            WHERE application_name = 'tls' AND ssl =";
        let connection = ServerConnection::to(self.server.url());
        let counts = ["true", "false"].map(|ssl| connection.number(&format!("{count} {ssl}")));
        drop(store);
        Ok(counts)
    }

    /// Returns the parameters of an address with which the certificate is valid.
    fn verified(&self) -> String {
        format!(
            "&sslmode=verify-full&sslrootcert={}",
            certificate_in_url(&self.authority)
        )
    }

    async fn refused(&self, name: &str, parameters: &str) -> DurableError {
        refused(&PostgresStore::builder(
            &self.url("throng", name, parameters),
        ))
        .await
    }
}

/// Returns the path of the certificate of an authority, as a URL has it.
fn certificate_in_url(authority: &TestAuthority) -> String {
    let [certificate, _] = authority.files("authority");
    certificate.display().to_string().replace('/', "%2F")
}

/// Returns an address of this machine. Each server has the same port, which names its socket.
fn new_address() -> String {
    static NEXT: Number = Number::new(0);
    let process = std::process::id();
    format!(
        "127.{}.{}.{}",
        1 + process % 254,
        process / 254 % 256,
        1 + NEXT.add(1)
    )
}

#[tokio::test]
async fn a_server_with_a_valid_certificate_is_trusted() {
    needs_postgres!();
    let server = TlsServer::start();
    // The writer, the listener, and the reader, which has sent the listener a notification.
    assert_eq!(server.open(&server.verified()).await.unwrap(), [3, 0]);
    let require = server.verified().replace("verify-full", "require");
    assert_eq!(server.open(&require).await.unwrap(), [3, 0]);
}

#[tokio::test]
async fn a_server_with_another_certificate_is_not_trusted() {
    needs_postgres!();
    let (server, other) = (TlsServer::start(), TestAuthority::new());
    let foreign = format!(
        "&sslmode=verify-full&sslrootcert={}",
        certificate_in_url(&other)
    );
    for (name, parameters, text) in [
        ("db.example", &*foreign, "UnknownIssuer"),
        // The system does not trust the authority of the test.
        ("db.example", "&sslmode=require", "UnknownIssuer"),
        ("other.example", &*server.verified(), "not valid for name"),
    ] {
        let error = server.refused(name, parameters).await;
        assert!(error.to_string().contains(text), "{text}: {error}");
        assert!(!error.is_denied() && !error.is_unknown(), "{error}");
    }
}

#[tokio::test]
async fn encryption_that_is_only_preferred_checks_no_certificate() {
    needs_postgres!();
    let server = TlsServer::start();
    assert_eq!(server.open("").await.unwrap(), [3, 0]);
    assert_eq!(server.open("&sslmode=prefer").await.unwrap(), [3, 0]);
    assert_eq!(server.open("&sslmode=disable").await.unwrap(), [0, 3]);
}

#[tokio::test]
async fn a_server_without_encryption_is_refused_if_that_is_required() {
    needs_postgres!();
    let server = TlsServer::start_with(&["ssl=off"]);
    assert_eq!(server.open("&sslmode=prefer").await.unwrap(), [0, 3]);
    let error = server.refused("db.example", &server.verified()).await;
    assert!(error.is_unfit(), "{error}");
    assert!(error.to_string().contains("does not encrypt"), "{error}");
}

/// The password is not sent to a server that has another certificate than the one with which the connection is encrypted.
#[tokio::test]
async fn a_password_is_bound_to_the_certificate() {
    needs_postgres!();
    let server = TlsServer::start();
    let connection = ServerConnection::to(server.server.url());
    connection.ask("CREATE ROLE guarded LOGIN PASSWORD 'right'");
    connection.ask("CREATE SCHEMA throng AUTHORIZATION guarded");
    let url = |parameters: &str| server.url("guarded:right", "db.example", parameters);
    let bound = "&channel_binding=require";
    let encrypted = url(&format!("{}{bound}", server.verified()));
    PostgresStore::open(&encrypted).await.unwrap();
    let plain = url(&format!("&sslmode=disable{bound}"));
    let error = refused(&PostgresStore::builder(&plain)).await;
    assert!(!error.to_string().contains("right"), "{error}");
}

#[tokio::test]
async fn certificates_of_authorities_that_cannot_be_used_are_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let [missing, empty] = ["missing", "empty"].map(|name| folder.path().join(name));
    fs::write(&empty, "no certificate").unwrap();
    for (mode, file, text) in [
        ("verify-full", &missing, "cannot be read"),
        ("verify-full", &empty, "contains no certificate"),
        ("prefer", &empty, "only used with"),
    ] {
        let file = file.display();
        let url = format!("postgres://a:hunter2@b/c?sslmode={mode}&sslrootcert={file}");
        let error = refused(&PostgresStore::builder(&url)).await;
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
