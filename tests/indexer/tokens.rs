//! The rules of text, and what is made of a text.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::indexer::blocks::{Chunk, End};
use super::indexer::postings::{Builder, Lines, Postings};
use super::indexer::text;
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
        prop_assert_eq!(unpacked(&postings(&[text.as_bytes()])), expected);
    }

    /// Wherever a text is cut, it is the same; lines that are not UTF-8 have no tokens.
    #[test]
    fn chunks_are_those_of_the_whole(lines in broken_lines(), cuts in any::<u64>()) {
        let text = lines.join(&b'\n');
        let mut expected: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            for token in reference::tokens(str::from_utf8(line).unwrap_or_default()) {
                let lines = expected.entry(token).or_default();
                if lines.last() != Some(&number) {
                    lines.push(number);
                }
            }
        }
        prop_assert_eq!(unpacked(&postings(&cut(&text, cuts))), expected);
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
    assert_eq!(unpacked(&postings(&[text.as_bytes()])), expected);
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
    let mut unpacked: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for entry in &postings.entries {
        let lines = Lines::new(&postings.packed[entry.at as usize..]);
        let mut lines = lines
            .filter(|line| !postings.void.contains(line))
            .peekable();
        if lines.peek().is_some() {
            let term = postings.terms.get(entry.term).to_owned();
            unpacked.entry(term).or_default().extend(lines);
        }
    }
    unpacked
}

/// The postings of a text that comes in these chunks.
fn postings(chunks: &[&[u8]]) -> Postings {
    let mut builder = Builder::default();
    for text in chunks {
        let (text, end) = (text.to_vec(), End::More);
        builder.add(&Chunk { text, end }).expect("a short text");
    }
    builder.finish()
}

/// Lines of words, some of them with bytes that are not UTF-8.
fn broken_lines() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let piece = prop_oneof![
        6 => "[a-c]{1,2}".prop_map(String::into_bytes),
        6 => "[ .]".prop_map(String::into_bytes),
        1 => Just("\u{e9}".into()),
        1 => Just(b"\xe9".to_vec()),
    ];
    let line = proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    proptest::collection::vec(line, 1..8)
}

/// Cuts a text behind some of the bytes that are in no token.
fn cut(text: &[u8], mut cuts: u64) -> Vec<&[u8]> {
    let chunks = text.split_inclusive(|byte| {
        let is_end = b" .\n".contains(byte);
        if is_end {
            cuts = cuts.rotate_right(1);
        }
        is_end && cuts & 1 == 1
    });
    chunks.collect()
}
