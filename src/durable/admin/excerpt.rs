//! [`Excerpt`]: the beginning of a value.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// The beginning of a payload, an output or a progress report: at most 64 KiB.
///
/// It is serialised as an object with the length, `len`, and with the bytes: as `text` if they are UTF-8, otherwise as hexadecimal digits
/// in `hex`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Excerpt {
    /// The first bytes, or all of them. If a text is cut, this ends with a whole character.
    pub bytes: Vec<u8>,
    /// The length of the whole value, in bytes.
    pub len: usize,
}

/// The maximum number of bytes of an excerpt.
pub(crate) const MAX_EXCERPT_BYTES: usize = 64 << 10;

impl Excerpt {
    for_stores! {
        /// Returns an excerpt of a value of `len` bytes, given at least as many of its first bytes as an excerpt contains.
        fn new(bytes: &[u8], len: usize) -> Self {
            let bytes = &bytes[..bytes.len().min(MAX_EXCERPT_BYTES)];
            Self {
                bytes: if bytes.len() < len { cut(bytes) } else { bytes }.to_vec(),
                len,
            }
        }
    }

    /// Returns `true` if this is the whole value, not only its beginning.
    pub fn is_whole(&self) -> bool {
        self.bytes.len() == self.len
    }

    /// Returns the [bytes](Self::bytes) as text, or `None` if they are not UTF-8.
    ///
    /// # Examples
    ///
    /// See [`TaskDetail`](crate::durable::TaskDetail).
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }
}

/// Removes an incomplete character from the end of a text.
fn cut(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

impl Serialize for Excerpt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Excerpt", 2)?;
        fields.serialize_field("len", &self.len)?;
        match self.as_str() {
            Some(text) => fields.serialize_field("text", text)?,
            None => {
                let hex = self.bytes.iter().map(|byte| format!("{byte:02x}"));
                fields.serialize_field("hex", &hex.collect::<String>())?;
            }
        }
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_ends_with_a_whole_character() {
        let text = "\u{fc}".repeat(MAX_EXCERPT_BYTES / 2);
        let odd = format!("x{text}");
        let excerpt = Excerpt::new(odd.as_bytes(), odd.len());
        assert_eq!(excerpt.bytes.len(), MAX_EXCERPT_BYTES - 1);
        assert_eq!(excerpt.as_str(), Some(&odd[..MAX_EXCERPT_BYTES - 1]));
        assert!(!excerpt.is_whole());
        let even = Excerpt::new(text.as_bytes(), text.len());
        assert!(even.is_whole() && even.as_str() == Some(&text));
    }

    #[test]
    fn bytes_that_are_no_text_are_cut_anywhere() {
        let bytes = vec![255; MAX_EXCERPT_BYTES + 1];
        let excerpt = Excerpt::new(&bytes, bytes.len());
        assert_eq!(excerpt.bytes.len(), MAX_EXCERPT_BYTES);
        assert_eq!(excerpt.as_str(), None);
        // A whole value that ends within a character is shown as it is.
        assert_eq!(Excerpt::new(b"x\xc3", 2).bytes, b"x\xc3");
    }

    #[test]
    fn an_excerpt_is_serialised_as_text_or_as_digits() {
        let json = |bytes: &[u8]| serde_json::to_string(&Excerpt::new(bytes, 9)).unwrap();
        assert_eq!(json(b"{}"), r#"{"len":9,"text":"{}"}"#);
        assert_eq!(json(b"\xff\x01"), r#"{"len":9,"hex":"ff01"}"#);
    }
}
