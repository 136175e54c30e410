//! Encrypted connections, to a server whose certificate was signed by an authority of the test.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::scene::refused;
use super::server::{NOBODY, Server, is_root};
use super::{ServerConnection, needs_postgres};
use crate::durable::{DurableError, PostgresStore};
use crate::sync::Number;

/// The settings of `openssl`. The certificate is valid for the name `db.example`.
const SETTINGS: &str = "[req]\ndistinguished_name = name\nprompt = no\n[name]\nCN = NAME\n\
    [authority]\nbasicConstraints = critical,CA:TRUE\n[server]\nsubjectAltName = DNS:db.example\n";

/// An authority, with the certificate of a server that it has signed.
struct TestAuthority(TempDir);

impl TestAuthority {
    fn new() -> Self {
        let authority = Self(tempfile::tempdir().expect("a folder can be made"));
        let name = authority
            .0
            .path()
            .file_name()
            .expect("the folder has a name");
        let settings = SETTINGS.replace("NAME", &name.to_string_lossy());
        fs::write(authority.file("settings"), settings).expect("a file can be written");
        authority.sign("authority", &[]);
        let [certificate, key] = authority.files("authority");
        authority.sign(
            "server",
            &[Path::new("-CA"), &certificate, Path::new("-CAkey"), &key],
        );
        authority
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the paths of a certificate and of its key.
    fn files(&self, name: &str) -> [PathBuf; 2] {
        ["crt", "key"].map(|kind| self.file(&format!("{name}.{kind}")))
    }

    /// Makes a certificate, which is signed with its own key unless `by` names another one.
    fn sign(&self, name: &str, by: &[&Path]) {
        let [certificate, key] = self.files(name);
        let mut openssl = Command::new("openssl");
        openssl
            .args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"])
            .args([
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-extensions",
                name,
                "-config",
            ])
            .arg(self.file("settings"))
            .arg("-keyout")
            .arg(key)
            .arg("-out")
            .arg(certificate)
            .args(by);
        let made = openssl.output();
        let made = made.expect("this test needs openssl: on Debian, `apt-get install openssl`");
        assert!(made.status.success(), "{made:?}");
    }

    /// Returns the path of its certificate in an address.
    fn certificate(&self) -> String {
        self.file("authority.crt")
            .display()
            .to_string()
            .replace('/', "%2F")
    }
}

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
            chown(authority.0.path(), Some(NOBODY), Some(NOBODY)).expect("and a folder");
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
        let connection = ServerConnection::to(&self.server);
        let counts = ["true", "false"].map(|ssl| connection.number(&format!("{count} {ssl}")));
        drop(store);
        Ok(counts)
    }

    /// Returns the parameters of an address with which the certificate is valid.
    fn verified(&self) -> String {
        format!(
            "&sslmode=verify-full&sslrootcert={}",
            self.authority.certificate()
        )
    }

    async fn refused(&self, name: &str, parameters: &str) -> DurableError {
        refused(&PostgresStore::builder(
            &self.url("throng", name, parameters),
        ))
        .await
    }
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
    let foreign = format!("&sslmode=verify-full&sslrootcert={}", other.certificate());
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
    let connection = ServerConnection::to(&server.server);
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
