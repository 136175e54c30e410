//! Runs of the program with `--state`, on trees that are made for it, and how they end.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
#[cfg(feature = "redis")]
use std::sync::Arc;
use std::sync::OnceLock;
use std::thread;

use tempfile::TempDir;

use super::corpus::Corpus;
use super::durable::build::{Built, build};
use super::durable::state::StoreAddress;
use super::indexer::options::Options;
#[cfg(feature = "postgres")]
use super::postgres_server;
use super::program::{program, run as run_plainly};
#[cfg(feature = "redis")]
use super::redis_server::Server;

/// The query of each run of the program.
pub(crate) const QUERY: &str = "common rare7";

// ===== Stores =====

/// Where a state has its tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    #[cfg(feature = "sqlite")]
    File,
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "redis")]
    Redis,
}

impl Kind {
    const ALL: &[Self] = &[
        #[cfg(feature = "sqlite")]
        Self::File,
        #[cfg(feature = "postgres")]
        Self::Postgres,
        #[cfg(feature = "redis")]
        Self::Redis,
    ];
}

/// Makes a test for each store of functions that take a [`Kind`].
macro_rules! on_each_store {
    ($($name:ident,)*) => {
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[test]
            fn $name() {
                super::$name($crate::runs::Kind::File);
            })*
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[test]
            fn $name() {
                if $crate::postgres_server::is_installed() {
                    super::$name($crate::runs::Kind::Postgres);
                }
            })*
        }

        #[cfg(feature = "redis")]
        mod redis {
            $(#[test]
            fn $name() {
                needs_redis!();
                super::$name($crate::runs::Kind::Redis);
            })*
        }
    };
}

// ===== Trees =====

/// A tree that takes a while: with that many batches, there is time to end the program.
pub(crate) fn large() -> &'static Corpus {
    static LARGE: OnceLock<Corpus> = OnceLock::new();
    LARGE.get_or_init(|| files(3_000))
}

/// What is found in it without a state.
pub(crate) fn plain() -> &'static str {
    static PLAIN: OnceLock<String> = OnceLock::new();
    PLAIN.get_or_init(|| hits(large().path()))
}

/// What a run without interruption makes of it, whatever the store.
fn whole() -> &'static BTreeMap<OsString, Vec<u8>> {
    static WHOLE: OnceLock<BTreeMap<OsString, Vec<u8>>> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let state = State::new(Kind::ALL[0]);
        state.run(large().path());
        state.segments()
    })
}

pub(crate) fn files(count: usize) -> Corpus {
    let corpus = Corpus::empty();
    for n in 0..count {
        let content = match n % 50 {
            49 => b"no text\0".to_vec(),
            _ => content(n).into_bytes(),
        };
        corpus.write(format!("{}/{n}", n % 40), &content);
    }
    corpus
}

fn content(n: usize) -> String {
    let line = |line: usize| {
        let word = (n * 31 + line * 17) % 997;
        format!("common word{word} rare{} {n}_{line}\n", word % 90)
    };
    (0..40).map(line).collect()
}

