//! The rules of text: what the lines of a file are, and what its tokens are.
//!
//! They are those of `grep -nwiIF` where characters are UTF-8: a token is a maximal run of word
//! characters, two tokens are the same if their characters [`fold`] to the same ones, and a line that
//! is not UTF-8 has no tokens.

/// Returns `true` if tokens are made of `c`: letters, marks that belong to them, decimal digits of any
/// script, and the underscore. Other numbers (superscripts, fractions) are not.
pub(crate) fn is_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric() || (!c.is_ascii() && (c.is_alphabetic() || is_digit(c)))
}

/// The character that stands for all those that differ from `c` in case only.
pub(crate) fn fold(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) if upper.is_ascii() => upper.to_ascii_lowercase(),
        (Some(upper), None) => upper,
        // Its capital is more than one character, or written with a small iota.
        _ => c.to_lowercase().next().unwrap_or(c),
    }
}

/// Calls `found` with each token of `text`, folded, and the number of its line, from 1.
pub(crate) fn each_token(text: &str, found: impl FnMut(u32, &str)) {
    scan(text, &mut 1, found);
}

/// Calls `found` with each token of `text`, folded, and the number of its line. `line` is that of the
/// start of the text, and afterwards that of its end.
///
/// Lines end with `\n` and with nothing else, so that their numbers are those of `grep -n`.
pub(crate) fn scan(text: &str, line: &mut u32, found: impl FnMut(u32, &str)) {
    let mut scanner = Scanner {
        text,
        line: *line,
        lower: String::new(),
        found,
    };
    scanner.scan();
    *line = scanner.line;
}

/// Returns `true` for a decimal digit that is not ASCII.
fn is_digit(c: char) -> bool {
    let c = u32::from(c);
    let next = ZEROS.partition_point(|&zero| zero <= c);
    next > 0 && c - ZEROS[next - 1] < 10
}

/// The zeros of all scripts but ASCII; the other nine digits follow each.
const ZEROS: [u32; 73] = [
    0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6,
    0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50,
    0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10,
    0x104a0, 0x10d30, 0x10d40, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0,
    0x11650, 0x116c0, 0x116d0, 0x116da, 0x11730, 0x118e0, 0x11950, 0x11bf0, 0x11c50, 0x11d50,
    0x11da0, 0x11f50, 0x16a60, 0x16ac0, 0x16b50, 0x1ccf0, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec,
    0x1d7f6, 0x1e140, 0x1e2f0, 0x1e4f0, 0x1e5f1, 0x1e950, 0x1fbf0,
];

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
        // A token may end before a wide character: that depends on the character.
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
        self.lower.clear();
        self.lower.extend(rest[..len].chars().map(fold));
        (self.found)(self.line, &self.lower);
        start + len
    }
}

/// The classes of bytes for the scanner. Each class of word bytes has a bit of its own.
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
