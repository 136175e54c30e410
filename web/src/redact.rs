//! [`Redactor`]: removes confidential data before anything is shown.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use throng::durable::{Excerpt, TaskId};

/// The origin of a value that a hook of [`DashboardBuilder::redact`](crate::DashboardBuilder::redact) receives: a part of a task.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Shown<'a> {
    /// The id of the task.
    pub id: TaskId,
    /// The name of the task's type, if the store has kept it.
    pub name: Option<&'a str>,
    /// The part of the task that the value is.
    pub part: ShownPart,
    /// The name of the step, if the part is the value of a step.
    pub step: Option<&'a str>,
}

/// A part of a task that may contain confidential data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShownPart {
    /// The payload.
    Payload,
    /// The output of a task that has succeeded.
    Output,
    /// The last progress report.
    Progress,
    /// The error of an attempt, which is a string.
    Error,
    /// The value of a step.
    Step,
}

impl<'a> Shown<'a> {
    /// A part of a task that is not the value of a step.
    pub(crate) fn new(id: TaskId, name: Option<&'a str>, part: ShownPart) -> Self {
        Self {
            id,
            name,
            part,
            step: None,
        }
    }
}

type RedactHook = Arc<dyn Fn(&Shown<'_>, &mut Value) + Send + Sync>;

/// Removes confidential data by the built-in rules and then by a hook.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    hook: Option<RedactHook>,
}

/// A payload, an output or a progress report, without confidential data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Document {
    /// The length of the whole value, in bytes.
    pub(crate) len: usize,
    /// The value as indented JSON, or `None` if it is not shown.
    pub(crate) text: Option<String>,
    /// The reason why the value is not shown.
    pub(crate) note: Option<&'static str>,
}

/// The text that replaces a confidential value.
const HIDDEN: &str = "(hidden)";
/// Texts that the names of confidential values contain, without `_` and `-`, in lower case.
const SECRET_KEYS: [&str; 9] = [
    "pass",
    "secret",
    "token",
    "authorization",
    "cookie",
    "apikey",
    "card",
    "iban",
    "ssn",
];
/// The maximum length of the value of a step that is shown. A task may have thousands of steps.
const MAX_STEP_BYTES: usize = 4 << 10;
/// The maximum length of an indented document. Longer ones are not indented, since deep ones consist mostly of spaces.
const MAX_INDENTED_BYTES: usize = 128 << 10;

impl Redactor {
    pub(crate) fn with_hook(hook: RedactHook) -> Self {
        Self { hook: Some(hook) }
    }

    /// Removes confidential data from an error.
    pub(crate) fn error(&self, id: TaskId, name: Option<&str>, text: &str) -> String {
        let text = redact_text(text);
        match &self.hook {
            None => text,
            Some(hook) => {
                let mut value = Value::String(text);
                hook(&Shown::new(id, name, ShownPart::Error), &mut value);
                match value {
                    Value::String(text) => text,
                    other => other.to_string(),
                }
            }
        }
    }

    /// Removes confidential data from JSON. A value that is not JSON may contain such data anywhere, so it is not shown.
    pub(crate) fn document(&self, shown: &Shown<'_>, excerpt: &Excerpt) -> Document {
        let parsed = match excerpt.is_whole() {
            true => serde_json::from_slice(&excerpt.bytes)
                .map_err(|_| "It is not JSON, or it is nested too deeply."),
            false => Err("It is longer than 64 KiB."),
        };
        let text = parsed.map(|mut value| {
            redact_value(&mut value);
            if let Some(hook) = &self.hook {
                hook(shown, &mut value);
            }
            indented(&value)
        });
        Document {
            len: excerpt.len,
            note: text.as_ref().err().copied(),
            text: text.ok(),
        }
    }
}

