//! Failures: transient errors, permanent errors, and an early stop.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::corpus::Corpus;
use super::indexer::disk::Entries;
use super::indexer::options::{Backoff, Options, Stop};
use super::indexer::pipeline::{self, Event, Outcome};
use super::indexer::source::{Disk, Source, is_transient};
use super::reference;
use super::whole::{assert_same, build, lines_of, search};

/// The file system, and something that happens before each use of it.
pub(crate) struct Rigged<F>(pub(crate) F);

impl<F> Source for Rigged<F>
where
    F: Fn(&Path) -> io::Result<()> + Send + Sync + 'static,
{
    fn list(&self, dir: &Path) -> io::Result<Entries> {
        (self.0)(dir)?;
        Disk.list(dir)
    }

    fn open(&self, file: &Path) -> io::Result<File> {
        (self.0)(file)?;
        Disk.open(file)
    }
}

/// The number of attempts for each path.
#[derive(Clone, Default)]
struct Attempts(Arc<Mutex<HashMap<PathBuf, u32>>>);

impl Attempts {
    /// Counts one more, and returns how many there were before it.
    fn count(&self, path: &Path) -> u32 {
        let mut attempts = self.0.lock().expect("nobody panics here");
        let attempts = attempts.entry(path.to_owned()).or_default();
        *attempts += 1;
        *attempts - 1
    }

    fn of(&self, path: &Path) -> u32 {
        let attempts = self.0.lock().expect("nobody panics here");
        attempts.get(path).copied().unwrap_or_default()
    }
}

fn rigged(before: impl Fn(&Path) -> io::Result<()> + Send + Sync + 'static) -> Options {
    Options {
        threads: 2,
        source: Arc::new(Rigged(before)),
        backoff: Backoff {
            attempts: 5,
            first: Duration::from_millis(1),
        },
        ..Options::default()
    }
}

/// The errors that pass, as the system gives them.
fn transient(n: u32) -> io::Error {
    match n {
        0 => ErrorKind::Interrupted.into(),
        1 => ErrorKind::WouldBlock.into(),
        2 => io::Error::from_raw_os_error(24),
        3 => io::Error::from_raw_os_error(23),
        _ => ErrorKind::ResourceBusy.into(),
    }
}

