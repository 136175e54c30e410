//! Damage to a store in use: permissions that are withdrawn for a while, keys and rows that are lost, replaced or evicted, and
//! a worker that is killed at the same time. All other tasks end, new tasks run, every handle ends, and `health` reports the
//! damage.
//!
//! With `THRONG_LONG=1`, rows are truncated to each length, and there are more evictions.

use std::collections::BTreeSet;

use redis::Value;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::invariants::INVARIANTS;
use super::scripts_tests;
use super::*;
use crate::durable::{
    DurableClient, DurableExecutor, DurableHandle, DurableTask, Health, Run, SpawnOptions,
    TaskContext, TaskError,
};

/// The maximum time until each handle ends.
const MINUTE: Duration = Duration::from_secs(60);
/// The lease of the workers.
const SHORT: Duration = Duration::from_secs(2);
/// The number of cases that run at the same time.
const AT_ONCE: usize = 16;

/// An event that harms a store.
#[derive(Clone, Debug)]
enum Harm {
    /// A command is forbidden for a while.
    Right(String),
    /// A script that gets the prefix of the keys. The flag is `true` if tasks may be lost.
    Script(String, bool),
}

impl Harm {
    /// Returns the harm that a script does to a key.
    fn to(key: &str, script: &str) -> Self {
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
struct Site {
    server: Arc<Server>,
    nth: usize,
    client: DurableClient,
    producer: DurableClient,
    _executor: DurableExecutor,
    gate: watch::Sender<bool>,
    handles: Vec<(u64, DurableHandle<u64>)>,
}

impl Site {
    async fn new(server: &Arc<Server>, nth: usize, evicts: bool) -> Self {
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
            park: false,
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
    async fn endure(mut self, harm: Harm) -> Vec<String> {
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

/// Tests all harms, each on a store of its own, and some of them at the same time.
async fn try_all(harms: Vec<Harm>, evicts: bool) {
    let server = Arc::new(Server::start());
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut cases = JoinSet::new();
    for (nth, harm) in harms.into_iter().enumerate() {
        let (server, room) = (Arc::clone(&server), Arc::clone(&room));
        cases.spawn(async move {
            let _permit = room.acquire_owned().await;
            let site = Site::new(&server, nth, evicts).await;
            (harm.clone(), site.endure(harm).await)
        });
    }
    let mut wrong = Vec::new();
    while let Some(case) = cases.join_next().await {
        let (harm, found) = case.unwrap();
        if !found.is_empty() {
            wrong.push(format!("{harm:?}: {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_long() -> bool {
    std::env::var_os("THRONG_LONG").is_some_and(|value| value == "1")
}

/// Returns the commands that scripts use, and those that the client sends.
fn commands() -> BTreeSet<String> {
    let mut commands = scripts_tests::commands();
    commands.extend(["evalsha", "eval", "ping"].map(String::from));
    commands
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_withdrawn_for_a_while_loses_no_task() {
    needs_redis!();
    let commands = commands();
    assert!(commands.len() > 30, "{commands:?}");
    try_all(commands.into_iter().map(Harm::Right).collect(), false).await;
}

/// All keys except the one that never exists.
fn keys() -> Vec<String> {
    let names = &super::super::keys::ALL[1..];
    names.iter().map(|name| name.to_ascii_lowercase()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_key_loses_only_its_own_rows() {
    needs_redis!();
    let delete = |key: &String| Harm::to(key, "redis.call('DEL', NAME)");
    try_all(keys().iter().map(delete).collect(), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_type_loses_only_its_own_rows() {
    needs_redis!();
    let replace = |key: &String| Harm::to(key, "redis.call('SET', NAME, 'x')");
    try_all(keys().iter().map(replace).collect(), false).await;
}

/// Changes every second row of a key to what `damaged` returns for it.
const ROWS: &str = "
    local seed, key = SEED, NAME
    local function random(n)
      seed = (seed * 16807) % 2147483647
      return seed % n
    end
    local function damaged(row)
      DAMAGED
    end
    local kind = redis.call('TYPE', key).ok
    if kind == 'hash' then
      local fields = redis.call('HKEYS', key)
      table.sort(fields)
      for i = 1 + SEED % 2, #fields, 2 do redis.call('HSET', key, fields[i], damaged(redis.call('HGET', key, fields[i]))) end
    elseif kind == 'list' then
      for i = SEED % 2, redis.call('LLEN', key) - 1, 2 do redis.call('LSET', key, i, damaged(redis.call('LINDEX', key, i))) end
    end";
/// Truncates a row to a random length of at most 60 bytes.
const CUT: &str = "return string.sub(row, 1, random(61))";
/// Replaces each byte of a row with one that is not a digit: a number could be the layout of another version.
const RANDOM: &str =
    "return (string.gsub(row, '.', function() return string.char(58 + random(198)) end))";

fn harms_to_rows(damaged: &str, seeds: u64) -> Vec<Harm> {
    let sorted = [
        "due",
        "lease",
        "expiry",
        "died",
        "quarantined",
        "awaiting",
        "idle",
        "suspects",
    ];
    let mut keys = keys();
    keys.retain(|key| !sorted.contains(&&**key));
    let all = keys
        .iter()
        .flat_map(|key| (0..seeds).map(move |seed| (key, seed)));
    let harm = |(key, seed): (&String, u64)| {
        let script = ROWS.replace("DAMAGED", damaged);
        Harm::to(
            key,
            &script.replace("SEED", &(seed * 7919 + 17).to_string()),
        )
    };
    all.map(harm).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_rows_damage_no_others() {
    needs_redis!();
    try_all(harms_to_rows(CUT, if is_long() { 61 } else { 1 }), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overwritten_rows_damage_no_others() {
    needs_redis!();
    try_all(harms_to_rows(RANDOM, if is_long() { 61 } else { 1 }), false).await;
}

/// Removes about a fifth of all keys, and about a fifth of the rows of the others.
const EVICT: &str = "
    local seed = SEED
    local function is_hit()
      seed = (seed * 16807) % 2147483647
      return seed % 5 == 0
    end
    local keys = redis.call('KEYS', string.gsub(ARGV[1], '[%[%]{}]', '?') .. '*')
    table.sort(keys)
    for _, key in ipairs(keys) do
      local kind = redis.call('TYPE', key).ok
      if is_hit() then redis.call('DEL', key)
      elseif kind == 'hash' then
        local fields = redis.call('HKEYS', key)
        table.sort(fields)
        for _, field in ipairs(fields) do if is_hit() then redis.call('HDEL', key, field) end end
      elseif kind == 'zset' then
        local members = redis.call('ZRANGE', key, 0, -1)
        for _, member in ipairs(members) do if is_hit() then redis.call('ZREM', key, member) end end
      end
    end";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicted_keys_lose_only_their_own_rows() {
    needs_redis!();
    let seeds = if is_long() { 200 } else { 8 };
    let evict =
        |seed: u64| Harm::Script(EVICT.replace("SEED", &(seed * 7919 + 17).to_string()), true);
    try_all((0..seeds).map(evict).collect(), true).await;
}
