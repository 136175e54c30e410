//! Samples of the index, compared with what GNU grep finds.
//!
//! The two may know different versions of Unicode. Words that have a character that one of them may not
//! know, or are in a file that has one, are not drawn.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::corpus::Corpus;
use super::indexer::options::Options;
use super::indexer::text::{fold, is_word};
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

/// Text that is cut by a NUL, broken lines, long lines, holes: one tree for each, since a long line
/// makes grep read larger blocks also of the files that come after it.
#[test]
fn files_are_judged_as_grep_judges_them() {
    let words = ["alpha", "often", "once", "beta", "hidden", "nowhere"];
    let broken = [
        "brokenword",
        "soundword",
        "caf",
        "cafe",
        "d",
        "x",
        "y",
        "strasse",
    ];
    let wide = [
        "\u{fc}ber",
        "stra\u{df}e",
        "\u{39f}\u{394}\u{39f}\u{3a3}",
        "\u{43c}\u{438}\u{440}",
    ];
    let corpus = Corpus::made_up();
    let text = |blocks: usize| "alpha often words\n".repeat(blocks * (96 << 10) / 18 + 1);
    corpus.write("nul/first", b"alpha often words\n\0alpha\n");
    corpus.write("nul/second", &[text(1).as_bytes(), b"\0alpha\n"].concat());
    corpus.write(
        "nul/late",
        &[text(30).as_bytes(), b"alpha \0\nalpha\n"].concat(),
    );
    make_hole(&corpus, "hole", &text(1));
    for word in words.iter().chain(&broken).chain(&wide) {
        assert_same_as_grep(word, &corpus);
    }

    let one = "alpha once ".repeat(200_000).into_bytes();
    let broken = [&one[..], b"\xe9\nalpha\n"].concat();
    let cut = [text(20).as_bytes(), &one, b"\0"].concat();
    for text in [one, broken, cut] {
        let corpus = Corpus::empty();
        corpus.write("long", &text);
        words
            .iter()
            .for_each(|word| assert_same_as_grep(word, &corpus));
    }
}

#[track_caller]
fn assert_same_as_grep(word: &str, corpus: &Corpus) {
    let found = search_with_program(word, corpus.path());
    let expected: BTreeSet<_> = grep(word, corpus.path()).into_iter().collect();
    let differ = found.symmetric_difference(&expected).take(3);
    assert!(
        found == expected,
        "{word}: {:?}",
        differ.collect::<Vec<_>>()
    );
}

/// A text, and then a hole: no byte of it need be read to know that it is binary.
fn make_hole(corpus: &Corpus, name: &str, text: &str) {
    corpus.write(name, text.as_bytes());
    let file = fs::File::options()
        .write(true)
        .open(corpus.path().join(name));
    let file = file.expect("a file");
    file.set_len(1 << 20).expect("a hole");
    file.write_all_at(text.as_bytes(), (1 << 20) - 1)
        .expect("a text");
}

/// What the program prints; it prints a path that holds the end of a line as it is.
fn search_with_program(word: &str, dir: &Path) -> BTreeSet<(PathBuf, u32)> {
    let output = super::program::run(dir, &["--query", word]);
    let mut hits = BTreeSet::new();
    let mut start = 0;
    let ends = output
        .stdout
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n');
    for (end, _) in ends {
        let hit = &output.stdout[start..end];
        let colon = hit.iter().rposition(|&byte| byte == b':');
        let line = colon.and_then(|colon| str::from_utf8(&hit[colon + 1..]).ok()?.parse().ok());
        if let (Some(colon), Some(line)) = (colon, line) {
            hits.insert((PathBuf::from(OsStr::from_bytes(&hit[..colon])), line));
            start = end + 1;
        }
    }
    hits
}

/// Grep may know an older version of Unicode, and take a letter for none.
#[test]
fn word_characters_are_those_of_grep() {
    let corpus = Corpus::empty();
    let all: Vec<char> = ('\u{80}'..='\u{2ffff}').collect();
    let lines: String = all.iter().map(|c| format!("alpha{c}\n")).collect();
    corpus.write("all", lines.as_bytes());
    let apart = grep("alpha", corpus.path()).into_iter();
    let apart: BTreeSet<_> = apart.map(|(_, line)| all[line as usize - 1]).collect();
    for c in all {
        let is_old = c < '\u{363}' || (c.is_numeric() && c < '\u{10000}');
        let is_same = is_word(c) != apart.contains(&c);
        assert!(is_same || (is_word(c) && !is_old), "{}", c.escape_unicode());
    }
}

/// Letters of some scripts, and all that have more than two forms.
#[test]
fn letters_are_the_same_if_grep_says_so() {
    let corpus = Corpus::empty();
    let cased = |c: &char| !c.to_lowercase().eq([*c]) || !c.to_uppercase().eq([*c]);
    // Newer versions know more letters there.
    let is_new = |c: char| matches!(c, '\u{1c80}'..='\u{1c8f}' | '\u{a7c0}'..='\u{a7ff}');
    let all = ('A'..='\u{ffff}').filter(|&c| !is_new(c)).filter(cased);
    let all: Vec<char> = all.collect();
    let lines: String = all.iter().map(|c| format!("{c}\n")).collect();
    corpus.write("all", lines.as_bytes());
    let class = |of: char| all.iter().filter(move |&&c| fold(c) == fold(of));
    let odd = |c: &char| class(*c).count() != 2;
    let mut asked: Vec<char> = all.iter().copied().filter(odd).collect();
    asked.extend(all.iter().step_by(97));
    for c in asked {
        let lines = grep(c.encode_utf8(&mut [0; 4]), corpus.path()).into_iter();
        let same: BTreeSet<char> = lines.map(|(_, line)| all[line as usize - 1]).collect();
        assert_eq!(same, class(c).copied().collect(), "{}", c.escape_unicode());
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
        .map(|file| fs::read(file).expect("a text"))
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .filter(|text| !text.chars().all(is_agreed))
        .map(|text| text.to_lowercase() + "\n" + &text.to_uppercase().to_lowercase())
        .collect()
}

/// Returns `true` if grep thinks the same of a character: that it is a letter, or none, and which are the same
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