#[test]
fn errors_that_pass_are_told_from_those_that_do_not() {
    assert!((0..5).all(|n| is_transient(&transient(n))));
    for kind in [
        ErrorKind::NotFound,
        ErrorKind::PermissionDenied,
        ErrorKind::InvalidData,
        ErrorKind::Other,
    ] {
        assert!(!is_transient(&kind.into()), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_directories_that_are_busy_are_tried_again() {
    let corpus = Corpus::made_up();
    let attempts = Attempts::default();
    let counted = attempts.clone();
    let options = rigged(move |path| match counted.count(path) {
        n @ 0..4 => Err(transient(n)),
        _ => Ok(()),
    });
    let outcome = build(&corpus, &options).await;
    let reference = reference::build(corpus.path()).expect("a reference");
    assert_same(&outcome.index, &reference);
    assert_eq!(attempts.of(corpus.path()), 5);
    assert_eq!(attempts.of(&reference.files[0]), 5);
}

/// The first file can be read when all others have been. If its backoff kept the pool's only thread,
/// they never would be.
#[tokio::test]
async fn no_thread_of_the_pool_sleeps_between_two_attempts() {
    let corpus = Corpus::empty();
    for n in 0..50 {
        corpus.write(format!("{n}"), b"word");
    }
    let (first, read) = (OnceLock::new(), AtomicU64::new(0));
    let mut options = rigged(move |path| {
        let is_first = !path.is_dir() && first.get_or_init(|| path.to_owned()) == path;
        if is_first && read.load(Ordering::SeqCst) < 49 {
            return Err(ErrorKind::WouldBlock.into());
        }
        read.fetch_add(u64::from(!path.is_dir()), Ordering::SeqCst);
        Ok(())
    });
    options.threads = 1;
    // More than a minute in all.
    options.backoff.attempts = 17;
    let outcome = build(&corpus, &options).await;
    assert_eq!(outcome.summary.counts.files, 50);
}

/// The file can be read when another task has had some turns since the first attempt. If the backoff
/// kept the runtime's only thread, that would have none before the second, which is the last.
#[tokio::test]
async fn no_thread_of_the_runtime_sleeps_between_two_attempts() {
    let corpus = Corpus::empty();
    corpus.write("busy", b"word");
    let turns = Arc::new(AtomicU64::new(0));
    let (counted, first) = (Arc::clone(&turns), OnceLock::new());
    let mut options = rigged(move |path| {
        let turns = counted.load(Ordering::SeqCst);
        match path.is_dir() || turns >= *first.get_or_init(|| turns) + 3 {
            true => Ok(()),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    });
    options.backoff = Backoff {
        attempts: 2,
        first: Duration::from_millis(500),
    };
    let other = tokio::spawn(async move {
        loop {
            turns.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(build(&corpus, &options).await.summary.counts.files, 1);
    other.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stays_busy_is_skipped_after_a_few_attempts() {
    let corpus = Corpus::made_up();
    let attempts = Attempts::default();
    let busy = [corpus.path().join("plain.txt"), corpus.path().join("sub")];
    let (counted, is_busy) = (attempts.clone(), busy.clone());
    let options = rigged(move |path| {
        counted.count(path);
        match is_busy.iter().any(|busy| busy == path) {
            true => Err(transient(0)),
            false => Ok(()),
        }
    });
    let skipped = skipped_as(&corpus, &options, "unreadable").await;
    assert!(
        busy.iter().all(|busy| skipped.contains(busy)),
        "{skipped:?}"
    );
    assert!(busy.iter().all(|busy| attempts.of(busy) == 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_not_tried_again() {
    let corpus = Corpus::made_up();
    let attempts = Attempts::default();
    let forbidden = corpus.path().join("plain.txt");
    let (counted, is_forbidden) = (attempts.clone(), forbidden.clone());
    let options = rigged(move |path| {
        counted.count(path);
        match path == is_forbidden {
            true => Err(ErrorKind::PermissionDenied.into()),
            false => Ok(()),
        }
    });
    let skipped = skipped_as(&corpus, &options, "unreadable").await;
    assert!(skipped.contains(&forbidden), "{skipped:?}");
    assert_eq!(attempts.of(&forbidden), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_loses_one_file() {
    let corpus = Corpus::made_up();
    let unlucky = corpus.path().join("plain.txt");
    let is_unlucky = unlucky.clone();
    let options = rigged(move |path| {
        assert!(path != is_unlucky, "this file is unlucky");
        Ok(())
    });
    assert_eq!(skipped_as(&corpus, &options, "lost").await, [unlucky]);
}

async fn skipped_as(corpus: &Corpus, options: &Options, kind: &str) -> Vec<PathBuf> {
    let mut skipped = Vec::new();
    let observe = |event: Event<'_>| {
        if let Event::Skipped(path, skip) = event
            && skip.kind() == kind
        {
            skipped.push(path.to_owned());
        }
    };
    let outcome = pipeline::build(corpus.path(), options, observe).await;
    let counts = outcome.expect("an index").summary.counts;
    assert_eq!(counts.skipped[kind], skipped.len() as u64);
    skipped
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_finishes_what_was_submitted_and_nothing_else() {
    let corpus = Corpus::empty();
    for n in 0..2_000 {
        corpus.write(
            format!("{}/{n}", n % 20),
            format!("common own{n}\nlast").as_bytes(),
        );
    }
    let stop = Stop::default();
    let reads = Arc::new(AtomicU64::new(0));
    let (stopper, counter) = (stop.clone(), Arc::clone(&reads));
    let mut options = rigged(move |path| {
        if !path.is_dir() && counter.fetch_add(1, Ordering::SeqCst) == 100 {
            stopper.set();
        }
        Ok(())
    });
    options.stop = stop;
    let places = (options.threads * options.outstanding) as u64;
    let Outcome { index, summary } = build(&corpus, &options).await;

    assert!(summary.stopped);
    let files = summary.counts.files;
    assert_eq!(
        files,
        reads.load(Ordering::SeqCst),
        "what was read is there"
    );
    assert!((101..=101 + places).contains(&files), "{files}");
    // Of each file there is everything.
    let whole = search(&index, "common last");
    assert_eq!(whole.len() as u64, 2 * files);
    for (path, _) in whole {
        let name = path.file_name().expect("a name").to_string_lossy();
        let own = lines_of(&index, &format!("own{name}"));
        assert_eq!(own, [(path.to_owned(), 1)].into());
    }
    assert_eq!(index.len() as u64, files + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_before_the_start_leaves_nothing_to_do() {
    let corpus = Corpus::made_up();
    let options = Options::default();
    options.stop.set();
    let Outcome { index, summary } = build(&corpus, &options).await;
    assert_eq!((index.len(), summary.counts.files), (0, 0));
    assert!(summary.stopped);
}