pub(crate) fn hits(dir: &Path) -> String {
    let output = run_plainly(dir, &["--query", QUERY]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

// ===== Runs =====

/// A place for a state.
pub(crate) struct State {
    pub(crate) dir: TempDir,
    /// Of the server that has its tasks.
    url: Option<String>,
    #[cfg(feature = "redis")]
    _server: Option<Arc<Server>>,
}

/// The end of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) hits: String,
    pub(crate) errors: String,
}

impl State {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            #[cfg(feature = "sqlite")]
            Kind::File => Self::with(None),
            #[cfg(feature = "postgres")]
            Kind::Postgres => {
                let server = postgres_server::Server::shared();
                Self::with(Some(server.address()))
            }
            #[cfg(feature = "redis")]
            Kind::Redis => {
                let server = Server::shared();
                let state = Self::with(Some(server.url()));
                Self {
                    _server: Some(server),
                    ..state
                }
            }
        }
    }

    /// One with its tasks in the server at this URL, or in a file.
    pub(crate) fn with(url: Option<String>) -> Self {
        Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            url,
            #[cfg(feature = "redis")]
            _server: None,
        }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("index.db")
    }

    /// What there is of the state, and beside it.
    #[cfg(feature = "sqlite")]
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names
            .map(|name| name.into_string().expect("text"))
            .collect();
        names.sort();
        names
    }

    /// What says to the program where its tasks are, if that is not its file.
    pub(crate) fn store(&self) -> Vec<&str> {
        let url = self.url.iter();
        url.flat_map(|url| ["--store", url]).collect()
    }

    /// Builds the index in this process.
    pub(crate) fn build(&self, tree: &Path) -> Built {
        self.build_with(tree, &Options::default())
    }

    pub(crate) fn build_with(&self, tree: &Path, options: &Options) -> Built {
        let file = self.file();
        let url = self.url.as_deref();
        let place = StoreAddress { file: &file, url };
        let built = build(tree, place, options, |_| (), |_| ());
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(built).expect("an index")
    }

    pub(crate) fn segment(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join("index.db-segments").join(name)
    }

    pub(crate) fn segments(&self) -> BTreeMap<OsString, Vec<u8>> {
        let entries = fs::read_dir(self.segment("")).expect("a directory");
        let segments = entries.map(|entry| {
            let entry = entry.expect("an entry");
            (
                entry.file_name(),
                fs::read(entry.path()).expect("a segment"),
            )
        });
        segments.collect()
    }

    pub(crate) fn command(&self, tree: &Path) -> Command {
        let mut command = program();
        command.arg(tree).arg("--state").arg(self.file());
        command.args(self.store());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, tree: &Path) -> Ended {
        self.run_with(tree, &["--query", QUERY])
    }

    pub(crate) fn run_with(&self, tree: &Path, args: &[&str]) -> Ended {
        let output = self.command(tree).args(args).output();
        let output = output.expect("the program runs");
        Ended {
            code: output.status.code(),
            hits: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs the program, which cannot use this state and says why.
    #[track_caller]
    pub(crate) fn fails(&self, tree: &Path, why: &str) {
        let ended = self.run(tree);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.errors.contains("error: "), "{ended:?}");
        assert!(ended.errors.contains(why), "{why}: {ended:?}");
    }

    /// Starts the program on the large tree, and waits until it has so much of it in the index.
    pub(crate) fn start(&self, percent: usize) -> (Child, BufReader<ChildStderr>) {
        let mut command = self.command(large().path());
        let command = command.args(["--progress", "--query", QUERY]);
        let mut child = command.spawn().expect("the program starts");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !is_at(&line, percent) {
            line.clear();
            let read = errors.read_line(&mut line).expect("text");
            assert_ne!(read, 0, "it has ended too early");
        }
        (child, errors)
    }

    /// The index is that of a run without interruption, and each time that the program was killed,
    /// that has cost no more than the tasks that were running.
    #[track_caller]
    pub(crate) fn assert_whole(&self, ended: &Ended, kills: u64) {
        let running = Options::default().threads as u64;
        self.assert_whole_after(ended, kills, kills * 6 * running);
    }

    /// As [`assert_whole`](Self::assert_whole), where earlier runs have left at most `left` tasks in the store.
    #[track_caller]
    pub(crate) fn assert_whole_after(&self, ended: &Ended, kills: u64, left: u64) {
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.hits, plain());
        assert!(self.segments() == *whole());
        let [stored, claimed, done] = ["stored", "claimed", "done"].map(|of| ended.ledger(of));
        let batches = ended.batches();
        assert!(batches >= 30, "{batches}");
        // A task that an earlier run has left in the store may end in the next one before that spawns it, too: it is
        // then stored once more, finds its segment, and does nothing.
        let twice = stored - batches;
        assert!(twice <= left, "{ended:?}");
        assert_eq!(done, stored, "{ended:?}");
        // What was released had not begun.
        let running = Options::default().threads as u64;
        let for_nothing = claimed - done - ended.ledger("released");
        assert!(for_nothing <= kills * running, "{ended:?}");
        assert_eq!(ended.ledger("waiting") + ended.ledger("dead"), 0);
    }
}

