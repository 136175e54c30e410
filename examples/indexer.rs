//! Builds a full-text index of a directory tree, and searches it.
//!
//! ```sh
//! cargo run --release --example indexer -- [DIR] [--query WORDS]
//! cargo run --release --example indexer --features sqlite -- [DIR] [--query WORDS] --state index.db
//! cargo run --release --example indexer --features redis -- [DIR] [--query WORDS] --state index.db \
//!     --store redis://127.0.0.1/
//! cargo run --release --example indexer --features postgres -- [DIR] [--query WORDS] --state index.db \
//!     --store postgres://user:password@127.0.0.1/database
//! ```
//!
//! All parts of `throng` work together here: files are read on a bounded
//! [`BlockingPool`](throng::BlockingPool) and tokenised on a [`ComputePool`](throng::ComputePool),
//! what was read arrives in a [`CompletionStream`](throng::CompletionStream), and the index belongs
//! to a [`SerialExecutor`](throng::SerialExecutor). Start reading at `indexer/pipeline.rs`.
//!
//! With `--state`, the work is done by durable tasks, of a
//! [`DurableExecutor`](throng::durable::DurableExecutor): whatever ends the program, even `kill -9`,
//! the next run goes on where it was, and after a change in the tree it does what has changed. The
//! tasks are in that file, or with `--store` in Redis or PostgreSQL. That is in `indexer/durable/`.
//!
//! For one word, the hits are the lines that `LC_ALL=C.UTF-8 grep -rnwiIF -e WORD DIR` finds, and the
//! exit status is that of `grep`: 0 if there are any, 1 if there are none, 2 if something could not
//! be read.

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
#[path = "indexer/durable/mod.rs"]
mod durable;
#[path = "indexer/mod.rs"]
mod indexer;
#[path = "indexer/print.rs"]
mod print;
#[path = "indexer/screen.rs"]
mod screen;
#[path = "indexer/usage.rs"]
mod usage;

use std::env;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, exit};

use clap::Parser;
use tokio::signal::ctrl_c;

use self::indexer::escape::{Escaped, escape_controls};
use self::indexer::options::{Options, Stop};
use self::indexer::pipeline::{self, Outcome};
use self::indexer::query::Query;
use self::indexer::walk::Walk;
use self::screen::{Report, Screen};

/// Builds a full-text index of a directory tree, and searches it.
///
/// Hits are printed to standard output, everything else to standard error. Ctrl-C finishes the
/// files that are being read, and answers from what there is; pressed again, it ends the program.
///
/// The exit status is 0 if there are hits, or nothing was asked; 1 if there are none; 2 if something
/// could not be read, or went wrong; and 130 after Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "indexer", version)]
struct Args {
    /// The directory [default: the sources that cargo has unpacked, or the current directory]
    dir: Option<PathBuf>,

    /// Print `path:line` for each line that holds any of these words (in one argument), in the files
    /// that hold them all
    #[arg(long, value_name = "WORDS")]
    query: Option<Query>,

    /// Print only hits and errors
    #[arg(long, short)]
    quiet: bool,

    /// Keep what is done in this file, and in those beside it whose names begin with its name; go on
    /// from what is there (needs the feature `sqlite`, or `--store`)
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// With --state: keep the tasks in this server, not in the file: `redis://127.0.0.1/` (needs the
    /// feature `redis`), or `postgres://user:password@127.0.0.1/database` (needs the feature `postgres`)
    #[arg(long, value_name = "URL", requires = "state")]
    store: Option<String>,

    /// With --state: print a line for each batch that is in the index
    #[arg(long, hide = true, requires = "state")]
    progress: bool,
}

/// An index, and what else there is to say of it.
struct Built {
    outcome: Outcome,
    /// More lines for the report.
    more: Option<String>,
    /// Describes what the index lacks, unless the program was told to stop.
    lack: Option<String>,
}

type Fault = Box<dyn Error + Send + Sync>;

/// The end of the program: with the status of `grep`, or with the status that a shell reports after
/// Ctrl-C.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Status {
    Found = 0,
    NothingFound = 1,
    Failed = 2,
    Interrupted = 130,
}

#[tokio::main]
async fn main() -> ExitCode {
    let status = run(&Args::parse()).await.unwrap_or_else(|error| {
        eprintln!("error: {}", escape_controls(&error.to_string()));
        Status::Failed
    });
    ExitCode::from(status as u8)
}

/// The sources that cargo has unpacked: thousands of files. Else the current directory.
fn default_dir() -> PathBuf {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    home.map(|home| home.join("registry").join("src"))
        .filter(|sources| sources.read_dir().is_ok_and(|mut dir| dir.next().is_some()))
        .unwrap_or_else(|| PathBuf::from("."))
}

