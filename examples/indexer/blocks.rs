//! [`Blocks`]: a file, a chunk of text at a time.

use std::fs::File;
use std::io::Read;

use super::disk;
use super::source::Skip;

/// The size of a block that is read at once. It is that of grep: where a NUL ends a file depends on it.
const BLOCK: usize = 96 << 10;
/// The number of bytes tokenised at once. Nearly all files have one chunk.
const CHUNK: usize = 10 * BLOCK;
/// The longest file that is indexed: its postings and lines have positions of 32 bits.
pub(crate) const MAX_FILE: u64 = u32::MAX as u64 - 1;

/// A file, a chunk of text at a time, however long it is.
///
/// It judges as `grep -I` does: a NUL in the first block, or a hole behind it, makes a file binary. A
/// NUL in a later block ends the text with the last whole line of the block before it.
#[derive(Debug)]
pub(crate) struct Blocks {
    file: File,
    /// The part of an unfinished token that was read.
    rest: Vec<u8>,
    /// The number of bytes read, and the size that the system reports.
    pub(crate) len: u64,
    size: u64,
}

/// A part of a text. It ends where no token goes on.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) text: Vec<u8>,
    pub(crate) end: End,
}

/// The state after a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// More chunks, perhaps on the same line.
    More,
    /// The end of the file.
    File,
    /// A NUL: if the text does not end with a line, its last line does not count.
    Nul,
}

impl Blocks {
    /// The chunks of a file.
    ///
    /// # Errors
    ///
    /// It is too large, or the system says nothing of it.
    pub(crate) fn new(file: File) -> Result<Self, Skip> {
        let size = file.metadata()?.len();
        if size > MAX_FILE {
            return Err(Skip::TooLarge);
        }
        Ok(Self {
            file,
            rest: Vec::new(),
            len: 0,
            size,
        })
    }

    /// The next chunk. Blocks.
    ///
    /// # Errors
    ///
    /// The file is binary, cannot be read, or has grown too large.
    pub(crate) fn next_chunk(&mut self) -> Result<Chunk, Skip> {
        let mut text = std::mem::take(&mut self.rest);
        loop {
            let block = text.len();
            let end = self.read_block(&mut text)?;
            if text[block..].contains(&0) {
                return self.end_at_nul(text, block);
            }
            if end == End::File || (text.len() >= CHUNK && self.cut(&mut text)) {
                return Ok(Chunk { text, end });
            }
        }
    }

    /// Reads a block, less at the end of the file.
    fn read_block(&mut self, into: &mut Vec<u8>) -> Result<End, Skip> {
        // One byte more: there the end of the file is seen.
        let left = self.size.saturating_sub(self.len).min(BLOCK as u64 - 1);
        into.reserve(left as usize + 1);
        let read = (&self.file).take(BLOCK as u64).read_to_end(into)?;
        self.len += read as u64;
        match read {
            _ if self.len > MAX_FILE => Err(Skip::TooLarge),
            ..BLOCK => Ok(End::File),
            _ if self.len == BLOCK as u64 && disk::has_hole(&self.file, self.len, self.size) => {
                Err(Skip::Binary)
            }
            _ => Ok(End::More),
        }
    }

    /// Drops the block with a NUL, and the line that goes on there.
    fn end_at_nul(&mut self, mut text: Vec<u8>, block: usize) -> Result<Chunk, Skip> {
        if self.len <= BLOCK as u64 {
            return Err(Skip::Binary);
        }
        let lines = text[..block].iter().rposition(|&byte| byte == b'\n');
        text.truncate(lines.map_or(0, |last| last + 1));
        let end = End::Nul;
        Ok(Chunk { text, end })
    }

    /// Keeps what follows the last byte that is no part of a token for the next chunk. Returns
    /// `false` if there is no such byte.
    fn cut(&mut self, text: &mut Vec<u8>) -> bool {
        let ends_token =
            |&byte: &u8| byte.is_ascii() && !byte.is_ascii_alphanumeric() && byte != b'_';
        let Some(last) = text.iter().rposition(ends_token) else {
            return false;
        };
        self.rest = text.split_off(last + 1);
        true
    }
}
