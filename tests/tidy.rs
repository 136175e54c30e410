//! What the project promises about itself, checked by reading its files.
//!
//! The checks read lines, not syntax: test modules are out of line, or last in their file, and a
//! string that holds two slashes hides the rest of its line.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/scripts.rs"]
mod scripts;
#[path = "tidy/words.rs"]
mod words;

use std::fs;
use std::path::Path;
use std::process::Command;

/// The order of the modules: one may use those of the lines above its own.
const LAYERS: [&[&str]; 9] = [
    &["sync", "unwind"],
    &["drops", "inbox", "waker", "weak_part"],
    &["wait_queue"],
    &["semaphore"],
    &["task"],
    &["join", "retry", "timer"],
    &["blocking", "compute", "serial", "completion"],
    &["durable"],
    &["watch"],
];

/// The beginning of the names of macros that `durable` exports. They are at the root of the crate, wherever they are defined.
const MACROS_OF_DURABLE: &str = "__store_";

/// What only `src/sync.rs` takes from the standard library.
const ONLY_IN_SYNC: [&str; 6] = [
    "atomic",
    "thread",
    "UnsafeCell",
    "Mutex",
    "RwLock",
    "Condvar",
];

/// Where `unsafe` may stand. A slash at the end means a folder.
const UNSAFE: &[&str] = &[
    "src/blocking/bulkhead/tasks.rs",
    "src/blocking/runtime.rs",
    "src/blocking/submit.rs",
    "src/blocking/task.rs",
    "src/completion/join_set.rs",
    "src/completion/queue.rs",
    "src/compute/pool.rs",
    "src/compute/scope.rs",
    "src/drops.rs",
    "src/inbox.rs",
    "src/inbox/",
    "src/join/abort_on_drop.rs",
    "src/join/pool_thread.rs",
    "src/join/small_value.rs",
    "src/join/work.rs",
    "src/serial/blocking.rs",
    "src/serial/core.rs",
    "src/serial/drain.rs",
    "src/serial/enqueue.rs",
    "src/serial/exclusive.rs",
    "src/serial/job.rs",
    "src/serial/owner.rs",
    "src/serial/submit_async.rs",
    "src/serial/suspended.rs",
    "src/sync.rs",
    "src/task.rs",
    "src/task/",
    "src/waker.rs",
];

/// The most lines of code in a file of `src`, without tests, comments and blank lines.
const MAX_CODE_LINES: usize = 400;

/// How far above an operation the comment on its ordering may stand.
const COMMENT_LINES: usize = 6;

