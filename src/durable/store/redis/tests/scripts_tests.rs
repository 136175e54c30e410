//! Properties of the scripts' texts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::super::keys::{self, ALL, Keys};
use super::super::scripts::{FILES, Script, TimeSource};
use crate::durable::store::layouts::Layouts;

/// Commands without a key.
const WITHOUT_KEYS: [&str; 5] = ["TIME", "PUBLISH", "SPUBLISH", "PUBSUB", "INFO"];

/// Returns all scripts, for a server of its own, or for the nodes of a cluster.
fn all_of(is_cluster: bool) -> Vec<(&'static str, Script)> {
    let scripts = FILES.iter().filter(|(_, file)| file.contains("\n-- KEYS:"));
    let compose = |name| Script::new(name, TimeSource::Server, Layouts::KNOWN, is_cluster);
    scripts.map(|&(name, _)| (name, compose(name))).collect()
}

fn all() -> Vec<(&'static str, Script)> {
    let all = all_of(false);
    assert!(all.len() > 40, "{}", all.len());
    all
}

/// Returns the commands of all scripts, in lower case.
pub(super) fn commands() -> BTreeSet<String> {
    let mut commands = BTreeSet::new();
    for (_, script) in all() {
        let code = code(&script);
        commands.extend(calls(&code).iter().map(|call| call.1.to_ascii_lowercase()));
    }
    commands
}

/// Returns the part of a key that determines its slot in a cluster.
fn tag(key: &str) -> &str {
    let (_, rest) = key.split_once('{').expect("a key has a tag");
    let (tag, _) = rest.split_once('}').expect("a tag has an end");
    assert!(!tag.is_empty());
    tag
}

/// Returns the code of a script without its comments, and with the names of its keys.
fn code(script: &Script) -> String {
    let lines = script.text().lines();
    let code = lines.map(|line| line.split("--").next().unwrap_or_default());
    let code = code.collect::<Vec<_>>().join("\n");
    let names = given(script).into_iter().enumerate();
    names.fold(code, |code, (place, name)| {
        code.replace(&format!("KEYS[{}]", place + 1), &name)
    })
}

/// Returns the code of a script without its undo part, which does not use all of its functions.
fn before_undo(code: &str) -> &str {
    code.split_once("local u, undo").map_or(code, |it| it.0)
}

/// Returns the calls of Redis in a script: the function that is called, the command, and its first argument.
fn calls(code: &str) -> Vec<(&str, &str, &str)> {
    let all = ["call", "try", "try_all", "write_all"].iter();
    let found = all.flat_map(|how| {
        let pattern = format!("{how}('");
        let places: Vec<_> = code.match_indices(&pattern).map(|it| it.0).collect();
        places.into_iter().map(move |place| (place, how.len() + 2))
    });
    found
        .map(|(place, len)| {
            let is_pcall = code[..place].ends_with("redis.p");
            let (command, rest) = code[place + len..]
                .split_once('\'')
                .expect("a command has an end");
            let first = rest.trim_start_matches([',', ' ']);
            let end = first.find([',', ')', ' ']).expect("a call has an end");
            (
                if is_pcall { "pcall" } else { "call" },
                command,
                &first[..end],
            )
        })
        .collect()
}

/// Returns the names of the keys of a script.
fn given(script: &Script) -> Vec<String> {
    let keys = Keys::new("");
    script.keys(&keys).map(str::to_uppercase).collect()
}

#[test]
fn the_keys_of_a_script_are_in_one_slot() {
    let bases = [keys::base("name}space", 0), keys::base("other", 12)];
    for keys in bases.map(|base| Keys::new(&base)) {
        for (name, script) in all() {
            let tags: Vec<_> = script.keys(&keys).map(tag).collect();
            assert!(!tags.is_empty(), "{name}");
            assert!(tags.iter().all(|tag| *tag == tags[0]), "{name}: {tags:?}");
        }
    }
}

/// A cluster node that has moved one of the keys to another node refuses such a script as a whole.
#[test]
fn every_script_declares_a_key_that_never_exists() {
    for (name, script) in all() {
        assert_eq!(given(&script)[..2], ["NONE", "META"], "{name}");
        assert!(
            calls(&code(&script)).iter().all(|call| call.2 != "NONE"),
            "{name}"
        );
    }
}

/// The request must contain all keys, since servers check permissions and cluster slots by them. The name of a key that is
/// not in a script's head stays in the text, where it is an undefined variable.
#[test]
fn scripts_use_only_the_keys_in_their_heads() {
    for (name, script) in all() {
        let given = given(&script);
        assert!(
            given.iter().all(|key| ALL.contains(&key.as_str())),
            "{name}"
        );
        let code = code(&script);
        let calls = calls(before_undo(&code));
        assert!(!calls.is_empty(), "{name}");
        for (_, command, first) in calls {
            // These are parameters or variables, which are derived from one of these keys.
            let is_derived = ["key", "key_before", "permits"].contains(&first);
            let is_name = is_derived || given.iter().any(|key| key == first);
            assert!(
                is_name || WITHOUT_KEYS.contains(&command),
                "{name}: {command} {first}"
            );
        }
    }
}

