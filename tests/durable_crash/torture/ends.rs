//! Checks the end of each chore, and the state of each key.

use std::collections::{HashMap, HashSet};

use throng::durable::{Counts, DurableError, TaskId};

use super::chore::{Kind, WINDOW};
use super::fleet::Record;
use super::producers::{KEYS, Produced, Spawned, keyed};
use super::runs::History;
use crate::child::Work;
use crate::job::{Job, Outcome};
use crate::keys::BASE;
use crate::process::until;
use crate::site::{PATIENT, Site};
use crate::support::within;

use super::chore::{Act, Chore, Origin};

/// The number of handles that are awaited at once.
const AWAITED: usize = 200;

/// Asserts that each chore that is known was stored once, and has one end, and that there are no others.
pub(super) fn assert_one_end_each(
    site: &Site,
    counts: &Counts,
    history: &History,
    produced: &Produced,
    record: &Record,
) {
    let known = known(history, produced, record);
    assert_eq!(counts.stored, known.len() as u64, "{counts:?}");
    let [kept, dead] = stored_ends(site);
    assert!(kept.is_disjoint(&dead), "a task has one end");
    let ended: HashSet<_> = kept.union(&dead).copied().collect();
    let differing: Vec<_> = known.symmetric_difference(&ended).collect();
    assert!(differing.is_empty(), "known, or ended: {differing:?}");

    let fatal = history.ended("fatal");
    assert!(dead.is_subset(&fatal), "only those are dead that say so");
    let (done, cancelled) = (history.ended("end"), &produced.cancelled);
    let is_done = |id: &&TaskId| !done.contains(*id) && !cancelled.contains(id);
    let undone: Vec<_> = kept.iter().filter(is_done).collect();
    assert!(undone.is_empty(), "never came to their end: {undone:?}");
}

/// Returns the ids of all chores of which anybody knows.
fn known(history: &History, produced: &Produced, record: &Record) -> HashSet<TaskId> {
    let mut known = history.ids();
    known.extend(&record.told);
    known.extend(produced.spawned.iter().map(Spawned::id));
    for holder in &produced.rejected {
        assert!(known.contains(holder), "a task holds the key: {holder}");
    }
    known
}

/// Returns the ids of all ends that the store keeps: of those that were done or cancelled, and of dead letters.
fn stored_ends(site: &Site) -> [HashSet<TaskId>; 2] {
    if let Some(database) = site.postgres_if_any() {
        let ids = ["state IN (3, 5)", "state = 4"].map(|condition| database.ids(condition));
        let parsed = |ids: Vec<String>| ids.iter().map(|id| id.parse().expect("an id")).collect();
        return ids.map(parsed);
    }
    let ids: [Vec<Vec<u8>>; 2] = match site.redis_if_any() {
        Some(server) => ["results", "dead"].map(|key| {
            let ids = server.ask(&["HKEYS", &format!("{BASE}{key}")]);
            redis::from_redis_value(ids).expect("ids")
        }),
        None => ["3, 5", "4"].map(|states| {
            let ids = format!("SELECT id FROM throng_task WHERE state IN ({states})");
            let db = site.file_connection();
            let mut ids = db.prepare(&ids).expect("a query");
            let ids = ids.query_map([], |row| row.get(0)).expect("rows");
            ids.map(|id| id.expect("bytes")).collect()
        }),
    };
    ids.map(|ids| {
        let ids = ids.into_iter().map(|id| id.try_into().expect("16 bytes"));
        ids.map(TaskId::from_bytes).collect()
    })
}

/// Asserts that each handle resolves to the end of its task, also if another spawn has stored it.
pub(super) async fn assert_handles(history: &History, produced: &Produced) {
    let cancelled: HashSet<_> = produced.cancelled.iter().copied().collect();
    let fatal = history.ended("fatal");
    for some in produced.spawned.chunks(AWAITED) {
        let handles = some.iter().map(|one| one.handle.clone());
        let ends = within(futures::future::join_all(handles)).await;
        for (one, end) in some.iter().zip(ends) {
            let id = one.id();
            let is_right = match &end {
                Ok(Outcome { pid, epoch }) => history.is_final(id, *pid, *epoch),
                Err(error) if error.is_cancelled() => cancelled.contains(&id),
                Err(error) => error.is_dead() && fatal.contains(&id),
            };
            assert!(is_right, "{id}: {end:?}");
        }
    }
}

/// Asserts that a task that was joined, or whose payload was replaced, had not started if it held its key only until then.
/// It has run with the last payload.
pub(super) fn assert_joins(history: &History, produced: &Produced) {
    let first_starts = history.first_starts();
    let mut last = HashMap::new();
    for one in &produced.spawned {
        let Origin::Keyed(kind, _) = one.chore.origin else {
            continue;
        };
        let started = first_starts.get(&one.id());
        let is_early = started.is_some_and(|&start| start < one.began);
        let (id, chore) = (one.id(), &one.chore);
        assert!(!(kind.is_until_started() && is_early), "{id}: {chore:?}");
        if matches!(kind, Kind::Replace | Kind::Debounce) {
            last.insert(one.id(), chore);
        }
    }
    for run in &history.runs {
        if let Some(&chore) = last.get(&run.id) {
            assert_eq!(run.note.chore, *chore, "{run:?}");
        }
    }
}

/// Asserts that no key with a window was held by two tasks that were stored within it.
pub(super) fn assert_windows(produced: &Produced) {
    let mut last = HashMap::<&Origin, &Spawned>::new();
    let is_window = |one: &&Spawned| matches!(one.chore.origin, Origin::Keyed(Kind::Window, _));
    for one in produced.spawned.iter().filter(is_window) {
        let before = last.get(&one.chore.origin);
        if !one.is_stored() {
            let before = before.expect("another task holds the key");
            assert_eq!(before.id(), one.id(), "the last one holds it");
            continue;
        }
        if let Some(before) = before {
            // A store counts in milliseconds.
            let passed = one.answered - before.began + 1000;
            assert!(passed >= WINDOW.as_micros() as u64, "{passed}");
        }
        last.insert(&one.chore.origin, one);
    }
}

/// Asserts that no task holds a key any more: with each key, another task is stored. With a window, that is so once it is over.
pub(super) async fn assert_keys_are_free(site: &Site) {
    let mut worker = site
        .worker(Work {
            chores: true,
            ..PATIENT
        })
        .await;
    for kind in Kind::ALL {
        for number in 0..2 * KEYS {
            let spawn = async || spawn_keyed(site, kind, number).await.ok();
            let what = format!("{kind:?} {number} is free");
            match kind {
                Kind::Window => until(&what, spawn).await,
                _ => spawn().await.unwrap_or_else(|| panic!("{what}")),
            }
        }
    }
    site.at_rest().await;
    worker.stop(1000).await;
}

/// Spawns a task with a key, and returns the task that holds it already as an error.
async fn spawn_keyed(site: &Site, kind: Kind, number: u64) -> Result<(), TaskId> {
    let act = Act::Do(Job::Work(1));
    let (chore, options) = keyed(kind, number, 0, act);
    let handle = site.client.spawn_with::<Chore>(chore, options).await;
    let taken = |error: DurableError| error.task_id().expect("a task holds the key");
    let handle = handle.map_err(taken)?;
    match handle.was_joined() || handle.has_replaced() {
        true => Err(handle.id()),
        false => Ok(()),
    }
}
