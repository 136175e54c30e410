//! What is special about a store in PostgreSQL: passwords, schemas, and the findings of `throng doctor`.

use std::fs;

use super::Result;
use super::doctor::assert_finds;
use super::scene::fill;
use super::server::TestServer;
use super::store::TestStore;

/// A finding, its exit status, and the statements that cause it and end it.
const FAULTS: [(&str, i32, &str, &str); 4] = [
    (
        "postgres.durability",
        0,
        "ALTER ROLE throng SET synchronous_commit = off",
        "ALTER ROLE throng RESET synchronous_commit",
    ),
    (
        "postgres.read_only",
        0,
        "ALTER ROLE throng SET default_transaction_read_only = on",
        "SET transaction_read_only = off; ALTER ROLE throng RESET default_transaction_read_only",
    ),
    (
        "postgres.autovacuum",
        0,
        "ALTER TABLE throng.task SET (autovacuum_enabled = false)",
        "ALTER TABLE throng.task RESET (autovacuum_enabled)",
    ),
    (
        "postgres.tables",
        5,
        "ALTER TABLE throng.error RENAME TO errors",
        "ALTER TABLE throng.errors RENAME TO error",
    ),
];

#[tokio::test]
async fn each_fault_of_a_database_is_found() -> Result {
    let store = TestStore::postgres().await?;
    for (id, code, cause, end) in FAULTS {
        store.ask(cause)?;
        let found = store.run(&["doctor", "-o", "jsonl"])?;
        assert_eq!(assert_finds(&found, id), Some(code), "{found:?}");
        store.ask(end)?;
    }
    let healthy = store.run(&["doctor", "--strict"])?;
    assert_eq!(healthy.status.code(), Some(0), "{healthy:?}");
    assert_eq!(healthy.stdout, b"", "{healthy:?}");
    Ok(())
}

/// A user who may only read can use the commands that change nothing.
#[tokio::test]
async fn a_user_who_may_only_read_is_an_observer() -> Result {
    let store = TestStore::postgres().await?;
    store.ask(
        "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA throng TO reader;
         GRANT SELECT ON ALL TABLES IN SCHEMA throng TO reader",
    )?;
    let reader = store.address_of("reader");
    let found = store.run(&["doctor", "-o", "jsonl", "--store", &reader])?;
    assert_eq!(assert_finds(&found, "postgres.permissions"), Some(0));
    let seen = store.run(&["status", "--store", &reader])?;
    assert_eq!(seen.status.code(), Some(0), "{seen:?}");
    let refused = store.run(&["queue", "pause", "q", "--store", &reader])?;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let message = String::from_utf8(refused.stderr)?;
    assert!(message.contains("grant the user all rights"), "{message}");
    Ok(())
}

#[tokio::test]
async fn a_schema_without_a_store_is_not_created() -> Result {
    let store = TestStore::postgres().await?;
    for command in ["status", "upgrade", "doctor"] {
        let output = store.run(&[command, "--schema", "typo"])?;
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let message = String::from_utf8(output.stderr)?;
        assert!(message.contains("contains no store"), "{message}");
    }
    // The schema can be created, so it does not exist.
    store.ask("CREATE SCHEMA typo")?;
    Ok(())
}

/// The user `guarded` needs a password.
#[tokio::test]
async fn a_password_is_read_from_a_file_and_never_printed() -> Result {
    let store = TestStore::postgres().await?;
    fill(&store.open().await?).await?;
    store.ask(
        "CREATE ROLE guarded LOGIN PASSWORD 'hunter2@'; GRANT USAGE ON SCHEMA throng TO guarded;
         GRANT SELECT ON ALL TABLES IN SCHEMA throng TO guarded",
    )?;
    let file = store.folder.path().join("password");
    let file = file.to_str().ok_or("no text")?;
    let url = store.address_of("guarded");
    let run = |password: &str, url: &str| -> Result<_> {
        fs::write(file, password)?;
        store.run(&["status", "-v", "--store", url, "--password-file", file])
    };
    let seen = run("hunter2@\n", &url)?;
    assert_eq!(seen.status.code(), Some(0), "{seen:?}");
    let refused = run("wronghunter2", &store.address_of("guarded:hunter2%40"))?;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let message = String::from_utf8(refused.stderr.clone())?;
    assert!(message.contains("check the password"), "{message}");
    let web = web_pages(&store, &store.address_of("guarded:hunter2%40"))?;
    for output in [
        seen.stdout,
        seen.stderr,
        refused.stdout,
        refused.stderr,
        web,
    ] {
        let text = String::from_utf8(output)?;
        assert!(!text.contains("unter2"), "{text}");
    }
    Ok(())
}

/// Returns pages of the dashboard.
#[cfg(feature = "web")]
fn web_pages(store: &TestStore, address: &str) -> Result<Vec<u8>> {
    let server = TestServer::start(store, &["web", "--store", address])?;
    let mut pages = String::new();
    for page in ["/s/store", "/s/store/dead", "/s/store/workers"] {
        pages += &server.send(&format!("GET {page}"), "Host: localhost\r\n", "")?;
    }
    assert!(pages.contains("mail.send"), "{pages}");
    server.end()?;
    Ok(pages.into_bytes())
}

#[cfg(not(feature = "web"))]
fn web_pages(_: &TestStore, _: &str) -> Result<Vec<u8>> {
    Ok(Vec::new())
}
