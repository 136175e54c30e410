//! No command creates a store, passes on control characters, or fails because a reader has gone.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::Duration;

use throng::durable::Status;

use super::Result;
use super::scene::{HOSTILE, Order, fill, filled, id, reaches, with_id, worker};
use super::store::{TestStore, end_of, throng};
use super::terminal::Terminal;

#[test]
fn no_command_creates_a_store() -> Result {
    let folder = tempfile::tempdir()?;
    let commands = [
        "status",
        "dead replay --all",
        "queue pause q",
        "spawn mail.send",
        "doctor",
        "metrics",
        "upgrade",
    ];
    for command in commands {
        let store = ["--store", "typo.db"];
        let output = throng(folder.path())
            .args(store)
            .args(command.split(' '))
            .output()?;
        let message = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(4), "{command}: {message}");
        assert!(message.contains("typo.db"), "{command}: {message}");
    }
    assert_eq!(fs::read_dir(&folder)?.count(), 0);
    Ok(())
}

#[tokio::test]
async fn no_command_creates_a_namespace() -> Result {
    let store = TestStore::redis().await?;
    let client = redis::Client::open(store.address.as_str())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let keys = redis::cmd("DBSIZE").to_owned();
    let before: u64 = keys.query_async(&mut connection).await?;
    for command in [["status"], ["upgrade"]] {
        let output = store.run(&[&["--namespace", "typo"][..], &command].concat())?;
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let message = String::from_utf8(output.stderr)?;
        for remedy in ["`throng namespaces`", "start a program"] {
            assert!(message.contains(remedy), "{message}");
        }
    }
    let namespaces = store.run(&["namespaces", "-q"])?;
    assert_eq!(String::from_utf8(namespaces.stdout)?, "default\n");
    assert_eq!(keys.query_async::<u64>(&mut connection).await?, before);
    Ok(())
}

/// A command that only looks leaves the file as it is.
#[tokio::test]
async fn looking_changes_no_file() -> Result {
    let store = filled().await?;
    let before = (
        fs::read(store.file())?,
        fs::metadata(store.file())?.mtime_nsec(),
    );
    for command in [
        ["status", "-q"],
        ["task", "ls"],
        ["dead", "ls"],
        ["queue", "ls"],
    ] {
        assert!(store.run(&command)?.status.success());
    }
    let after = (
        fs::read(store.file())?,
        fs::metadata(store.file())?.mtime_nsec(),
    );
    assert!(before == after);
    Ok(())
}

/// A task whose name and error are full of control characters reaches the output only with escapes, and JSON stays valid.
async fn is_escaped(store: &TestStore) -> Result {
    let client = store.open().await?;
    fill(&client).await?;
    client.close().await?;
    let id = id(4).to_string();
    let commands: [&[&str]; 9] = [
        &["dead", "ls"],
        &["dead", "ls", "-o", "json"],
        &["dead", "export"],
        &["task", "ls", "--status", "dead", "-o", "jsonl"],
        &["task", "show", &id],
        &["task", "show", &id, "-o", "json"],
        &["task", "payload", &id],
        &["task", "wait", &id],
        &["type", "ls"],
    ];
    for command in commands {
        let output = store.run(command)?;
        let text = String::from_utf8([output.stdout, output.stderr].concat())?;
        let is_fine = |it: char| matches!(it, '\n' | '\t' | ' '..='~');
        assert!(text.chars().all(is_fine), "{command:?}: {text:?}");
    }
    let json = store.run(&["task", "show", &id, "-o", "json"])?.stdout;
    let json: serde_json::Value = serde_json::from_slice(&json)?;
    assert_eq!(json["data"]["task"]["name"], HOSTILE);
    let raw = store.run(&["task", "payload", &id, "--raw"])?.stdout;
    let payload: String = serde_json::from_slice(&raw)?;
    assert!(payload.ends_with(HOSTILE));
    Ok(())
}

#[tokio::test]
async fn hostile_texts_in_a_file_are_escaped() -> Result {
    is_escaped(&TestStore::sqlite()?).await
}

