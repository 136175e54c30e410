//! Directories to index: one that is made up, and the sources that cargo has unpacked on this machine.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Words that occur in the made-up files.
const VOCABULARY: usize = 50_000;

/// Directories over which they are spread.
const DIRECTORIES: u64 = 40;

/// Fills a directory with text that looks like prose: few words are frequent and most are rare, lines
/// are short, files have 2 to 38 KB, some letters are not ASCII. It is the same in every run.
///
/// # Errors
///
/// Fails with the error of the file system.
pub(super) fn generate(root: &Path, files: u64) -> io::Result<()> {
    let mut dice = Dice::new();
    let words: Vec<String> = (0..VOCABULARY).map(|_| word(&mut dice)).collect();
    for file in 0..files {
        let dir = root.join(format!("{:02}", file % DIRECTORIES));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("{file}.txt")), text(&words, &mut dice))?;
    }
    Ok(())
}

/// The word that is the most frequent one in the made-up files.
pub(super) fn most_frequent_word() -> String {
    word(&mut Dice::new())
}

/// Copies files of a tree until `bytes` are copied, and returns the number of bytes that are missing. Skips links.
///
/// # Errors
///
/// Fails with the error of the file system.
pub(super) fn copy_some(from: &Path, to: &Path, mut bytes: u64) -> io::Result<u64> {
    fs::create_dir_all(to)?;
    let mut entries = fs::read_dir(from)?.collect::<io::Result<Vec<_>>>()?;
    // The same files in every run.
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        let copy = to.join(entry.file_name());
        bytes = match bytes {
            0 => break,
            _ if kind.is_dir() => copy_some(&entry.path(), &copy, bytes)?,
            _ if kind.is_file() => bytes.saturating_sub(fs::copy(entry.path(), copy)?),
            _ => bytes,
        };
    }
    Ok(bytes)
}

/// The sources of the crates that cargo has fetched, if there are any.
pub(super) fn registry() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo")))?;
    Some(home.join("registry/src")).filter(|sources| sources.is_dir())
}

/// The regular files of a tree, and their bytes.
#[derive(Debug, Default)]
pub(super) struct Size {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// Measures a tree.
///
/// # Errors
///
/// Fails with the error of the file system.
pub(super) fn size(dir: &Path) -> io::Result<Size> {
    let mut size = Size::default();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let more = match entry.file_type()? {
            kind if kind.is_dir() => self::size(&entry.path())?,
            kind if kind.is_file() => Size {
                files: 1,
                bytes: entry.metadata()?.len(),
            },
            _ => Size::default(),
        };
        size.files += more.files;
        size.bytes += more.bytes;
    }
    Ok(size)
}

fn text(words: &[String], dice: &mut Dice) -> String {
    let length = 2_000 + dice.below(36_000);
    let mut text = String::with_capacity(length + 100);
    let mut column = 0;
    while text.len() < length {
        let word = &words[dice.frequent(words.len())];
        text.push_str(word);
        column += word.len() + 1;
        text.push(if column > 72 { '\n' } else { ' ' });
        column = if column > 72 { 0 } else { column };
    }
    text.push('\n');
    text
}

fn word(dice: &mut Dice) -> String {
    let syllables = 1 + dice.below(4);
    let mut word = String::new();
    for _ in 0..syllables {
        word.push(b"bcdfghklmnprstvwz"[dice.below(17)].into());
        word.push(b"aeiouy"[dice.below(6)].into());
    }
    match dice.below(20) {
        0 => word + "\u{e9}",
        1..4 => word[..1].to_uppercase() + &word[1..],
        _ => word,
    }
}

/// Numbers that look random and are the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    const fn new() -> Self {
        Self(0x2545_f491_4f6c_dd1d)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// A number below `limit`; a small one much more often than a large one, as with the words of a language.
    fn frequent(&mut self, limit: usize) -> usize {
        let uniform = self.next() as f64 / u64::MAX as f64;
        ((limit as f64).powf(uniform) as usize - 1).min(limit - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_is_as_large_as_it_should_be_and_the_same_every_time() {
        let [one, two, copy] = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        generate(one.path(), 50).expect("files");
        generate(two.path(), 50).expect("files");
        let read = |dir: &tempfile::TempDir, file: u64| {
            let name = format!("{:02}/{file}.txt", file % DIRECTORIES);
            fs::read(dir.path().join(name)).expect("a file")
        };
        let Size { files, bytes } = size(one.path()).expect("files");
        assert_eq!(files, 50);
        assert!((500_000..1_500_000).contains(&bytes), "{bytes}");
        assert_eq!(read(&one, 7), read(&two, 7));

        let missing = copy_some(one.path(), copy.path(), 10_000_000).expect("files");
        assert_eq!(missing, 10_000_000 - bytes);
        assert_eq!(read(&copy, 49), read(&one, 49));
    }
}
