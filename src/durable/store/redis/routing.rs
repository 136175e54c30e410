//! Changes the routes: the lists in which tasks of each type wait. (`nodes.rs` finds the server that has them.)
//!
//! [`Routes`] are computed here. A script writes them, provided that no other client has changed them meanwhile, and that
//! the lists that they no longer name are empty. The other scripts read fields that are derived from them: see
//! `lua/lists.lua`.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use super::error::unexpected_answer;
use super::inner::{Inner, after_others};
use super::reply::{self, Reader};
use super::routes_cache::KnownRoutes;
use super::scripts::Arguments;
use crate::durable::failure::Failure;
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::{Kind, SetId, TypeSet};
use crate::durable::store::routes::{ListId, Routes};

/// A field of the hash, and its value.
pub(super) type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

/// The fields of the routes that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// The fields that differ.
    Changes,
    /// All fields, since some may be damaged.
    All,
}

/// Ensures that a set is declared.
pub(super) async fn declare(
    inner: &Inner,
    partition: usize,
    set: &TypeSet,
    write: Write,
) -> Result<(), Failure> {
    change(inner, partition, write, |routes| routes.declare(set)).await
}

/// Prepares the lists for tasks of other priorities than the normal one.
pub(super) async fn use_priorities(inner: &Inner, partition: usize) -> Result<(), Failure> {
    change(inner, partition, Write::Changes, Routes::use_priorities).await
}

/// Removes a set that has no session.
pub(super) async fn remove(inner: &Inner, partition: usize, set: SetId) -> Result<(), Failure> {
    let write = Write::Changes;
    change(inner, partition, write, |routes| routes.remove(set)).await
}

/// Pauses or resumes the type with this name.
pub(super) async fn set_paused(inner: &Inner, name: &str, is_paused: bool) -> Result<(), Failure> {
    let change_one = |routes: &mut Routes| match is_paused {
        true => routes.pause(name, Kind::all_of(name)),
        false => routes.resume(name),
    };
    for partition in inner.partitions.all() {
        let changed = change(inner, partition, Write::Changes, change_one).await;
        changed.map_err(|failure| after_others(failure, partition))?;
    }
    Ok(())
}

/// Returns the names of the types that are paused in all partitions or, if a request has failed half-way, in some.
pub(super) async fn paused_types(inner: &Inner) -> Result<Vec<String>, Failure> {
    let mut names = BTreeSet::new();
    for partition in inner.partitions.all() {
        let stored = read(inner, partition).await?;
        names.extend(stored.known.routes.paused().map(str::to_owned));
    }
    Ok(names.into_iter().collect())
}

/// Removes lists that have been drained.
pub(super) async fn collapse(inner: &Inner, partition: usize) -> Result<(), Failure> {
    change(inner, partition, Write::Changes, |_| ()).await
}

/// Writes damaged routes again. If even their text is unreadable, no set remains declared, and each worker declares its
/// set again.
pub(super) async fn repair(inner: &Inner, partition: usize) -> Result<(), Failure> {
    change(inner, partition, Write::All, |_| ()).await
}

/// Changes the routes of a partition. Tries again if another client has changed them meanwhile.
async fn change(
    inner: &Inner,
    partition: usize,
    write: Write,
    change: impl Fn(&mut Routes),
) -> Result<(), Failure> {
    let mut full = BTreeSet::new();
    loop {
        let stored = read(inner, partition).await?;
        let (version, before) = (stored.known.version, stored.known.routes);
        let write = if stored.is_whole { write } else { Write::All };
        let mut after = before.clone();
        after.avoid(full.iter().copied());
        change(&mut after);
        // Removes as many lists as possible. Only the script can determine which of them are empty.
        let gone: Vec<_> = after.collapsible().difference(&full).copied().collect();
        after.collapse(|list| gone.contains(&list));
        after.avoid([]);
        if after == before && write == Write::Changes {
            return Ok(());
        }
        let named = before.lists();
        let new = after.lists().into_iter();
        let new = new.filter(|list| list.is_shared() && !named.contains(list));
        let empty: Vec<_> = gone.into_iter().chain(new).collect();
        let arguments = replacement(&version, &before, &after, &empty, write);
        match inner
            .run(&inner.scripts.routes, partition, arguments)
            .await?
        {
            // A set that has a session is kept.
            Value::BulkString(answer) if answer == b"OK" || answer == b"LIVE" => return Ok(()),
            Value::BulkString(_) => {}
            lists => full.extend(Reader::new(lists)?.rest(list)?),
        }
    }
}

/// The routes of a partition, as they are stored.
pub(super) struct Stored {
    pub(super) known: KnownRoutes,
    /// `true` if the routes are readable, and no change has stopped half-way.
    pub(super) is_whole: bool,
}

/// Reads the routes of a partition.
pub(super) async fn read(inner: &Inner, partition: usize) -> Result<Stored, Failure> {
    let mut arguments = Arguments::default();
    arguments.push("");
    let answer = inner
        .run(&inner.scripts.routes, partition, arguments)
        .await?;
    let mut parts = Reader::new(answer)?;
    let (version, text) = (parts.bytes()?, parts.bytes()?);
    let is_last = parts.number()? != 0;
    let routes = match &*text {
        [] if is_last => Some(Routes::default()),
        text => serde_json::from_slice(text).ok(),
    };
    Ok(Stored {
        is_whole: is_last && routes.is_some(),
        known: KnownRoutes {
            version,
            routes: routes.unwrap_or_else(Routes::after_loss),
        },
    })
}

