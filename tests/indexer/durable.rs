//! The program with `--state`, and its tasks in a file, in Redis or in PostgreSQL: what ends it costs no more than what it was doing, and a change in the
//! tree no more than what has changed.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;

use throng::durable::TaskId;

use super::corpus::Corpus;
use super::durable::batch::{Batch, Entry, cut};
use super::faults::Rigged;
use super::indexer::disk;
use super::indexer::options::Options;
use super::program::run as run_plainly;
use super::reference;
use super::runs::{Ended, Kind, QUERY, State, files, hits, interrupt, kill, large, plain};
use super::whole::assert_same;

on_each_store! {
    killed_at_10_50_and_90_percent_it_goes_on,
    ctrl_c_finishes_what_runs_and_the_next_run_the_rest,
    what_is_done_is_not_done_again,
    what_has_changed_is_done_and_nothing_else,
    what_could_not_be_read_is_indexed_once_it_can,
    a_segment_that_is_damaged_is_made_again,
    a_batch_that_fails_for_good_is_told_and_tried_again_by_the_next_run,
    a_state_that_cannot_be_used_is_an_error,
    it_says_the_same_as_without_a_state,
    the_state_is_no_part_of_the_tree,
}

// ===== What ends the program =====

/// The reference has seen no interruption, no batch, and no segment.
fn killed_at_10_50_and_90_percent_it_goes_on(kind: Kind) {
    let state = State::new(kind);
    for percent in [10, 50, 90] {
        let killed = kill(&state, percent);
        assert_eq!(killed.signal(), Some(9), "it had not ended: {killed:?}");
    }
    let ended = state.run(large().path());
    state.assert_whole(&ended, 3);

    let built = state.build(large().path());
    assert_eq!(built.indexed, 0);
    let reference = reference::build(large().path()).expect("a reference");
    assert_same(&built.outcome.index, &reference);
}

#[cfg(all(feature = "sqlite", feature = "test-util"))]
#[test]
fn killed_inside_a_commit_it_goes_on() {
    for commit in [1, 4, 9] {
        let state = State::new(Kind::File);
        let at = format!("sqlite.in-commit:{commit}");
        let mut command = state.command(large().path());
        let killed = command.env("THRONG_KILL_AT", at).output();
        let killed = killed.expect("the program runs").status;
        assert_eq!(killed.signal(), Some(9), "commit {commit}: {killed:?}");
        state.assert_whole(&state.run(large().path()), 1);
    }
}

fn ctrl_c_finishes_what_runs_and_the_next_run_the_rest(kind: Kind) {
    let interrupted = (0..20).map(|_| {
        let state = State::new(kind);
        let ended = interrupt(&state, 20);
        (state, ended)
    });
    // Its handling may come late, when there is nothing to stop any more.
    let early = |ended: &Ended| ended.errors.contains("note: stopped early");
    let mut interrupted = interrupted.filter(|(_, ended)| early(ended));
    let (state, ended) = interrupted.next().expect("Ctrl-C is seen in time");
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(ended.ledger("crashed"), 0, "{ended:?}");
    // What was claimed when it came was not begun.
    let [claimed, done, released] = ["claimed", "done", "released"].map(|of| ended.ledger(of));
    assert_eq!(claimed, done + released, "{ended:?}");
    assert!(ended.hits.lines().count() < plain().lines().count());
    assert_eq!(state.segments().len() as u64, done);

    let left = ended.ledger("stored") - done;
    let ended = state.run(large().path());
    state.assert_whole_after(&ended, 0, left);
}

// ===== What changes =====

fn what_is_done_is_not_done_again(kind: Kind) {
    let state = State::new(kind);
    let first = state.run(large().path());
    state.assert_whole(&first, 0);
    assert_eq!(first.indexed(), first.batches());
    let again = state.run(large().path());
    state.assert_whole(&again, 0);
    assert_eq!(again.indexed(), 0);
    assert_eq!(again.ledger("claimed"), first.ledger("claimed"));
}

fn what_has_changed_is_done_and_nothing_else(kind: Kind) {
    let (corpus, state) = (files(800), State::new(kind));
    let before = state.run(corpus.path()).batches();
    corpus.write("3/43", b"common rare7 changed\n");
    corpus.write("5/new", b"common rare7 new\n");
    fs::remove_file(corpus.path().join("7/7")).expect("a file");

    let ended = state.run(corpus.path());
    assert_eq!(ended.hits, hits(corpus.path()));
    // Of three batches, at most one is in two parts now.
    assert!((1..=4).contains(&ended.indexed()), "{ended:?}");
    assert!(ended.batches().abs_diff(before) <= 2);
    assert_eq!(state.segments().len() as u64, ended.batches());

    let fresh = State::new(kind);
    fresh.run(corpus.path());
    assert!(state.segments() == fresh.segments());
}

