//! [`BasicAuth`]: users with passwords, for applications that have no authentication of their own.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::access::Access;

/// The users that may use a dashboard, with their passwords.
///
/// Browsers ask for the name and the password, and send them with each request. So use this only on a loopback address, or behind a proxy
/// that terminates TLS. An application that authenticates its users needs no `BasicAuth`.
///
/// After 5 wrong passwords within a second, requests with passwords are refused for the rest of that second, for all users. This limits
/// the number of guesses.
///
/// # Examples
///
/// ```
/// use throng_web::BasicAuth;
///
/// let users = BasicAuth::from_text("# user:role:password\nada:operate:correct horse\nbob:read:battery staple\n")?;
/// # Ok::<(), throng_web::BasicAuthError>(())
/// ```
pub struct BasicAuth {
    users: Vec<BasicUser>,
    failures: Mutex<FailureWindow>,
}

struct BasicUser {
    name: String,
    may_operate: bool,
    credentials: Credentials,
}

/// A middleware that lets in only users, and leaves their [`Access`] in the extensions of the request.
pub(crate) async fn require_user(
    State(users): State<Arc<BasicAuth>>,
    mut request: Request,
    next: Next,
) -> Response {
    let access = match users.authenticate(request.headers()) {
        Authenticated::Read(user) => Access::read(user),
        Authenticated::Operate(user) => Access::operate(user),
        Authenticated::No => return ask_for_password(),
        Authenticated::TooManyFailures => return wait_a_second(),
    };
    request.extensions_mut().insert(access);
    next.run(request).await
}

fn ask_for_password() -> Response {
    let challenge = [(WWW_AUTHENTICATE, r#"Basic realm="throng", charset="UTF-8""#)];
    (
        StatusCode::UNAUTHORIZED,
        challenge,
        "401: this page needs a user name and a password.\n",
    )
        .into_response()
}

fn wait_a_second() -> Response {
    let message = "429: too many wrong passwords within a second. Try again.\n";
    (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")], message).into_response()
}

/// The role that a user has, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authenticated<'a> {
    Read(&'a str),
    Operate(&'a str),
    /// The credentials are missing or wrong.
    No,
    /// Too many credentials were wrong within the last second.
    TooManyFailures,
}

impl BasicAuth {
    /// Reads the users from a file: see [`from_text`](Self::from_text).
    ///
    /// # Errors
    ///
    /// The file cannot be read or is invalid. The message names the remedy.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, BasicAuthError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| BasicAuthError {
            kind: BasicAuthErrorKind::File(path.to_owned(), error),
        })?;
        Self::from_text(&text)
    }

    /// Reads the users from a text with a user on each line: `name:read:password` for users that only read, and
    /// `name:operate:password` for users that also change the store. The password extends to the end of the line, and may contain colons.
    /// Empty lines, and lines that begin with `#`, are ignored.
    ///
    /// # Errors
    ///
    /// A line is invalid, two lines have the same name, or there is no user. The message names the line and the remedy, but contains no
    /// password.
    pub fn from_text(text: &str) -> Result<Self, BasicAuthError> {
        let mut users: Vec<BasicUser> = Vec::new();
        let lines = text.lines().enumerate();
        for (index, line) in lines.filter(|(_, line)| !is_comment(line)) {
            let invalid = |problem| BasicAuthError {
                kind: BasicAuthErrorKind::Line(index + 1, problem),
            };
            let user = BasicUser::parse(line).map_err(invalid)?;
            if users.iter().any(|it| it.name == user.name) {
                return Err(invalid("the name is already used: give each user one line"));
            }
            users.push(user);
        }
        if users.is_empty() {
            let kind = BasicAuthErrorKind::NoUser;
            return Err(BasicAuthError { kind });
        }
        let failures = Mutex::default();
        Ok(Self { users, failures })
    }

    /// Finds the user whose credentials a request has.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Authenticated<'_> {
        self.authenticate_at(headers, Instant::now())
    }

    fn authenticate_at(&self, headers: &HeaderMap, now: Instant) -> Authenticated<'_> {
        let Some(header) = headers.get(AUTHORIZATION) else {
            return Authenticated::No; // Browsers send their first request without credentials.
        };
        let mut failures = self.failures.lock().unwrap_or_else(|it| it.into_inner());
        if failures.are_too_many(now) {
            return Authenticated::TooManyFailures;
        }
        match Credentials::from_header(header).and_then(|it| self.find(&it)) {
            Some(user) if user.may_operate => Authenticated::Operate(&user.name),
            Some(user) => Authenticated::Read(&user.name),
            None => {
                failures.add(now);
                Authenticated::No
            }
        }
    }

    /// Compares the credentials with those of all users, so that the time depends on neither.
    fn find(&self, credentials: &Credentials) -> Option<&BasicUser> {
        let mut found = u32::MAX;
        for (index, user) in (0..).zip(&self.users) {
            found.conditional_assign(&index, user.credentials.is_equal(credentials));
        }
        self.users.get(found as usize)
    }
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.users.iter().map(|user| &user.name);
        f.debug_list().entries(names).finish()
    }
}

fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

impl BasicUser {
    fn parse(line: &str) -> Result<Self, &'static str> {
        let mut fields = line.splitn(3, ':');
        let (Some(name), Some(role), Some(password)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return Err("write `name:read:password` or `name:operate:password`");
        };
        let may_operate = match role {
            "operate" => true,
            "read" => false,
            _ => return Err("the role must be `read` or `operate`"),
        };
        if name.is_empty() || password.is_empty() {
            return Err("the name and the password must not be empty");
        }
        let credentials = Credentials::new(format!("{name}:{password}").as_bytes());
        Ok(Self {
            name: name.to_owned(),
            may_operate,
            credentials: credentials
                .ok_or("the name and the password have more than 254 bytes in total")?,
        })
    }
}

/// A name and a password, with a colon in between. Their comparison takes the same time whatever they are, and however long.
struct Credentials([u8; 256]);

impl Credentials {
    /// Writes the number of bytes, the bytes, and zeros. Returns `None` if there are more than 255 bytes.
    fn new(bytes: &[u8]) -> Option<Self> {
        let mut padded = [0; 256];
        padded[0] = u8::try_from(bytes.len()).ok()?;
        padded[1..=bytes.len()].copy_from_slice(bytes);
        Some(Self(padded))
    }

    fn from_header(header: &HeaderValue) -> Option<Self> {
        let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
        let is_basic = scheme.eq_ignore_ascii_case("basic");
        let bytes = BASE64_STANDARD.decode(encoded.trim()).ok()?;
        Self::new(&bytes).filter(|_| is_basic)
    }

    fn is_equal(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

/// The wrong credentials of a second.
#[derive(Default)]
struct FailureWindow {
    start: Option<Instant>,
    count: u32,
}

const MAX_FAILURES: u32 = 5;
const FAILURE_WINDOW: Duration = Duration::from_secs(1);

impl FailureWindow {
    fn are_too_many(&self, now: Instant) -> bool {
        self.is_current(now) && self.count >= MAX_FAILURES
    }

    fn add(&mut self, now: Instant) {
        if !self.is_current(now) {
            self.start = Some(now);
            self.count = 0;
        }
        self.count += 1;
    }

    fn is_current(&self, now: Instant) -> bool {
        let is_recent = |start| now.saturating_duration_since(start) < FAILURE_WINDOW;
        self.start.is_some_and(is_recent)
    }
}

/// The users of a [`BasicAuth`] could not be read.
#[derive(Debug)]
pub struct BasicAuthError {
    kind: BasicAuthErrorKind,
}

#[derive(Debug)]
enum BasicAuthErrorKind {
    File(PathBuf, io::Error),
    /// The number of the line, from 1, and the problem.
    Line(usize, &'static str),
    NoUser,
}

impl fmt::Display for BasicAuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            BasicAuthErrorKind::File(path, _) => {
                write!(f, "cannot read the users from {}", path.display())
            }
            BasicAuthErrorKind::Line(number, problem) => {
                write!(f, "line {number} of the users is invalid: {problem}")
            }
            BasicAuthErrorKind::NoUser => {
                f.write_str("there is no user: add a line such as `name:read:password`")
            }
        }
    }
}

