//! `throng doctor`: a healthy store has no finding, and each fault has one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Output;

use redis::aio::MultiplexedConnection;
use regex::Regex;

use super::Result;
use super::scene::fill;
use super::store::TestStore;

/// A fault of a server.
struct Fault {
    /// The finding.
    id: &'static str,
    /// The exit status without `--strict`.
    code: i32,
    /// The commands that cause the fault and end it.
    cause: &'static str,
    end: &'static str,
}

const FAULTS: [Fault; 7] = [
    Fault {
        id: "redis.durability",
        code: 0,
        cause: "CONFIG SET appendfsync everysec",
        end: "CONFIG SET appendfsync always",
    },
    Fault {
        id: "redis.timeout",
        code: 0,
        cause: "CONFIG SET timeout 1000",
        end: "CONFIG SET timeout 0",
    },
    Fault {
        id: "redis.message_buffer",
        code: 0,
        cause: "CONFIG SET client-output-buffer-limit pubsub_65536_65536_60",
        end: "CONFIG SET client-output-buffer-limit pubsub_33554432_8388608_60",
    },
    Fault {
        id: "redis.script_limit",
        code: 0,
        cause: "CONFIG SET lua-time-limit 50",
        end: "CONFIG SET lua-time-limit 5000",
    },
    Fault {
        id: "redis.memory",
        code: 5,
        cause: "CONFIG SET maxmemory 1",
        end: "CONFIG SET maxmemory 0",
    },
    // Without a limit, the server evicts nothing yet.
    Fault {
        id: "redis.eviction",
        code: 5,
        cause: "CONFIG SET maxmemory-policy allkeys-lru",
        end: "CONFIG SET maxmemory-policy noeviction",
    },
    Fault {
        id: "redis.replica",
        code: 0,
        cause: "REPLICAOF 127.0.0.1 1",
        end: "REPLICAOF NO ONE",
    },
];

/// The rights of a worker, and those that let `throng doctor` see them.
const WORKER: &str = "on >word ~throng:* resetchannels +@hash +@list +@set +@sortedset +@scripting \
    +@connection +exists +unlink +time +info +pubsub|numsub +config|get +acl|whoami +acl|dryrun";

async fn connect(store: &TestStore) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(store.address.as_str())?;
    Ok(client.get_multiplexed_async_connection().await?)
}

/// Sends a command, whose arguments are separated by spaces, and contain `_` instead of spaces.
async fn send(server: &mut MultiplexedConnection, command: &str) -> Result {
    let words: Vec<_> = command.split(' ').map(|it| it.replace('_', " ")).collect();
    let mut request = redis::cmd(&words[0]);
    request.arg(&words[1..]);
    Ok(request.query_async(server).await?)
}