#[tokio::test]
async fn hostile_texts_in_a_server_are_escaped() -> Result {
    is_escaped(&TestStore::redis().await?).await
}

#[tokio::test]
async fn hostile_texts_in_a_database_are_escaped() -> Result {
    is_escaped(&TestStore::postgres().await?).await
}

/// A reader such as `head` that closes its end is no failure.
#[tokio::test]
async fn a_closed_pipe_is_no_failure() -> Result {
    let store = filled().await?;
    let mut command = store.command(&["task", "ls", "--status", "dead"]);
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn()?;
    let mut message = String::new();
    child
        .stderr
        .take()
        .ok_or("no stderr")?
        .read_to_string(&mut message)?;
    assert!(
        end_of(&mut child)?.success() && message.is_empty(),
        "{message}"
    );
    Ok(())
}

/// A replay of a task whose steps cannot be read needs a confirmation, too.
#[tokio::test]
async fn a_replay_of_unreadable_steps_is_confirmed() -> Result {
    let store = TestStore::redis().await?;
    let client = store.open().await?;
    let executor = worker(&client).await?;
    let order = client.spawn_with(Order, with_id(40)).await?.id();
    reaches(&client, order, Status::Delayed).await?;
    executor.shutdown(Duration::from_secs(10)).await;
    lose_step(&store, "step:charge").await?;
    let replay = ["task", "replay", &order.to_string(), "--from", "reserve"];
    let refused = store.run(&replay)?;
    let message = String::from_utf8(refused.stderr)?;
    assert_eq!(refused.status.code(), Some(2), "{message}");
    for part in [
        "an unknown number of steps",
        "lost, or cannot be read",
        "`--yes`",
    ] {
        assert!(message.contains(part), "{message}");
    }
    for (answer, code) in [("1\n", 2), ("yes\n", 3)] {
        let mut terminal = Terminal::open()?;
        let mut child = terminal.spawn(store.command(&replay))?;
        terminal.wait_for("Type yes to confirm:")?;
        terminal.type_keys(answer)?;
        // The store refuses to replay it.
        assert_eq!(end_of(&mut child)?.code(), Some(code));
    }
    let confirmed = store.run(&[&replay[..], &["--yes"]].concat())?;
    let effect = String::from_utf8(confirmed.stdout)?;
    assert!(effect.contains("a part of it cannot be read"), "{effect}");
    Ok(client.close().await?)
}

/// Removes a step of the only task that has steps.
async fn lose_step(store: &TestStore, name: &str) -> Result {
    let client = redis::Client::open(store.address.as_str())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let keys = redis::cmd("KEYS").arg("*steps:*").to_owned();
    let keys: Vec<Vec<u8>> = keys.query_async(&mut connection).await?;
    let lose = redis::cmd("HDEL").arg(&keys[..1]).arg(name).to_owned();
    assert_eq!(lose.query_async::<u32>(&mut connection).await?, 1);
    Ok(())
}

/// A password comes from the environment or a file, and no message contains it.
#[tokio::test]
async fn a_password_is_used_and_never_printed() -> Result {
    let store = TestStore::redis_with_password("hidden-word").await?;
    let without = store.address.replace(":hidden-word@", "");
    fs::write(store.folder.path().join("password"), "hidden-word\n")?;
    let file = ["status", "--store", &without, "--password-file", "password"];
    assert!(store.run(&file)?.status.success());
    // An empty variable is none.
    let mut in_url = store.command(&["status"]);
    in_url.env("THRONG_STORE_PASSWORD", "");
    assert!(in_url.output()?.status.success());
    let mut wrong = store.command(&["status", "--store", &without]);
    let wrong = wrong.env("THRONG_STORE_PASSWORD", "wrong-word").output()?;
    let message = String::from_utf8(wrong.stderr)?;
    assert_eq!(wrong.status.code(), Some(1), "{message}");
    assert!(!message.contains("-word"), "{message}");
    Ok(())
}
