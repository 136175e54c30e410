//! Names that users choose, as PostgreSQL stores them: a text there cannot contain a zero byte.
//!
//! `U+0000` is stored as `U+0001 U+0001`, and `U+0001` as `U+0001 U+0002`. This keeps the order of names.

use std::borrow::Cow;

const ZERO: char = '\u{0}';
const ESCAPE: char = '\u{1}';
const ESCAPED_ZERO: char = '\u{1}';
const ESCAPED_ESCAPE: char = '\u{2}';

/// Returns a text as it is stored.
pub(super) fn stored(text: &str) -> Cow<'_, str> {
    if !text.contains([ZERO, ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut stored = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        match char {
            ZERO => stored.extend([ESCAPE, ESCAPED_ZERO]),
            ESCAPE => stored.extend([ESCAPE, ESCAPED_ESCAPE]),
            other => stored.push(other),
        }
    }
    Cow::Owned(stored)
}

/// Returns a text that was read.
pub(super) fn loaded(stored: String) -> String {
    if !stored.contains(ESCAPE) {
        return stored;
    }
    let mut text = String::with_capacity(stored.len());
    let mut chars = stored.chars();
    while let Some(char) = chars.next() {
        match char {
            ESCAPE if chars.next() == Some(ESCAPED_ZERO) => text.push(ZERO),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_were_written_and_keep_their_order() {
        let texts = [
            "",
            "\0",
            "\0a",
            "\u{1}",
            "\u{1}\u{1}",
            "\u{2}",
            "a",
            "a\0",
            "a\u{1}b",
            "b",
        ];
        for text in texts {
            assert!(!stored(text).contains('\0'));
            assert_eq!(loaded(stored(text).into_owned()), text);
        }
        assert!(texts.is_sorted_by_key(|text| stored(text)));
    }
}