impl Ended {
    /// Returns the number of batches.
    pub(crate) fn batches(&self) -> u64 {
        self.numbers("batches ")["batches"]
    }

    /// Returns the number of batches that were done in this run.
    pub(crate) fn indexed(&self) -> u64 {
        self.numbers("batches ")["indexed"]
    }

    pub(crate) fn ledger(&self, of: &str) -> u64 {
        let ledger = self.numbers("ledger ");
        ledger.get(of).copied().unwrap_or_default()
    }

    /// The numbers of a line of the report, by the word before each; of two words, the first stands
    /// for the line, and the second for what was done now.
    fn numbers(&self, line: &str) -> HashMap<String, u64> {
        let line = self.errors.lines().find(|found| found.starts_with(line));
        let line = line.unwrap_or_else(|| panic!("{self:?}"));
        let line = line.replace(", ", " indexed ");
        let words: Vec<_> = line.split_whitespace().collect();
        let pairs = words.windows(2);
        let numbers = pairs.filter_map(|pair| Some((pair[0].to_owned(), pair[1].parse().ok()?)));
        numbers.collect()
    }
}

/// Returns `true` if a line reports this number of indexed files.
fn is_at(line: &str, percent: usize) -> bool {
    let numbers = line.trim().strip_prefix("batch ");
    let numbers = numbers.and_then(|numbers| numbers.split_once('/'));
    numbers.is_some_and(|(done, of)| {
        let [done, of]: [usize; 2] = [done, of].map(|n| n.parse().expect("a number"));
        done * 100 >= of * percent
    })
}

/// Runs the program, and kills it when it has come so far. It cannot end before that: nobody reads
/// its hits, and they are more than a pipe holds.
pub(crate) fn kill(state: &State, percent: usize) -> ExitStatus {
    let (mut child, _errors) = state.start(percent);
    child.kill().expect("it was not awaited");
    child.wait().expect("it ends")
}

/// Runs the program, and presses Ctrl-C when it has come so far.
pub(crate) fn interrupt(state: &State, percent: usize) -> Ended {
    let (child, errors) = state.start(percent);
    let kill = format!("kill -INT {}", child.id());
    let killed = Command::new("sh").args(["-c", &kill]).status();
    assert!(killed.expect("a shell").success());
    ended(child, errors)
}

/// Runs the program on two trees at a time, with two states that are in one server, as two machines have that know nothing of each other.
/// If one ran a batch of the other's, the other would have no segment of it.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) fn assert_independent(states: [State; 2]) {
    let corpora = [files(300), files(400)];
    let mut runs = Vec::new();
    for (state, corpus) in states.iter().zip(&corpora) {
        let child = state
            .command(corpus.path())
            .args(["--query", QUERY])
            .spawn();
        runs.push(child.expect("the program starts"));
    }
    for ((run, state), corpus) in runs.into_iter().zip(&states).zip(&corpora) {
        let output = run.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), hits(corpus.path()));
        let again = state.run(corpus.path());
        assert_eq!(again.indexed(), 0);
        assert_eq!(again.ledger("stored"), again.batches());
    }
}

/// Waits until the program has ended of which so much of what it says was read.
pub(crate) fn ended(child: Child, mut reader: BufReader<ChildStderr>) -> Ended {
    // The hits are more than a pipe holds: who reads the one must read the other.
    let errors = thread::spawn(move || {
        let mut errors = String::new();
        reader.read_to_string(&mut errors).map(|_| errors)
    });
    let output = child.wait_with_output().expect("it ends");
    Ended {
        code: output.status.code(),
        hits: String::from_utf8(output.stdout).expect("text"),
        errors: errors.join().expect("no panic").expect("text"),
    }
}
