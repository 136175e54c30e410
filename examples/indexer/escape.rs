//! [`Escaped`]: a path as a terminal may get it.

use std::fmt;
use std::path::Path;

/// A path that is safe on a terminal: characters that would move its cursor, change its colours or the
/// direction of its text are escaped as in a string of Rust, and so are bytes that are not UTF-8.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Escaped<'p>(pub(crate) &'p Path);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.as_os_str().as_encoded_bytes().utf8_chunks() {
            let valid = chunk.valid().replace('\\', "\\\\");
            f.write_str(&escape_controls(&valid))?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// A text without control characters: those are escaped, and so are characters that change how others
/// are shown.
pub(crate) fn escape_controls(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || is_format(c) {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
    }
    escaped
}

/// Returns `true` for characters that break lines or turn the direction of text.
fn is_format(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
