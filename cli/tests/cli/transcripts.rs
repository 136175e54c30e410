//! The output of the commands, on each store.

use std::time::Duration;

use super::Result;
use throng::durable::{DurableHandle, EncodedTask, SpawnOptions, Status, TaskId};

use super::scene::{Order, Report, Wait, fill, id, reaches, with_id, worker};
use super::store::{TestStore, throng};
use super::transcript::{Transcript, check};

/// The commands that only look.
const LOOKS: [&str; 25] = [
    "status",
    "status -o json",
    "status -q --check dead<3 --check waiting>=3 --check oldest<9d",
    "status -q --check waiting==3 --check unserved==3 --check delayed==1 --check running==0 --check kept==2",
    "status -q --check dead!=3 --check oldest>1h --check workers>0",
    "task ls",
    "task ls --status dead --limit 2 -o json",
    "task ls --status delayed -q",
    "task ls --status cancelled -o jsonl",
    "task ls --status retrying",
    "task ls --status dead --error mailbox --since 1h -q",
    "task ls --type unknown",
    "dead ls",
    "dead ls --error mailbox --all",
    "dead ls --since 30d --type mail.send -o jsonl",
    "queue ls",
    "queue show reports",
    "queue show reports -o json",
    "queue show unknown",
    "schedule ls",
    "schedule show nightly -o json",
    "type ls",
    "retention",
    "task ls --status dead --queue (default) -q",
    "upgrade --check",
];

/// The commands that change something, in an order in which each has an effect.
const CHANGES: [&str; 14] = [
    "queue pause reports",
    "type pause mail.send",
    "status",
    "queue resume reports",
    "queue set reports --running none --rate 3/s --burst 2",
    "queue ls",
    "schedule pause nightly unknown",
    "schedule resume nightly",
    "type resume mail.send",
    "retention --dead-for 7d --kept-most 1000",
    "retention --dead-most 1",
    "dead replay --type mail.send --dry-run",
    "dead replay --type mail.send --error mailbox",
    "dead delete --all",
];

async fn looks(store: &TestStore) -> Result {
    let client = store.open().await?;
    fill(&client).await?;
    client.close().await?;
    let mut transcript = Transcript::new(store);
    for command in LOOKS {
        transcript.run(command)?;
    }
    for command in ["task show", "task payload", "task wait"] {
        for number in [1, 2, 5, 7, 99] {
            // The task 7 waits for a worker, and there is none.
            let limit = if (command, number) == ("task wait", 7) {
                " --for 1ms"
            } else {
                ""
            };
            transcript.run(&format!("{command} {}{limit}", id(number)))?;
        }
    }
    transcript.check("looks");
    Ok(())
}

async fn changes(store: &TestStore) -> Result {
    let mut transcript = Transcript::new(store);
    for command in CHANGES {
        transcript.run(command)?;
    }
    let (first, second, delayed) = (id(6), id(7), id(9));
    transcript.run(&format!("task run {delayed} {first}"))?;
    transcript.run(&format!("task move {second} --queue reports"))?;
    transcript.run(&format!("task cancel {first} {second} {} -o json", id(99)))?;
    transcript.run(&format!("task delete {}", id(3)))?;
    transcript.run(&format!("task delete {} --yes", id(3)))?;
    transcript.run("dead delete --all --yes -o json")?;
    transcript.run("dead delete --all --yes")?;
    transcript.run("upgrade")?;
    transcript.run(&format!(
        "spawn mail.send --id {} --queue reports --delay 1h",
        id(20)
    ))?;
    transcript.run(&format!("task show {}", id(20)))?;
    // A task with this id is there, so nothing more is stored.
    transcript.run(&format!("spawn mail.send --id {}", id(20)))?;
    transcript.run("task ls --status delayed -q --queue reports")?;
    transcript.run("spawn mail.send {x}")?;
    transcript.check("changes");
    Ok(())
}