impl std::error::Error for BasicAuthError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            BasicAuthErrorKind::File(_, error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "# comment\n\nada:operate:pa:ss word\nbob:read:secret\n";

    fn header(credentials: &str) -> HeaderMap {
        let encoded = BASE64_STANDARD.encode(credentials);
        headers(&format!("Basic {encoded}"))
    }

    fn headers(authorization: &str) -> HeaderMap {
        let value = authorization.parse().unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }

    #[test]
    fn users_have_their_roles() {
        let users = BasicAuth::from_text(USERS).unwrap();
        let role = |credentials| users.authenticate(&header(credentials));
        assert_eq!(role("ada:pa:ss word"), Authenticated::Operate("ada"));
        assert_eq!(role("bob:secret"), Authenticated::Read("bob"));
    }

    #[test]
    fn wrong_credentials_are_refused() {
        let start = Instant::now();
        let users = BasicAuth::from_text(USERS).unwrap();
        let long = "x".repeat(300);
        let wrong = [
            "bob:secre",
            "bob:secret2",
            "bob:",
            "ada:secret",
            ":secret",
            "",
            "bob",
            "bob:secret\0",
            &long,
        ];
        let mut cases: Vec<HeaderMap> = wrong.iter().map(|it| header(it)).collect();
        cases.extend(["Basic", "Basic !", "Bearer Ym9iOnNlY3JldA==", ""].map(headers));
        for (seconds, case) in (0..).zip(&cases) {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(
                users.authenticate_at(case, now),
                Authenticated::No,
                "{case:?}"
            );
        }
    }

    #[test]
    fn the_sixth_guess_within_a_second_is_not_examined() {
        let start = Instant::now();
        let users = BasicAuth::from_text(USERS).unwrap();
        let at = |credentials, millis| {
            users.authenticate_at(&header(credentials), start + Duration::from_millis(millis))
        };
        for guess in 0..5 {
            assert_eq!(at("bob:guess", guess), Authenticated::No);
        }
        assert_eq!(at("bob:secret", 900), Authenticated::TooManyFailures);
        assert_eq!(
            users.authenticate_at(&HeaderMap::new(), start),
            Authenticated::No
        );
        assert_eq!(at("bob:secret", 1000), Authenticated::Read("bob"));
    }

    #[test]
    fn requests_without_credentials_are_no_failures() {
        let users = BasicAuth::from_text(USERS).unwrap();
        for _ in 0..100 {
            assert_eq!(users.authenticate(&HeaderMap::new()), Authenticated::No);
        }
        assert_eq!(
            users.authenticate(&header("bob:secret")),
            Authenticated::Read("bob")
        );
    }

    #[test]
    fn errors_name_the_line_and_no_password() {
        let cases = [
            ("ada:hunter2", "line 1"),
            ("\nada:admin:hunter2", "line 2"),
            (":read:hunter2", "line 1"),
            ("ada:read:", "line 1"),
            ("ada:read:x\nada:operate:hunter2", "line 2"),
            ("# nobody\n", "there is no user"),
        ];
        for (text, expected) in cases {
            let error = BasicAuth::from_text(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn debug_output_has_no_password() {
        let users = BasicAuth::from_text(USERS).unwrap();
        assert_eq!(format!("{users:?}"), r#"["ada", "bob"]"#);
    }
}
