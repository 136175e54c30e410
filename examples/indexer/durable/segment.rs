//! [`Segment`]: what is known of the files of a batch, as bytes.
//!
//! ```text
//! MAGIC  id of the batch  number of files  file..  SHA-256 of all that
//!
//! file:  path  INDEXED  length  number of terms  term..
//!        number of entries  (number of the term  step to where its lines start)..  lines
//!        number of lines that do not count  step to each..
//!    or  path  why it is skipped  more about that
//! ```
//!
//! Numbers are of seven bits a byte; before a path, a term and the like there is its length.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use throng::durable::TaskId;

use super::name::Name;
use crate::indexer::postings::{Entry, Postings, push_number, take_number};
use crate::indexer::reading::{Parsed, Reading};
use crate::indexer::source::Skip;
use crate::indexer::terms;

/// The first bytes of a segment: the version of its format and of the text rules.
const MAGIC: &[u8] = b"throng segment 2\n";
const ID_LEN: usize = 16;
const CHECKSUM_LEN: usize = 32;

/// The outcome of a file.
const INDEXED: u8 = 0;
const UNREADABLE: u8 = 1;
const BINARY: u8 = 2;
const TOO_LARGE: u8 = 3;

/// The contents of a batch's files.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The outcome of each file, in the order of the batch.
    pub(crate) files: Vec<(PathBuf, Reading)>,
}

impl Segment {
    /// The files that could not be read.
    pub(crate) fn unreadable(&self) -> impl Iterator<Item = &Path> {
        let files = self.files.iter();
        let unreadable = files.filter(|(_, reading)| matches!(reading, Err(Skip::Unreadable(_))));
        unreadable.map(|(path, _)| path.as_path())
    }
}

/// Bytes are not the segment that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// They are of another version of the program, or no segment at all.
    Version,
    /// They are not those that were written.
    Checksum,
    /// They are the segment of another batch.
    Batch,
    /// They make no sense.
    Content,
}

/// Writes a segment.
///
/// # Errors
///
/// Fails if the outcome of a file may be different the next time: such an outcome is not stored.
pub(crate) fn encode(id: TaskId, files: Vec<(Name, Reading)>) -> Result<Vec<u8>, Skip> {
    let mut bytes = [MAGIC, &id.to_bytes()].concat();
    push_number(&mut bytes, files.len() as u32);
    for (path, reading) in files {
        push_bytes(&mut bytes, path.bytes());
        match reading {
            Ok(parsed) => push_parsed(&mut bytes, &parsed),
            Err(skip) => push_skip(&mut bytes, skip)?,
        }
    }
    let checksum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&checksum);
    Ok(bytes)
}

/// Reads a segment.
///
/// # Errors
///
/// It is not, or not any longer, what was written for this batch.
pub(crate) fn decode(id: TaskId, bytes: &[u8]) -> Result<Segment, Damage> {
    let Some(body) = bytes.strip_prefix(MAGIC) else {
        return Err(Damage::Version);
    };
    let len = body.len().checked_sub(CHECKSUM_LEN);
    let (body, _) = body.split_at(len.ok_or(Damage::Checksum)?);
    let (all, checksum) = bytes.split_at(MAGIC.len() + body.len());
    if Sha256::digest(all).as_slice() != checksum {
        return Err(Damage::Checksum);
    }
    match body.split_at_checked(ID_LEN) {
        Some((found, files)) if found == id.to_bytes() => take_files(files).ok_or(Damage::Content),
        _ => Err(Damage::Batch),
    }
}

fn push_parsed(bytes: &mut Vec<u8>, parsed: &Parsed) {
    let postings = &parsed.postings;
    bytes.push(INDEXED);
    // No file is indexed that is longer than 32 bits can say.
    push_number(bytes, parsed.bytes as u32);
    push_number(bytes, postings.terms.len() as u32);
    for term in 0..postings.terms.len() as u32 {
        push_bytes(bytes, postings.terms.get(term).as_bytes());
    }
    push_number(bytes, postings.entries.len() as u32);
    let mut last = 0;
    for &Entry { term, at } in &postings.entries {
        push_number(bytes, term);
        push_number(bytes, at - last);
        last = at;
    }
    push_bytes(bytes, &postings.packed);
    push_steps(bytes, &postings.void);
}

fn push_steps(bytes: &mut Vec<u8>, numbers: &[u32]) {
    push_number(bytes, numbers.len() as u32);
    let mut last = 0;
    for &number in numbers {
        push_number(bytes, number - last);
        last = number;
    }
}

fn push_skip(bytes: &mut Vec<u8>, skip: Skip) -> Result<(), Skip> {
    let (kind, more) = match &skip {
        Skip::Unreadable(error) if !skip.is_transient() => (UNREADABLE, error.to_string()),
        Skip::Binary => (BINARY, String::new()),
        Skip::TooLarge => (TOO_LARGE, String::new()),
        _ => return Err(skip),
    };
    bytes.push(kind);
    push_bytes(bytes, more.as_bytes());
    Ok(())
}

fn push_bytes(bytes: &mut Vec<u8>, more: &[u8]) {
    push_number(bytes, more.len() as u32);
    bytes.extend_from_slice(more);
}

fn take_files(mut bytes: &[u8]) -> Option<Segment> {
    let count = take_number(&mut bytes);
    let files = (0..count).map(|_| take_file(&mut bytes));
    let files = files.collect::<Option<Vec<_>>>()?;
    bytes.is_empty().then_some(Segment { files })
}

fn take_file(from: &mut &[u8]) -> Option<(PathBuf, Reading)> {
    let path = Name::from(take_bytes(from)?).path();
    let (&kind, rest) = from.split_first()?;
    *from = rest;
    let reading = match kind {
        INDEXED => Ok(take_parsed(from)?),
        _ => Err(take_skip(kind, take_text(from)?)?),
    };
    Some((path, reading))
}

fn take_parsed(from: &mut &[u8]) -> Option<Parsed> {
    let bytes = take_number(from).into();
    let mut postings = Postings::default();
    for n in 0..take_number(from) {
        let term = take_text(from)?;
        let hash = terms::hash(term);
        postings.hashes.push(hash);
        if postings.terms.intern(hash, term) != n {
            return None;
        }
    }
    let mut at = 0;
    for _ in 0..take_number(from) {
        let term = take_number(from);
        at += take_number(from);
        postings.entries.push(Entry { term, at });
    }
    postings.packed = take_bytes(from)?.into();
    postings.void = take_steps(from);
    Some(Parsed { postings, bytes })
}

fn take_steps(from: &mut &[u8]) -> Vec<u32> {
    let count = take_number(from);
    let steps = (0..count).map(|_| take_number(from));
    let sums = steps.scan(0, |sum, step| {
        *sum += step;
        Some(*sum)
    });
    sums.collect()
}

fn take_skip(kind: u8, more: &str) -> Option<Skip> {
    Some(match kind {
        UNREADABLE => Skip::Unreadable(io::Error::other(more)),
        BINARY => Skip::Binary,
        TOO_LARGE => Skip::TooLarge,
        _ => return None,
    })
}

fn take_text<'b>(from: &mut &'b [u8]) -> Option<&'b str> {
    str::from_utf8(take_bytes(from)?).ok()
}

fn take_bytes<'b>(from: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = take_number(from);
    let (bytes, rest) = from.split_at_checked(len as usize)?;
    *from = rest;
    Some(bytes)
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "it is of another version of this program",
            Self::Checksum => "its checksum is wrong",
            Self::Batch => "it is that of another batch",
            Self::Content => "it makes no sense",
        })
    }
}
