//! [`Site`]: a store under load, to which a test does a [`Harm`].

use redis::Value;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::super::invariants::INVARIANTS;
use super::super::*;
use crate::durable::{
    DurableClient, DurableExecutor, DurableHandle, DurableTask, Health, Run, SpawnOptions,
    TaskContext, TaskError,
};

/// The maximum time until each handle ends.
const MINUTE: Duration = Duration::from_secs(60);
/// The lease of the workers.
const SHORT: Duration = Duration::from_secs(2);

/// An event that harms a store.
#[derive(Clone, Debug)]
pub(super) enum Harm {
    /// A command is forbidden for a while.
    Right(String),
    /// A script that gets the prefix of the keys. The flag is `true` if tasks may be lost.
    Script(String, bool),
}

impl Harm {
    /// Returns the harm that a script does to a key.
    pub(super) fn to(key: &str, script: &str) -> Self {
        let script = script.replace("NAME", &format!("ARGV[1] .. '{key}'"));
        Self::Script(script, OF_TASKS.contains(&key))
    }
}

/// The keys with rows of tasks. Damage to other keys loses no task.
const OF_TASKS: [&str; 9] = [
    "ready", "alive", "payloads", "delayed", "due", "running", "results", "dead", "died",
];

#[derive(Serialize, Deserialize)]
struct Job(u64, Vec<u8>);

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = u64;
}

/// Held tasks run until this is `true`.
struct App(watch::Receiver<bool>);

impl Run<App> for Job {
    async fn run(self, cx: TaskContext<App>) -> Result<u64, TaskError> {
        if self.0.is_multiple_of(8) {
            cx.app().0.clone().wait_for(|is_open| *is_open).await.ok();
        }
        // The task runs for so long that its lease is renewed.
        if self.0 > 1000 {
            sleep(SHORT / 2).await;
        }
        match self.0 % 8 == 1 && cx.attempt() == 1 {
            true => Err(TaskError::retry_after("again", 9 * SOON / 10)),
            false => Ok(self.0),
        }
    }
}

/// A store with a Redis user of its own, a worker and a producer under load, and a worker that will be killed.
pub(super) struct Site {
    server: Arc<Server>,
    nth: usize,
    client: DurableClient,
    producer: DurableClient,
    _executor: DurableExecutor,
    gate: watch::Sender<bool>,
    handles: Vec<(u64, DurableHandle<u64>)>,
}

impl Site {
    pub(super) async fn new(server: &Arc<Server>, nth: usize, evicts: bool) -> Self {
        let rights = ["reset", "on", ">secret", "~*", "&*", "+@all"];
        server.ask(&[&["ACL", "SETUSER", &format!("user-{nth}")], &rights[..]].concat());
        let open = async || {
            let url = format!("redis://user-{nth}:secret@127.0.0.1:{}", server.port());
            let mut builder = RedisStore::builder(&url);
            builder
                .namespace(format!("site-{nth}"))
                .allow_eviction(evicts)
                .connect_timeout(DEADLINE)
                .answer_timeout(DEADLINE);
            builder.open().await.unwrap()
        };
        let (client, producer) = (
            DurableClient::open(open().await),
            DurableClient::open(open().await),
        );
        let (gate, is_open) = watch::channel(false);
        let mut site = Self {
            server: Arc::clone(server),
            nth,
            _executor: DurableExecutor::builder(client.clone())
                .register::<Job>()
                .max_running(8)
                .lease(SHORT)
                .start(App(is_open))
                .await
                .unwrap(),
            client,
            producer,
            gate,
            handles: Vec::new(),
        };
        // A worker that claims tasks and then sends nothing more.
        let killed = open().await;
        let set = TypeSet::of_names([Job::NAME]).unwrap();
        let session = killed.open_session(Some(set)).await.unwrap();
        for number in 0..24 {
            site.spawn(number).await.unwrap();
        }
        let turn = Turn {
            session,
            number: 1,
            verdicts: Vec::new(),
            received: None,
            floor: 0,
            want: 4,
            want_bytes: 1 << 20,
            quarantined: true,
            lease: SHORT,
            go_idle: false,
            pushes: ClaimPushes::default(),
        };
        killed.turn(Arc::new(turn)).await.unwrap();
        site
    }

    async fn spawn(&mut self, number: u64) -> Result<(), crate::durable::DurableError> {
        let payload = vec![7; if number % 8 == 2 { 2000 } else { 1 }];
        let options = SpawnOptions {
            delay: if number % 8 == 3 {
                SOON
            } else {
                Duration::ZERO
            },
            ..SpawnOptions::default()
        };
        let handle = self
            .producer
            .spawn_with(Job(number, payload), options)
            .await?;
        self.handles.push((number, handle));
        Ok(())
    }

