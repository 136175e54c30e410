//! Whole indexes, and queries.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::corpus::Corpus;
use super::indexer::index::Index;
use super::indexer::options::Options;
use super::indexer::pipeline::{self, Event, Outcome};
use super::indexer::query::Query;
use super::indexer::source::Skip;
use super::reference::{self, Reference};
use super::sequential;

/// In two halves: this file may be one of those that are indexed.
const NOWHERE: &str = concat!("now", "here_at_all alpha");

#[tokio::test(flavor = "multi_thread")]
async fn the_index_is_that_of_the_reference() {
    let corpus = Corpus::new();
    let (mut skipped, mut bytes) = (BTreeSet::new(), 0);
    let observe = |event: Event<'_>| match event {
        Event::Indexed { bytes: more } => bytes += more,
        Event::Skipped(_, Skip::Link) => {}
        Event::Skipped(path, _) => drop(skipped.insert(path.to_owned())),
    };
    let outcome = pipeline::build(corpus.path(), &Options::default(), observe).await;
    let Outcome { index, summary } = outcome.expect("an index");

    let reference = reference::build(corpus.path()).expect("a reference");
    assert_same(&index, &reference);
    assert_eq!(summary.counts.files, reference.files.len() as u64);
    assert_eq!([summary.counts.bytes, bytes], [reference.bytes; 2]);
    let sorted = |paths: &[PathBuf]| BTreeSet::from_iter(paths.iter().cloned());
    assert_eq!(sorted(&reference.skipped), sorted(&corpus.skipped));
    let [texts, special] = [&corpus.skipped, &corpus.special].map(|paths| sorted(paths));
    assert_eq!(skipped, &texts | &special);
    assert!(!summary.stopped);
    assert_eq!(summary.pool.panicked + summary.pool.rejected, 0);
    let texts = summary.counts.files;
    assert_eq!(summary.compute.completed, texts, "one task for each text");
    let jobs = summary.executor.inline + summary.executor.queued;
    assert_eq!(jobs, reference.files.len() as u64, "one job for each file");
}

#[tokio::test]
async fn one_thread_and_one_permit_are_enough() {
    let corpus = Corpus::made_up();
    let options = Options {
        threads: 1,
        cores: 1,
        texts: 1,
        running: 1,
        outstanding: 1,
        ..Options::default()
    };
    let Outcome { index, summary } = build(&corpus, &options).await;
    assert_same(
        &index,
        &reference::build(corpus.path()).expect("a reference"),
    );
    assert_eq!((summary.most_in_flight, summary.pool.largest), (1, 1));
}

#[test]
fn one_thread_without_any_executor_comes_to_the_same() {
    let corpus = Corpus::made_up();
    let index = sequential::build(corpus.path()).expect("an index");
    assert_same(
        &index,
        &reference::build(corpus.path()).expect("a reference"),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_files_are_in_flight_than_there_are_permits() {
    let corpus = Corpus::empty();
    for n in 0..500 {
        corpus.write(format!("{}/{n}", n % 3), b"word");
    }
    let options = Options {
        threads: 3,
        running: 2,
        outstanding: 4,
        ..Options::default()
    };
    let summary = build(&corpus, &options).await.summary;
    assert_eq!(summary.counts.files, 500);
    assert!(summary.most_in_flight <= 12, "{}", summary.most_in_flight);
    assert!(summary.pool.largest <= 3, "{:?}", summary.pool);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_find_what_the_reference_finds() {
    let corpus = Corpus::new();
    let index = build(&corpus, &Options::default()).await.index;
    let reference = reference::build(corpus.path()).expect("a reference");
    for words in [
        "alpha",
        "beta ALPHA",
        "alpha alpha; Alpha",
        "the of and",
        "alpha often",
        "hidden alpha",
        "milestone number7000",
        "gr\u{dc}N stra\u{df}e",
        "\u{39f}\u{394}\u{39f}\u{3a3}",
        "\u{3bf}\u{3b4}\u{3bf}\u{3c3}",
        "spawn_blocking reserve",
        "rawname",
        NOWHERE,
    ] {
        let found = search(&index, words);
        let expected: Vec<_> = reference.search(words).into_iter().collect();
        assert_eq!(sorted(found.clone()), expected, "{words}");
        let by_bytes = |hit: &(&Path, u32)| (bytes(hit.0).to_vec(), hit.1);
        assert!(found.is_sorted_by_key(by_bytes), "{words}");
    }
    assert!(!search(&index, "hidden alpha").is_empty());
    assert!(search(&index, NOWHERE).is_empty());
}

#[test]
fn a_query_without_a_word_is_refused() {
    for words in ["", " ", "-- !", "\u{2014}"] {
        assert!(words.parse::<Query>().is_err(), "{words:?}");
    }
}

#[tokio::test]
async fn a_tree_that_is_not_there_is_an_error() {
    let corpus = Corpus::empty();
    let nowhere = corpus.path().join("nowhere");
    let outcome = pipeline::build(&nowhere, &Options::default(), |_| ()).await;
    let error = outcome.expect_err("there is nothing to index");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

/// The index of the files.
pub(crate) async fn build(corpus: &Corpus, options: &Options) -> Outcome {
    let outcome = pipeline::build(corpus.path(), options, |_| ()).await;
    outcome.expect("an index")
}

/// Both have the same terms, on the same lines.
#[track_caller]
pub(crate) fn assert_same(index: &Index, reference: &Reference) {
    assert_eq!(index.len(), reference.terms.len());
    for (term, lines) in &reference.terms {
        let path = |file: u32| reference.files[file as usize].clone();
        let expected: BTreeSet<_> = lines
            .iter()
            .map(|&(file, line)| (path(file), line))
            .collect();
        assert_eq!(lines_of(index, term), expected, "{term}");
    }
}

/// Where a term is.
pub(crate) fn lines_of(index: &Index, term: &str) -> BTreeSet<(PathBuf, u32)> {
    let term = index.find(term).into_iter();
    let files = term.flat_map(|term| index.postings(term));
    files
        .flat_map(|(file, lines)| lines.map(move |line| (index.path(file).to_owned(), line)))
        .collect()
}

/// Returns the results of a query, in its order.
pub(crate) fn search<'i>(index: &'i Index, words: &str) -> Vec<(&'i Path, u32)> {
    let query: Query = words.parse().expect("a query");
    let hits = query.run(index).into_iter();
    hits.flat_map(|hit| hit.lines.into_iter().map(move |line| (hit.path, line)))
        .collect()
}

fn sorted<T: Ord>(mut hits: Vec<T>) -> Vec<T> {
    hits.sort();
    hits
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}
