//! The rules of text, and what is made of a text.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::indexer::postings::{Lines, Postings};
use super::indexer::text::{self, NotText};
use super::reference;

proptest! {
    /// The scanner has a fast way for ASCII; the rules have one way for everything.
    #[test]
    fn tokens_are_those_of_the_rules(text in texts()) {
        prop_assert_eq!(scanned(&text), by_the_rules(&text));
    }

    /// Postings hold what was scanned: nothing is lost, and nothing comes twice.
    #[test]
    fn postings_are_what_was_scanned(text in texts()) {
        let mut expected: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (line, token) in by_the_rules(&text) {
            let lines = expected.entry(token).or_default();
            if lines.last() != Some(&line) {
                lines.push(line);
            }
        }
        prop_assert_eq!(unpacked(&Postings::of(&text)), expected);
    }

    #[test]
    fn text_is_utf_8_without_nul(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
        let expected = match String::from_utf8(bytes.clone()) {
            _ if bytes.contains(&0) => Err(NotText::Nul),
            Ok(text) => Ok(text),
            Err(_) => Err(NotText::Encoding),
        };
        prop_assert_eq!(text::decode(&bytes).map(str::to_owned), expected);
    }
}

/// All but the planes that are empty.
#[test]
fn every_character_is_in_a_token_or_between_two() {
    let all: Vec<char> = ('\u{1}'..='\u{3ffff}').collect();
    for some in all.chunks(256) {
        let line = |c: &char| format!("Ab{c}Cd {c} {c}x\n");
        let text: String = some.iter().map(line).collect();
        assert!(
            scanned(&text) == by_the_rules(&text),
            "{}",
            some[0].escape_unicode()
        );
    }
}

#[test]
fn far_lines_take_more_bytes_and_come_back() {
    let steps = [1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152];
    let text: String = steps
        .iter()
        .map(|&step| "\n".repeat(step) + "word")
        .collect();
    let lines = steps.iter().scan(1, |line, &step| {
        *line += step as u32;
        Some(*line)
    });
    let expected = BTreeMap::from([("word".to_owned(), lines.collect())]);
    assert_eq!(unpacked(&Postings::of(&text)), expected);
}

/// Texts of the characters that matter, in runs as long as words are.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zA-Z0-9_]{1,12}",
        2 => "[ \t\r.;\\-]{1,3}",
        2 => "\n{1,3}",
        1 => "[\u{e9}\u{c9}\u{df}\u{130}\u{3a3}\u{3c3}\u{3c2}\u{2b0}\u{b2}\u{301}\u{2014}\u{4f60}]{1,3}",
        1 => "\\PC{1,3}",
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn scanned(text: &str) -> Vec<(u32, String)> {
    let mut tokens = Vec::new();
    text::each_token(text, |line, token| tokens.push((line, token.to_owned())));
    tokens
}

fn by_the_rules(text: &str) -> Vec<(u32, String)> {
    let lines = (1..).zip(text.split('\n'));
    lines
        .flat_map(|(number, line)| reference::tokens(line).map(move |token| (number, token)))
        .collect()
}

fn unpacked(postings: &Postings) -> BTreeMap<String, Vec<u32>> {
    let entries = (0..).zip(&postings.entries);
    entries
        .map(|(term, entry)| {
            let lines = Lines::new(&postings.packed[entry.at as usize..]);
            (postings.terms.get(term).to_owned(), lines.collect())
        })
        .collect()
}
