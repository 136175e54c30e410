//! How values are printed on pages.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use maud::{Markup, html};
use throng::durable::TaskInfo;

/// The maximum number of characters of a value in one line, such as a name or an error.
const MAX_LINE_CHARS: usize = 200;

/// Returns a value for one line: control characters and those that change the direction of writing are escaped, and a long value is cut.
pub(crate) fn line(text: &str) -> String {
    let mut chars = text.chars();
    let mut line: String = escaped(chars.by_ref().take(MAX_LINE_CHARS));
    if chars.next().is_some() {
        line.push('\u{2026}');
    }
    line
}

/// Returns a text of several lines, with the same characters escaped.
pub(crate) fn block(text: &str) -> String {
    let lines = text.split('\n').map(|line| escaped(line.chars()));
    lines.collect::<Vec<_>>().join("\n")
}

fn escaped(chars: impl Iterator<Item = char>) -> String {
    let mut text = String::new();
    for char in chars {
        match is_deceptive(char) {
            true => text.extend(char.escape_unicode()),
            false => text.push(char),
        }
    }
    text
}

/// Returns `true` for characters that show nothing, or that change how others are shown.
fn is_deceptive(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The maximum number of characters of a name that is not broken into two lines. Longer ones would not fit on a phone.
const MAX_UNBROKEN_CHARS: usize = 24;

/// Returns a name. A short one stays in one line.
pub(crate) fn word(text: &str) -> Markup {
    let is_short = text.chars().count() <= MAX_UNBROKEN_CHARS;
    html! { span class=[is_short.then_some("word")] { (line(text)) } }
}

/// Returns the name of a queue. The parentheses distinguish the default queue from a queue that has this name.
pub(crate) fn queue(name: Option<&str>) -> Markup {
    match name {
        Some(name) => word(name),
        None => html! { span.muted.word { "(default)" } },
    }
}

/// Returns the name of a type, or a dash if the store has not kept it.
pub(crate) fn name(name: Option<&str>) -> Markup {
    match name {
        Some(name) => word(name),
        None => dash(),
    }
}

/// Returns the error of a dead letter or, if no run has returned an error, the reason why the task is dead.
pub(crate) fn error_of(task: &TaskInfo) -> Markup {
    match (task.error.as_deref().unwrap_or_default(), task.reason) {
        ("", Some(reason)) => html! { span.muted { (reason) } },
        (error, _) => html! { (line(error)) },
    }
}

/// Returns what stands for a value that is not known or does not apply.
pub(crate) fn dash() -> Markup {
    html! { span.muted { "\u{2013}" } }
}

/// Returns a number with separators: `1,204`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number and a noun: `1 task`, `1,204 tasks`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// Returns a duration with about two digits: `0.4 s`, `12 s`, `5 min`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.as_millis() < 100 => format!("{} ms", time.as_millis()),
        0..10 => format!("{}.{} s", seconds, time.subsec_millis() / 100),
        10..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", count(seconds / 86_400)),
    }
}

/// Returns a time in the past: `5 min ago`, or a dash.
pub(crate) fn ago(age: Option<Duration>) -> Markup {
    match age {
        Some(age) => html! { (duration(age)) " ago" },
        None => dash(),
    }
}

/// Returns a duration, or a dash.
pub(crate) fn optional_duration(time: Option<Duration>) -> Markup {
    match time {
        Some(time) => html! { (duration(time)) },
        None => dash(),
    }
}

/// Returns a time in UTC, to the second.
pub(crate) fn time(time: SystemTime) -> Markup {
    match rfc3339(time) {
        Some(text) => {
            html! { time datetime=(text) { (text.replace('T', " ").trim_end_matches('Z')) " UTC" } }
        }
        None => dash(),
    }
}

/// Returns a time, or a dash.
pub(crate) fn optional_time(at: Option<SystemTime>) -> Markup {
    at.map_or_else(dash, time)
}

/// Returns `None` for times before 1970 and after the year 9999, which only a damaged store can contain.
fn rfc3339(time: SystemTime) -> Option<String> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let mut text = String::new();
    let written = write!(text, "{}", humantime::format_rfc3339_seconds(time));
    written.is_ok().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deceptive_characters_are_escaped_and_long_lines_are_cut() {
        assert_eq!(line("a\u{202e}b\u{1b}[1m\n"), "a\\u{202e}b\\u{1b}[1m\\u{a}");
        assert_eq!(block("a\n\tb"), "a\n\\u{9}b");
        assert_eq!(line("<b>\u{e9}"), "<b>\u{e9}");
        let long = "x".repeat(MAX_LINE_CHARS);
        assert_eq!(line(&long), long);
        assert_eq!(line(&format!("{long}x")), format!("{long}\u{2026}"));
    }

    #[test]
    fn numbers_and_durations_are_short() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_204, "1,204"),
            (1_000_000, "1,000,000"),
        ] {
            assert_eq!(count(number), text);
        }
        assert_eq!(counted(0, "task"), "0 tasks");
        assert_eq!(counted(1, "task"), "1 task");
        assert_eq!(counted(1_204, "task"), "1,204 tasks");
        for (millis, text) in [
            (0, "0 ms"),
            (99, "99 ms"),
            (420, "0.4 s"),
            (9_990, "9.9 s"),
            (12_000, "12 s"),
            (300_000, "5 min"),
            (7_200_000, "2 h"),
            (864_000_000, "10 d"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn impossible_times_are_dashes() {
        let damaged = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(time(damaged).into_string(), dash().into_string());
        let known = time(SystemTime::UNIX_EPOCH + Duration::from_millis(1_500));
        let expected = r#"<time datetime="1970-01-01T00:00:01Z">1970-01-01 00:00:01 UTC</time>"#;
        assert_eq!(known.into_string(), expected);
    }
}