// In two halves, so that this file does not hold them.
const PATHS_OF_MACHINES: [&str; 5] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/Us", "ers/"),
    concat!("../sh", "ared"),
];
const PLACEHOLDERS: [&str; 4] = [
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

#[test]
fn dependencies_point_one_way() {
    let rank = |module: &str| LAYERS.iter().position(|layer| layer.contains(&module));
    let mut problems = Problems::default();
    for source in sources() {
        let module = source.module();
        if module == "lib" {
            continue;
        }
        let Some(own) = rank(module) else {
            problems.add(
                &source.path,
                1,
                &format!("say in LAYERS where `{module}` stands"),
            );
            continue;
        };
        // From here on up, `super` is the root of the crate.
        let to_root = "super::".repeat(source.path.matches('/').count());
        for (number, code) in source.statements() {
            if code.contains(&to_root) {
                problems.add(&source.path, number, "write `crate::` instead of `super::`");
            }
            for path in code.split("crate::").skip(1) {
                let used = words(path).next().unwrap_or_default();
                match rank(used) {
                    _ if used == module => {}
                    _ if module == "durable" && used.starts_with(MACROS_OF_DURABLE) => {}
                    Some(rank) if rank < own && path.starts_with(used) => {}
                    Some(_) if path.starts_with(used) => problems.add(
                        &source.path,
                        number,
                        &format!("`{module}` may not use `{used}`: move what both need into a module below both"),
                    ),
                    _ => problems.add(
                        &source.path,
                        number,
                        "name the module that defines it, one path at a time: `crate::module::..`",
                    ),
                }
            }
        }
    }
    problems.report();
}

#[test]
fn only_sync_names_atomics_cells_locks_and_threads() {
    let mut problems = Problems::default();
    for source in sources().filter(|source| source.path != "src/sync.rs") {
        for (number, code) in source.statements() {
            let std = code.contains("std::") || code.contains("core::");
            let name = words(&code).find(|word| std && ONLY_IN_SYNC.contains(word));
            let model = ["loom::", "shuttle::"]
                .into_iter()
                .find(|&name| code.contains(name));
            if let Some(name) = name.or(model) {
                problems.add(
                    &source.path,
                    number,
                    &format!("take `{name}` from `crate::sync`, so that the models see it"),
                );
            }
        }
    }
    problems.report();
}

#[test]
fn unsafe_stands_where_it_is_allowed() {
    let mut problems = Problems::default();
    let mut unused = UNSAFE.to_vec();
    for source in sources() {
        let allowed = UNSAFE
            .iter()
            .find(|allowed| match allowed.strip_suffix('/') {
                Some(_) => source.path.starts_with(**allowed),
                None => source.path == **allowed,
            });
        for (number, code) in source.code() {
            if words(code).any(|word| word == "unsafe") {
                match allowed {
                    Some(allowed) => unused.retain(|unused| unused != allowed),
                    None => problems.add(
                        &source.path,
                        number,
                        "do without `unsafe`, or add the file to UNSAFE",
                    ),
                }
            }
        }
    }
    for path in unused {
        problems.add(path, 1, "nothing is unsafe here: take it out of UNSAFE");
    }
    problems.report();
}

#[test]
fn orderings_name_their_partners() {
    let strong = ["Acquire", "Release", "AcqRel", "SeqCst"].map(|name| format!("Ordering::{name}"));
    let mut problems = Problems::default();
    for source in sources() {
        for (number, code) in source.code() {
            let above = &source.lines[number.saturating_sub(COMMENT_LINES + 1)..number];
            let mut comments = above.iter().filter_map(|line| line.split_once("//"));
            if strong.iter().any(|name| code.contains(name.as_str()))
                && !comments
                    .any(|(_, text)| text.contains("Ordering:") || text.contains("pairs with"))
            {
                problems.add(
                    &source.path,
                    number,
                    "say above it which operation it pairs with: `// Ordering: ..`",
                );
            }
        }
    }
    problems.report();
}

#[test]
fn files_are_short() {
    let mut problems = Problems::default();
    for source in sources() {
        let lines = source.code().count();
        if lines > MAX_CODE_LINES {
            problems.add(
                &source.path,
                1,
                &format!("{lines} lines of code, more than {MAX_CODE_LINES}: split it"),
            );
        }
    }
    problems.report();
}

/// A name in backticks with this many underscores is that of a test, unless it is a metric.
const UNDERSCORES_OF_TESTS: usize = 4;

#[test]
fn tests_that_documents_name_exist() {
    let sources: Vec<String> = files()
        .iter()
        .filter(|path| path.ends_with(".rs"))
        .filter_map(|path| read(path))
        .collect();
    let exists = |name: &str| {
        let declared = format!("fn {name}(");
        sources.iter().any(|text| text.contains(&declared))
    };
    let mut problems = Problems::default();
    for path in files().iter().filter(|path| path.ends_with(".md")) {
        let Some(text) = read(path) else { continue };
        for (number, line) in numbered(text.lines()) {
            // What is between two backticks is at the odd places.
            let quoted = line.split('`').skip(1).step_by(2);
            let names = quoted.filter_map(|path| path.split("::").last());
            for name in names.filter(|name| is_test_name(name)) {
                if !exists(name) {
                    problems.add(path, number, &format!("there is no test `{name}`"));
                }
            }
        }
    }
    problems.report();
}

fn is_test_name(name: &str) -> bool {
    let is_identifier =
        |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_';
    let is_metric = name.starts_with("throng_");
    let has_many = name.matches('_').count() >= UNDERSCORES_OF_TESTS;
    name.chars().all(is_identifier) && has_many && !is_metric
}

#[test]
fn no_file_names_a_machine() {
    let mut problems = Problems::default();
    for path in files() {
        let Some(text) = read(&path) else { continue };
        for (number, line) in numbered(text.lines()) {
            if let Some(found) = PATHS_OF_MACHINES.iter().find(|path| line.contains(**path)) {
                problems.add(
                    &path,
                    number,
                    &format!("`{found}` is not on other machines: take it out"),
                );
            }
        }
    }
    problems.report();
}

#[test]
fn sources_are_finished_and_ascii() {
    let mut problems = Problems::default();
    for path in files().iter().filter(|path| path.ends_with(".rs")) {
        let Some(text) = read(path) else { continue };
        for (number, line) in numbered(text.lines()) {
            if let Some(found) = PLACEHOLDERS.iter().find(|name| line.contains(**name)) {
                problems.add(path, number, &format!("do what `{found}` puts off"));
            }
            if let Some(found) = line.chars().find(|char| !char.is_ascii()) {
                let escape = found.escape_unicode();
                problems.add(path, number, &format!("write `{escape}` for `{found}`"));
            }
        }
    }
    problems.report();
}

/// What is wrong, in all files, so that one run shows everything.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, path: &str, line: usize, advice: &str) {
        self.0.push(format!("{path}:{line}: {advice}"));
    }

    fn report(self) {
        assert!(self.0.is_empty(), "\n{}\n", self.0.join("\n"));
    }
}