/// Checks that the output has a finding, and returns the exit status.
#[track_caller]
pub(crate) fn assert_finds(output: &Output, id: &str) -> Option<i32> {
    let found = String::from_utf8_lossy(&output.stdout);
    assert!(
        found.contains(&format!(r#""id":"{id}""#)),
        "{id}: {output:?}"
    );
    output.status.code()
}

/// Checks that there is no finding but one that is true of a machine whose disk is nearly full.
#[track_caller]
fn assert_healthy_file(output: &Output) {
    let found = String::from_utf8_lossy(&output.stdout);
    let is_of_disk = |line: &str| line.contains(r#""id":"sqlite.disk""#);
    assert!(found.lines().all(is_of_disk), "{output:?}");
    let is_quiet = found.is_empty();
    assert_eq!(is_quiet, output.status.code() == Some(0), "{output:?}");
}

#[tokio::test]
async fn each_fault_of_a_server_is_found() -> Result {
    let store = TestStore::redis().await?;
    let mut server = connect(&store).await?;
    for fault in FAULTS {
        send(&mut server, fault.cause).await?;
        let found = store.run(&["doctor", "-o", "jsonl"])?;
        assert_eq!(
            assert_finds(&found, fault.id),
            Some(fault.code),
            "{found:?}"
        );
        send(&mut server, fault.end).await?;
    }
    let crowded = store.run(&["doctor", "--clients", "9000", "--strict", "-o", "jsonl"])?;
    assert_eq!(assert_finds(&crowded, "redis.connections"), Some(5));
    let healthy = store.run(&["doctor", "--clients", "100", "--strict"])?;
    assert_eq!(healthy.status.code(), Some(0), "{healthy:?}");
    Ok(())
}

/// A user who may not use the channels, one who may only read, and one who may not ask the server for its settings.
#[tokio::test]
async fn missing_permissions_are_found() -> Result {
    let store = TestStore::redis().await?;
    let mut server = connect(&store).await?;
    for (more, id) in [
        ("", "redis.messages"),
        ("&throng:* +publish +subscribe -hset", "redis.permissions"),
        ("&throng:* +publish +subscribe -pubsub", "redis.permissions"),
        ("&throng:* +publish +subscribe -config", "redis.settings"),
        ("&throng:* +publish +subscribe", ""),
    ] {
        let user = format!("ACL SETUSER worker reset {WORKER} {more}");
        send(&mut server, user.trim()).await?;
        let address = format!("{}?user=worker&pass=word", store.address);
        let found = store.run(&["doctor", "-o", "jsonl", "--store", &address])?;
        match id {
            "" => assert_eq!(found.stdout, b"", "{found:?}"),
            id => assert_eq!(assert_finds(&found, id), Some(0)),
        }
    }
    Ok(())
}

/// A user who could not follow a slot that moves.
#[tokio::test]
async fn a_missing_permission_for_a_cluster_is_found() -> Result {
    const CLUSTER: &str =
        "&throng:* +spublish +ssubscribe +publish +subscribe +cluster|slots +pubsub|shardnumsub";
    let store = TestStore::redis_cluster().await?;
    let mut server = connect(&store).await?;
    let address = store.address.replace("redis://", "redis://worker:word@");
    for (more, is_found) in [("-asking", true), ("", false)] {
        let user = format!("ACL SETUSER worker reset {WORKER} {CLUSTER} {more}");
        send(&mut server, user.trim()).await?;
        let found = store.run(&["doctor", "-o", "jsonl", "--store", &address])?;
        match is_found {
            true => assert_eq!(assert_finds(&found, "redis.permissions"), Some(0)),
            false => assert_eq!(found.stdout, b"", "{found:?}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_file_is_examined() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    assert_healthy_file(&store.run(&["doctor", "--strict", "--deep", "-o", "jsonl"])?);
    fill(&client).await?;
    let found = store.run(&["doctor", "-o", "jsonl"])?;
    let text = String::from_utf8_lossy(&found.stdout);
    assert!(text.contains("2 of mail.send (fatal)"), "{text}");
    assert_finds(&found, "dead_letters.kept");
    Ok(client.close().await?)
}

/// Another program has a transaction that does not end.
#[tokio::test]
async fn a_file_that_cannot_be_written_is_found() -> Result {
    let store = TestStore::sqlite()?;
    store.open().await?.close().await?;
    let mut other = rusqlite::Connection::open(store.file())?;
    let lock = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found = store.run(&["doctor", "-o", "jsonl", "--timeout", "2s"])?;
    assert_eq!(assert_finds(&found, "store.writes"), Some(5));
    drop(lock);
    assert_healthy_file(&store.run(&["doctor", "--strict", "-o", "jsonl"])?);
    Ok(())
}

/// The table in `README.md` has the findings of the library, which documents them, and those of the command.
#[test]
fn the_readme_lists_all_findings() -> Result {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ids = |file: &str, pattern: &str| -> Result<BTreeSet<String>> {
        let text = fs::read_to_string(folder.join(file))?;
        let pattern = Regex::new(pattern)?;
        Ok(pattern
            .captures_iter(&text)
            .map(|it| it[1].to_owned())
            .collect())
    };
    let mut found = ids(
        "../src/durable/admin/finding.rs",
        r"/// \| `([a-z_]+\.[a-z_]+)` \|",
    )?;
    for file in [
        "doctor",
        "doctor/redis_permissions",
        "doctor/redis_server",
        "doctor/sqlite_file",
        "doctor/writes",
    ] {
        found.extend(ids(
            &format!("src/cmd/{file}.rs"),
            r#"\(\s*"([a-z_]+\.[a-z_]+)","#,
        )?);
    }
    assert_eq!(ids("README.md", r"`([a-z_]+\.[a-z_]+)`")?, found);
    Ok(())
}
