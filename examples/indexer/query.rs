//! [`Query`]: the lines that hold any of some words, in the files that hold all of them.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::index::Index;
use super::text;

/// Words to look for: the tokens of any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    words: BTreeSet<String>,
}

/// The matches in a file that contains all words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hits<'i> {
    /// Where the file is.
    pub(crate) path: &'i Path,
    /// The lines that hold any of the words.
    pub(crate) lines: BTreeSet<u32>,
}

/// A query without a word.
#[derive(Debug)]
pub(crate) struct NoWord;

impl Query {
    /// Searches an index. The files are in the byte order of their paths.
    pub(crate) fn run<'i>(&self, index: &'i Index) -> Vec<Hits<'i>> {
        let files = self.files(index).into_iter();
        let mut hits: Vec<_> = files
            .map(|(file, lines)| Hits {
                path: index.path(file),
                lines,
            })
            .collect();
        hits.sort_unstable_by_key(|hit| hit.path.as_os_str().as_encoded_bytes());
        hits
    }

    /// The files that hold all words, and the lines that hold any of them.
    fn files(&self, index: &Index) -> HashMap<u32, BTreeSet<u32>> {
        let words: Option<Vec<u32>> = self.words.iter().map(|word| index.find(word)).collect();
        let words = words.unwrap_or_default();
        let Some((&first, others)) = words.split_first() else {
            return HashMap::new();
        };
        let mut files = lines_by_file(index, first);
        for &word in others {
            let mut before = files;
            let both = lines_by_file(index, word).into_iter();
            let both = both.filter_map(|(file, mut lines)| {
                lines.append(&mut before.remove(&file)?);
                Some((file, lines))
            });
            files = both.collect();
        }
        files
    }
}

/// The files that a term is in, and its lines in each.
fn lines_by_file(index: &Index, term: u32) -> HashMap<u32, BTreeSet<u32>> {
    let mut files: HashMap<_, BTreeSet<_>> = HashMap::new();
    for (file, lines) in index.postings(term) {
        files.entry(file).or_default().extend(lines);
    }
    files.retain(|_, lines| !lines.is_empty());
    files
}

impl FromStr for Query {
    type Err = NoWord;

    fn from_str(text: &str) -> Result<Self, NoWord> {
        let mut words = BTreeSet::new();
        text::each_token(text, |_, word| {
            words.insert(word.to_owned());
        });
        match words.is_empty() {
            true => Err(NoWord),
            false => Ok(Self { words }),
        }
    }
}

impl fmt::Display for NoWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no word in it")
    }
}

impl Error for NoWord {}
