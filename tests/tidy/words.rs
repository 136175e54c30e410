//! The words that the project uses, and those that it has given up.

use super::{Problems, Source, files, numbered, read, sources, words};

/// Names that have a textbook word: what was written before, and what to write.
///
/// Each is in two halves, so that this file does not hold it.
const OLD_NAMES: [(&str, &str); 77] = [
    (concat!("Ro", "om"), "Semaphore"),
    (concat!("NoRo", "om"), "TryAcquireError"),
    (concat!("Be", "ll"), "WaitQueue"),
    (concat!("Se", "at"), "RunContext"),
    (concat!("Cr", "ew"), "Shared"),
    (concat!("Ros", "ter"), "State"),
    (concat!("Be", "d"), "Parker"),
    (concat!("Stew", "ard"), "Timer"),
    (concat!("stew", "ard"), "timer"),
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
    (concat!("gue", "st"), "waiter"),
    (concat!("fe", "d"), "granted"),
    (concat!("ring_", "all"), "notify_all"),
    (concat!("be", "ll"), "wait_queue"),
    (concat!("se", "at"), "run_context"),
    (concat!("cr", "ew"), "shared"),
    (concat!("ros", "ter"), "state"),
    (concat!("be", "d"), "parker"),
    (concat!("lie_", "down"), "park"),
    (concat!("get_", "up"), "unpark"),
    (concat!("is_ly", "ing"), "is_parked"),
    (concat!("Ho", "me"), "Origin"),
    (concat!("she", "lf"), "page"),
    (concat!("car", "ve"), "allocate"),
    (concat!("come_", "back"), "recycle"),
    (concat!("move_", "in"), "enter"),
    (concat!("move_", "out"), "exit"),
    (concat!("stand_", "in"), "compensating thread"),
    (concat!("in", "n"), "pool_thread"),
    (concat!("off", "ice"), "timer"),
    (concat!("bo", "oks"), "counters"),
    (concat!("age", "nda"), "timer_heap"),
    (concat!("wa", "rd"), "tick"),
    (concat!("att", "end"), "tick"),
    (concat!("pat", "rol"), "watchdog"),
    (concat!("out", "look"), "expected_backlog"),
    (concat!("pi", "le"), "lifo_list"),
    (concat!("are_al", "one"), "exclusive, or the only ones"),
    (concat!("is_al", "one"), "is_exclusive"),
    (concat!("LI", "NE"), "CACHE_LINE"),
    (concat!("Dr", "aw"), "close the batch"),
    (concat!("out", "let"), "completion queue"),
    (concat!("for", "sake"), "close or abort"),
    (concat!("let_", "go"), "release"),
    (concat!("give_", "up"), "release"),
    (concat!("de", "sk"), "connection"),
    (concat!("bu", "ry"), "delete"),
    (concat!("Post", "man"), "Subscriber"),
    (concat!("se", "ss"), "sessions"),
    (concat!("ris", "ky"), "quarantined"),
    (concat!("MAX_DE", "PTH"), "a name that says what it bounds"),
    (concat!("LO", "OK"), "a name that says what it selects"),
    (concat!("TOO_F", "EW"), "a name that says what it bounds"),
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

/// An ordinary word that stays inside its module: the state that a lock protects, or that a state machine is in.
const OF_MODULES: [&str; 1] = ["State"];

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
    let mut seen: Vec<Declared> = Vec::new();
    for it in declared_types().filter(|it| it.reach == Reach::Crate) {
        if let Some(other) = seen.iter().find(|other| other.name == it.name) {
            problems.add(
                &it.path,
                it.line,
                &format!(
                    "`{}` has a `{}`, too: rename one, or make it private to its module",
                    other.path, it.name
                ),
            );
        }
        seen.push(it);
    }
    problems.report();
}

#[test]
fn private_types_have_names_of_their_own() {
    let mut problems = Problems::default();
    let all: Vec<_> = declared_types().collect();
    let private = all
        .iter()
        .filter(|it| it.reach == Reach::File && !is_test_code(&it.path));
    for it in private.clone() {
        let mut others = all
            .iter()
            .filter(|other| other.name == it.name && other.path != it.path);
        if let Some(other) = others.find(|other| it.may_be_confused_with(other)) {
            let advice = format!("`{}` has a `{}`, too: rename this one", other.path, it.name);
            problems.add(&it.path, it.line, &advice);
        }
    }
    assert!(private.count() > 200, "the check finds the private types");
    problems.report();
}

/// A type that is declared at the top level of a file.
struct Declared {
    name: String,
    reach: Reach,
    path: String,
    line: usize,
    /// The module of `src` that the file belongs to.
    part: String,
}

/// The code that can name a type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Crate,
    /// A module that has several files.
    Module,
    File,
}

impl Declared {
    /// Returns `true` if a reader may take this private type for the other one: the whole crate can name the other one, or each of them
    /// belongs to a part of its own. The parts of the durable part, such as its stores, are alike, so their types are, too.
    fn may_be_confused_with(&self, other: &Self) -> bool {
        let of_parts =
            self.part != other.part && ![&self.part, &other.part].contains(&&"durable".into());
        let is_ordinary = OF_MODULES.contains(&self.name.as_str());
        other.reach == Reach::Crate || of_parts && !is_ordinary
    }
}

/// Returns the types of all files of `src`, but for those in `OF_EVERY_PART`.
fn declared_types() -> impl Iterator<Item = Declared> {
    let of_source = |source: Source| {
        let types = source.code().filter_map(|(line, code)| {
            let (reach, name) = declared_type(code)?;
            Some(Declared {
                name: name.to_owned(),
                reach,
                path: source.path.clone(),
                line,
                part: source.module().to_owned(),
            })
        });
        types.collect::<Vec<_>>()
    };
    let types = sources().flat_map(of_source);
    types.filter(|it| !OF_EVERY_PART.contains(&it.name.as_str()))
}

/// The name of the type that the line declares at the top level, and the code that can name it.
fn declared_type(code: &str) -> Option<(Reach, &str)> {
    let crate_wide = code
        .strip_prefix("pub(crate) ")
        .or_else(|| code.strip_prefix("pub "));
    let of_module = code
        .strip_prefix("pub(")
        .and_then(|rest| rest.split_once(") "));
    let (reach, declared) = match (crate_wide, of_module) {
        (Some(declared), _) => (Reach::Crate, declared),
        (None, Some((_, declared))) => (Reach::Module, declared),
        (None, None) => (Reach::File, code),
    };
    if declared.starts_with(char::is_whitespace) {
        return None;
    }
    let mut words = words(declared).skip_while(|word| *word == "unsafe");
    let keyword = words.next()?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
    Some((reach, is_type.then(|| words.next())??))
}

fn is_test_code(path: &str) -> bool {
    path.contains("tests/") || path.contains("/suite/")
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
