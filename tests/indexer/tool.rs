//! The program as a tool: how it ends, what it keeps to itself, and trees that most programs fail on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use tempfile::TempDir;

use super::corpus::Corpus;
use super::indexer::escape::Escaped;
use super::program::{program, run};

// ===== How it ends =====

#[test]
fn the_exit_status_is_that_of_grep() {
    let corpus = Corpus::empty();
    corpus.write("text", b"alpha beta\n");
    corpus.write("binary", b"alpha\0");
    let status = |query| run(corpus.path(), &["--query", query]).status.code();
    assert_eq!(status("alpha"), Some(0));
    assert_eq!(status("gamma"), Some(1));
    assert_eq!(run(corpus.path(), &[]).status.code(), Some(0));

    let nowhere = corpus.path().join("nowhere");
    assert_eq!(run(&nowhere, &["--query", "alpha"]).status.code(), Some(2));
}

#[test]
fn what_cannot_be_read_is_told_and_makes_it_fail() {
    let corpus = Corpus::empty();
    corpus.write("readable", b"alpha\n");
    corpus.write("secret", b"alpha\n");
    corpus.write("locked/file", b"alpha\n");
    let stranger = Stranger::new(corpus.path());
    for secret in ["secret", "locked"] {
        set_mode(&corpus.path().join(secret), 0o000);
    }

    let output = stranger.run(corpus.path(), &["--query", "alpha"]);
    let readable = format!("{}:1\n", corpus.path().join("readable").display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), readable);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    for secret in ["secret", "locked"] {
        let path = corpus.path().join(secret);
        let told = format!("error: {}: unreadable: Permission denied", path.display());
        assert!(errors.contains(&told), "{errors}");
    }
    assert!(errors.contains("skipped   2 (unreadable)\n"), "{errors}");
    set_mode(&corpus.path().join("locked"), 0o755);
}

/// Another user than root, who may read everything.
struct Stranger {
    home: TempDir,
}

impl Stranger {
    /// One who may list the directory.
    fn new(dir: &Path) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let source = program().get_program().to_owned();
        // A process copies it: a program cannot be started while a child of another test, which has just been forked, still has
        // the file open for writing.
        let copied = Command::new("cp").arg(source).arg(home.path()).status();
        assert!(copied.expect("`cp` runs").success());
        set_mode(home.path(), 0o755);
        set_mode(dir, 0o755);
        Self { home }
    }

    fn run(&self, dir: &Path, args: &[&str]) -> Output {
        let mut command = Command::new(self.home.path().join("indexer"));
        command.arg(dir).args(args);
        if rustix::process::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        command.output().expect("the program runs")
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
}

// ===== What it says =====

#[test]
fn if_it_is_quiet_it_says_what_it_finds() {
    let corpus = Corpus::empty();
    corpus.write("text", b"alpha\n");
    corpus.write("binary", b"alpha\0");
    for quiet in ["--quiet", "-q"] {
        let output = run(corpus.path(), &["--query", "alpha", quiet]);
        let expected = format!("{}/text:1\n", corpus.path().display());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        assert!(output.stderr.is_empty(), "{output:?}");
    }
    let nowhere = run(&corpus.path().join("nowhere"), &["--quiet"]);
    let errors = String::from_utf8_lossy(&nowhere.stderr);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("error: "), "{errors}");
}

#[test]
fn it_knows_its_version() {
    let output = program().arg("--version").output().expect("it runs");
    let version = format!("indexer {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), version);
    assert!(output.status.success() && output.stderr.is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn names_are_escaped() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let escaped = |name: &[u8]| Escaped(Path::new(OsStr::from_bytes(name))).to_string();
    assert_eq!(escaped(b"plain name.txt"), "plain name.txt");
    assert_eq!(escaped("gr\u{fc}n".as_bytes()), "gr\u{fc}n");
    assert_eq!(escaped(b"\x1b[31m\n\t\x7f"), r"\u{1b}[31m\n\t\u{7f}");
    assert_eq!(escaped(b"caf\xe9"), r"caf\xe9");
    assert_eq!(escaped(br"back\slash"), r"back\\slash");
    // They turn what follows, or are read as control characters by some terminals.
    assert_eq!(
        escaped("\u{202e}txt.exe\u{9b}".as_bytes()),
        r"\u{202e}txt.exe\u{9b}"
    );
}

/// The tree that cannot be listed is named by an error.
#[test]
fn an_error_has_no_control_characters() {
    let corpus = Corpus::empty();
    let output = run(&corpus.path().join("no\x1b[31m\nwhere"), &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains(r"no\u{1b}[31m\nwhere: No such file"),
        "{errors}"
    );
    assert!(!errors.contains('\x1b'), "{errors}");
}

// ===== Deep trees =====

/// A path that no system takes as a whole, with a file at its end and one on the way.
#[test]
fn directories_may_be_deeper_than_a_path_is_long() {
    let corpus = Corpus::empty();
    let deep = deepen(corpus.path(), 60);
    let mut runs = vec![Vec::new()];
    let state = corpus.path().join("index.db");
    if cfg!(feature = "sqlite") {
        runs.push(vec!["--state", state.to_str().expect("text")]);
    }
    for mut args in runs {
        args.extend(["--query", "deepword"]);
        let output = run(corpus.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let found = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<_> = found.lines().collect();
        assert_eq!(lines.len(), 2, "{found}");
        assert_eq!(
            lines.iter().map(|line| line.len()).max(),
            Some(deep + "/file:1".len())
        );
    }
}

/// Makes `depth` nested directories, with a file in the middle and at the end. Returns the length of the last
/// file's path.
fn deepen(dir: &Path, depth: usize) -> usize {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let name = "d".repeat(200);
    let mut inner = openat(CWD, dir, flags, Mode::empty()).expect("a directory");
    for level in 1..=depth {
        mkdirat(&inner, &name, Mode::RWXU).expect("a directory");
        inner = openat(&inner, &name, flags, Mode::empty()).expect("a directory");
        if level == depth || level == depth / 2 {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            let file = openat(&inner, "file", flags, Mode::RUSR | Mode::WUSR);
            rustix::io::write(file.expect("a file"), b"deepword\n").expect("a text");
        }
    }
    dir.as_os_str().len() + depth * (name.len() + 1)
}

// ===== Large files =====

/// Text as sources have it, in lines: some words are common, and some are rare.
#[cfg(target_os = "linux")]
#[test]
fn a_file_of_100_mb_takes_less_memory_than_it_is_long() {
    let corpus = Corpus::empty();
    let lines: String = (0..200_000_u64).map(source_line).collect();
    let copies = 100_000_000 / lines.len() + 1;
    corpus.write("large", lines.repeat(copies).as_bytes());
    let mut runs = vec![vec![]];
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let state = elsewhere.path().join("index.db");
    if cfg!(feature = "sqlite") {
        // The first run makes the segment, and the second reads it.
        runs.extend([(); 2].map(|()| vec!["--state", state.to_str().expect("text")]));
    }
    for args in runs {
        let output = run(corpus.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        let mut lines = errors.lines();
        let memory = lines.find_map(|line| line.strip_prefix("memory    "));
        let memory = memory.and_then(|line| line.strip_suffix(" MB at most"));
        let memory: f64 = memory.expect("a line").parse().expect("a number");
        assert!(memory < 100.0, "{args:?}: {memory} MB");
    }
}

fn source_line(n: u64) -> String {
    let word = |step: u64| {
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(step as u32)
            % 1_000
    };
    format!(
        "    let value{} = self.word{}(rare{}, \"common text\");\n",
        word(7),
        word(23),
        n % 5_000
    )
}
