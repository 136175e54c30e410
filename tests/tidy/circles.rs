//! No circle of files: of two files of a module, at most one needs the other.
//!
//! A file *needs* another one if it names an item that the other one defines. The check resolves each path that begins with
//! `crate::`, `super::`, `self::` or a child module:
//!
//! - It follows the modules in the path, each of which is a file. The rest of the path is an item.
//! - If the file of the last module does not define the item but imports it, the import is followed in turn. So an item
//!   that a parent only re-exports belongs to the file that defines it.
//! - A declaration `mod x;` is no need. A re-export is none either, unless the file uses the name itself.
//!
//! A folder's parent (`a.rs` of `a/`) is a file as any other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Problems, Source, sources, words};

/// Where circles are not broken yet: the beginnings of paths that are not checked. Take an entry out once its files form no
/// circle.
const UNCHECKED: [&str; 5] = [
    "src/blocking",
    "src/completion",
    "src/compute",
    "src/durable/store/redis",
    "src/join",
];

/// The imports of each file are followed at most this often, since they could form a circle, too.
const MAX_IMPORTS: usize = 8;

#[test]
fn no_circle_of_files() {
    let mut needs = Crate::read().needs();
    needs.retain(|path, _| !UNCHECKED.iter().any(|start| path.starts_with(start)));
    let mut problems = Problems::default();
    while let Some(circle) = shortest_circle(&needs) {
        let steps = circle.iter().zip(circle.iter().cycle().skip(1));
        let steps: Vec<_> = steps
            .map(|(from, to)| (from.clone(), to.clone(), needs[from][to].clone()))
            .collect();
        // If a child and its parent need each other, the child is to change.
        let is_upward = |(from, to, _): &&Step| from.starts_with(&to.replace(".rs", "/"));
        let (from, to, need) = steps.iter().find(is_upward).unwrap_or(&steps[0]);
        problems.add(from, need.line, &advice(&steps));
        needs.get_mut(from).and_then(|needed| needed.remove(to));
    }
    problems.report();
}

type Step = (String, String, Need);

fn advice(circle: &[Step]) -> String {
    let needs = circle
        .iter()
        .map(|(from, to, need)| format!("{from}:{} needs `{}` of {to}", need.line, need.item));
    let needs: Vec<_> = needs.collect();
    format!(
        "{}: move one of these items to a file below all of them",
        needs.join(", ")
    )
}

/// Why a file needs another one.
#[derive(Clone, Debug)]
struct Need {
    line: usize,
    item: String,
}

/// By file, the files that it needs.
type Needs = BTreeMap<String, BTreeMap<String, Need>>;

/// The files of the crate, by module path.
struct Crate(BTreeMap<Vec<String>, File>);

struct File {
    source: Source,
    /// The names that it defines.
    defined: BTreeSet<String>,
    imports: Vec<Import>,
}

struct Import {
    line: usize,
    /// The local name, or `*`.
    name: String,
    path: Vec<String>,
    is_reexport: bool,
}

impl Crate {
    fn read() -> Self {
        let files = sources().map(|source| (module_path(&source.path), File::read(source)));
        Self(files.collect())
    }

    fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| {
            let lines = text.lines().map(str::to_owned).collect();
            let path = (*path).to_owned();
            (module_path(&path), File::read(Source { path, lines }))
        });
        Self(files.collect())
    }

    fn needs(&self) -> Needs {
        let needs = self.0.iter().map(|(module, file)| {
            let mut needed = BTreeMap::new();
            for (line, path) in file.paths(module, |child| self.is_child(module, child)) {
                let Some(found) = self.resolve(module, &path, MAX_IMPORTS) else {
                    continue;
                };
                let target = &self.0[&found];
                // The layers of modules are another check.
                let is_other = found != *module && found.first() == module.first();
                if is_other && !found.is_empty() {
                    let item = path.last().cloned().unwrap_or_default();
                    let need = Need { line, item };
                    needed.entry(target.source.path.clone()).or_insert(need);
                }
            }
            (file.source.path.clone(), needed)
        });
        needs.collect()
    }

    fn is_child(&self, module: &[String], name: &str) -> bool {
        self.0.contains_key(&joined(module, name))
    }

    /// Returns the module whose file defines what a path names, seen from a module.
    fn resolve(&self, module: &[String], path: &[String], imports: usize) -> Option<Vec<String>> {
        let mut at = module.to_vec();
        let mut rest = path.iter().peekable();
        while let Some(segment) = rest.peek() {
            match segment.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()?),
                name if self.is_child(&at, name) => at.push(name.to_owned()),
                _ => break,
            }
            rest.next();
        }
        let file = self.0.get(&at)?;
        let Some(item) = rest.next() else {
            return Some(at);
        };
        let import = file.imports.iter().find(|import| import.name == *item);
        match import {
            Some(import) if !file.defined.contains(item) && imports > 0 => {
                self.resolve(&at, &import.path, imports - 1)
            }
            _ => Some(at),
        }
    }
}

