//! Replaces names in scripts. Before a script is sent, each name of a key is replaced with the key's position, such as
//! `KEYS[1]`, and each name of a constant with its value.
//!
//! Lua variables would serve the same purpose. But a variable that an inner function uses costs an allocation in each run
//! of the script, even if the function is never called, and a script would have dozens of them.

use super::keys;
use super::reply::reason_number;
use crate::durable::admin::page::MAX_LISTED_ERROR_BYTES;
use crate::durable::clock::millis;
use crate::durable::queue::priority::{LOW_PERIOD, MAX_SHARES, NORMAL_PERIOD};
use crate::durable::store::layouts::Layouts;
use crate::durable::store::{
    CEILING_AHEAD, DEAD_LETTER_RETENTION, DeadReason, HAND_OUT_INTERVAL, MAX_ATTEMPT_ERROR_BYTES,
    MAX_BATCH_TASKS, MAX_BYTES_WITH_OUTPUTS, MAX_DEAD_LETTERS, MAX_ERRORS, MAX_HAND_OUTS,
    MAX_HEAD_LISTS, MAX_REST, MAX_STAT_TYPES, MAX_STEP_BYTES, MAX_STEPS, MAX_STORE_TIME_STEP,
    MAX_TOTAL_STEP_BYTES, Resolution,
};

/// The constants of scripts, by their names.
fn constants(layouts: Layouts, is_cluster: bool) -> Vec<(&'static str, String)> {
    let [publish, receivers] = match is_cluster {
        true => ["'SPUBLISH'", "'SHARDNUMSUB'"],
        false => ["'PUBLISH'", "'NUMSUB'"],
    };
    let values = [
        // The command that publishes a message, and the one that counts those who would receive it.
        ("PUBLISH", publish.to_owned()),
        ("NUMSUB", receivers.to_owned()),
        // The version of routes that have not been written yet.
        ("NO_ROUTES", "'00000000'".to_owned()),
        // The id of the main list.
        ("MAIN", format!("'{}'", "0".repeat(16))),
        ("LAYOUT", layouts.newest.to_string()),
        ("OLDEST_LAYOUT", layouts.oldest.to_string()),
        ("MAX_BATCH", MAX_BATCH_TASKS.to_string()),
        ("MAX_STEPS", MAX_STEPS.to_string()),
        ("MAX_STEP_BYTES", MAX_STEP_BYTES.to_string()),
        ("MAX_TOTAL_STEP_BYTES", MAX_TOTAL_STEP_BYTES.to_string()),
        ("MAX_BYTES_WITH_OUTPUTS", MAX_BYTES_WITH_OUTPUTS.to_string()),
        (
            "MAX_ATTEMPT_ERROR_BYTES",
            MAX_ATTEMPT_ERROR_BYTES.to_string(),
        ),
        // The maximum number of notes that are read at once, and the size in bytes after which no further one is read.
        ("MAX_NOTES", 64.to_string()),
        ("MAX_NOTE_BYTES", (256 << 10).to_string()),
        // While there are no more types than this, their names are kept for as long as the store exists.
        ("MAX_TYPES", 10_000.to_string()),
        ("MAX_DEAD", MAX_DEAD_LETTERS.to_string()),
        ("MAX_STAT_TYPES", MAX_STAT_TYPES.to_string()),
        ("STAT_MINUTES", Resolution::Minute.kept().to_string()),
        ("STAT_HOURS", Resolution::Hour.kept().to_string()),
        ("DEAD_RETENTION", millis(DEAD_LETTER_RETENTION).to_string()),
        ("MAX_AGED", millis(MAX_STORE_TIME_STEP).to_string()),
        // The duration of a run that is not known, or does not exist.
        ("NO_RUN_TIME", "'\\255\\255\\255\\255'".to_owned()),
        ("CRASHES", reason_number(DeadReason::Crashes).to_string()),
        ("DAMAGED", reason_number(DeadReason::Damaged).to_string()),
        ("MAX_ERRORS", MAX_ERRORS.to_string()),
        ("MAX_LISTED_ERROR", MAX_LISTED_ERROR_BYTES.to_string()),
        ("MAX_HEAD_LISTS", MAX_HEAD_LISTS.to_string()),
        ("NORMAL_PERIOD", NORMAL_PERIOD.to_string()),
        ("LOW_PERIOD", LOW_PERIOD.to_string()),
        ("MAX_SHARES", MAX_SHARES.to_string()),
        ("CEILING_AHEAD", CEILING_AHEAD.as_micros().to_string()),
        ("MAX_HAND_OUTS", MAX_HAND_OUTS.to_string()),
        // The following times are in milliseconds.
        ("HAND_OUT_INTERVAL", millis(HAND_OUT_INTERVAL).to_string()),
        ("DAY", (24 * 3600 * 1000).to_string()),
        // The time for which damage is reported after it was found.
        ("DAMAGE_REPORT_TIME", (3600 * 1000).to_string()),
        // The time for which a client gets completion events after its last status request.
        ("AWAITING_TIME", (60 * 1000).to_string()),
        // The time for which a session must be silent before its process may count as gone.
        ("SILENCE_LIMIT", (180 * 1000).to_string()),
        // The time within which an idle session that is alive has looked for tasks: its longest rest, and some delay.
        ("IDLE_SIGHT", (millis(MAX_REST) + 5_000).to_string()),
        // The interval at which the time of the last request of a session is stored.
        ("ACTIVITY_INTERVAL", (60 * 1000).to_string()),
        // The time for which a pushed claim may be unconfirmed before it counts as lost.
        ("PUSH_CONFIRM_TIME", 1000.to_string()),
    ];
    let positions = layout().map(|(name, position)| (name, position.to_owned()));
    values.into_iter().chain(positions).collect()
}

