//! [`Postings`]: the terms of one file, and the lines of each; and [`Builder`], which makes them of
//! chunks of text.

use super::blocks::{Chunk, End};
use super::source::Skip;
use super::terms::{self, Terms};
use super::text;

/// The terms of one file, and the lines of each.
///
/// This is the part of the work that is done in parallel: what is left to do for the index is one
/// step for each entry, however often the term occurs.
#[derive(Debug, Default)]
pub(crate) struct Postings {
    /// The terms, in the order in which they come in the text.
    pub(crate) terms: Terms,
    /// The [hash](terms::hash) of each of them.
    pub(crate) hashes: Vec<u32>,
    /// Where the lines of a term are: an entry for each chunk that has the term.
    pub(crate) entries: Vec<Entry>,
    /// The lines of each entry: see [`Lines`].
    pub(crate) packed: Vec<u8>,
    /// Lines that do not count, in order, although entries may have them: what is wrong with them was
    /// seen in a later chunk than their start.
    pub(crate) void: Vec<u32>,
}

/// The lines of a term in one chunk of a file.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The number of the term in the file.
    pub(crate) term: u32,
    /// Where its lines start in the packed ones.
    pub(crate) at: u32,
}

/// Makes the [`Postings`] of a file. Between two chunks, it holds little more than those.
#[derive(Debug)]
pub(crate) struct Builder {
    postings: Postings,
    /// For each term, what is known of it in this chunk.
    tallies: Vec<Tally>,
    /// The terms of this chunk, in the order in which they come.
    present: Vec<u32>,
    /// A term and a line that it is on, in the order of the chunk, each pair once.
    seen: Vec<(u32, u32)>,
    /// The line that the next chunk starts on, and what is known of that.
    line: u32,
    start: Start,
}

/// Where a chunk starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// At the start of a line.
    Line,
    /// Inside a line.
    Inside,
    /// Inside a line that has been found not to be UTF-8.
    Broken,
}

#[derive(Debug)]
struct Tally {
    last_line: u32,
    /// The number of lines of the chunk that have it; then, the position of those lines.
    lines: u32,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            postings: Postings::default(),
            tallies: Vec::new(),
            present: Vec::new(),
            seen: Vec::new(),
            line: 1,
            start: Start::Line,
        }
    }
}

impl Builder {
    /// Adds the next chunk of the file.
    ///
    /// # Errors
    ///
    /// The postings are longer than 32 bits can say.
    pub(crate) fn add(&mut self, chunk: &Chunk) -> Result<(), Skip> {
        self.scan(&chunk.text);
        if chunk.end == End::Nul && self.start == Start::Inside {
            self.postings.void.push(self.line);
        }
        self.pack();
        // A chunk has at most half as many tokens as bytes, and each of them takes ten bytes at most.
        match self.postings.packed.len() <= u32::MAX as usize / 2 {
            true => Ok(()),
            false => Err(Skip::TooLarge),
        }
    }

    /// The postings of the chunks.
    pub(crate) fn finish(mut self) -> Postings {
        self.postings.entries.shrink_to_fit();
        self.postings.packed.shrink_to_fit();
        self.postings
    }

    /// Takes the tokens of a chunk, except those of lines that are not UTF-8.
    fn scan(&mut self, mut rest: &[u8]) {
        if self.start == Start::Broken {
            rest = self.skip_line(rest);
        }
        while let Err(error) = str::from_utf8(rest) {
            let valid = &rest[..error.valid_up_to()];
            let lines = valid.iter().rposition(|&byte| byte == b'\n');
            let (whole, broken) = rest.split_at(lines.map_or(0, |last| last + 1));
            self.scan_text(whole);
            if self.start == Start::Inside {
                self.postings.void.push(self.line);
            }
            rest = self.skip_line(broken);
        }
        self.scan_text(rest);
    }

    /// Takes the tokens of a text.
    fn scan_text(&mut self, text: &[u8]) {
        let Some(last) = text.last() else { return };
        self.start = match last {
            b'\n' => Start::Line,
            _ => Start::Inside,
        };
        let mut line = self.line;
        let text = str::from_utf8(text).expect("it was found to be UTF-8");
        text::scan(text, &mut line, |line, token| self.take(line, token));
        self.line = line;
    }

    /// Skips what is left of a line, and returns what follows it.
    fn skip_line<'t>(&mut self, text: &'t [u8]) -> &'t [u8] {
        match text.iter().position(|&byte| byte == b'\n') {
            Some(end) => {
                self.line += 1;
                self.start = Start::Line;
                &text[end + 1..]
            }
            None => {
                self.start = Start::Broken;
                &[]
            }
        }
    }

    fn take(&mut self, line: u32, token: &str) {
        let hash = terms::hash(token);
        let term = self.postings.terms.intern(hash, token);
        if term as usize == self.tallies.len() {
            self.postings.hashes.push(hash);
            let (last_line, lines) = (0, 0);
            self.tallies.push(Tally { last_line, lines });
        }
        let tally = &mut self.tallies[term as usize];
        if tally.last_line != line {
            if tally.lines == 0 {
                self.present.push(term);
            }
            tally.last_line = line;
            tally.lines += 1;
            self.seen.push((term, line));
        }
    }

    /// Packs the lines of a chunk, term by term.
    fn pack(&mut self) {
        let lines = self.lines_by_term();
        let Postings {
            entries, packed, ..
        } = &mut self.postings;
        let mut start = 0;
        for term in self.present.drain(..) {
            let at = packed.len() as u32;
            entries.push(Entry { term, at });
            let end = std::mem::take(&mut self.tallies[term as usize].lines) as usize;
            pack_lines(&lines[start..end], packed);
            start = end;
        }
        self.seen.clear();
    }

    /// The lines of the first term, then those of the second, and so on. The tally of each says where
    /// its lines end.
    fn lines_by_term(&mut self) -> Vec<u32> {
        let mut sum = 0;
        for &term in &self.present {
            let tally = &mut self.tallies[term as usize];
            let start = sum;
            sum += tally.lines;
            tally.lines = start;
        }
        let mut lines = vec![0; self.seen.len()];
        for &(term, line) in &self.seen {
            let next = &mut self.tallies[term as usize].lines;
            lines[*next as usize] = line;
            *next += 1;
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