impl File {
    fn read(source: Source) -> Self {
        let statements = source.statements();
        let defined = statements.iter().filter_map(|(_, code)| definition(code));
        let defined = defined.collect();
        let imports = statements
            .iter()
            .flat_map(|(line, code)| imports(*line, code));
        let imports = imports.collect();
        Self {
            source,
            defined,
            imports,
        }
    }

    /// Returns the paths that the file names, with their lines.
    fn paths(
        &self,
        module: &[String],
        is_child: impl Fn(&str) -> bool,
    ) -> Vec<(usize, Vec<String>)> {
        let statements = self.source.statements();
        let code = || statements.iter().filter(|(_, code)| !is_use(code));
        let is_used = |name: &str| code().any(|(_, code)| words(code).any(|word| word == name));
        let imported = self
            .imports
            .iter()
            .filter(|it| !it.is_reexport || is_used(&it.name));
        let mut paths: Vec<_> = imported.map(|it| (it.line, it.path.clone())).collect();
        for (line, code) in code() {
            for path in inline_paths(code) {
                let is_path = match path[0].as_str() {
                    "crate" => path.get(1) == module.first(),
                    "super" | "self" => true,
                    first => is_child(first),
                };
                if is_path && path.len() > 1 {
                    paths.push((*line, path));
                }
            }
        }
        paths
    }
}

fn joined(module: &[String], name: &str) -> Vec<String> {
    let name = Some(name.to_owned());
    module.iter().cloned().chain(name).collect()
}

/// Returns `["a", "b"]` for `src/a/b.rs`, and nothing for the root of the crate.
fn module_path(path: &str) -> Vec<String> {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    let segments = inside.split('/').filter(|&segment| segment != "lib");
    segments.map(str::to_owned).collect()
}

/// Returns the name that a line defines.
fn definition(code: &str) -> Option<String> {
    const KINDS: [&str; 9] = [
        "struct",
        "enum",
        "trait",
        "type",
        "fn",
        "const",
        "static",
        "union",
        "macro_rules",
    ];
    // Items within items are indented.
    if code.starts_with(' ') || is_use(code) {
        return None;
    }
    let mut words = words(code).skip_while(|word| !KINDS.contains(word));
    let name = words.find(|word| !KINDS.contains(word) && *word != "unsafe" && *word != "mut")?;
    Some(name.to_owned())
}

fn is_use(code: &str) -> bool {
    let mut words =
        words(code).skip_while(|word| ["pub", "crate", "super", "in", "self"].contains(word));
    words.next() == Some("use")
}

/// Returns what a `use` imports.
fn imports(line: usize, code: &str) -> Vec<Import> {
    let Some((visibility, tree)) = code.split_once("use ").filter(|_| is_use(code)) else {
        return Vec::new();
    };
    let is_reexport = visibility.contains("pub");
    let mut paths = Vec::new();
    expand(Vec::new(), tree.trim().trim_end_matches(';'), &mut paths);
    let imports = paths.into_iter().map(|mut path| {
        let last = path.pop().unwrap_or_default();
        let (item, name) = match last.split_once(" as ") {
            Some((item, name)) => (item.to_owned(), name.to_owned()),
            None => (last.clone(), last),
        };
        // `a::{self}` imports `a`.
        let name = match item.as_str() {
            "self" => path.last().cloned().unwrap_or_default(),
            _ => name,
        };
        path.extend(Some(item).filter(|item| item != "self" && item != "*"));
        Import {
            line,
            name,
            path,
            is_reexport,
        }
    });
    imports.collect()
}

