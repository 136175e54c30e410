//! Names in scripts. The source of a script has names for keys and numbers. Before the script is sent, each name of a key
//! is replaced with the key's position, such as `KEYS[1]`, and each name of a number with the number.
//!
//! A name could be a local variable instead. But a variable that an inner function uses costs an allocation in each
//! run of the script, whether or not the function is called, and a script has up to forty of them.

use super::keys::{self, LAYOUT};
use super::reply::reason_number;
use crate::durable::clock::millis;
use crate::durable::store::{
    CEILING_AHEAD, DEAD_LETTER_RETENTION, DeadReason, MAX_BATCH_TASKS, MAX_DEAD_LETTERS,
    MAX_ERRORS, MAX_STORE_TIME_STEP,
};

/// The numbers and words that scripts use, by their names.
fn constants() -> [(&'static str, String); 19] {
    [
        // The version of routes that have not been written yet.
        ("NO_ROUTES", "'00000000'".to_owned()),
        // The id of the main list.
        ("MAIN", format!("'{}'", "0".repeat(16))),
        // The positions of these fields in an entry: see `lua/entry.lua`.
        ("FLAGS", "55".to_owned()),
        ("LENGTH", "56".to_owned()),
        ("PAYLOAD", "60".to_owned()),
        ("LAYOUT", LAYOUT.to_string()),
        ("MAX_BATCH", MAX_BATCH_TASKS.to_string()),
        ("MAX_DEAD", MAX_DEAD_LETTERS.to_string()),
        ("DEAD_RETENTION", millis(DEAD_LETTER_RETENTION).to_string()),
        ("MAX_AGED", millis(MAX_STORE_TIME_STEP).to_string()),
        ("CRASHES", reason_number(DeadReason::Crashes).to_string()),
        ("DAMAGED", reason_number(DeadReason::Damaged).to_string()),
        ("MAX_ERRORS", MAX_ERRORS.to_string()),
        ("CEILING_AHEAD", CEILING_AHEAD.as_micros().to_string()),
        ("DAY", (24 * 3600 * 1000).to_string()),
        ("DAMAGE_IS_NEWS", (3600 * 1000).to_string()),
        ("AWAITING_FOR", (60 * 1000).to_string()),
        ("SILENT_FOR", (180 * 1000).to_string()),
        ("HEARD_EVERY", (60 * 1000).to_string()),
    ]
}

/// Returns a script in which the names of these keys are replaced with their positions, and those of constants with
/// their values.
pub(super) fn resolve(script: &str, keys: &[&str]) -> String {
    debug_assert!(keys.iter().all(|key| keys::ALL.contains(key)));
    let constants = constants();
    let meaning = |word: &str| {
        let place = keys.iter().position(|key| *key == word);
        let constant = || constants.iter().find(|it| it.0 == word);
        match place {
            Some(place) => Some(format!("KEYS[{}]", place + 1)),
            None => constant().map(|it| it.1.clone()),
        }
    };
    let lines = script.lines().map(|line| resolve_line(line, &meaning));
    lines.collect::<Vec<_>>().join("\n")
}

/// Replaces the names in a line, except in strings and comments.
fn resolve_line(line: &str, meaning: &impl Fn(&str) -> Option<String>) -> String {
    let mut resolved = String::new();
    let (mut is_string, mut rest) = (false, line);
    while let Some(next) = rest.chars().next() {
        if !is_string && rest.starts_with("--") {
            break;
        }
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = rest.find(|c| !is_letter(c)).unwrap_or(rest.len());
        let (word, others) = rest.split_at(end.max(next.len_utf8()));
        match meaning(word).filter(|_| !is_string) {
            Some(meaning) => resolved.push_str(&meaning),
            None => resolved.push_str(word),
        }
        is_string ^= word == "'";
        rest = others;
    }
    resolved + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(script: &str) -> String {
        resolve(script, &["NONE", "META", "DEAD"])
    }

    #[test]
    fn a_key_becomes_its_place_and_a_constant_its_value() {
        assert_eq!(
            resolved("call('HGET', META, DAY)"),
            "call('HGET', KEYS[2], 86400000)"
        );
        assert_eq!(resolved("x = NO_ROUTES"), "x = '00000000'");
    }

    #[test]
    fn what_only_contains_a_name_is_none() {
        for line in ["META_FIELDS", "is_DEAD", "DEADLINE", "DEAD2"] {
            assert_eq!(resolved(line), line);
        }
    }

    #[test]
    fn strings_and_comments_stay() {
        let line = "error('DEAD ' .. DEAD) -- the DEAD are DEAD";
        let expected = "error('DEAD ' .. KEYS[3]) -- the DEAD are DEAD";
        assert_eq!(resolved(line), expected);
        assert_eq!(resolved("a = '--' .. DEAD"), "a = '--' .. KEYS[3]");
    }

    #[test]
    fn a_key_that_was_not_given_keeps_its_name() {
        assert_eq!(resolved("call('DEL', READY)"), "call('DEL', READY)");
    }
}