/// Nothing shows that a file has become readable: neither its size, nor its times, nor its mode.
fn what_could_not_be_read_is_indexed_once_it_can(kind: Kind) {
    let (corpus, state) = (files(400), State::new(kind));
    let forbidden = corpus.path().canonicalize().expect("a tree").join("7/7");
    let options = Options {
        source: Arc::new(Rigged(move |path: &Path| match path == forbidden {
            true => Err(ErrorKind::PermissionDenied.into()),
            false => Ok(()),
        })),
        ..Options::default()
    };
    for run in 0..3 {
        let built = state.build_with(corpus.path(), &options);
        let counts = &built.outcome.summary.counts;
        assert_eq!((counts.files, counts.errors), (391, 1));
        assert_eq!(
            built.indexed == 0,
            run > 0,
            "no batch is done again in vain"
        );
    }

    let built = state.build(corpus.path());
    let counts = &built.outcome.summary.counts;
    assert_eq!((counts.files, counts.errors), (392, 0));
    assert_eq!(built.indexed, 1, "its batch, and no other");
    let reference = reference::build(corpus.path()).expect("a reference");
    assert_same(&built.outcome.index, &reference);
    assert_eq!(state.build(corpus.path()).indexed, 0);
}

#[test]
fn batches_have_their_size_and_a_change_is_felt_by_its_neighbours_only() {
    let names: Vec<_> = (0..10_000).map(|n| format!("{}/{n:05}", n / 100)).collect();
    let whole = ids(&names);
    assert!((120..=200).contains(&whole.len()), "{}", whole.len());
    for gone in (0..names.len()).step_by(199) {
        let mut names = names.clone();
        names.remove(gone);
        let without = ids(&names);
        let new =
            |ids: &[TaskId], than: &[TaskId]| ids.iter().filter(|id| !than.contains(id)).count();
        // The file goes, or it comes: a batch that ends with it is one with the next, or cut in two.
        assert!(new(&without, &whole) <= 2, "{gone}");
        assert!(new(&whole, &without) <= 3, "{gone}");
    }
}

// ===== What is wrong with the state =====

fn a_segment_that_is_damaged_is_made_again(kind: Kind) {
    let state = State::new(kind);
    state.run(large().path());
    let segments = state.segments();
    let paths: Vec<_> = segments.keys().map(|name| state.segment(name)).collect();
    let bytes = segments.values().next().expect("a segment");
    fs::write(&paths[0], &bytes[..bytes.len() - 1]).expect("cut short");
    let mut changed = segments.values().nth(1).expect("a segment").clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    fs::write(&paths[1], changed).expect("changed");
    fs::write(&paths[2], bytes).expect("that of another batch");
    fs::write(&paths[3], b"").expect("nothing");
    fs::remove_file(&paths[4]).expect("gone");
    fs::write(state.segment("gone.1.unfinished"), b"rest").expect("a rest of a run");

    let ended = state.run(large().path());
    assert_eq!(ended.errors.matches("note: ").count(), 4, "{ended:?}");
    assert_eq!(ended.errors.matches("checksum is wrong").count(), 2);
    assert_eq!(ended.indexed(), 5);
    assert_eq!(ended.hits, plain());
    assert!(state.segments() == segments);
}

/// There is a directory where a segment should be.
fn a_batch_that_fails_for_good_is_told_and_tried_again_by_the_next_run(kind: Kind) {
    let state = State::new(kind);
    let corpus = files(400);
    let whole = state.run(corpus.path()).hits;
    let segments = state.segments();
    let path = state.segment(segments.keys().next().expect("a segment"));
    fs::remove_file(&path).expect("gone");
    fs::create_dir_all(path.join("in the way")).expect("a directory");

    let failed = state.run(corpus.path());
    assert_eq!(failed.code, Some(2), "{failed:?}");
    let batches = failed.batches();
    let told = format!("error: 1 of {batches} batches have failed");
    assert!(failed.errors.contains(&told), "{failed:?}");
    assert!(
        failed
            .errors
            .contains("its attempts, or the total time for them, are used up"),
        "{failed:?}"
    );
    assert_eq!((failed.ledger("died"), failed.ledger("dead")), (1, 1));
    assert!(failed.hits.lines().count() < whole.lines().count());

    fs::remove_dir_all(&path).expect("a directory");
    let ended = state.run(corpus.path());
    assert_eq!((ended.code, ended.indexed()), (Some(0), 1), "{ended:?}");
    assert_eq!(ended.ledger("stored"), batches + 1);
    assert!(state.segments() == segments);
}