async fn workflows(store: &TestStore) -> Result {
    let (client, order) = (store.open().await?, id(40));
    let executor = worker(&client).await?;
    client.spawn_with(Order, with_id(40)).await?;
    reaches(&client, order, Status::Delayed).await?;
    let mut transcript = Transcript::new(store);
    transcript.run(&format!("task show {order}"))?;
    transcript.run(&format!("task show {order} -o json"))?;
    transcript.run("task ls --status delayed")?;
    // The value is of another type than the task expects.
    transcript.run(&format!("task signal {order} shipped {{\"day\":"))?;
    transcript.run(&format!("task signal {order} shipped [\"monday\"]"))?;
    reaches(&client, order, Status::Dead).await?;
    transcript.run(&format!("task signal {order} shipped 7"))?;
    transcript.run(&format!("task show {order}"))?;
    transcript.run(&format!("task replay {order} --from unknown"))?;
    transcript.run(&format!("task replay {order} --from reserve"))?;
    transcript.run(&format!("task replay {order} --from sleep:moment"))?;
    transcript.run(&format!("task replay {order} --from step:sleep:moment"))?;
    transcript.run(&format!("task replay {order} --from timeout:shipped --yes"))?;
    reaches(&client, order, Status::Delayed).await?;
    transcript.run(&format!("task show {order}"))?;
    transcript.run(&format!("task signal {order} shipped 7"))?;
    reaches(&client, order, Status::Done).await?;
    transcript.run(&format!("task replay {order} --from reserve --yes"))?;
    transcript.run(&format!("task signal {order} shipped 7"))?;
    transcript.run(&format!("task replay {} --from reserve", id(99)))?;
    executor.shutdown(Duration::from_secs(10)).await;
    client.close().await?;
    transcript.check("workflows");
    Ok(())
}

#[tokio::test]
async fn workflows_on_a_file() -> Result {
    workflows(&TestStore::sqlite()?).await
}

#[tokio::test]
async fn workflows_on_a_server() -> Result {
    workflows(&TestStore::redis().await?).await
}

#[tokio::test]
async fn workflows_in_a_database() -> Result {
    workflows(&TestStore::postgres().await?).await
}

#[tokio::test]
async fn commands_in_a_database() -> Result {
    let store = TestStore::postgres().await?;
    looks(&store).await?;
    changes(&store).await
}

#[tokio::test]
async fn commands_on_a_file() -> Result {
    let store = TestStore::sqlite()?;
    looks(&store).await?;
    changes(&store).await
}

#[tokio::test]
async fn commands_on_a_server() -> Result {
    let store = TestStore::redis().await?;
    looks(&store).await?;
    changes(&store).await
}

#[test]
fn usage() -> Result {
    let folder = tempfile::tempdir()?;
    let mut text = String::new();
    let commands = [
        "--help",
        "task --help",
        "dead replay --help",
        "task replay --help",
        "task signal --help",
        "status --help",
        "status",
        "status --store mysql://me:secret@host/",
        "status --store postgres://me:secret@127.0.0.1:1/app",
        "status --store postgres://me:secret@host:port/app",
        "namespaces --store postgres://me@host/app",
        "doctor --clients 3 --store postgres://me@host/app",
        "status --store redis://127.0.0.1:1/",
        "status --store x.db --check dead=0",
        "queue set q --store x.db",
        "dead replay --store x.db",
        "status --store sqlite:",
        "status --store .",
        "status --partitions 0",
        "status --timeout 0s",
        "task ls --limit 0",
        "retention --dead-for 1ms",
        "web --listen localhost:8787",
    ];
    for command in commands {
        let output = throng(folder.path()).args(command.split(' ')).output()?;
        let streams = [output.stdout, output.stderr].concat();
        let code = output.status.code().ok_or("a signal has ended it")?;
        text += &format!(
            "$ throng {command}\n{}exit status {code}\n\n",
            String::from_utf8(streams)?
        );
    }
    check(&text, "usage.txt");
    // The commands are repeated.
    assert!(!text.replace("me:secret@", "").contains("secret"));
    Ok(())
}

