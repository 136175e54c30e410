//! What is true of the scripts as they are written.

use std::collections::BTreeSet;

use super::super::keys::{self, ALL, Keys};
use super::super::scripts::{Script, Scripts, Time};

/// Commands without a key, or with one that is made of the name of all keys.
const WITHOUT_KEYS: [&str; 4] = ["TIME", "PUBLISH", "PUBSUB", "INFO"];

fn all() -> Vec<(&'static str, &'static Script)> {
    let scripts = Scripts::of(Time::Server);
    vec![
        ("enqueue", &scripts.enqueue),
        ("turn", &scripts.turn),
        ("renew", &scripts.renew),
        ("status", &scripts.status),
        ("cancel", &scripts.cancel),
        ("open", &scripts.open),
        ("close", &scripts.close),
        ("dead_letters", &scripts.dead_letters),
        ("revive", &scripts.revive),
        ("maintain", &scripts.maintain),
        ("counts", &scripts.counts),
        ("errors", &scripts.errors),
        ("routes", &scripts.routes),
        ("recall", &scripts.recall),
    ]
}

/// Returns the commands of all scripts, in lower case.
pub(super) fn commands() -> BTreeSet<String> {
    let mut commands = BTreeSet::new();
    for (_, script) in all() {
        let code = code(script);
        commands.extend(calls(&code).iter().map(|call| call.1.to_ascii_lowercase()));
    }
    commands
}

/// What a cluster finds the slot of a key by.
fn tag(key: &str) -> &str {
    let (_, rest) = key.split_once('{').expect("a key has a tag");
    let (tag, _) = rest.split_once('}').expect("a tag has an end");
    assert!(!tag.is_empty());
    tag
}

/// Returns the code of a script without its comments, and with the names of its keys.
fn code(script: &Script) -> String {
    let lines = script.text.lines();
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

/// The calls of Redis in a script: how, the command, and what comes first.
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

/// A node of a cluster that has given one of the keys away refuses such a script as a whole.
#[test]
fn every_script_declares_a_key_that_never_exists() {
    for (name, script) in all() {
        assert_eq!(given(script)[..2], ["NONE", "META"], "{name}");
        assert!(
            calls(&code(script)).iter().all(|call| call.2 != "NONE"),
            "{name}"
        );
    }
}

/// A server that checks a user's rights to keys, and a cluster, must learn all keys from the request. The name of a key
/// that a script was not given stays in its text, where it is an undefined variable.
#[test]
fn scripts_touch_no_key_that_they_were_not_given() {
    for (name, script) in all() {
        let given = given(script);
        assert!(
            given.iter().all(|key| ALL.contains(&key.as_str())),
            "{name}"
        );
        let code = code(script);
        let calls = calls(before_undo(&code));
        assert!(!calls.is_empty(), "{name}");
        for (_, command, first) in calls {
            // `key` is what a function of the script is given, which is one of those, too.
            let is_name = given.iter().any(|key| key == first) || first == "key";
            assert!(
                is_name || WITHOUT_KEYS.contains(&command),
                "{name}: {command} {first}"
            );
        }
    }
}

/// A user without the right to a channel is refused only that: it must not end a script. The undo of a unit also
/// continues.
#[test]
fn scripts_tell_somebody_only_where_that_may_fail() {
    let mut found = 0;
    for (name, script) in all() {
        let code = code(script);
        for (how, command, first) in calls(before_undo(&code)) {
            let must_not_end = WITHOUT_KEYS[1..].contains(&command);
            // All scripts begin with the first, and the second only decides who is told.
            let is_known = [("HMGET", "META"), ("ZSCORE", "AWAITING")].contains(&(command, first));
            let may_fail = must_not_end || is_known;
            assert!(how == "call" || may_fail, "{name}: {command}");
            assert!(how == "pcall" || !must_not_end, "{name}: {command}");
            found += usize::from(must_not_end);
        }
    }
    assert!(found > 5, "{found}");
}
