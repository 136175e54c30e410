//! The program from end to end: what it prints where, and how it ends.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::corpus::Corpus;
use super::reference;

#[test]
fn hits_go_to_standard_output_in_order() {
    let corpus = Corpus::made_up();
    let output = run(corpus.path(), &["--query", "Alpha beta"]);
    let expected = "plain.txt:1 plain.txt:2 sub-sorted/a.txt:1 sub/a.txt:1 sub/a.txt:2";
    let dir = corpus.path().display();
    let expected: String = expected
        .split(' ')
        .map(|hit| format!("{dir}/{hit}\n"))
        .collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert_eq!(output.status.code(), corpus.status(0), "{output:?}");
}

#[test]
fn the_rest_goes_to_standard_error() {
    let corpus = Corpus::made_up();
    let output = run(corpus.path(), &[]);
    assert_eq!(output.status.code(), corpus.status(0), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    let reference = reference::build(corpus.path()).expect("a reference");
    let files = reference.files.len();
    for part in [
        &*format!("indexed   {files} files"),
        "terms ",
        "skipped   3 (binary)\n",
        "skipped   3 (symbolic link)\n",
        "skipped   2 (pipe, socket or device)\n",
        "time ",
        "read ",
        "tokenised ",
        "added ",
        "memory ",
    ] {
        assert!(errors.contains(part), "{part}:\n{errors}");
    }
    // No line for each file, and nothing that only a programmer reads.
    assert_eq!(errors.matches(".bin").count(), 0, "{errors}");
    assert!(!errors.contains('{'), "{errors}");
}

#[cfg(target_os = "linux")]
#[test]
fn names_are_printed_as_the_bytes_that_they_are() {
    use std::os::unix::ffi::OsStrExt;

    let corpus = Corpus::made_up();
    let output = run(corpus.path(), &["--query", "rawname"]);
    let dir = corpus.path().as_os_str().as_bytes();
    let names: [&[u8]; 3] = [
        b"/caf\xe9.txt:1\n",
        b"/caf\xe9.txt:2\n",
        b"/dir\xff/in.txt:1\n",
    ];
    assert_eq!(
        output.stdout,
        names.map(|name| [dir, name].concat()).concat()
    );
}

#[test]
fn a_bad_directory_or_query_is_an_error() {
    let corpus = Corpus::made_up();
    let nowhere = run(&corpus.path().join("nowhere"), &[]);
    assert_eq!(nowhere.status.code(), Some(2), "{nowhere:?}");
    let no_word = run(corpus.path(), &["--query", "..."]);
    assert_eq!(no_word.status.code(), Some(2), "{no_word:?}");
}

#[cfg(not(feature = "sqlite"))]
#[test]
fn without_sqlite_there_is_no_state() {
    let corpus = Corpus::made_up();
    let output = run(corpus.path(), &["--state", "index.db"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("--features sqlite"), "{errors}");
}

/// The signal may come late, when there is nothing to stop any more: then the program is run once more.
#[test]
fn ctrl_c_finishes_what_is_in_flight_and_answers() {
    let corpus = Corpus::empty();
    for n in 0..4_000 {
        corpus.write(format!("{}/{n}", n % 40), b"alpha");
    }
    let interrupted = (0..20).map(|_| interrupt(corpus.path()));
    let mut interrupted = interrupted.filter(|(code, ..)| *code == Some(130));
    let (_, hits, errors) = interrupted.next().expect("Ctrl-C is seen in time");

    let hits = hits.lines().count();
    assert!(hits < 4_000, "{hits}");
    assert!(
        errors.contains(&format!("indexed   {hits} files")),
        "{errors}"
    );
    assert!(errors.contains("note: stopped early"), "{errors}");
}

/// Runs the program, and presses Ctrl-C once it handles that.
fn interrupt(dir: &Path) -> (Option<i32>, String, String) {
    let mut child = program()
        .arg(dir)
        .args(["--query", "alpha"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut errors = String::new();
    stderr.read_line(&mut errors).expect("text");
    assert!(errors.starts_with("indexing "), "{errors}");
    let kill = format!("kill -INT {}", child.id());
    let killed = Command::new("sh").args(["-c", &kill]).status();
    assert!(killed.expect("a shell").success());

    stderr.read_to_string(&mut errors).expect("text");
    let output = child.wait_with_output().expect("the program ends");
    let hits = String::from_utf8(output.stdout).expect("text");
    (output.status.code(), hits, errors)
}

pub(crate) fn run(dir: &Path, args: &[&str]) -> Output {
    let output = program().arg(dir).args(args).output();
    output.expect("the program runs")
}

/// The program that cargo has built beside this test.
pub(crate) fn program() -> Command {
    let test = env::current_exe().expect("the path of this test");
    let profile = test
        .ancestors()
        .nth(2)
        .expect("deps is in a profile's directory");
    let name = format!("indexer{}", env::consts::EXE_SUFFIX);
    let program: PathBuf = profile.join("examples").join(name);
    assert!(
        program.is_file(),
        "{} is not built: run `cargo test`, or `cargo build --examples`",
        program.display()
    );
    Command::new(program)
}