/// Returns the byte positions of stored rows, by their names.
pub(super) fn layout() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("lua/layout.lua").lines();
    let lines = lines.filter(|line| !line.starts_with("--"));
    lines.filter_map(|line| line.split_once(" = "))
}

/// Returns a script in which the names of these keys are replaced with their positions, and those of constants with
/// their values. Comments and indentation, which make up more than a third of the text, are left out.
pub(super) fn resolve(script: &str, keys: &[&str], layouts: Layouts, is_cluster: bool) -> String {
    debug_assert!(keys.iter().all(|key| keys::ALL.contains(key)));
    let constants = constants(layouts, is_cluster);
    let meaning = |word: &str| {
        let index = keys.iter().position(|key| *key == word);
        let constant = || constants.iter().find(|it| it.0 == word);
        match index {
            Some(index) => Some(format!("KEYS[{}]", index + 1)),
            None => constant().map(|it| it.1.clone()),
        }
    };
    let mut resolved = String::with_capacity(script.len());
    for line in script.lines() {
        resolve_line(line, &meaning, &mut resolved);
    }
    resolved
}

/// Adds a line without its comment, in which the names are replaced, except in strings. Adds nothing for a line without code.
fn resolve_line(line: &str, meaning: &impl Fn(&str) -> Option<String>, resolved: &mut String) {
    let line = line.trim_start();
    if line.is_empty() || line.starts_with("--") {
        return;
    }
    for (nth, part) in line.split_inclusive('\'').enumerate() {
        let is_string = nth % 2 == 1;
        match part.split_once("--") {
            _ if is_string => resolved.push_str(part),
            Some((code, _comment)) => {
                resolve_code(code.trim_end(), meaning, resolved);
                break;
            }
            None => resolve_code(part, meaning, resolved),
        }
    }
    resolved.push('\n');
}

/// Adds code without strings, in which the names are replaced.
fn resolve_code(code: &str, meaning: &impl Fn(&str) -> Option<String>, resolved: &mut String) {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut rest = code;
    // Only a word that begins with a capital letter can be a name.
    while let Some(first) = rest.bytes().position(|byte| byte.is_ascii_uppercase()) {
        let (before, from) = rest.split_at(first);
        let length = from.bytes().take_while(is_letter).count();
        let (word, others) = from.split_at(length);
        let is_whole = !before.as_bytes().last().is_some_and(is_letter);
        resolved.push_str(before);
        match meaning(word).filter(|_| is_whole) {
            Some(meaning) => resolved.push_str(&meaning),
            None => resolved.push_str(word),
        }
        rest = others;
    }
    resolved.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(script: &str) -> String {
        let keys = ["NONE", "META", "DEAD"];
        let resolved = resolve(script, &keys, Layouts::KNOWN, false);
        resolved.trim_end().to_owned()
    }

    #[test]
    fn names_of_keys_and_constants_are_replaced() {
        assert_eq!(
            resolved("call('HGET', META, DAY)"),
            "call('HGET', KEYS[2], 86400000)"
        );
        assert_eq!(resolved("x = NO_ROUTES"), "x = '00000000'");
    }

    #[test]
    fn longer_words_that_contain_a_name_stay() {
        for line in ["META_FIELDS", "is_DEAD", "DEADLINE", "DEAD2"] {
            assert_eq!(resolved(line), line);
        }
    }

    #[test]
    fn names_in_strings_stay() {
        let line = "error('DEAD ' .. DEAD)";
        assert_eq!(resolved(line), "error('DEAD ' .. KEYS[3])");
        assert_eq!(resolved("a = '--' .. DEAD"), "a = '--' .. KEYS[3]");
    }

    #[test]
    fn comments_are_left_out() {
        let script = "-- DEAD isn't\n  a = 'b' -- it's DEAD\n\n  -- DEAD\nc = DEAD";
        assert_eq!(resolved(script), "a = 'b'\nc = KEYS[3]");
    }

    #[test]
    fn a_key_that_the_script_does_not_list_keeps_its_name() {
        assert_eq!(resolved("call('DEL', READY)"), "call('DEL', READY)");
    }
}
