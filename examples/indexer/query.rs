//! [`Query`]: the lines that hold any of some words, in the files that hold all of them.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::str::FromStr;

use super::index::Index;
use super::text;

/// Words to look for. It is made from any text: its tokens are the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    words: BTreeSet<String>,
}

/// A file that holds all words of a query.
#[derive(Debug, PartialEq, Eq)]
pub struct Hits<'i> {
    /// Where it is.
    pub path: &'i Path,
    /// The lines that hold any of the words, in order.
    pub lines: BTreeSet<u32>,
}

/// There is no word in a query.
#[derive(Debug)]
pub struct NoWord;

impl Query {
    /// What the query finds, in the order of the bytes of the paths.
    pub fn run<'i>(&self, index: &'i Index) -> Vec<Hits<'i>> {
        let mut hits: Vec<_> = self
            .files(index)
            .into_iter()
            .map(|(file, lines)| Hits {
                path: index.path(file),
                lines,
            })
            .collect();
        hits.sort_unstable_by_key(|hit| hit.path.as_os_str().as_encoded_bytes());
        hits
    }

    /// The files that hold all words, and the lines that hold any.
    fn files(&self, index: &Index) -> HashMap<u32, BTreeSet<u32>> {
        let mut words = self.words.iter().map(|word| index.find(word));
        let mut files = HashMap::new();
        if let Some(Some(first)) = words.next() {
            files.extend(index.postings(first).map(|(file, lines)| (file, lines.collect())));
        }
        for word in words {
            let holds_it = word.into_iter().flat_map(|word| index.postings(word));
            files = holds_it.filter_map(|(file, more)| {
                let mut lines: BTreeSet<_> = files.remove(&file)?;
                lines.extend(more);
                Some((file, lines))
            }).collect();
        }
        files
    }
}

impl FromStr for Query {
    type Err = NoWord;

    fn from_str(words: &str) -> Result<Self, NoWord> {
        let mut query = Self { words: BTreeSet::new() };
        text::each_token(words, |_, word| {
            query.words.insert(word.to_owned());
        });
        match query.words.is_empty() {
            true => Err(NoWord),
            false => Ok(query),
        }
    }
}

impl std::error::Error for NoWord {}

impl std::fmt::Display for NoWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("there is no word in it")
    }
}
