//! The program on a terminal: a pseudo-terminal, of which the test has the other end.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::corpus::Corpus;
use super::program::program;

#[test]
fn a_bar_shows_how_much_is_done_and_when_the_rest_will_be() {
    let corpus = many(4_000);
    let seen = on_terminal(corpus.path(), &["--query", "alpha"]);
    for part in ["% of 4,000, ETA ", "files/s", "["] {
        assert!(seen.contains(part), "{part}: {seen:?}");
    }
    // It goes on, up to the end.
    let percents = seen
        .split("% of")
        .filter_map(|part| part.rsplit("] ").next()?.parse().ok());
    let percents: Vec<u32> = percents.collect();
    assert!(percents.is_sorted(), "{percents:?}");
    assert_eq!(percents.last(), Some(&100), "{percents:?}");
}

#[cfg(feature = "sqlite")]
#[test]
fn with_a_state_there_is_a_bar_too() {
    let (corpus, state) = (many(1_000), tempfile::tempdir().expect("a directory"));
    let state = state.path().join("index.db");
    let state = state.to_str().expect("text");
    let seen = on_terminal(corpus.path(), &["--query", "alpha", "--state", state]);
    for part in ["% of 1,000, ETA ", "batch "] {
        assert!(seen.contains(part), "{part}: {seen:?}");
    }
}

#[test]
fn if_it_is_quiet_there_is_no_bar() {
    let corpus = many(400);
    let seen = on_terminal(corpus.path(), &["--query", "nowhere", "--quiet"]);
    assert_eq!(seen, "");
}

#[test]
fn names_reach_the_terminal_escaped() {
    let corpus = Corpus::empty();
    corpus.write("red\x1b[31m\x07name", b"alpha\n");
    let seen = on_terminal(corpus.path(), &["--query", "alpha", "--quiet"]);
    let expected = format!(
        "{}/red\\u{{1b}}[31m\\u{{7}}name:1\r\n",
        corpus.path().display()
    );
    assert_eq!(seen, expected);
}

fn many(files: usize) -> Corpus {
    let corpus = Corpus::empty();
    for n in 0..files {
        corpus.write(
            format!("{}/{n}", n % 40),
            "alpha beta\n".repeat(50).as_bytes(),
        );
    }
    corpus
}

/// Runs the program with its output and errors on a terminal, and returns all that is seen there.
fn on_terminal(dir: &Path, args: &[&str]) -> String {
    let (ours, theirs) = terminal();
    let mut command = program();
    command.arg(dir).args(args).env("TERM", "xterm");
    command.stdout(theirs.try_clone().expect("a descriptor"));
    command.stderr(Stdio::from(theirs));
    let mut child = command.spawn().expect("the program starts");
    // With the command, our copies of its end are gone: then the reader sees the end.
    drop(command);
    let reader = thread::spawn(move || read_to_end(File::from(ours)));
    assert!(child.wait().expect("it ends").code().is_some());
    reader.join().expect("no panic")
}

/// Both ends of a terminal of 120 columns.
fn terminal() -> (OwnedFd, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).expect("our own");
    unlockpt(&ours).expect("our own");
    let name = ptsname(&ours, Vec::new()).expect("a name");
    let size = Winsize {
        ws_row: 40,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size).expect("a size");
    let noctty = rustix::fs::OFlags::NOCTTY.bits() as i32;
    let theirs = File::options()
        .read(true)
        .write(true)
        .custom_flags(noctty)
        .open(name.to_str().expect("text"));
    (ours, theirs.expect("a terminal"))
}

/// The end of a terminal that nobody else has open is an error on some systems.
fn read_to_end(mut terminal: File) -> String {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = terminal.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8(seen).expect("text")
}
