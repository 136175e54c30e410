//! Removes what could deceive a reader or a terminal from texts that come from a store: control characters, which a terminal obeys, and
//! characters that are invisible or reverse the text.

use std::fmt::Write;

/// Returns a text in which each unprintable character is replaced by an escape such as `\n` or `\u{1b}`.
pub(crate) fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    // The library also escapes quotation marks and backslashes, which are harmless here.
    for part in text.split_inclusive(is_quoted) {
        let end = part.len()
            - part
                .chars()
                .next_back()
                .filter(|&it| is_quoted(it))
                .map_or(0, char::len_utf8);
        escaped.extend(part[..end].escape_debug());
        escaped.push_str(&part[end..]);
    }
    escaped
}

/// Returns a JSON text in which each unprintable character within a string is replaced by an escape such as `\u001b`. Tabs, carriage
/// returns and line feeds can only be between the tokens of a JSON text.
pub(crate) fn json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' | '\r' => escaped.push(' '),
            _ if is_printable(character) || character == '\n' => escaped.push(character),
            _ => push_units(&mut escaped, character),
        }
    }
    escaped
}

fn is_quoted(character: char) -> bool {
    matches!(character, '\\' | '\'' | '"')
}

fn is_printable(character: char) -> bool {
    // Most characters are in ASCII, and this needs no memory.
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // A character after the first one is escaped only if it is unprintable, but not if it is a combining one.
    let text = ['x', character].iter().collect::<String>();
    text.escape_debug().nth(1) == Some(character)
}

fn push_units(escaped: &mut String, character: char) {
    let mut units = [0; 2];
    for unit in character.encode_utf16(&mut units) {
        // Writing to a string cannot fail.
        write!(escaped, "\\u{unit:04x}").ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert_eq!(
            text("a\x1b[2Jb\r\n\t\u{9b}\u{7f}"),
            "a\\u{1b}[2Jb\\r\\n\\t\\u{9b}\\u{7f}"
        );
        assert_eq!(
            text("\u{202e}gpj.exe\u{200b}\u{feff}"),
            "\\u{202e}gpj.exe\\u{200b}\\u{feff}"
        );
    }

    #[test]
    fn ordinary_text_stays_as_it_is() {
        for ordinary in [
            "",
            "it's \"fine\" \\ \u{fc} \u{65e5}\u{672c} \u{1f600}",
            "e\u{301}",
            "C:\\x",
        ] {
            assert_eq!(text(ordinary), ordinary);
        }
    }

    #[test]
    fn json_stays_json() {
        let hostile = "x\u{202e}\u{9b}\x1b\u{e0001}\n\"\\";
        let encoded = serde_json::to_string(hostile).unwrap();
        let escaped = json(&encoded);
        assert!(
            escaped.chars().all(|it| (' '..='~').contains(&it)),
            "{escaped}"
        );
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), hostile);
        assert_eq!(json("{\t\"a\":\r\n1}"), "{ \"a\": \n1}");
    }
}
