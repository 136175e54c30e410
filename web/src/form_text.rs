//! [`FormText`]: a text in a hidden field of a form, which reaches the server unchanged.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde::de::{Deserialize, Deserializer, Error};

/// A text from a hidden field, whose value [`encoded`] has made. Browsers change line breaks in the values of fields to CR LF, and parsers
/// of HTML replace NUL. So without the encoding, a name with such a character would arrive as another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormText(pub(crate) String);

/// The characters that are encoded, apart from those that are not ASCII.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Returns the value of a hidden field for a text.
pub(crate) fn encoded(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, ENCODED).into()
}

fn decoded(value: &str) -> Option<String> {
    let text = percent_decode_str(value).decode_utf8().ok()?;
    Some(text.into_owned())
}

impl<'de> Deserialize<'de> for FormText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = String::deserialize(deserializer)?;
        let text = decoded(&value);
        text.map(Self).ok_or_else(|| {
            D::Error::custom("a field of the form is not valid: load its page again")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_survives_a_form() {
        for text in [
            "",
            "charge",
            "timeout:paid",
            "50%",
            "%0A",
            "a b+c&d=e",
            "<\"'>",
            "\u{fc}\u{202e}",
        ] {
            assert_eq!(decoded(&encoded(text)).as_deref(), Some(text));
        }
        let controls: String = ('\0'..' ')
            .chain(['\u{7f}', '\u{85}', '\u{2028}'])
            .collect();
        let value = encoded(&controls);
        assert!(value.bytes().all(|byte| byte.is_ascii_graphic()), "{value}");
        assert_eq!(decoded(&value), Some(controls));
    }

    #[test]
    fn plain_names_stay_readable_and_invalid_ones_are_refused() {
        assert_eq!(
            encoded("step:charge <it> & more"),
            "step:charge <it> & more"
        );
        assert_eq!(encoded("a\nb\0%"), "a%0Ab%00%25");
        assert_eq!(decoded("%ff"), None);
        assert_eq!(decoded("5 % of %x"), Some("5 % of %x".into()));
    }
}
