//! Directories to index: one that is made up, and the sources that cargo has unpacked on this machine.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;

use tempfile::TempDir;

/// Words that occur in the made-up files.
const VOCABULARY: usize = 50_000;

/// Directories over which they are spread.
const DIRECTORIES: u64 = 40;

/// Fills a new temporary directory with text that looks like prose: few words are frequent and most are rare, lines
/// are short, files have 2 to 38 KB, some letters are not ASCII. It is the same in every run.
///
/// # Errors
///
/// What the file system says.
pub(super) fn generate(files: u64) -> io::Result<TempDir> {
    let root = tempfile::Builder::new().prefix("throng-corpus").tempdir()?;
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let words: Vec<String> = (0..VOCABULARY).map(|_| word(&mut dice)).collect();
    for file in 0..files {
        let dir = root.path().join(format!("{:02}", file % DIRECTORIES));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("{file}.txt")), text(&words, &mut dice))?;
    }
    Ok(root)
}

/// The sources of the crates that cargo has fetched, if there are any.
pub(super) fn registry() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo")))?;
    Some(home.join("registry/src")).filter(|sources| sources.is_dir())
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
        word.push(['a', 'e', 'i', 'o', 'u', 'y', 'ä', 'é'][dice.below(8)]);
    }
    if dice.below(8) == 0 {
        word[..1].to_uppercase() + &word[1..]
    } else {
        word
    }
}

/// Numbers that look random and are the same in every run (xorshift).
struct Dice(u64);

impl Dice {
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
        let (one, two) = (generate(50).expect("files"), generate(50).expect("files"));
        let sizes = (0..50).map(|file: u64| {
            let path = one
                .path()
                .join(format!("{file:02}/{file}.txt").replacen("4", "0", 0));
            fs::metadata(path).expect("a file").len()
        });
        let bytes: u64 = sizes.sum();
        assert!((500_000..1_500_000).contains(&bytes), "{bytes}");
        let read = |dir: &TempDir| fs::read(dir.path().join("07/7.txt")).expect("a file");
        assert_eq!(read(&one), read(&two));
    }
}
