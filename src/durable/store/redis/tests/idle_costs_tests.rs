//! The costs of an idle client.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::*;
use crate::durable::clock::Clock;
use crate::durable::store::redis::Time;
use crate::durable::{DurableClient, DurableExecutor, DurableTask, Run, TaskContext, TaskError};

#[derive(Serialize, Deserialize)]
struct Job;

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = ();
}

impl Run<()> for Job {
    async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// Returns the number of times that each command was sent, or run by a script. Scripts are run by `EVALSHA`, the first time by `EVAL`.
pub(super) fn all_sent(server: &Server) -> HashMap<String, u64> {
    let redis::Value::BulkString(text) = server.ask(&["INFO", "commandstats"]) else {
        panic!("a text");
    };
    let text = String::from_utf8(text).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_"));
    let count = |line: &str| {
        let (command, rest) = line.split_once(":calls=")?;
        let (calls, _) = rest.split_once(',')?;
        Some((command.to_owned(), calls.parse().ok()?))
    };
    lines.map(|line| count(line).expect("a count")).collect()
}

/// Returns the number of times that these commands were sent.
pub(super) fn sent(server: &Server, commands: &[&str]) -> u64 {
    let all = all_sent(server);
    let counts = commands.iter().filter_map(|command| all.get(*command));
    counts.sum()
}

/// Returns the commands, and those of the categories, in the documentation of `RedisStore`. Servers
/// before Redis 7 do not distinguish the subcommands of `CONFIG` and `PUBSUB`.
fn documented(server: &Server) -> HashSet<String> {
    let named = [
        "exists",
        "time",
        "publish",
        "subscribe",
        "info",
        "pubsub|numsub",
        "pubsub",
        "config|get",
        "config",
    ];
    let mut commands: HashSet<_> = named.map(String::from).into();
    let categories = [
        "hash",
        "list",
        "set",
        "sortedset",
        "scripting",
        "connection",
    ];
    for category in categories {
        let redis::Value::Array(names) = server.ask(&["ACL", "CAT", category]) else {
            panic!("the names of commands");
        };
        commands.extend(names.iter().map(|name| match name {
            redis::Value::BulkString(name) => String::from_utf8_lossy(name).into_owned(),
            other => panic!("{other:?}"),
        }));
    }
    commands
}

/// The turns show that their connection works, so it is not pinged.
#[tokio::test]
async fn an_idle_worker_sends_few_commands() {
    needs_redis!();
    let server = Server::start();
    let documented = documented(&server);
    let mut builder = RedisStore::builder(&server.url());
    let pulse = Duration::from_secs(2);
    builder.timeouts.ping_interval = pulse;
    server.ask(&["CONFIG", "RESETSTAT"]);
    let client = DurableClient::open(builder.open().await.unwrap());
    // The worker polls for tasks four times in that time.
    let lease = pulse / 3;
    let mut executor = DurableExecutor::builder(client.clone());
    executor.register::<Job>();
    let _executor = executor.lease(lease).start(()).await.unwrap();
    let sent = |commands: &[&str]| sent(&server, commands);
    let scripts_are = async |count| {
        while sent(&["evalsha", "eval"]) < count {
            sleep(Duration::from_millis(50)).await;
        }
    };
    // Opening a session, a first turn, advancing the epochs and a pass of maintenance take two commands each, since the
    // server does not have the scripts yet. Some polls later, the turn that follows the subscription has been sent, too.
    timeout(DEADLINE, scripts_are(14)).await.unwrap();
    let began = Instant::now();
    let [scripts, pings] = [sent(&["evalsha", "eval"]), sent(&["ping"])];
    timeout(2 * DEADLINE, scripts_are(scripts + 12))
        .await
        .unwrap();
    let [scripts, pings] = [
        sent(&["evalsha", "eval"]) - scripts,
        sent(&["ping"]) - pings,
    ];
    let elapsed = began.elapsed();
    let every = |time: Duration| (elapsed.as_millis() / time.as_millis()) as u64;
    // One may have been due when the time began. So may a pass of maintenance, of which there are four a minute at most.
    // The worker does not ask for due schedules, since the answers to its turns say when the next one is due.
    let most = every(lease * 3 / 4) + 1 + every(Duration::from_secs(15)) + 1;
    assert!(scripts <= most, "{scripts} in {elapsed:?}");
    // The pings of the other connection, on which nothing arrives.
    let most = every(pulse) + 1;
    assert!(pings > 0 && pings <= most, "{pings} in {elapsed:?}");
    let mut undocumented = all_sent(&server);
    undocumented.retain(|name, _| !documented.contains(name) && name != "config|resetstat");
    assert_eq!(undocumented, HashMap::new());
}

/// A client gets messages from its first status request on, until it has sent none for a minute.
#[tokio::test]
async fn a_client_that_awaits_nothing_gets_no_messages() {
    needs_redis!();
    let server = Server::start();
    let clock = Clock::manual();
    let open = async || {
        let builder = RedisStore::builder(&server.url());
        let store = RedisStore::open_as(&builder, Time::manual(clock.clone())).await;
        Worker::new(store.unwrap()).await
    };
    let (producer, worker) = (open().await, open().await);
    let mut events = producer.store.events();
    until(&mut events, &Event::Ready).await;
    producer.enqueue((1..=4).map(task)).await;
    let end = async |number| {
        let claim = worker.claim(1).await;
        assert_eq!(claim.tasks[0].id, id(number));
        server.ask(&["CONFIG", "RESETSTAT"]);
        worker.turn(done(&claim), 0).await;
        sent(&server, &["publish"])
    };
    assert_eq!(end(1).await, 0);
    producer.store.status(vec![id(2)]).await.unwrap();
    assert_eq!(end(2).await, 1);
    let seen = Event::Ended(vec![(id(2), TaskState::Done(b"output".to_vec()))]);
    until(&mut events, &seen).await;
    // Clients that await tasks request their status now and then.
    clock.advance(Duration::from_secs(45));
    producer.store.status(vec![id(3)]).await.unwrap();
    clock.advance(Duration::from_secs(45));
    assert_eq!(end(3).await, 1);
    clock.advance(Duration::from_secs(45));
    assert_eq!(end(4).await, 0);
    producer.store.maintain(1).await.unwrap();
    let entered = server.ask(&["EXISTS", "throng:{default:0}:awaiting"]);
    assert_eq!(entered, redis::Value::Int(0));
}

#[cfg(target_os = "linux")]
mod costs {
    use super::*;

