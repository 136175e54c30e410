//! The rules of text: what a text file is, and what the tokens of a text are.
//!
//! A text is valid UTF-8 without NUL. A token is a maximal run of word characters, and two tokens
//! are the same if [`str::to_lowercase`] makes them so.

use std::fmt;

/// Why bytes are not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotText {
    /// There is a NUL among them.
    Nul,
    /// They are not UTF-8.
    Encoding,
}

/// The text that `bytes` are.
pub(crate) fn decode(bytes: &[u8]) -> Result<&str, NotText> {
    if bytes.contains(&0) {
        return Err(NotText::Nul);
    }
    str::from_utf8(bytes).map_err(|_| NotText::Encoding)
}

/// Whether tokens are made of `c`.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Calls `found` with each token of `text`, in lower case, and the number of its line, from 1.
///
/// Lines end with `\n` and with nothing else, so that their numbers are those of `grep -n`.
pub(crate) fn each_token(text: &str, found: impl FnMut(u32, &str)) {
    let mut scanner = Scanner {
        text,
        line: 1,
        lower: String::new(),
        found,
    };
    scanner.scan();
}

impl fmt::Display for NotText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nul => "there is a NUL in it",
            Self::Encoding => "it is not UTF-8",
        })
    }
}

/// Finds tokens byte by byte where the text is ASCII, and by the rules where it is not.
struct Scanner<'t, F> {
    text: &'t str,
    line: u32,
    /// Where tokens with capital letters are lowered: one allocation for all of them.
    lower: String,
    found: F,
}

impl<F: FnMut(u32, &str)> Scanner<'_, F> {
    fn scan(&mut self) {
        let bytes = self.text.as_bytes();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            at = match CLASSES[usize::from(byte)] {
                OTHER => at + 1,
                NEWLINE => {
                    self.line += 1;
                    at + 1
                }
                _ => self.word(at),
            };
        }
    }

    /// Takes the token that starts at `start`, where there is a word byte or a part of a wide
    /// character, and returns where to go on.
    fn word(&mut self, start: usize) -> usize {
        let bytes = self.text.as_bytes();
        let (mut end, mut seen, mut next) = (start, 0, OTHER);
        while let Some(&byte) = bytes.get(end) {
            next = CLASSES[usize::from(byte)];
            if next & (SMALL | CAPITAL) == 0 {
                break;
            }
            seen |= next;
            end += 1;
        }
        // Whether the token ends before a wide character depends on the character.
        if next == WIDE {
            return self.wide_word(start);
        }
        self.ascii_word(start, end, seen & CAPITAL != 0);
        end
    }

    fn ascii_word(&mut self, start: usize, end: usize, capitals: bool) {
        let word = &self.text[start..end];
        if !capitals {
            return (self.found)(self.line, word);
        }
        self.lower.clear();
        self.lower.push_str(word);
        self.lower.make_ascii_lowercase();
        (self.found)(self.line, &self.lower);
    }

    /// The rules, as they are written: for tokens with a character that is not ASCII.
    fn wide_word(&mut self, start: usize) -> usize {
        let rest = &self.text[start..];
        let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if len == 0 {
            return start + rest.chars().next().map_or(1, char::len_utf8);
        }
        (self.found)(self.line, &rest[..len].to_lowercase());
        start + len
    }
}

/// What a byte is for the scanner. Each class of word bytes has a bit of its own.
const OTHER: u8 = 0;
const SMALL: u8 = 1;
const CAPITAL: u8 = 2;
const NEWLINE: u8 = 4;
const WIDE: u8 = 8;

static CLASSES: [u8; 256] = {
    let mut classes = [OTHER; 256];
    let mut byte = 0;
    while byte < classes.len() {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'0'..=b'9' | b'_' => SMALL,
            b'A'..=b'Z' => CAPITAL,
            b'\n' => NEWLINE,
            0x80.. => WIDE,
            _ => OTHER,
        };
        byte += 1;
    }
    classes
};