/// Splits a tree of imports into paths.
fn expand(prefix: Vec<String>, tree: &str, paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    if tree.is_empty() {
        return;
    }
    if let Some(group) = tree
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
    {
        for branch in branches(group) {
            expand(prefix.clone(), branch, paths);
        }
        return;
    }
    let (first, rest) = match tree.split_once("::") {
        Some((first, rest)) if !first.contains('{') => (first, Some(rest)),
        _ => (tree, None),
    };
    let mut path = prefix;
    path.push(first.trim().to_owned());
    match rest {
        Some(rest) => expand(path, rest, paths),
        None => paths.push(path),
    }
}

/// Splits the inside of braces at its own commas.
fn branches(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&group[start..]);
    found
}

/// Returns the paths of at least two segments in a line of code, except in `pub(in ..)`.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let code = match code.split_once("pub(in ") {
        Some((_, rest)) => rest.split_once(')').map_or("", |(_, item)| item),
        None => code,
    };
    let is_path = |char: char| char.is_alphanumeric() || char == '_' || char == ':';
    let paths = code.split(|char: char| !is_path(char));
    let paths = paths.filter(|path| path.contains("::") && !path.starts_with(':'));
    let paths = paths.map(|path| path.split("::").filter(|it| !it.is_empty()));
    let paths = paths.map(|path| path.map(str::to_owned).collect::<Vec<_>>());
    paths.filter(|path| !path.is_empty()).collect()
}

/// Returns a circle with the fewest files.
fn shortest_circle(needs: &Needs) -> Option<Vec<String>> {
    let circles = needs.keys().filter_map(|file| shortest_way(needs, file));
    circles.min_by_key(Vec::len)
}

/// Returns the files on the shortest way from a file back to itself.
fn shortest_way(needs: &Needs, file: &String) -> Option<Vec<String>> {
    let mut before: BTreeMap<&String, &String> = BTreeMap::new();
    let mut open = VecDeque::from([file]);
    while let Some(from) = open.pop_front() {
        for to in needs.get(from).into_iter().flat_map(BTreeMap::keys) {
            if to == file {
                let mut way = vec![from.clone()];
                let mut at = from;
                while at != file {
                    at = before[at];
                    way.push(at.clone());
                }
                way.reverse();
                return Some(way);
            }
            if !before.contains_key(to) {
                before.insert(to, from);
                open.push_back(to);
            }
        }
    }
    None
}

#[test]
fn imports_are_split_into_paths() {
    let code = "pub(crate) use super::{a::{self, B as C}, D, e::*};";
    let found = imports(1, code);
    let found: Vec<_> = found
        .iter()
        .map(|it| (it.name.as_str(), it.path.join("::")))
        .collect();
    let expected = [
        ("a", "super::a"),
        ("C", "super::a::B"),
        ("D", "super::D"),
        ("*", "super::e"),
    ];
    assert_eq!(found, expected.map(|(name, path)| (name, path.to_owned())));
}

#[test]
fn a_child_may_use_what_its_parent_imports() {
    let parent = "mod one;\nmod two;\npub use self::one::One;";
    let one = "pub struct One;";
    let two = "use super::One;";
    let files = [
        ("src/a.rs", parent),
        ("src/a/one.rs", one),
        ("src/a/two.rs", two),
    ];
    let needs = Crate::of(&files).needs();
    assert!(needs["src/a/two.rs"].contains_key("src/a/one.rs"));
    assert_eq!(shortest_circle(&needs), None);
}

#[test]
fn a_child_must_not_use_what_its_parent_defines() {
    let parent = "mod one;\npub struct Parent(one::One);";
    let one = "pub struct One;\nimpl One {\n    fn parent(&self) -> super::Parent {";
    let needs = Crate::of(&[("src/a.rs", parent), ("src/a/one.rs", one)]).needs();
    let circle = shortest_circle(&needs).expect("there is a circle");
    assert_eq!(circle, ["src/a.rs", "src/a/one.rs"]);
    assert_eq!(needs["src/a/one.rs"]["src/a.rs"].line, 3);
}
