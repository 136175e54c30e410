//! Files to index: a copy of this repository's, and made-up ones with what those do not have.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A directory of files, and what is to be skipped there.
pub(crate) struct Corpus {
    dir: TempDir,
    /// Files that are binary, or that nobody can read.
    pub(crate) skipped: Vec<PathBuf>,
    /// Entries that are neither regular files nor links.
    pub(crate) special: Vec<PathBuf>,
    /// `true` if there is a file that nobody can read.
    has_secret: bool,
}

impl Corpus {
    /// The repository's files, and the made-up ones.
    pub(crate) fn new() -> Self {
        let mut corpus = Self::made_up();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for file in repository_files(root) {
            let content = fs::read(root.join(&file)).expect("a file of the repository");
            corpus.write(&file, &content);
            if content.contains(&0) {
                corpus.skipped.push(corpus.path().join(&file));
            }
        }
        corpus
    }

    /// The made-up files.
    pub(crate) fn made_up() -> Self {
        let mut corpus = Self::empty();
        for (path, text) in TEXTS {
            corpus.write(path, text.as_bytes());
        }
        for (path, bytes) in BROKEN {
            corpus.write(path, bytes);
        }
        for (path, bytes) in BINARY {
            corpus.write(path, bytes);
            corpus.skipped.push(corpus.path().join(path));
        }
        corpus.write("long.txt", long_text().as_bytes());
        corpus.add_what_unix_has();
        corpus
    }

    /// Nothing.
    pub(crate) fn empty() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            skipped: Vec::new(),
            special: Vec::new(),
            has_secret: false,
        }
    }

    /// The exit status of a run that should end with `status`, unless something cannot be read.
    pub(crate) fn status(&self, status: i32) -> Option<i32> {
        Some(if self.has_secret { 2 } else { status })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file, and the directories it is in.
    pub(crate) fn write(&self, path: impl AsRef<Path>, content: &[u8]) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("a directory");
        fs::write(path, content).expect("a file");
    }

    fn add_what_unix_has(&mut self) {
        symlink("plain.txt", self.path().join("link.txt")).expect("a link to a file");
        symlink("..", self.path().join("sub/up")).expect("a link to a directory");
        symlink("nowhere", self.path().join("dangling")).expect("a link to nothing");

        self.write("secret.txt", b"nobody may read this secretword\n");
        let secret = self.path().join("secret.txt");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("permissions");
        // For root there is no such thing.
        if fs::read(&secret).is_err() {
            self.skipped.push(secret);
            self.has_secret = true;
        }

        // Opening them may block forever, or fail.
        let [pipe, socket] = ["pipe", "sub/socket"].map(|name| self.path().join(name));
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("a program that makes pipes").success());
        UnixListener::bind(&socket).expect("a socket");
        self.special = vec![pipe, socket];

        #[cfg(target_os = "linux")]
        self.add_what_linux_has();
    }

    /// Names that are not UTF-8; not every system has them.
    #[cfg(target_os = "linux")]
    fn add_what_linux_has(&mut self) {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        self.write(OsStr::from_bytes(b"caf\xe9.txt"), b"rawname one\nrawname\n");
        self.write(OsStr::from_bytes(b"dir\xff/in.txt"), b"rawname\n");
    }
}