impl Redactor {
    /// Removes confidential data from the value of a step. The name of the step may say that all of it is confidential.
    pub(crate) fn step(&self, shown: &Shown<'_>, excerpt: &Excerpt) -> Document {
        let len = excerpt.len;
        match (shown.step.is_some_and(is_secret_key), len) {
            (true, _) => Document {
                len,
                text: None,
                note: Some("The name of the step is that of a confidential value."),
            },
            (false, 0..=MAX_STEP_BYTES) => self.document(shown, excerpt),
            (false, _) => Document {
                len,
                text: None,
                note: Some("It is longer than 4 KiB."),
            },
        }
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

fn indented(value: &Value) -> String {
    let text = format!("{value:#}");
    match text.len() {
        0..=MAX_INDENTED_BYTES => text,
        _ => value.to_string(),
    }
}

/// Replaces the values of confidential keys. The depth of a parsed value is limited by its parser.
fn redact_value(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            redact_named_value(fields);
            let named = std::mem::take(fields).into_iter();
            *fields = named.map(redact_field).collect();
        }
        Value::Array(values) => {
            values.iter_mut().for_each(redact_value);
            // Pairs, as in a list of headers.
            if let [Value::String(key), value @ Value::String(_)] = &mut values[..]
                && is_secret_key(key)
            {
                *value = HIDDEN.into();
            }
        }
        Value::String(text) => *text = redact_text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces the value in `{"name": "password", "value": ".."}`, as in a list of variables.
fn redact_named_value(fields: &mut Map<String, Value>) {
    let names = ["name", "key"].map(|it| fields.get(it).and_then(Value::as_str));
    let is_secret = names.into_iter().flatten().any(is_secret_key);
    if let Some(value) = fields.get_mut("value").filter(|_| is_secret) {
        *value = HIDDEN.into();
    }
}

/// A key may be data, too, such as the URL of a server.
fn redact_field((key, mut value): (String, Value)) -> (String, Value) {
    match is_secret_key(&key) {
        true => value = HIDDEN.into(),
        false => redact_value(&mut value),
    }
    (redact_text(&key), value)
}

/// Replaces confidential values in a text: those of pairs such as `password=..` and `"token": ".."`, and the credentials in URLs.
pub(crate) fn redact_text(text: &str) -> String {
    let text = replace_all(text, next_credentials);
    replace_all(&text, next_value)
}

/// Replaces each range that `next` finds in the rest of the text.
fn replace_all(text: &str, next: impl Fn(&str) -> Option<Range<usize>>) -> String {
    let (mut replaced, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(found) = next(rest) {
        replaced.push_str(&rest[..found.start]);
        replaced.push_str(HIDDEN);
        rest = &rest[found.end..];
    }
    replaced.push_str(rest);
    replaced
}

/// Returns the range of the credentials of the first URL that has some: `user:password` in `redis://user:password@host`.
fn next_credentials(text: &str) -> Option<Range<usize>> {
    let mut starts = text.match_indices("://").map(|(at, mark)| at + mark.len());
    starts.find_map(|start| {
        let rest = &text[start..];
        let end = rest.find(|char: char| char == '/' || char.is_whitespace());
        let authority = &rest[..end.unwrap_or(rest.len())];
        let credentials = match authority.rsplit_once('@') {
            Some((credentials, _)) => credentials,
            // Lists have only the beginning of an error, which may end within the password.
            None if end.is_none() && !is_host(authority) => authority,
            None => return None,
        };
        (credentials != HIDDEN).then(|| start..start + credentials.len())
    })
}

/// Returns `true` if an authority consists of a host, possibly with a port.
fn is_host(authority: &str) -> bool {
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the range of the first value that belongs to a confidential word.
fn next_value(text: &str) -> Option<Range<usize>> {
    let mut from = 0;
    while let Some(start) = text[from..].find(is_word_char).map(|at| from + at) {
        let len = text[start..].find(|char| !is_word_char(char));
        let end = len.map_or(text.len(), |len| start + len);
        if let Some(value) = value_after(text, start..end) {
            return Some(value);
        }
        from = end;
    }
    None
}

fn is_word_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_' || char == '-'
}

/// Returns the range of the value of a word, if the word is confidential and a value follows it.
fn value_after(text: &str, word: Range<usize>) -> Option<Range<usize>> {
    let (key, rest) = (&text[word.clone()], &text[word.end..]);
    let value = match key.eq_ignore_ascii_case("bearer") {
        true => rest.strip_prefix(' ')?.trim_start(),
        // As in `Password("..")`.
        false if is_secret_key(key) && rest.starts_with(['(', '[']) => rest,
        false if is_secret_key(key) => {
            let rest = rest.trim_start_matches(['\\', '"', '\'', ' ']);
            let rest = rest.strip_prefix(['=', ':'])?;
            rest.trim_start_matches(['=', '>']).trim_start()
        }
        false => return None,
    };
    let start = text.len() - value.len();
    let len = match is_header(key) && rest.starts_with(':') {
        true => header_len(value),
        false => value_len(value),
    };
    (len > 0 && !value.starts_with(HIDDEN)).then(|| start..start + len)
}

/// Returns `true` for the names of HTTP headers whose values consist of several parts, such as `Cookie: a=1; b=2`.
fn is_header(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key.ends_with("cookie") || key.ends_with("authorization")
}

fn value_len(value: &str) -> usize {
    match value.trim_start_matches('\\').starts_with(['"', '\'']) {
        true => string_len(value),
        false => unquoted_len(value),
    }
}

/// Returns the length of a value up to its closing quote, which has as many backslashes as the opening one.
fn quoted_len(value: &str, backslashes: usize, quote: char) -> usize {
    let inner = backslashes + quote.len_utf8();
    let mut quotes = value.match_indices(quote).skip(1);
    let closing = quotes.find(|(at, _)| {
        let before = &value[inner..*at];
        before.len() - before.trim_end_matches('\\').len() == backslashes
    });
    closing.map_or(value.len(), |(at, quote)| at + quote.len())
}

/// Returns the length of a value up to a space or a delimiter. Brackets belong to the value with all that they contain, as in
/// `Some("..")`. The value of an `Authorization` header begins with a scheme.
fn unquoted_len(value: &str) -> usize {
    let schemes = ["bearer ", "basic ", "digest ", "token "];
    let has_scheme = |scheme: &&str| {
        let beginning = value.get(..scheme.len());
        beginning.is_some_and(|it| it.eq_ignore_ascii_case(scheme))
    };
    let (mut depth, mut len) = (0_usize, 0);
    len += schemes.into_iter().find(has_scheme).map_or(0, str::len);
    while let Some(char) = value[len..].chars().next() {
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            '\\' | '"' | '\'' if depth > 0 => {
                len += string_len(&value[len..]);
                continue;
            }
            _ if depth == 0 && (char.is_whitespace() || ",;&)]}<>\"'".contains(char)) => break,
            _ => {}
        }
        len += char.len_utf8();
    }
    len
}

/// Returns the length of a string and its quotes, or of the backslashes before another character.
fn string_len(value: &str) -> usize {
    let unescaped = value.trim_start_matches('\\');
    let backslashes = value.len() - unescaped.len();
    match unescaped.chars().next() {
        Some(quote @ ('"' | '\'')) => quoted_len(value, backslashes, quote),
        _ => backslashes,
    }
}

/// Returns the length of the value of a header, which may contain spaces and delimiters.
fn header_len(value: &str) -> usize {
    value.find(['\n', '"', '\'']).unwrap_or(value.len())
}

fn is_secret_key(key: &str) -> bool {
    let plain: String = key
        .chars()
        .filter(|char| !['_', '-', ' '].contains(char))
        .flat_map(char::to_lowercase)
        .collect();
    SECRET_KEYS.iter().any(|secret| plain.contains(secret))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_confidential_words_are_hidden_in_texts() {
        for (text, expected) in [
            (
                "login failed: password=hunter2, user=x",
                "login failed: password=(hidden), user=x",
            ),
            (
                r#"{"db_password": "hunter 2","a":1}"#,
                r#"{"db_password": (hidden),"a":1}"#,
            ),
            (
                r#"got "{\"Api-Key\":\"hunter2\",\"a\":1}""#,
                r#"got "{\"Api-Key\":(hidden),\"a\":1}""#,
            ),
            (r#"token: "hun\"ter2" rest"#, "token: (hidden) rest"),
            (
                "Authorization: Bearer hunter2\nb",
                "Authorization: (hidden)\nb",
            ),
            ("sent Bearer hunter2 to x", "sent Bearer (hidden) to x"),
            (
                "redis://me:hunter2@host/0 is down",
                "redis://(hidden)@host/0 is down",
            ),
            ("secret='hunter2", "secret=(hidden)"),
            (
                r#"Login { password: Some("hunter2"), user: "x" }"#,
                r#"Login { password: (hidden), user: "x" }"#,
            ),
            (
                r#"tokens: ["hunt)er2", "hunter3"] of x"#,
                "tokens: (hidden) of x",
            ),
            (
                r#"got "{\"secrets\":{\"a\":\"hunt}er2\"},\"b\":1}""#,
                r#"got "{\"secrets\":(hidden),\"b\":1}""#,
            ),
            (r#"secret: Some("hunt"#, "secret: (hidden)"),
            (
                r#"invalid Password("hunter2") of x"#,
                "invalid Password(hidden) of x",
            ),
            ("password => hunter2 x", "password => (hidden) x"),
            ("Cookie: a=1; b=hunter2\nx", "Cookie: (hidden)\nx"),
            (
                "sent \"Authorization: Digest user=x, answer=hunter2\" twice",
                "sent \"Authorization: (hidden)\" twice",
            ),
            (
                "a token (expired) is refused",
                "a token (expired) is refused",
            ),
            ("SECRET = hunter2", "SECRET = (hidden)"),
            ("pass=a token=b", "pass=(hidden) token=(hidden)"),
            ("a token is missing", "a token is missing"),
            ("token=", "token="),
            ("\u{e9}token=\u{e9}x y", "\u{e9}token=(hidden) y"),
            ("http://host/a@b", "http://host/a@b"),
            ("refused by redis://me:hunt", "refused by redis://(hidden)"),
            (
                "refused by redis://host:6379",
                "refused by redis://host:6379",
            ),
            ("", ""),
        ] {
            assert_eq!(redact_text(text), expected, "{text}");
            assert_eq!(redact_text(expected), expected, "a second time");
        }
    }

    #[test]
    fn values_of_confidential_keys_are_hidden_in_json() {
        let mut value = json!({
            "to": "a@b.c",
            "Card_Number": 4111,
            "nested": [{ "API-Key": { "a": 1 } }, "url: redis://a:b@c"],
            "redis://a:b@c": 1,
            "headers": [["Cookie", "a=b"], ["Accept", "*/*"], ["Cookie", "a", "b"]],
            "variables": [{ "name": "DB_PASSWORD", "value": "hunter2" }, { "key": "to", "value": "x" }],
        });
        redact_value(&mut value);
        let expected = json!({
            "to": "a@b.c",
            "Card_Number": HIDDEN,
            "nested": [{ "API-Key": HIDDEN }, "url: redis://(hidden)@c"],
            "redis://(hidden)@c": 1,
            "headers": [["Cookie", HIDDEN], ["Accept", "*/*"], ["Cookie", "a", "b"]],
            "variables": [{ "name": "DB_PASSWORD", "value": HIDDEN }, { "key": "to", "value": "x" }],
        });
        assert_eq!(value, expected);
    }
}
