//! [`Transcript`]: commands and what they print.

use std::fmt::Write;
use std::path::Path;

use regex::Regex;
use snapbox::Data;

use super::Result;
use super::store::TestStore;

/// Commands on a store, and what they print.
pub(crate) struct Transcript<'a> {
    store: &'a TestStore,
    text: String,
}

impl<'a> Transcript<'a> {
    pub(crate) fn new(store: &'a TestStore) -> Self {
        Self {
            store,
            text: String::new(),
        }
    }

    /// Runs a command, whose arguments are separated by spaces.
    pub(crate) fn run(&mut self, command: &str) -> Result {
        let args: Vec<_> = command.split_whitespace().collect();
        let output = self.store.run(&args)?;
        writeln!(self.text, "$ throng {command}")?;
        self.text.push_str(&String::from_utf8(output.stdout)?);
        for line in String::from_utf8(output.stderr)?.lines() {
            writeln!(self.text, "! {line}")?;
        }
        match output.status.code() {
            Some(0) => {}
            code => writeln!(
                self.text,
                "exit status {}",
                code.ok_or("a signal has ended it")?
            )?,
        }
        self.text.push('\n');
        Ok(())
    }

    /// Compares the transcript with a file.
    pub(crate) fn check(self, topic: &str) {
        let file = format!("{topic}.{}.txt", self.store.name);
        check(&redacted(&self.text, &self.store.address), &file);
    }
}

/// Compares a text with a file in `tests/golden`.
pub(crate) fn check(text: &str, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(file);
    let assert = snapbox::Assert::new().action_env("SNAPSHOTS");
    assert.eq(text.to_owned(), Data::read_from(&path, None).raw());
}

/// Replaces what differs from one run to the next.
fn redacted(text: &str, address: &str) -> String {
    let patterns = [
        (r"\b[wlrdxck][0-9a-f]{20,}", "[CURSOR]"),
        (r"\d\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[UTC]"),
        (
            r#""(now_ms|now|age|ready_for|due_in|kept_for|took|run_time|left|next_tick|last_tick)": ?\d+"#,
            "\"$1\":[MS]",
        ),
        (r"\b(\d+ms|\d+s|\d+m\d\ds|\d+h\d\dm|\d+d\d\dh)\b", "[TIME]"),
    ];
    let mut text = text.replace(&folder_of(address), "[FOLDER]");
    for (pattern, name) in patterns {
        let pattern = Regex::new(pattern).expect("the pattern is valid");
        text = pattern.replace_all(&text, name).into_owned();
    }
    text
}

/// Returns the folder of a store, as messages print it.
fn folder_of(address: &str) -> String {
    let folder = address
        .rsplit_once('/')
        .map_or(address, |(folder, _)| folder);
    folder
        .trim_start_matches("sqlite:")
        .trim_start_matches("redis+unix://")
        .trim_start_matches("postgres://throng@")
        .replace("%2F", "/")
}