    /// Returns the numbers of threads and file descriptors of this process.
    fn costs() -> [usize; 2] {
        ["task", "fd"].map(|what| {
            let entries = std::fs::read_dir(format!("/proc/self/{what}")).unwrap();
            entries.count()
        })
    }

    /// Runs in a process of its own, since other tests have threads and files, too.
    #[tokio::test]
    async fn a_client_uses_one_thread_and_six_file_descriptors() {
        needs_redis!();
        const IN_CHILD: &str = "THRONG_TEST_IN_CHILD";
        const CLIENTS: usize = 10;
        if std::env::var_os(IN_CHILD).is_none() {
            let test = "a_client_uses_one_thread_and_six_file_descriptors";
            run_apart(module_path!(), test, &[(IN_CHILD, "1".as_ref())]);
            return;
        }
        let server = Server::start();
        // The process has created by now what it creates only once.
        let _first = DurableClient::open(open(&server.url()).await);
        let before = costs();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(DurableClient::open(open(&server.url()).await));
        }
        let [threads, files] = [0, 1].map(|nth| costs()[nth] - before[nth]);
        println!("{threads} threads, {files} file descriptors");
        assert_eq!(threads, CLIENTS);
        assert!(files <= 6 * CLIENTS, "{files}");
        drop(clients);
        let gone = async {
            while costs() != before {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(DEADLINE, gone).await.expect("nothing is left");
    }
}
