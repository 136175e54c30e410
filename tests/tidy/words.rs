//! The words that the project uses, and those that it has given up.

use super::{Problems, files, numbered, read, sources, words};

/// Names that have a textbook word: what was written before, and what to write.
///
/// Each is in two halves, so that this file does not hold it.
const OLD_NAMES: [(&str, &str); 34] = [
    (concat!("Ro", "om"), "Semaphore"),
    (concat!("NoRo", "om"), "TryAcquireError"),
    (concat!("Be", "ll"), "WaitQueue"),
    (concat!("Se", "at"), "RunContext"),
    (concat!("Cr", "ew"), "Shared"),
    (concat!("Ros", "ter"), "State"),
    (concat!("Be", "d"), "Parker"),
    (concat!("Ste", "ward"), "Timer"),
    (concat!("ste", "ward"), "timer"),
    (concat!("Pat", "rol"), "Watchdog"),
    (concat!("Pa", "ce"), "JobCost"),
    (concat!("Wa", "rd"), "Watchdog"),
    (concat!("Cha", "rge"), "Tick"),
    (concat!("She", "lf"), "Page"),
    (concat!("Out", "look"), "expected_backlog"),
    (concat!("De", "sk"), "Connection"),
    (concat!("Out", "let"), "CompletionQueue"),
    (concat!("Pla", "ce"), "Permit, Offset or route"),
    (concat!("Gu", "est"), "Waiter"),
    (concat!("hun", "gry"), "waiting"),
    (concat!("hand", "ful"), "batch_size"),
    (concat!("lo", "ot"), "stolen"),
    (concat!("sur", "plus"), "stealable"),
    (concat!("Pi", "le"), "LifoList"),
    (concat!("post", "man"), "subscriber"),
    (concat!("mail", "box_id"), "client_id"),
    (concat!("tom", "bs"), "tombstones"),
    (concat!("PATI", "ENCE"), "a name that says what it bounds"),
    (concat!("MO", "ST"), "a name that says what it bounds"),
    (concat!("EA", "CH"), "a name that says what it bounds"),
    (concat!("FE", "W"), "a name that says what it bounds"),
    (concat!("AGA", "IN"), "a name that says what it bounds"),
    (concat!("enter_un", "asked"), "acquire_over_limit"),
    (concat!("who", "ever"), "a noun"),
];

/// Beginnings of sentences that native writers do not use.
const OPENINGS: [&str; 5] = ["Who ", "Whoever ", "Whether ", "How many ", "Nor does "];

/// The same, in the folders `DURABLE` only.
const OPENINGS_OF_DURABLE: [&str; 2] = ["What ", "How "];

/// The folders of the durable part.
const DURABLE: [&str; 2] = ["src/durable/", "tests/durable/"];

/// The longest line of a comment of the durable part, unless it is a row of a table.
const MAX_COMMENT_COLUMNS: usize = 140;

/// Types of which every part has one of its own, for its users.
const OF_EVERY_PART: [&str; 2] = ["Builder", "Metrics"];

#[test]
fn old_names_stay_out() {
    let mut problems = Problems::default();
    for path in files().iter().filter(|path| is_ours(path)) {
        let Some(text) = read(path) else { continue };
        for (number, line) in numbered(text.lines()) {
            for word in words(line) {
                if let Some((_, new)) = OLD_NAMES.iter().find(|(old, _)| *old == word) {
                    problems.add(path, number, &format!("`{word}`: write {new}"));
                }
            }
        }
    }
    problems.report();
}

#[test]
fn comments_have_subjects() {
    let mut problems = Problems::default();
    for path in files().iter().filter(|path| is_ours(path)) {
        let Some(text) = read(path) else { continue };
        for (number, line) in numbered(text.lines()) {
            let comment = comment(path, line);
            let opening = openings(path)
                .find(|opening| comment.is_some_and(|text| text.starts_with(opening)));
            if let Some(opening) = opening {
                let advice = format!("`{}..`: begin with a subject and a verb", opening);
                problems.add(path, number, &advice);
            }
        }
    }
    problems.report();
}

/// Returns the openings that the comments of a file must not have.
fn openings(path: &str) -> impl Iterator<Item = &'static str> {
    let more = is_durable(path).then_some(OPENINGS_OF_DURABLE);
    OPENINGS.into_iter().chain(more.into_iter().flatten())
}

#[test]
fn comments_have_short_lines() {
    let mut problems = Problems::default();
    for path in files().iter().filter(|path| is_durable(path)) {
        let Some(text) = read(path) else { continue };
        for (number, line) in numbered(text.lines()) {
            let is_text = comment(path, line).is_some_and(|text| !text.starts_with('|'));
            if is_text && line.len() > MAX_COMMENT_COLUMNS {
                let advice = format!("wrap it after {MAX_COMMENT_COLUMNS} columns");
                problems.add(path, number, &advice);
            }
        }
    }
    problems.report();
}

#[test]
fn shared_types_have_names_of_their_own() {
    let mut problems = Problems::default();
    let mut seen: Vec<(String, String)> = Vec::new();
    for source in sources() {
        for (number, code) in source.code() {
            let Some(name) = shared_type(code) else {
                continue;
            };
            if OF_EVERY_PART.contains(&name) {
                continue;
            }
            if let Some((_, other)) = seen.iter().find(|(known, _)| known == name) {
                problems.add(
                    &source.path,
                    number,
                    &format!("`{other}` has a `{name}`, too: rename one, or make it private to its module"),
                );
            }
            seen.push((name.to_owned(), source.path.clone()));
        }
    }
    problems.report();
}

/// The name of a type that the whole crate can use, if the line declares one at the top level.
fn shared_type(code: &str) -> Option<&str> {
    let declared = code
        .strip_prefix("pub(crate) ")
        .or_else(|| code.strip_prefix("pub "))?;
    let mut words = words(declared).skip_while(|word| *word == "unsafe");
    let keyword = words.next()?;
    ["struct", "enum", "trait", "type", "union"]
        .contains(&keyword)
        .then(|| words.next())?
}

/// The text of a line that is a comment.
fn comment<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    let mark = if path.ends_with(".lua") { "--" } else { "//" };
    let text = line.trim_start().strip_prefix(mark)?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

fn is_durable(path: &str) -> bool {
    DURABLE.iter().any(|folder| path.starts_with(folder))
}

/// Source code and documents, but for the history of changes.
fn is_ours(path: &str) -> bool {
    let ending = [".rs", ".lua", ".md", ".toml"];
    ending.iter().any(|ending| path.ends_with(ending)) && path != "CHANGELOG.md"
}
