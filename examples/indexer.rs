//! Builds a full-text index of a directory tree, and searches it.
//!
//! ```sh
//! cargo run --release --example indexer -- [DIR] [--query WORDS]
//! ```
//!
//! All parts of `throng` work together here: files are read on a bounded
//! [`BlockingPool`](throng::BlockingPool) and tokenised on a [`ComputePool`](throng::ComputePool),
//! what was read arrives in a [`CompletionStream`](throng::CompletionStream), and the index belongs
//! to a [`SerialExecutor`](throng::SerialExecutor). Start reading at `indexer/pipeline.rs`.

#[path = "indexer/mod.rs"]
mod indexer;
#[path = "indexer/screen.rs"]
mod screen;
#[path = "indexer/usage.rs"]
mod usage;

use std::env;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, exit};

use clap::Parser;
use tokio::signal::ctrl_c;

use self::indexer::options::{Options, Stop};
use self::indexer::pipeline::{self, Outcome};
use self::indexer::query::{Hits, Query};
use self::screen::{Report, Screen};

/// Builds a full-text index of a directory tree, and searches it.
///
/// What is found goes to standard output, everything else to standard error. Ctrl-C finishes the
/// files that are being read, and answers from what there is; pressed again, it ends the program.
#[derive(Debug, Parser)]
struct Args {
    /// The directory [default: the sources that cargo has unpacked, or the current directory]
    dir: Option<PathBuf>,

    /// Print `path:line` for each line that holds any of these words (in one argument), in the files
    /// that hold them all
    #[arg(long, value_name = "WORDS")]
    query: Option<Query>,
}

/// What a shell says of a program that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let dir = args.dir.unwrap_or_else(default_dir);
    match run(&dir, args.query.as_ref()).await {
        Ok(stopped) if stopped => ExitCode::from(INTERRUPTED),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}

/// The sources that cargo has unpacked: thousands of files. Else the current directory.
fn default_dir() -> PathBuf {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    home.map(|home| home.join("registry").join("src"))
        .filter(|sources| sources.read_dir().is_ok_and(|mut dir| dir.next().is_some()))
        .unwrap_or_else(|| PathBuf::from("."))
}

/// Builds the index and answers the query. Returns whether Ctrl-C has cut that short.
async fn run(dir: &Path, query: Option<&Query>) -> io::Result<bool> {
    let options = Options::default();
    let mut screen = Screen::new();
    stop_at_ctrl_c(options.stop.clone(), screen.clone()).await;
    screen.say(format_args!("indexing {}", dir.display()));

    let outcome = pipeline::build(dir, &options, |event| screen.show(&event)).await?;
    // From here on, there is nothing to finish: Ctrl-C ends the program.
    options.stop.set();
    let time = screen.finish();
    let report = Report {
        outcome: &outcome,
        time,
    };
    screen.say(report);
    if let Some(query) = query {
        answer(query, &outcome, &screen)?;
    }
    Ok(outcome.summary.stopped)
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
                exit(INTERRUPTED.into());
            }
            stop.set();
            screen.say("stopping: files that are being read are finished");
            pressed = Box::pin(ctrl_c());
        }
    });
}

fn answer(query: &Query, outcome: &Outcome, screen: &Screen) -> io::Result<()> {
    if outcome.summary.stopped {
        screen.say("note: stopped early, so there may be hits in files that were not read");
    }
    let hits = query.run(&outcome.index);
    let lines: usize = hits.iter().map(|hit| hit.lines.len()).sum();
    screen.say(format_args!(
        "found     {lines} lines in {} files",
        hits.len()
    ));
    match print(&hits) {
        // Whoever reads the hits has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Prints paths as the bytes that they are, which need not be text.
fn print(hits: &[Hits<'_>]) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for Hits { path, lines } in hits {
        for line in lines {
            out.write_all(path.as_os_str().as_encoded_bytes())?;
            writeln!(out, ":{line}")?;
        }
    }
    out.flush()
}