/// A file of `src`, up to its tests.
struct Source {
    path: String,
    lines: Vec<String>,
}

impl Source {
    fn module(&self) -> &str {
        let inside = self.path.trim_start_matches("src/");
        inside.split(['/', '.']).next().unwrap_or_default()
    }

    /// The lines that hold code, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        numbered(self.lines.iter())
            .map(|(number, line)| (number, line.split("//").next().unwrap_or_default()))
            .filter(|(_, code)| !code.trim().is_empty())
    }

    /// The same, with each `use` as one line.
    fn statements(&self) -> Vec<(usize, String)> {
        let mut statements: Vec<(usize, String)> = Vec::new();
        let mut within_use = false;
        for (number, code) in self.code() {
            match statements.last_mut() {
                Some((_, last)) if within_use => last.push_str(code),
                _ => statements.push((number, code.to_owned())),
            }
            within_use |= words(code).find(|word| !["pub", "crate", "super", "in"].contains(word))
                == Some("use");
            within_use &= !code.contains(';');
        }
        statements
    }
}

/// The files of `src` that are not tests.
fn sources() -> impl Iterator<Item = Source> {
    files()
        .into_iter()
        .filter(|path| path.starts_with("src/") && path.ends_with(".rs"))
        .filter(|path| !path.ends_with("tests.rs"))
        .map(|path| {
            let text = read(&path).expect("a source file can be read");
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.truncate(start_of_tests(&lines));
            Source { path, lines }
        })
}

/// Where the test module of a file begins.
fn start_of_tests(lines: &[String]) -> usize {
    let is_test = |line: &str| line.starts_with("#[cfg(test") || line.starts_with("#[cfg(all(test");
    let is_module = |line: &str| {
        line.starts_with("mod ")
            && line.ends_with('{')
            && words(line).any(|word| word.ends_with("tests"))
    };
    let mut pairs = lines.windows(2);
    pairs
        .position(|pair| is_test(&pair[0]) && is_module(&pair[1]))
        .unwrap_or(lines.len())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_alphanumeric() && char != '_')
        .filter(|word| !word.is_empty())
}

fn numbered<T>(lines: impl Iterator<Item = T>) -> impl Iterator<Item = (usize, T)> {
    lines.enumerate().map(|(index, line)| (index + 1, line))
}

/// The text of a file; nothing if it is gone, or not text.
fn read(path: &str) -> Option<String> {
    fs::read_to_string(root().join(path)).ok()
}

/// The files that git knows, and those that it would add; without git, all files.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output();
    let listed = listed.map_or_else(|_| Vec::new(), |output| output.stdout);
    let listed = String::from_utf8_lossy(&listed);
    let mut files: Vec<String> = listed.split_terminator('\0').map(str::to_owned).collect();
    if files.is_empty() {
        walk("", &mut files);
    }
    files.retain(|path| root().join(path).is_file());
    assert!(files.iter().any(|path| path == "src/lib.rs"), "{files:?}");
    files
}

fn walk(folder: &str, files: &mut Vec<String>) {
    let entries = fs::read_dir(root().join(folder)).expect("a folder can be read");
    for entry in entries {
        let name = entry.expect("a folder can be read").file_name();
        let path = format!("{folder}{}", name.to_string_lossy());
        if !root().join(&path).is_dir() {
            files.push(path);
        } else if name != "target" && name != ".git" && name != "node_modules" {
            walk(&format!("{path}/"), files);
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
