//! [`Index`]: the postings of all files.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::postings::{Lines, Postings};
use super::terms::Terms;

/// Maps each term to the lines and files that contain it.
///
/// The packed lines of a file stay as they came. What is added for a term of a file is one link of
/// a chain, in one vector for all chains: no term has an allocation of its own.
#[derive(Debug, Default)]
pub(crate) struct Index {
    terms: Terms,
    /// For each term, the newest link of its chain.
    heads: Vec<u32>,
    links: Vec<Link>,
    files: Vec<File>,
}

/// A chunk of a file that a term is in.
#[derive(Debug)]
struct Link {
    file: u32,
    /// Where the lines of the term are among those of the file.
    at: u32,
    /// The link that came before, of this file or another, or [`END`].
    older: u32,
}

const END: u32 = u32::MAX;

#[derive(Debug)]
struct File {
    path: Arc<Path>,
    packed: Vec<u8>,
    /// Lines that do not count.
    void: Vec<u32>,
}

/// There is no room for a file: the index counts in 32 bits.
#[derive(Debug)]
pub(crate) struct Full;

impl Index {
    /// Adds all of a file, or, if it is refused, nothing of it.
    pub(crate) fn add(&mut self, path: Arc<Path>, file: Postings) -> Result<(), Full> {
        // All that can fail comes before the first change.
        self.check_room(&file)?;
        let number = self.files.len() as u32;
        let terms = (0..).zip(&file.hashes);
        let terms = terms.map(|(n, &hash)| self.intern(hash, file.terms.get(n)));
        let terms: Vec<u32> = terms.collect();
        for entry in &file.entries {
            self.link(terms[entry.term as usize], number, entry.at);
        }
        let Postings { packed, void, .. } = file;
        self.files.push(File { path, packed, void });
        Ok(())
    }

    /// Returns the number of terms.
    pub(crate) fn len(&self) -> usize {
        self.terms.len()
    }

    /// The number of `term`, which is in lower case.
    pub(crate) fn find(&self, term: &str) -> Option<u32> {
        self.terms.find(term)
    }

    /// The files that a term is in, and its lines there. A file comes as often as it has chunks with
    /// the term, and may come without any line.
    pub(crate) fn postings(
        &self,
        term: u32,
    ) -> impl Iterator<Item = (u32, impl Iterator<Item = u32>)> {
        let mut next = self.heads[term as usize];
        std::iter::from_fn(move || {
            let link = self.links.get(next as usize)?;
            next = link.older;
            let File { packed, void, .. } = &self.files[link.file as usize];
            let lines = Lines::new(&packed[link.at as usize..]);
            let lines = lines.filter(|line| void.binary_search(line).is_err());
            Some((link.file, lines))
        })
    }

    /// Where the file with a number is.
    pub(crate) fn path(&self, file: u32) -> &Path {
        &self.files[file as usize].path
    }

    fn check_room(&self, file: &Postings) -> Result<(), Full> {
        let counts = [
            self.files.len() + 1,
            self.links.len() + file.entries.len(),
            self.terms.len() + file.terms.len(),
            self.terms.text_len() + file.terms.text_len(),
        ];
        match counts.iter().all(|&count| count < END as usize) {
            true => Ok(()),
            false => Err(Full),
        }
    }

    fn intern(&mut self, hash: u32, term: &str) -> u32 {
        let term = self.terms.intern(hash, term);
        if term as usize == self.heads.len() {
            self.heads.push(END);
        }
        term
    }

    fn link(&mut self, term: u32, file: u32, at: u32) {
        let newest = self.links.len() as u32;
        let older = std::mem::replace(&mut self.heads[term as usize], newest);
        self.links.push(Link { file, at, older });
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the index is full")
    }
}