/// Without the permission for a channel, publishing fails. This must not end a script. Undo functions also continue after a
/// failure.
#[test]
fn publishing_never_ends_a_script() {
    let mut found = 0;
    for (name, script) in all() {
        let code = code(&script);
        for (how, command, first) in calls(before_undo(&code)) {
            let must_not_end = WITHOUT_KEYS[1..].contains(&command);
            // All scripts begin with the first one, and the second one only determines who is notified.
            let is_known = [("HMGET", "META"), ("ZSCORE", "AWAITING")].contains(&(command, first));
            let may_fail = must_not_end || is_known;
            assert!(how == "call" || may_fail, "{name}: {command}");
            assert!(how == "pcall" || !must_not_end, "{name}: {command}");
            found += usize::from(must_not_end);
        }
    }
    assert!(found > 5, "{found}");
}

/// A message to all nodes would cost each of them time, and one on a channel of another slot would be refused.
#[test]
fn the_scripts_of_a_cluster_publish_in_their_slot() {
    let mut found = 0;
    for (name, script) in all_of(true) {
        let code = code(&script);
        for (_, command, first) in calls(before_undo(&code)) {
            assert_ne!(command, "PUBLISH", "{name}");
            match command {
                "SPUBLISH" => assert_eq!(first, "BASE", "{name}"),
                "PUBSUB" => assert_eq!(first, "'SHARDNUMSUB'", "{name}"),
                _ => continue,
            }
            found += 1;
        }
    }
    assert!(found > 5, "{found}");
    let base = keys::base("name", 12);
    assert_eq!(tag(&keys::channel(&base, "a-client")), tag(&base));
}

/// The commands outside of scripts have one key, or none. A new one must be considered here.
#[test]
fn commands_outside_of_scripts_have_one_key() {
    let with_one_key = ["SADD", "SMEMBERS", "EXISTS", "SSUBSCRIBE"];
    let without_keys = [
        "HELLO", "CLUSTER", "PING", "CONFIG", "INFO", "WAIT", "WAITAOF", "EVAL_RO", "ASKING",
        "SENTINEL",
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/durable/store/redis");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Some(code) = path
            .extension()
            .and_then(|_| fs::read_to_string(&path).ok())
        else {
            continue;
        };
        for constructor in ["redis::cmd(\"", ".cmd(\""] {
            let commands = code.split(constructor).skip(1);
            let commands = commands.filter_map(|rest| rest.split('"').next());
            found.extend(commands.map(str::to_owned));
        }
    }
    let known = with_one_key.iter().chain(&without_keys);
    assert_eq!(found, known.map(|it| (*it).to_owned()).collect());
}

#[test]
fn every_file_belongs_to_a_script() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/durable/store/redis/lua");
    let listed: BTreeSet<_> = FILES.iter().map(|it| it.0.to_owned()).collect();
    let mut found = BTreeSet::new();
    for (prefix, folder) in [("", folder.clone()), ("undo/", folder.join("undo"))] {
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let name = name.strip_suffix(".lua");
            found.extend(name.map(|name| format!("{prefix}{name}")));
        }
    }
    // Only tests set the time, and `names.rs` reads the layout.
    for other in ["manual_time", "fault_injection", "layout"] {
        assert!(found.remove(other), "{other}");
    }
    assert_eq!(found, listed);
}

#[test]
fn every_script_contains_the_functions_that_it_calls() {
    let functions: BTreeSet<_> = FILES.iter().flat_map(|it| functions(it.1)).collect();
    assert!(functions.len() > 50, "{functions:?}");
    for (name, script) in all() {
        let code = code(&script);
        for function in &functions {
            let definition = format!("local function {function}(");
            let call = format!("{function}(");
            let mut calls = code.match_indices(&call).map(|it| it.0);
            let is_called = calls.any(|at| !code[..at].ends_with(is_word));
            // A script that has no such function says so to the part that would call it.
            let is_nil = code.contains(&format!("local {function} = nil\n"));
            let is_defined = is_nil || code.contains(&definition);
            assert!(is_defined || !is_called, "{name} calls {function}");
        }
    }
}

/// Returns the names of the functions that other files can call.
fn functions(file: &str) -> impl Iterator<Item = &str> {
    let lines = file.lines();
    let functions = lines.filter_map(|line| line.strip_prefix("local function "));
    functions.filter_map(|function| function.split('(').next())
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || ['_', '.'].contains(&c)
}

/// The arguments of the tests' source of time come last, and are not numbered.
#[test]
fn the_head_of_a_script_documents_its_keys_arguments_and_output() {
    for (name, script) in all() {
        let file = FILES.iter().find(|it| it.0 == name).unwrap().1;
        let head: Vec<_> = file
            .lines()
            .map_while(|line| line.strip_prefix("--"))
            .collect();
        for label in [" KEYS:", " Output"] {
            let is_there = head.iter().any(|line| line.starts_with(label));
            assert!(is_there, "{name}: {label}");
        }
        let code = code(&script);
        for used in code
            .split("ARGV[")
            .skip(1)
            .filter_map(|it| it.split(']').next())
        {
            let Ok(used) = used.parse::<usize>() else {
                continue;
            };
            let is_documented = head.iter().any(|line| documents(line, used));
            assert!(is_documented, "{name}: ARGV[{used}]");
        }
    }
}

/// Returns `true` if a line documents the argument with this number: ` ARGV[3] `, ` ARGV[2..4] ` or ` ARGV[2..] `.
fn documents(line: &str, used: usize) -> bool {
    let Some((numbers, _)) = line
        .strip_prefix(" ARGV[")
        .and_then(|it| it.split_once("] "))
    else {
        return false;
    };
    let (first, last) = numbers.split_once("..").unwrap_or((numbers, numbers));
    let number = |text: &str| text.parse::<usize>().ok();
    number(first).is_some_and(|first| first <= used) && number(last).is_none_or(|last| used <= last)
}
