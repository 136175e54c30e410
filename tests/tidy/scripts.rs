//! The heads of the scripts for Redis: the comments at their beginnings, which `src/durable/store/redis/scripts.rs` describes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Problems, files, numbered, read, words};

const FOLDER: &str = "src/durable/store/redis/lua/";

/// The file that no script contains. It has numbers only.
const LAYOUT: &str = "layout";

/// What the head of a file without `Needs:` says.
const NEEDS_NOTHING: [&str; 2] = ["Needs no part", "Needs no other part"];

/// What the head of a part says if the part only acts.
const DEFINES_NOTHING: &str = "Defines nothing.";

#[test]
fn heads_of_scripts_number_their_arguments() {
    let mut problems = Problems::default();
    let mut found = 0;
    for script in scripts() {
        for (number, code) in script.code() {
            for used in code.split("ARGV[").skip(1) {
                found += 1;
                let used = used.split(']').next().unwrap_or_default();
                if !script.numbers(used) {
                    let advice = format!("say in the head what `ARGV[{used}]` is");
                    problems.add(&script.path, number, &advice);
                }
            }
        }
    }
    assert!(found > 100, "{found}");
    problems.report();
}

#[test]
fn heads_of_scripts_say_what_they_need() {
    let scripts = scripts();
    let names: BTreeSet<_> = scripts.iter().map(|script| script.name.as_str()).collect();
    let mut problems = Problems::default();
    for script in &scripts {
        let needed = script.listed("Needs:");
        let needs_nothing = NEEDS_NOTHING.iter().any(|label| script.head_has(label));
        if needed.is_empty() && !needs_nothing {
            let advice = format!("say `Needs: ..` in the head, or `{}.`", NEEDS_NOTHING[0]);
            problems.add(&script.path, 1, &advice);
        }
        for name in needed.iter().filter(|name| !names.contains(name.as_str())) {
            problems.add(&script.path, 1, &format!("there is no part `{name}`"));
        }
    }
    problems.report();
}

#[test]
fn heads_of_scripts_say_what_they_give() {
    let scripts = scripts();
    let mut problems = Problems::default();
    for script in &scripts {
        if script.head_has("KEYS:") {
            if !script.head_has("Output") {
                problems.add(&script.path, 1, "say in the head what the `Output` is");
            }
            continue;
        }
        let defined = script.listed("Defines:");
        let says = ["Output", "Returns:", DEFINES_NOTHING];
        if defined.is_empty() && !says.iter().any(|label| script.head_has(label)) {
            problems.add(
                &script.path,
                1,
                "say `Defines: ..` or `Returns: ..` in the head",
            );
        }
        let declared = script.declared();
        for name in defined.iter().filter(|name| !declared.contains_key(*name)) {
            problems.add(&script.path, 1, &format!("the file defines no `{name}`"));
        }
        for (name, &number) in &declared {
            let is_shared = || scripts.iter().any(|other| script.gives(name, other));
            if !defined.contains(name) && is_shared() {
                let advice =
                    format!("other files call `{name}`: add it to `Defines: ..` in the head");
                problems.add(&script.path, number, &advice);
            }
        }
    }
    problems.report();
}

/// A file in `FOLDER`.
struct Script {
    path: String,
    /// The path in `FOLDER`, without its ending.
    name: String,
    head: Vec<String>,
    lines: Vec<String>,
}

