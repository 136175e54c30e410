//! [`Postings`]: the terms of one file, and the lines of each.

use super::terms::{self, Terms};
use super::text;

/// The terms of one file, and the lines of each.
///
/// This is the part of the work that is done in parallel: what is left to do for the index is one
/// step for each term, however often the term occurs.
#[derive(Debug)]
pub(crate) struct Postings {
    /// The terms, in the order in which they come in the text.
    pub(crate) terms: Terms,
    /// What else is known of each of them.
    pub(crate) entries: Vec<Entry>,
    /// The lines of each of them: see [`Lines`].
    pub(crate) packed: Box<[u8]>,
}

/// What is known of a term in a file.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its [hash](terms::hash).
    pub(crate) hash: u32,
    /// Where its lines start in the packed ones.
    pub(crate) at: u32,
}

impl Postings {
    /// The longest text whose postings are sure to have positions of 32 bits: one line of one term
    /// takes at least two bytes of text, and at most ten of postings.
    pub(crate) const MAX_TEXT: usize = u32::MAX as usize / 5;

    /// The postings of a text of at most [`MAX_TEXT`](Self::MAX_TEXT) bytes.
    pub(crate) fn of(text: &str) -> Self {
        let mut notes = Notes::default();
        text::each_token(text, |line, token| notes.take(line, token));
        notes.pack()
    }
}

/// What is written down while a text is scanned.
#[derive(Default)]
struct Notes {
    terms: Terms,
    tallies: Vec<Tally>,
    /// A term and a line that it is on, in the order of the text, each pair once.
    seen: Vec<(u32, u32)>,
}

struct Tally {
    hash: u32,
    last_line: u32,
    lines: u32,
}

impl Notes {
    fn take(&mut self, line: u32, token: &str) {
        let hash = terms::hash(token);
        let term = self.terms.intern(hash, token);
        if term as usize == self.tallies.len() {
            self.tallies.push(Tally {
                hash,
                last_line: 0,
                lines: 0,
            });
        }
        let tally = &mut self.tallies[term as usize];
        if tally.last_line != line {
            tally.last_line = line;
            tally.lines += 1;
            self.seen.push((term, line));
        }
    }

    fn pack(self) -> Postings {
        let by_term = self.lines_by_term();
        let mut packed = Vec::with_capacity(self.tallies.len() + by_term.len() * 2);
        let mut entries = Vec::with_capacity(self.tallies.len());
        let mut rest = &by_term[..];
        for &Tally { hash, lines, .. } in &self.tallies {
            let at = packed.len() as u32;
            entries.push(Entry { hash, at });
            let (lines, others) = rest.split_at(lines as usize);
            pack_lines(lines, &mut packed);
            rest = others;
        }
        Postings {
            terms: self.terms,
            entries,
            packed: packed.into_boxed_slice(),
        }
    }

    /// The lines of the first term, then those of the second, and so on.
    fn lines_by_term(&self) -> Vec<u32> {
        let mut next = Vec::with_capacity(self.tallies.len());
        let mut sum = 0;
        for tally in &self.tallies {
            next.push(sum);
            sum += tally.lines as usize;
        }
        let mut lines = vec![0; self.seen.len()];
        for &(term, line) in &self.seen {
            let at = &mut next[term as usize];
            lines[*at] = line;
            *at += 1;
        }
        lines
    }
}

/// Reads the lines of a term: their number, and then the step to each from the one before it.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'p> {
    packed: &'p [u8],
    left: u32,
    last: u32,
}

impl<'p> Lines<'p> {
    /// The lines at the start of `packed`.
    pub(crate) fn new(mut packed: &'p [u8]) -> Self {
        let left = take_number(&mut packed);
        let last = 0;
        Self { packed, left, last }
    }
}

impl Iterator for Lines<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        self.last += take_number(&mut self.packed);
        Some(self.last)
    }
}

fn pack_lines(lines: &[u32], into: &mut Vec<u8>) {
    push_number(into, lines.len() as u32);
    let mut last = 0;
    for &line in lines {
        push_number(into, line - last);
        last = line;
    }
}

/// Writes seven bits a byte, the lowest first; only the last byte is below 128.
pub(crate) fn push_number(into: &mut Vec<u8>, mut n: u32) {
    while n >= 0x80 {
        into.push(n as u8 | 0x80);
        n >>= 7;
    }
    into.push(n as u8);
}

/// Reads what [`push_number`] has written, and takes it away.
pub(crate) fn take_number(from: &mut &[u8]) -> u32 {
    let (mut n, mut shift) = (0, 0);
    while let Some((&byte, rest)) = from.split_first() {
        *from = rest;
        n |= u32::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    n
}