fn list(part: &mut Reader) -> Result<ListId, Failure> {
    let bytes = part.bytes()?;
    let digits = std::str::from_utf8(&bytes).ok();
    let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let number = number.ok_or_else(|| unexpected_answer(&Value::BulkString(bytes)))?;
    Ok(ListId::from_number(number as i64))
}

/// Reads the id of a set.
pub(super) fn set(bytes: &[u8]) -> Result<SetId, Failure> {
    let id = <[u8; 8]>::try_from(bytes).map(i64::from_be_bytes);
    let id = id.map_err(|_| unexpected_answer(&Value::BulkString(bytes.to_vec())))?;
    Ok(SetId::from_number(id))
}

/// Returns the arguments of the script that replaces the routes.
fn replacement(
    version: &[u8],
    before: &Routes,
    after: &Routes,
    empty: &[ListId],
    write: Write,
) -> Arguments {
    let new = fields(after);
    let old = match write {
        Write::Changes => fields(before),
        Write::All => Fields::new(),
    };
    let changed = new
        .iter()
        .filter(|(field, value)| old.get(*field) != Some(value));
    let changed: Vec<_> = changed.collect();
    let mut gone: Vec<_> = old
        .keys()
        .filter(|&field| !new.contains_key(field))
        .cloned()
        .collect();
    let sets: BTreeSet<_> = after.sets().collect();
    let removed = before.sets().filter(|set| !sets.contains(set));
    gone.extend(removed.map(|set| field(b'n', &set.to_bytes())));

    let mut arguments = Arguments::default();
    arguments.push(version);
    arguments.push_number(empty.len());
    arguments.push_number(changed.len());
    arguments.push_number(gone.len());
    arguments.push(plain(after));
    arguments.push_number(u8::from(write == Write::All));
    empty
        .iter()
        .for_each(|&list| arguments.push(list_text(list)));
    for (field, value) in changed {
        arguments.push(&**field);
        arguments.push(&**value);
    }
    gone.iter().for_each(|field| arguments.push(&**field));
    arguments
}

/// Returns the only set if its sessions read only the main list, or nothing.
fn plain(routes: &Routes) -> Vec<u8> {
    let set = routes.plain().map(|set| set.to_bytes().to_vec());
    set.unwrap_or_default()
}

/// Returns the fields that the scripts read.
pub(super) fn fields(routes: &Routes) -> Fields {
    let mut fields = Fields::new();
    for (kind, path) in routes.paths() {
        fields.insert(field(b'k', &kind.to_bytes()), ids(path));
    }
    let mut sets = Vec::new();
    for set in routes.sets() {
        fields.insert(field(b's', &set.to_bytes()), plan(routes, set));
        let [leaves, others] = routes.paused_lists(set);
        if !leaves.is_empty() {
            let mut paused = (leaves.len() as u16).to_be_bytes().to_vec();
            let lists: Vec<_> = leaves.into_iter().chain(others).collect();
            paused.extend(ids(&lists));
            fields.insert(field(b'p', &set.to_bytes()), paused);
        }
        sets.extend(set.to_bytes());
    }
    for list in routes.lists() {
        fields.insert(
            field(b'l', list_text(list).as_bytes()),
            readers(routes, list),
        );
    }
    for queue in routes.queues() {
        let lists: Vec<_> = routes.lists_of_queue(queue).into_iter().collect();
        fields.insert(field(b'q', queue.as_str().as_bytes()), ids(&lists));
    }
    fields.insert(b"sets".to_vec(), sets);
    fields.insert(
        b"text".to_vec(),
        serde_json::to_vec(routes).unwrap_or_default(),
    );
    fields
}

/// Returns the lists that the sessions of a set read: see `lua/set_lists.lua`.
fn plan(routes: &Routes, set: SetId) -> Vec<u8> {
    let mut lists = vec![routes.draining(set)];
    let priorities = Priority::ALL.map(|priority| routes.leaves_at(set, priority));
    lists.extend(priorities.map(|leaves| leaves.into_iter().collect::<Vec<_>>()));
    let counts = lists.iter().map(|lists| lists.len() as u16);
    let mut plan: Vec<_> = counts.flat_map(u16::to_be_bytes).collect();
    plan.extend(name(&routes.queue(set)));
    plan.extend(lists.iter().flat_map(|lists| ids(lists)));
    plan
}

/// Returns the sets that read a list, and before them the queue of its tasks, if they all belong to one named queue.
fn readers(routes: &Routes, list: ListId) -> Vec<u8> {
    let sets: Vec<_> = routes.readers(list).collect();
    let queues: BTreeSet<_> = sets.iter().map(|&set| routes.queue(set)).collect();
    let queue = queues.first().filter(|_| queues.len() == 1);
    let mut readers = name(queue.unwrap_or(&QueueName::DEFAULT));
    readers.extend(sets.into_iter().flat_map(SetId::to_bytes));
    readers
}

/// Returns the name of a queue, and its length before it, in one byte.
fn name(queue: &QueueName) -> Vec<u8> {
    let name = queue.as_str().as_bytes();
    [&[name.len() as u8], name].concat()
}

fn field(prefix: u8, id: &[u8]) -> Vec<u8> {
    [&[prefix], id].concat()
}

fn ids(lists: &[ListId]) -> Vec<u8> {
    let texts = lists.iter().map(|&list| list_text(list));
    texts.collect::<String>().into_bytes()
}

/// Returns the id of a list as the scripts write it.
pub(super) fn list_text(list: ListId) -> String {
    format!("{:016x}", list.number())
}

/// Returns the time at which the session was opened, or `None` if its set must be declared first.
pub(super) fn opened(answer: &Value) -> Result<Option<i64>, Failure> {
    match answer {
        Value::BulkString(_) => Ok(None),
        time => reply::number(time).map(Some),
    }
}