/// Builds the index and answers the query.
async fn run(args: &Args) -> Result<Status, Fault> {
    let dir = args.dir.clone().unwrap_or_else(default_dir);
    let options = Options::default();
    let mut screen = Screen::new(args.quiet);
    stop_at_ctrl_c(options.stop.clone(), screen.clone()).await;
    screen.say(format_args!("indexing {}", Escaped(&dir)));

    let built = match &args.state {
        None => build(&dir, &options, &mut screen).await,
        Some(state) => {
            let (url, verbose) = (args.store.as_deref(), args.progress);
            build_durably(&dir, state, url, verbose, &options, &mut screen).await
        }
    };
    // From here on, there is nothing to finish: Ctrl-C ends the program.
    options.stop.set();
    let time = screen.finish();
    let built = built?;
    let outcome = &built.outcome;
    screen.say(Report { outcome, time });
    built.more.iter().for_each(|more| screen.say(more));
    let found = match &args.query {
        Some(query) => answer(query, outcome, &screen).map_err(|error| at(&dir, &error))?,
        None => true,
    };
    built.status(found)
}

impl Built {
    /// Returns the end of the program; `found` says whether there are hits.
    fn status(self, found: bool) -> Result<Status, Fault> {
        let summary = &self.outcome.summary;
        match self.lack {
            Some(lack) => Err(lack.into()),
            None if summary.stopped => Ok(Status::Interrupted),
            None if summary.counts.errors > 0 => Ok(Status::Failed),
            None if found => Ok(Status::Found),
            None => Ok(Status::NothingFound),
        }
    }
}

async fn build(dir: &Path, options: &Options, screen: &mut Screen) -> Result<Built, Fault> {
    if screen.has_bar() {
        let (walk, stop) = (
            Walk::new(dir.to_owned(), options.source.clone()),
            options.stop.clone(),
        );
        let screen = screen.clone();
        // Nobody waits for it: the bar has a length when it is known.
        throng::spawn_blocking(move || screen.expect(walk.count(&stop)));
    }
    let built = pipeline::build(dir, options, |event| screen.show(&event)).await;
    Ok(Built {
        outcome: built.map_err(|error| at(dir, &error))?,
        more: None,
        lack: None,
    })
}

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
async fn build_durably(
    dir: &Path,
    state: &Path,
    url: Option<&str>,
    verbose: bool,
    options: &Options,
    screen: &mut Screen,
) -> Result<Built, Fault> {
    let place = durable::state::StoreAddress { file: state, url };
    let notes = screen.clone();
    let progress = |progress: durable::build::Progress<'_>| notes.show_progress(&progress, verbose);
    let observe = |event: pipeline::Event<'_>| screen.show(&event);
    let built = durable::build::build(dir, place, options, observe, progress).await?;
    Ok(Built {
        more: Some(built.to_string()),
        lack: built.lack(),
        outcome: built.outcome,
    })
}

#[cfg(not(any(feature = "postgres", feature = "redis", feature = "sqlite")))]
async fn build_durably(
    _: &Path,
    state: &Path,
    _: Option<&str>,
    _: bool,
    _: &Options,
    _: &mut Screen,
) -> Result<Built, Fault> {
    let lack = "this program was built without a store: run it with `cargo run --features sqlite`";
    Err(at(state, &lack))
}

fn at(path: &Path, error: &dyn Display) -> Fault {
    format!("{}: {error}", Escaped(path)).into()
}

/// Sets `stop` when Ctrl-C is pressed; ends the program if it is set already.
async fn stop_at_ctrl_c(stop: Stop, screen: Screen) {
    let mut pressed = Box::pin(ctrl_c());
    // The first poll takes the signal over from the system: it must not wait for the task.
    if futures::poll!(&mut pressed).is_ready() {
        return screen.say("note: Ctrl-C ends the program at once, without a summary");
    }
    tokio::spawn(async move {
        while pressed.await.is_ok() {
            if stop.is_set() {
                exit(Status::Interrupted as i32);
            }
            stop.set();
            screen.say("stopping: files that are being read are finished");
            pressed = Box::pin(ctrl_c());
        }
    });
}

/// Prints the hits. Returns `true` if there are any.
fn answer(query: &Query, outcome: &Outcome, screen: &Screen) -> io::Result<bool> {
    if outcome.summary.stopped {
        screen.say("note: stopped early, so there may be hits in files that were not read");
    }
    let hits = query.run(&outcome.index);
    let lines: usize = hits.iter().map(|hit| hit.lines.len()).sum();
    let files = hits.len();
    screen.say(format_args!("found     {lines} lines in {files} files"));
    match print::print(&hits) {
        // The reader of the hits has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(true),
        printed => printed.map(|()| lines > 0),
    }
}