/// A worker that is live is shown with its process, its types and the tasks that it runs.
#[tokio::test]
async fn workers_are_listed() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    let executor = worker(&client).await?;
    let waits = client.spawn(Wait).await?;
    let started = async || client.status(waits.id()).await;
    while started().await? != Status::Running {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let list = store.run(&["worker", "ls", "-q"])?;
    let list = String::from_utf8(list.stdout)?;
    let fields: Vec<_> = list.trim_end().split('\t').collect();
    assert_eq!(fields[1..4], ["live", "(default)", "1"], "{list}");
    assert_eq!(fields[6], std::process::id().to_string(), "{list}");
    assert!(fields[8].contains("mail.send"), "{list}");
    for (name, is_known) in [("mail.send", true), ("mail.snd", false)] {
        let paused = store.run(&["type", "pause", name])?;
        assert!(paused.status.success(), "{paused:?}");
        let warned = String::from_utf8(paused.stderr)?.contains("no worker has listed the type");
        assert_eq!(warned, !is_known, "{name}");
    }
    let shown = store.run(&["worker", "show", fields[0], "-o", "json"])?;
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout)?;
    let id = waits.id().to_string();
    assert_eq!(shown["data"]["permits"], 1);
    assert_eq!(shown["data"]["running"][0]["id"], id);
    let shown = store.run(&["worker", "show", fields[0]])?;
    let shown = String::from_utf8(shown.stdout)?;
    assert!(shown.contains(&format!("{id} wait for ")), "{shown}");
    for (session, code) in [(fields[0], 0), ("7", 3)] {
        let running = ["task", "ls", "--status", "running", "--worker", session];
        assert_eq!(store.run(&running)?.status.code(), Some(code));
    }
    let absent = store.run(&["worker", "show", "7"])?;
    assert_eq!(absent.status.code(), Some(3));
    executor.shutdown(Duration::ZERO).await;
    Ok(client.close().await?)
}

/// A task that is spawned by its name runs, and its output is printed.
#[tokio::test]
async fn a_task_is_spawned_by_its_name() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    let executor = worker(&client).await?;
    let sent = ["spawn", "mail.send", r#"{"to":"x@y.z"}"#, "--wait"];
    let sent = store.run_beside(&sent).await?;
    assert_eq!(String::from_utf8(sent.stdout)?, "\"sent to x@y.z\"\n");
    let failed = ["spawn", "mail.send", r#"{"to":"a","error":"no"}"#, "--wait"];
    let failed = store.run_beside(&failed).await?;
    assert_eq!(failed.status.code(), Some(5));
    executor.shutdown(Duration::ZERO).await;
    Ok(client.close().await?)
}

/// `task show` says why a task waits.
#[tokio::test]
async fn a_waiting_task_says_why() -> Result {
    for store in [
        TestStore::sqlite()?,
        TestStore::redis().await?,
        TestStore::postgres().await?,
    ] {
        let client = store.open().await?;
        let executor = worker(&client).await?;
        let reason = |id: TaskId| -> Result<Option<String>> {
            let shown = store.run(&["task", "show", &id.to_string()])?;
            let shown = String::from_utf8(shown.stdout)?;
            let mut reasons = shown.lines().filter_map(|it| it.strip_prefix("waits\t"));
            Ok(reasons.next().map(String::from))
        };
        let report = client.spawn(Report { month: 1 }).await?.id();
        let expect = |reason: &str| Some(String::from(reason));
        assert_eq!(reason(report)?, expect("no live worker serves its queue"));
        client.queue("reports").pause().await?;
        let paused = expect("its queue is paused: see `throng queue resume`");
        assert_eq!(reason(report)?, paused);
        let unknown = EncodedTask::new("nobody", "{}".to_owned());
        let unknown: DurableHandle<()> = client.spawn_encoded(unknown, SpawnOptions::new()).await?;
        let unregistered = expect("no live worker of its queue has registered its type");
        assert_eq!(reason(unknown.id())?, unregistered);
        client.types().pause("nobody").await?;
        let paused = expect("its type is paused: see `throng type resume`");
        assert_eq!(reason(unknown.id())?, paused);
        executor.shutdown(Duration::ZERO).await;
        client.close().await?;
    }
    Ok(())
}
