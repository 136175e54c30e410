//! Samples of the index, compared with what GNU grep finds.
//!
//! The two do not agree on every character: which are letters, and which are the same letter. Words
//! that have such a character, or are in a file that has one, are not drawn.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::corpus::Corpus;
use super::indexer::options::Options;
use super::reference::{self, Reference};
use super::whole::{build, search};

#[tokio::test(flavor = "multi_thread")]
async fn ten_words_are_where_grep_finds_them() {
    let corpus = Corpus::new();
    let index = build(&corpus, &Options::default()).await.index;
    let reference = reference::build(corpus.path()).expect("a reference");
    let words = draw(&reference);
    assert_eq!(words.len(), 10, "{words:?}");
    for word in words {
        let mut found = search(&index, word);
        found.sort();
        let mut expected = grep(word, corpus.path());
        expected.sort();
        assert!(!found.is_empty(), "{word}");
        let expected: Vec<_> = expected
            .iter()
            .map(|(path, line)| (path.as_path(), *line))
            .collect();
        assert_eq!(found, expected, "{word}");
    }
}

/// Ten words: four that are on one line only, three that are not ASCII, and three of any kind.
fn draw(reference: &Reference) -> Vec<&str> {
    let doubtful = doubtful_texts(reference);
    let is_clear = |word: &str| {
        word.chars().all(is_agreed) && !doubtful.iter().any(|text| text.contains(word))
    };
    let mut words: Vec<_> = reference.terms.iter().collect();
    words.retain(|(word, _)| is_clear(word));
    words.sort();
    let mut dice = Dice(0x5DEE_CE66);
    let mut drawn = Vec::new();
    let mut draw = |count, fits: &dyn Fn(&str, usize) -> bool| {
        let mut fitting: Vec<_> = words
            .iter()
            .filter(|(word, lines)| fits(word, lines.len()) && !drawn.contains(&word.as_str()))
            .map(|(word, _)| word.as_str())
            .collect();
        for _ in 0..count {
            drawn.push(fitting.swap_remove(dice.below(fitting.len())));
        }
    };
    draw(4, &|_, lines| lines == 1);
    draw(3, &|word, _| !word.is_ascii());
    draw(3, &|_, _| true);
    drawn
}

/// The files with a character of which grep may think otherwise, in every case that it may take
/// them to be in.
fn doubtful_texts(reference: &Reference) -> Vec<String> {
    let files = reference.files.iter();
    files
        .map(|file| fs::read_to_string(file).expect("a text"))
        .filter(|text| !text.chars().all(is_agreed))
        .map(|text| text.to_lowercase() + "\n" + &text.to_uppercase().to_lowercase())
        .collect()
}

/// Whether grep thinks the same of a character: that it is a letter, or none, and which are the same
/// letter.
fn is_agreed(c: char) -> bool {
    let lower: Vec<char> = c.to_lowercase().collect();
    let upper: Vec<char> = c.to_uppercase().collect();
    let is_pair = |small: &[char], large: &[char]| {
        small.len() == 1
            && large.len() == 1
            && small[0].to_uppercase().eq(large.iter().copied())
            && large[0].to_lowercase().eq(small.iter().copied())
    };
    let has_case = lower != upper;
    match c {
        _ if c.is_ascii() => true,
        _ if has_case => is_pair(&lower, &upper) && (lower == [c] || upper == [c]),
        // Marks and signs of Latin-1, dashes and quotes, arrows to boxes.
        '\u{a0}'..='\u{ff}' | '\u{2010}'..='\u{2027}' | '\u{2190}'..='\u{23ff}' => {
            !c.is_alphanumeric()
        }
        '\u{2500}'..='\u{27bf}' | '\u{ff01}'..='\u{ff0f}' => !c.is_alphanumeric(),
        // Japanese syllables and Chinese characters.
        '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' | '\u{4e00}'..='\u{9fff}' => true,
        _ => false,
    }
}

/// Where grep finds a word.
fn grep(word: &str, dir: &Path) -> Vec<(PathBuf, u32)> {
    let output = Command::new("grep")
        .env("LC_ALL", "C.UTF-8")
        // The zero byte after each name: a name may hold a colon, or the end of a line.
        .args(["-rnwiIF", "--null", "-e", word])
        .arg(dir)
        .output()
        .expect("GNU grep is there");
    let mut rest = &output.stdout[..];
    let mut hits = Vec::new();
    while !rest.is_empty() {
        let path = take_until(0, &mut rest);
        let line = take_until(b':', &mut rest);
        take_until(b'\n', &mut rest);
        let line = str::from_utf8(line).expect("a number").parse();
        hits.push((
            PathBuf::from(OsStr::from_bytes(path)),
            line.expect("a number"),
        ));
    }
    hits
}

fn take_until<'b>(end: u8, rest: &mut &'b [u8]) -> &'b [u8] {
    let at = rest.iter().position(|&byte| byte == end);
    let (before, after) = rest.split_at(at.expect("grep's output has a form"));
    *rest = &after[1..];
    before
}

/// Numbers that look random, and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