/// Texts, with all that the rules of tokens and lines speak of.
const TEXTS: &[(&str, &str)] = &[
    ("empty", ""),
    ("newlines", "\n\n\n"),
    (
        "plain.txt",
        "Alpha beta_2 gamma\nbeta ALPHA alpha\n\nAlphabet\n",
    ),
    ("no-end.txt", "first line\nlastword without newline"),
    (
        "crlf.txt",
        "one carriage\r\ntwo carriage\r\n\r\nlastcarriage\r",
    ),
    (
        "return.txt",
        "left\rright\nafterreturn\x0bvertical\x0cfeed\n",
    ),
    (".hidden", "hidden alpha\n"),
    (".config/.deep/file", "hidden deeper\n"),
    ("sub/dir with space/file name.txt", "alpha: spaced\n"),
    ("sub/new\nline.txt", "alpha newlinename\n"),
    ("sub-sorted/a.txt", "alpha beta\n"),
    ("sub/a.txt", "alpha\nbeta\n"),
    // Letters with and without a capital of their own.
    ("stra\u{df}e.txt", "Stra\u{df}e STRASSE gr\u{fc}n\n"),
    (
        "\u{fc}/gr\u{fc}n.txt",
        "gr\u{fc}n GR\u{dc}N \u{fc}ber\n\u{dc}BER\n",
    ),
    (
        "\u{fc}/caf\u{e9}.txt",
        "caf\u{e9} na\u{ef}ve CAF\u{c9}s\n\n\u{c5}ngstr\u{f6}m _\u{e9}_\n",
    ),
    (
        "\u{3bb}/\u{3b2}.txt",
        "\u{39b}\u{3cc}\u{3b3}\u{3bf} \u{3bb}\u{3cc}\u{3b3}\u{3bf}\n",
    ),
    // Greek, with a sigma that is another letter at the end of a word; Cyrillic; Chinese; Japanese.
    (
        "\u{3bb}/\u{3b1}.txt",
        "\u{39f}\u{394}\u{39f}\u{3a3} \u{3bf}\u{3b4}\u{3cc}\u{3c2}\n\u{3a3}\n",
    ),
    (
        "ru.txt",
        "\u{43c}\u{438}\u{440} \u{41c}\u{418}\u{420}\n\u{43c}\u{438}\u{440}_1\n",
    ),
    (
        "zh.txt",
        "\u{4f60}\u{597d}\u{ff0c}\u{4e16}\u{754c}\n\u{4f60}\u{597d}\n",
    ),
    (
        "ja.txt",
        "\u{3053}\u{3093}\u{306b}\u{3061}\u{306f} \u{30ab}\u{30bf}\n",
    ),
    // A dotted capital I, a dotless small one, a long s, the sign of the kelvin, ligatures.
    (
        "fold.txt",
        "\u{130}stanbul \u{131}\u{131}\n\u{17f}ong 3\u{212a} \u{fb01}n \u{1c4}\u{1c5}\u{1c6}\n",
    ),
    // Numbers that are not digits, a combining accent, joiners, a mark of byte order, wide spaces.
    (
        "marks.txt",
        "\u{feff}x\u{b2} \u{bd}y \u{2167}\ncafe\u{301} a\u{200d}b\u{a0}c\u{3000}d\u{2028}e\n",
    ),
    ("emoji.txt", "ok \u{1f600}smile\u{1f600} \u{1d54f}math\n"),
    (
        "mixed.txt",
        "abc\u{e9}def ABC\u{c9}DEF abc\u{2014}def _\u{e9}_ __init__ 42 4\u{2}2\n",
    ),
];

/// The entries that must be skipped.
const BINARY: &[(&str, &[u8])] = &[
    ("nul.bin", b"alpha\0beta\n"),
    ("nul-last.bin", b"alpha beta\n\0"),
    ("sub/.hidden.bin", b"\xff\xfe\xfd\0"),
];

/// Texts with lines that are not UTF-8, of which grep prints nothing.
const BROKEN: &[(&str, &[u8])] = &[
    (
        "latin1.txt",
        b"caf\xe9 brokenword\nsoundword one\nsoundword \xe9\n\n\xe9\nsoundword two",
    ),
    ("cut-short.txt", b"soundword\nbrokenword \xe2\x82"),
    ("surrogate.txt", b"brokenword \xed\xa0\x80\nsoundword"),
    ("overlong.txt", b"soundword\nbrokenword \xc0\xaf\n"),
    ("sub/.broken", b"\xff\xfe\xfd"),
];

/// A line number that takes more than one byte, and terms that are far apart and close together.
fn long_text() -> String {
    let line = |n: u32| match n {
        n if n % 1_000 == 0 => format!("milestone number{n}\n"),
        n if n % 7 == 0 => format!("seventh seventh word{}\n", n % 100),
        _ => "often\n".to_owned(),
    };
    (1..=40_000).map(line).collect()
}

/// The files that git knows; without git, all but what is built.
fn repository_files(root: &Path) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output();
    let listed = listed.map(|output| output.stdout).unwrap_or_default();
    let listed = String::from_utf8(listed).expect("this repository has plain names");
    let mut files: Vec<PathBuf> = listed.split_terminator('\0').map(PathBuf::from).collect();
    if files.is_empty() {
        walk(root, Path::new(""), &mut files);
    }
    files.retain(|file| root.join(file).is_file());
    assert!(files.contains(&PathBuf::from("src/lib.rs")), "{files:?}");
    files
}

fn walk(root: &Path, dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root.join(dir)).expect("a directory") {
        let entry = entry.expect("an entry");
        let path = dir.join(entry.file_name());
        if !entry.file_type().expect("a type").is_dir() {
            files.push(path);
        } else if path != Path::new("target") && path != Path::new(".git") {
            walk(root, &path, files);
        }
    }
}