impl Script {
    /// The lines after the head, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        numbered(self.lines.iter())
            .skip(self.head.len())
            .map(|(number, line)| (number, line.split("--").next().unwrap_or_default()))
    }

    fn head_has(&self, label: &str) -> bool {
        self.head
            .iter()
            .any(|line| line.trim_start().starts_with(label))
    }

    /// The words that the head lists after a label.
    fn listed(&self, label: &str) -> Vec<String> {
        let mut listed = Vec::new();
        let mut is_list = false;
        for line in &self.head {
            let first = line.trim_start().strip_prefix(label);
            is_list = first.is_some() || is_list && line.starts_with("   ");
            if is_list {
                let words = first.unwrap_or(line).split([' ', ',']);
                let words = words.map(|word| word.trim_end_matches('.'));
                listed.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
            }
        }
        listed
    }

    /// Returns `true` if the head says what the argument is. If its number is computed, the head must describe some arguments.
    fn numbers(&self, used: &str) -> bool {
        let mut described = self.head.iter().filter_map(|line| {
            let (numbers, _) = line.strip_prefix(" ARGV[")?.split_once("] ")?;
            Some(numbers)
        });
        let number = |text: &str| text.parse::<usize>().ok();
        let Some(used) = number(used) else {
            // `ARGV[#ARGV - 1]` is the last but one.
            let from_end = used.replace("#ARGV", "last");
            return described.any(|numbers| match used.contains("#ARGV") {
                true => numbers == from_end,
                false => numbers.contains(".."),
            });
        };
        described.any(|numbers| {
            let (first, last) = numbers.split_once("..").unwrap_or((numbers, numbers));
            let is_after_first = number(first).is_some_and(|first| first <= used);
            is_after_first && number(last).is_none_or(|last| used <= last)
        })
    }

    /// The names that the file declares outside of functions, and their lines.
    fn declared(&self) -> BTreeMap<String, usize> {
        let mut declared = BTreeMap::new();
        for (number, code) in self.code() {
            let names = match code.strip_prefix("local ") {
                Some(names) if !names.starts_with("function ") => {
                    names.split(" =").next().unwrap_or_default()
                }
                _ => function(code).unwrap_or_default(),
            };
            for name in names
                .split(", ")
                .map(str::trim)
                .filter(|name| !name.is_empty())
            {
                declared.insert(name.to_owned(), number);
            }
        }
        declared
    }

    /// Returns `true` if the file runs only after a command has failed, apart from the other files.
    fn is_undo(&self) -> bool {
        self.name.starts_with("undo/")
    }

    /// Returns `true` if `other` calls this file's function `name`, and declares no function or variable with this name.
    fn gives(&self, name: &str, other: &Self) -> bool {
        let call = format!("{name}(");
        let is_function = || self.code().any(|(_, code)| function(code) == Some(name));
        let calls = |code: &str| {
            let mut found = code.match_indices(&call);
            found.any(|(at, _)| {
                !code[..at].ends_with(|char: char| char.is_alphanumeric() || "_.".contains(char))
            })
        };
        let declares = |code: &str| {
            let declared = code.trim_start().strip_prefix("local ");
            declared.is_some_and(|declared| words(declared).any(|word| word == name))
        };
        other.path != self.path
            && other.is_undo() == self.is_undo()
            && other.code().any(|(_, code)| calls(code))
            && !other.code().any(|(_, code)| declares(code))
            && is_function()
    }
}

/// The name of the function that a line declares outside of functions.
fn function(code: &str) -> Option<&str> {
    let declared = code.strip_prefix("local ").unwrap_or(code);
    declared.strip_prefix("function ")?.split('(').next()
}

fn scripts() -> Vec<Script> {
    let mut scripts = Vec::new();
    for path in files() {
        let name = path
            .strip_prefix(FOLDER)
            .and_then(|name| name.strip_suffix(".lua"));
        let Some(name) = name.filter(|name| *name != LAYOUT).map(str::to_owned) else {
            assert!(
                !path.ends_with(".lua") || path.starts_with(FOLDER),
                "{path} is elsewhere"
            );
            continue;
        };
        let text = read(&path).expect("a script can be read");
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let head = lines.iter().map_while(|line| line.strip_prefix("--"));
        let head = head.map(str::to_owned).collect();
        scripts.push(Script {
            path,
            name,
            head,
            lines,
        });
    }
    assert!(scripts.len() > 100, "{}", scripts.len());
    scripts
}
