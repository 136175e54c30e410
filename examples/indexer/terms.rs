//! [`Terms`]: a set of words in which each has a number.

/// Numbers words from 0, in the order in which they come.
///
/// All of them lie in one string, and the table has eight bytes a slot, so that a word costs no
/// allocation of its own. The caller brings the hash: the index takes over the one that was
/// computed where the file was read.
#[derive(Default)]
pub struct Terms {
    text: String,
    /// Where each term ends in `text`; it starts where the one before it ends.
    ends: Vec<u32>,
    /// A power of two of slots, less than two thirds of them in use; a word's hash says where to
    /// look first.
    slots: Vec<Slot>,
}

/// A slot of the table: the hash of a term, and its number plus one; 0 if it is free.
#[derive(Clone, Copy, Default)]
struct Slot {
    hash: u32,
    next: u32,
}

impl Terms {
    /// How many terms there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// How many bytes they have.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    /// The number of `term`, whose hash is `hash`, if it is there.
    pub fn find(&self, hash: u32, term: &str) -> Option<u32> {
        match self.slots.is_empty() {
            true => None,
            false => self.probe(hash, term).ok(),
        }
    }

    /// The number of `term`, whose hash is `hash`; the next free one if it is new.
    pub fn intern(&mut self, hash: u32, term: &str) -> u32 {
        if self.slots.len() * 2 <= self.len() * 3 {
            self.grow();
        }
        self.probe(hash, term)
            .unwrap_or_else(|free| self.add(free, hash, term))
    }

    /// The term with the number `n`.
    pub fn get(&self, n: u32) -> &str {
        let n = n as usize;
        let start = if n == 0 { 0 } else { self.ends[n - 1] };
        &self.text[start as usize..self.ends[n] as usize]
    }

    /// The number of the term, or the slot where it belongs.
    fn probe(&self, hash: u32, term: &str) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            let Some(n) = slot.next.checked_sub(1) else {
                return Err(at);
            };
            if slot.hash == hash && self.get(n) == term {
                return Ok(n);
            }
            at = (at + 1) & mask;
        }
    }

    fn add(&mut self, at: usize, hash: u32, term: &str) -> u32 {
        let n = self.ends.len() as u32;
        self.text.push_str(term);
        self.ends.push(self.text.len() as u32);
        self.slots[at] = Slot { hash, next: n + 1 };
        n
    }

    fn grow(&mut self) {
        let len = (self.slots.len() * 2).max(64);
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); len]);
        for slot in old.into_iter().filter(|slot| slot.next != 0) {
            let mut at = slot.hash as usize & (len - 1);
            while self.slots[at].next != 0 {
                at = (at + 1) & (len - 1);
            }
            self.slots[at] = slot;
        }
    }
}

/// The hash of a term.
pub fn hash(term: &str) -> u32 {
    let (words, rest) = term.as_bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain(std::iter::once(&last));
    let hash = words.fold(term.len() as u64, |hash, word| {
        (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    (hash >> 32) as u32
}