    fn prefix(&self) -> String {
        format!("throng:{{site-{}:0}}:", self.nth)
    }

    fn allow(&self, right: &str) {
        self.server
            .ask(&["ACL", "SETUSER", &format!("user-{}", self.nth), right]);
    }

    /// Maintains the store, which workers do once or twice a minute.
    async fn maintain(&self) {
        for client in [&self.client, &self.producer] {
            while client.engine().store.maintain(1_000).await.unwrap_or(true) {
                sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// Does the harm, under load. Returns two flags: health has reported it, and a spawn has failed.
    async fn harm(&mut self, harm: &Harm) -> (bool, bool) {
        let (mut is_named, mut has_failed, mut number) = (false, false, 100);
        let mut end = Instant::now() + SOON;
        match harm {
            Harm::Right(command) => {
                self.allow(&format!("-{command}"));
                end += 3 * SOON;
            }
            Harm::Script(script, _) => {
                drop(self.server.ask(&["EVAL", script, "0", &self.prefix()]))
            }
        }
        while Instant::now() < end {
            // A spawn may fail, but then it returns an error.
            let spawned = timeout(SOON, self.spawn(number)).await;
            has_failed |= matches!(spawned, Ok(Err(_)));
            number += 1;
            for client in [&self.client, &self.producer] {
                is_named |= matches!(
                    client.health(),
                    Health::Failing { .. } | Health::Damaged { .. } | Health::Mute
                );
            }
            sleep(Duration::from_millis(20)).await;
        }
        if let Harm::Right(command) = harm {
            self.allow(&format!("+{command}"));
        }
        (is_named, has_failed)
    }

    /// Does the harm. Returns what is wrong afterwards.
    pub(super) async fn endure(mut self, harm: Harm) -> Vec<String> {
        let mut wrong = Vec::new();
        let (mut is_named, has_failed) = self.harm(&harm).await;
        self.gate.send_replace(true);
        self.maintain().await;
        let mut lost = Vec::new();
        for (number, handle) in std::mem::take(&mut self.handles) {
            match timeout(MINUTE, handle).await {
                Ok(Ok(output)) => assert_eq!(output, number),
                Ok(Err(error)) => lost.push(format!("{number}: {error}")),
                Err(_) => wrong.push(format!("the handle of {number} has not ended")),
            }
        }
        self.maintain().await;
        for number in 1001..1008 {
            match timeout(DEADLINE, self.spawn(number)).await {
                Ok(Ok(())) => {}
                other => wrong.push(format!("no new task can be stored: {other:?}")),
            }
        }
        for (number, handle) in std::mem::take(&mut self.handles) {
            match timeout(DEADLINE, handle).await {
                Ok(Ok(_)) => {}
                other => wrong.push(format!("new task {number}: {other:?}")),
            }
        }
        let mut health = self.client.health();
        is_named |= health != Health::Well;
        let (is_loss_allowed, is_damage) = match harm {
            Harm::Right(_) => (false, false),
            Harm::Script(_, may_cost) => (may_cost, true),
        };
        if !lost.is_empty() && !is_loss_allowed {
            wrong.push(format!("lost: {lost:?}"));
        }
        // The store cannot detect a truncated output, but the handle can.
        lost.retain(|error| !error.contains("cannot be decoded"));
        if (has_failed || !lost.is_empty()) && !is_named {
            wrong.push(format!("health did not name it: {lost:?}"));
        }
        if is_damage && matches!(health, Health::Damaged { .. }) {
            health = Health::Well;
        }
        if health != Health::Well {
            wrong.push(format!("{health:?}"));
        }
        wrong.extend(self.left().await);
        wrong
    }

    /// Returns the rows that are left although all tasks have ended.
    async fn left(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let empty = async {
            loop {
                let counts = self.client.counts().await.unwrap();
                if counts.waiting + counts.delayed + counts.running == 0 {
                    return;
                }
                sleep(SOON).await;
            }
        };
        if timeout(MINUTE, empty).await.is_err() {
            wrong.push(format!("{:?}", self.client.counts().await));
        }
        self.maintain().await;
        let found = self.server.ask(&["EVAL", INVARIANTS, "0", &self.prefix()]);
        if found != Value::Array(Vec::new()) {
            wrong.push(format!("{found:?}"));
        }
        wrong
    }
}
