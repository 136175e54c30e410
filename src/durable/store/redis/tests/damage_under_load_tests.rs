//! Damage to a store in use: permissions that are withdrawn for a while, keys and rows that are lost, replaced or evicted, and
//! a worker that is killed at the same time. All other tasks end, new tasks run, every handle ends, and `health` reports the
//! damage.
//!
//! With `THRONG_LONG=1`, rows are truncated to each length, and there are more evictions.

use std::collections::BTreeSet;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::site::{Harm, Site};
use super::scripts_tests;
use super::*;

mod site;

/// The number of cases that run at the same time.
const AT_ONCE: usize = 16;

/// Tests all harms, each on a store of its own, and some of them at the same time.
async fn try_all(harms: Vec<Harm>, evicts: bool) {
    let server = Arc::new(Server::start());
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut cases = JoinSet::new();
    for (nth, harm) in harms.into_iter().enumerate() {
        let (server, permits) = (Arc::clone(&server), Arc::clone(&permits));
        cases.spawn(async move {
            let _permit = permits.acquire_owned().await;
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
        "unlisted",
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