fn a_state_that_cannot_be_used_is_an_error(kind: Kind) {
    let corpus = files(1);
    let used = State::new(kind);
    let lock = File::create(used.dir.path().join("index.db-lock")).expect("a file");
    lock.lock().expect("a lock");
    used.fails(corpus.path(), "another indexer works with it");
    drop(lock);
    assert_eq!(used.run(corpus.path()).code, Some(0));

    let nowhere = State::new(kind);
    fs::remove_dir_all(nowhere.dir.path()).expect("a directory");
    nowhere.fails(corpus.path(), "index.db: No such file");
}

#[cfg(feature = "sqlite")]
#[test]
fn a_file_that_is_no_store_of_this_version_is_an_error() {
    let corpus = files(1);
    let no_database = State::new(Kind::File);
    fs::write(no_database.file(), [b'?'; 5_000]).expect("a file");
    no_database.fails(corpus.path(), "not a database");

    let newer = State::new(Kind::File);
    newer.run(corpus.path());
    raise_layout(&newer.file());
    newer.fails(corpus.path(), "update throng");
}

/// The store has one file when the program has ended, however that was.
#[cfg(feature = "sqlite")]
#[test]
fn a_run_leaves_nothing_but_the_state() {
    let corpus = files(400);
    let no_tree = corpus.path().join("7/7");
    let state = State::new(Kind::File);
    for (tree, status) in [(corpus.path(), 0), (corpus.path(), 0), (&*no_tree, 2)] {
        assert_eq!(state.run(tree).code, Some(status));
        assert_eq!(
            state.names(),
            ["index.db", "index.db-lock", "index.db-segments"]
        );
    }
    let state = State::new(Kind::File);
    let interrupted = interrupt(&state, 20);
    assert!(interrupted.errors.contains("ledger "), "{interrupted:?}");
    assert_eq!(
        state.names(),
        ["index.db", "index.db-lock", "index.db-segments"]
    );
}

// ===== What is the same without a state =====

fn it_says_the_same_as_without_a_state(kind: Kind) {
    let (corpus, state) = (Corpus::made_up(), State::new(kind));
    for part in ["indexed ", "terms ", "skipped "] {
        let lines = |errors: &str| {
            let lines = errors.lines().filter(|line| line.starts_with(part));
            // A pace is not the same twice.
            let lines = lines.map(|line| line.split(" (").next().unwrap_or_default().to_owned());
            let mut lines: Vec<_> = lines.collect();
            lines.sort();
            lines
        };
        let plain = run_plainly(corpus.path(), &[]).stderr;
        let plain = lines(&String::from_utf8_lossy(&plain));
        assert!(!plain.is_empty());
        for _ in 0..2 {
            assert_eq!(lines(&state.run(corpus.path()).errors), plain);
        }
    }
    let ended = state.run_with(corpus.path(), &["--query", "rawname"]);
    assert_eq!(ended.code, corpus.status(0), "{ended:?}");
    let plain = run_plainly(corpus.path(), &["--query", "rawname"]).stdout;
    assert_eq!(ended.hits, String::from_utf8_lossy(&plain));
}

fn the_state_is_no_part_of_the_tree(kind: Kind) {
    let (corpus, elsewhere) = (files(100), State::new(kind));
    let state = corpus.path().join("index.db");
    let mut args = elsewhere.store();
    args.extend(["--state", state.to_str().expect("text"), "--query", QUERY]);
    let before = hits(corpus.path());
    for _ in 0..2 {
        let output = run_plainly(corpus.path(), &args);
        assert_eq!(String::from_utf8_lossy(&output.stdout), before);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("indexed   98 files"), "{errors}");
        // Its own sockets, and what it removes while the tree is listed.
        assert!(!errors.contains("index.db"), "{errors}");
        assert!(!errors.contains("socket"), "{errors}");
    }
}

/// The ids of the batches of files with these names.
fn ids(names: &[String]) -> Vec<TaskId> {
    let stat = disk::look(Path::new(file!())).expect("this file");
    let entry = |name: &String| Entry::new(Path::new(name).into(), &stat);
    let batches = cut(
        &Path::new("/root").into(),
        names.iter().map(entry).collect(),
    );
    let ids = batches.iter().map(Batch::id);
    ids.collect::<Result<_, _>>().expect("ids")
}

/// As if a newer version had laid it out.
#[cfg(feature = "sqlite")]
fn raise_layout(file: &Path) {
    let database = rusqlite::Connection::open(file).expect("a database");
    let raised = database.execute("UPDATE throng_meta SET layout = layout + 1", ());
    assert_eq!(raised.expect("the layout"), 1);
}
