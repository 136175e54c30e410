//! Encrypted connections, to servers whose certificate an authority of the test has signed.

use std::env;

use tokio::task::block_in_place;

use super::sentinel_group::SentinelGroup;
use super::*;
use crate::durable::store::test_authority::TestAuthority;

/// The variable that has the settings of a server, in a process that trusts its authority.
const SETTINGS: &str = "THRONG_TEST_TLS_SETTINGS";

/// Ends a test early if `THRONG_REDIS_SERVER` names a server that was compiled without TLS, as those in some packages.
macro_rules! needs_tls {
    () => {
        needs_redis!();
        if crate::durable::store::redis::tests::server::is_another_without_tls() {
            return;
        }
    };
}
pub(super) use needs_tls;

/// Returns settings with which a server accepts encrypted connections only, and connects to others in the same way.
fn settings_of(authority: &TestAuthority) -> Vec<String> {
    let [[certificate, key], [trusted, _]] = ["server", "authority"].map(|it| authority.files(it));
    let files = [
        ("--tls-cert-file", certificate),
        ("--tls-key-file", key),
        ("--tls-ca-cert-file", trusted),
    ];
    let files = files.map(|(name, file)| [name.to_owned(), file.display().to_string()]);
    let others = ["--tls-auth-clients", "no", "--tls-replication", "yes"];
    let others = others.map(str::to_owned);
    files.into_iter().flatten().chain(others).collect()
}

/// In a process whose system trusts an authority, returns the settings of a server with a certificate of the authority. In another
/// process, runs the test there, and returns `None`.
pub(super) fn trusted_settings(module: &str, test: &str) -> Option<Vec<String>> {
    if let Ok(settings) = env::var(SETTINGS) {
        return Some(settings.lines().map(str::to_owned).collect());
    }
    let authority = TestAuthority::new();
    let [trusted, _] = authority.files("authority");
    let settings = settings_of(&authority).join("\n");
    let variables = [
        (SETTINGS, settings.as_ref()),
        ("SSL_CERT_FILE", trusted.as_os_str()),
    ];
    run_apart(module, test, &variables);
    None
}

/// Returns settings as arguments.
pub(super) fn arguments(settings: &[String]) -> Vec<&str> {
    settings.iter().map(|it| &**it).collect()
}

/// Stores a task, and runs it.
async fn use_store(worker: &Worker, number: u64) {
    worker.enqueue([task(number)]).await;
    let claim = worker.claim(1).await;
    assert_eq!(claim.tasks[0].id, id(number));
    worker.turn(done(&claim), 0).await;
}

#[tokio::test]
async fn a_server_that_the_system_trusts_is_used() {
    needs_tls!();
    let test = "a_server_that_the_system_trusts_is_used";
    let Some(settings) = trusted_settings(module_path!(), test) else {
        return;
    };
    let server = Server::with(&arguments(&settings));
    let worker = Worker::new(open(&format!("rediss://127.0.0.1:{}", server.port())).await).await;
    use_store(&worker, 1).await;
    sentinels_tests::cut(&server);
    use_store(&worker, 2).await;
    let mut plain = RedisStore::builder(&format!("redis://127.0.0.1:{}", server.port()));
    let opened = plain.connect_timeout(SOON).open().await;
    let error = opened.expect_err("the server does not understand it");
    assert!(!error.is_invalid() && !error.is_denied(), "{error}");
}

#[tokio::test]
async fn a_server_that_the_system_does_not_trust_is_refused() {
    needs_tls!();
    let server = Server::with(&arguments(&settings_of(&TestAuthority::new())));
    let opened = RedisStore::open(&format!("rediss://127.0.0.1:{}", server.port())).await;
    let error = opened.expect_err("nobody trusts the authority");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    assert!(!error.is_denied() && !error.is_unknown(), "{error}");
}

#[tokio::test]
async fn a_server_without_certificate_is_refused() {
    needs_redis!();
    let server = Server::start();
    let mut builder = RedisStore::builder(&format!("rediss://127.0.0.1:{}", server.port()));
    let opened = builder.connect_timeout(SOON).open().await;
    let error = opened.expect_err("the server does not encrypt");
    assert!(!error.is_invalid() && !error.is_denied(), "{error}");
}

/// The Sentinels, the servers that they name, and the server after a failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_servers_are_reached_with_encryption() {
    needs_tls!();
    let test = "sentinels_and_their_servers_are_reached_with_encryption";
    let Some(settings) = trusted_settings(module_path!(), test) else {
        return;
    };
    let mut group = SentinelGroup::with_common(&arguments(&settings));
    let url = format!("rediss-sentinel://{}/main", group.addresses().join(","));
    let worker = Worker::new(open(&url).await).await;
    use_store(&worker, 1).await;
    group.servers[0].kill();
    block_in_place(|| group.wait_for_new_primary(0));
    use_store(&worker, 2).await;
}
