//! [`Terms`]: a set of words in which each has a number.

use std::ops::Range;

/// Numbers words from 0, in the order in which they come.
///
/// All of them lie in one string, and the table has eight bytes a slot, so that no word costs an
/// allocation of its own. The caller brings the hash of a word: the index, which is the part that
/// cannot be built in parallel, takes over the one that was computed where the file was tokenised.
///
/// The limits are 32 bits for the bytes of all words, and one word less than that for their number.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    text: String,
    /// Where each term ends in `text`; it starts where the one before it ends.
    ends: Vec<u32>,
    /// A power of two of slots, at most two thirds of them in use. The hash of a term says where the
    /// search for it begins.
    slots: Vec<Slot>,
}

/// The hash of a term, and its number plus one; 0 if the slot is free.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    hash: u32,
    successor: u32,
}

impl Terms {
    /// Returns the number of terms.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the total number of their bytes.
    pub(crate) fn text_len(&self) -> usize {
        self.text.len()
    }

    /// The term with the number `n`.
    pub(crate) fn get(&self, n: u32) -> &str {
        &self.text[self.range(n)]
    }

    /// The number of `term`, if it is there.
    pub(crate) fn find(&self, term: &str) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        self.probe(hash(term), term).ok()
    }

    /// The number of `term`, whose [`hash`] is `hash`: the next one if it is new.
    pub(crate) fn intern(&mut self, hash: u32, term: &str) -> u32 {
        if self.len() * 3 >= self.slots.len() * 2 {
            self.grow();
        }
        self.probe(hash, term)
            .unwrap_or_else(|free| self.add(free, hash, term))
    }

    /// The number of `term`, or the free slot where it belongs. There is a free slot.
    fn probe(&self, hash: u32, term: &str) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            let Some(n) = slot.successor.checked_sub(1) else {
                return Err(at);
            };
            if slot.hash == hash && &self.text.as_bytes()[self.range(n)] == term.as_bytes() {
                return Ok(n);
            }
            at = (at + 1) & mask;
        }
    }

    fn add(&mut self, free: usize, hash: u32, term: &str) -> u32 {
        let n = self.ends.len() as u32;
        self.text.push_str(term);
        self.ends.push(self.text.len() as u32);
        let successor = n + 1;
        self.slots[free] = Slot { hash, successor };
        n
    }

    fn grow(&mut self) {
        let len = (self.slots.len() * 2).max(64);
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); len]);
        for slot in old.into_iter().filter(|slot| slot.successor != 0) {
            let mut at = slot.hash as usize & (len - 1);
            while self.slots[at].successor != 0 {
                at = (at + 1) & (len - 1);
            }
            self.slots[at] = slot;
        }
    }

    fn range(&self, n: u32) -> Range<usize> {
        let n = n as usize;
        let start = n.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[n] as usize
    }
}

/// The hash of a term. It is computed for every token of every file, and a good general hash would
/// take as long as all the rest that is done for a token.
pub(crate) fn hash(term: &str) -> u32 {
    let (words, rest) = term.as_bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain(std::iter::once(&last));
    let hash = words.fold(term.len() as u64, |hash, word| {
        (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    (hash >> 32) as u32
}
