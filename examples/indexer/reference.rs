//! The same index in the plainest way: one thread, one file after the other, the rules as they are
//! written. It is what the fast one is compared with, and shares no code with it, except which
//! characters are word characters, and which are the same.
//!
//! It stands beside the module `indexer`, wherever that is included.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::indexer::text::{fold, is_word};

/// Maps each term to the lines and files that contain it.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    /// The files that are text.
    pub(crate) files: Vec<PathBuf>,
    /// The number of their bytes.
    pub(crate) bytes: u64,
    /// For each term, the numbers of files and lines.
    pub(crate) terms: HashMap<String, Vec<(u32, u32)>>,
    /// Files that are not text, or cannot be read.
    pub(crate) skipped: Vec<PathBuf>,
}

/// Builds the index of the tree at `dir`.
///
/// # Errors
///
/// `dir`, or a directory in it, cannot be listed.
pub(crate) fn build(dir: &Path) -> io::Result<Reference> {
    let mut reference = Reference::default();
    reference.add_dir(dir)?;
    Ok(reference)
}

impl Reference {
    /// The lines that hold any of the words, in the files that hold all of them.
    pub(crate) fn search(&self, words: &str) -> BTreeSet<(&Path, u32)> {
        let words: BTreeSet<String> = tokens(words).collect();
        let per_word = || words.iter().map(|word| self.lines(word));
        let holds_all = |file| per_word().all(|lines| lines.iter().any(|line| line.0 == file));
        per_word()
            .flatten()
            .filter(|(file, _)| holds_all(*file))
            .map(|&(file, line)| (self.files[file as usize].as_path(), line))
            .collect()
    }

    fn lines(&self, term: &str) -> &[(u32, u32)] {
        self.terms.get(term).map_or(&[], Vec::as_slice)
    }

    fn add_dir(&mut self, dir: &Path) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.add_dir(&entry.path())?;
            } else if kind.is_file() {
                self.add_file(entry.path());
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: PathBuf) {
        match fs::read(&path) {
            Ok(text) if !text.contains(&0) => self.add_text(path, &text),
            _ => self.skipped.push(path),
        }
    }

    fn add_text(&mut self, path: PathBuf, text: &[u8]) {
        let file = self.files.len() as u32;
        self.files.push(path);
        self.bytes += text.len() as u64;
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            // A line that is not UTF-8 has no tokens.
            for token in tokens(str::from_utf8(line).unwrap_or_default()) {
                let lines = self.terms.entry(token).or_default();
                if lines.last() != Some(&(file, number)) {
                    lines.push((file, number));
                }
            }
        }
    }
}

/// The tokens of a text: runs of word characters, folded.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !is_word(c))
        .filter(|token| !token.is_empty())
        .map(|token| token.chars().map(fold).collect())
}
