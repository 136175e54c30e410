//! [`StoreArgs`]: the address of the store. [`Session`]: a client of the store, whose requests have a time limit.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use throng::durable::{
    DurableClient, DurableError, Health, PostgresStore, PostgresStoreBuilder, RedisStore,
    RedisStoreBuilder, SqliteStore,
};
use url::Url;

use crate::duration;
use crate::failure::Failure;

/// The address of the store, and how to reach it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct StoreArgs {
    /// The store: `redis://HOST/`, `rediss://HOST/`, `redis+unix:///SOCKET`, `redis-sentinel://HOST,HOST/NAME`,
    /// `postgres://USER@HOST/DATABASE`, `sqlite:FILE` or `FILE`
    #[arg(
        long,
        env = "THRONG_STORE",
        hide_env_values = true,
        value_name = "URL",
        global = true
    )]
    store: Option<String>,

    /// The namespace of a store in Redis
    #[arg(long, value_name = "NAME", default_value = "default", global = true)]
    namespace: String,

    /// The number of partitions of a store in Redis
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64), global = true)]
    partitions: u8,

    /// The schema of a store in PostgreSQL
    #[arg(long, value_name = "NAME", default_value = "throng", global = true)]
    schema: String,

    /// A file that contains the password of the user of the server. `THRONG_STORE_PASSWORD` can contain it instead
    #[arg(long, value_name = "FILE", global = true)]
    password_file: Option<PathBuf>,

    /// The time within which the store must answer each request
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_timeout, global = true)]
    timeout: Duration,
}

/// The address of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// The address of a server, which may have several hosts.
    Postgres(String),
    Redis(Url),
    /// The addresses of Sentinels, and their name for the server.
    Sentinels(String),
    Sqlite(PathBuf),
}

/// A client of a store. Clones are the same client.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) client: DurableClient,
    timeout: Duration,
    /// `true` if the client can change the store.
    can_change: bool,
}

const PASSWORD_VARIABLE: &str = "THRONG_STORE_PASSWORD";
const SENTINEL_PASSWORD_VARIABLE: &str = "THRONG_SENTINEL_PASSWORD";
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
const MAX_TIMEOUT: Duration = Duration::from_secs(86_400);

impl StoreArgs {
    /// Opens the store read-only: it is not changed, and other processes do not see this one.
    pub(crate) async fn observe(&self) -> Result<Session, Failure> {
        let store = match self.location()? {
            Location::Postgres(url) => self.within(self.postgres(&url).observe()).await?,
            Location::Redis(url) => self.within(self.redis(url.as_str()).observe()).await?,
            Location::Sentinels(url) => self.within(self.redis(&url).observe()).await?,
            Location::Sqlite(path) => {
                must_exist(&path)?;
                self.within(SqliteStore::observe(path)).await?
            }
        };
        Ok(self.session(DurableClient::open(store), false))
    }

    /// Opens a store that exists. It never creates one, so a typing error has no effect.
    pub(crate) async fn open(&self) -> Result<Session, Failure> {
        // An observer that is refused for another reason does not keep a process from opening the store.
        if let Err(Failure::Unreachable(reason)) = self.observe().await {
            return Err(Failure::Unreachable(reason));
        }
        self.open_observed().await
    }

    /// Opens a store that this process has observed, which shows that it exists.
    pub(crate) async fn open_observed(&self) -> Result<Session, Failure> {
        let client = match self.location()? {
            Location::Postgres(url) => {
                DurableClient::open(self.within(self.postgres(&url).open()).await?)
            }
            Location::Redis(url) => {
                DurableClient::open(self.within(self.redis(url.as_str()).open()).await?)
            }
            Location::Sentinels(url) => {
                DurableClient::open(self.within(self.redis(&url).open()).await?)
            }
            Location::Sqlite(path) => {
                DurableClient::open(self.within(SqliteStore::open(path)).await?)
            }
        };
        Ok(self.session(client, true))
    }

    /// Returns the namespaces of the stores in a Redis server.
    pub(crate) async fn namespaces(&self) -> Result<Vec<String>, Failure> {
        match self.location()? {
            Location::Postgres(_) => Err(Failure::Usage(
                "only a store in Redis has a namespace: one in PostgreSQL is in the schema that `--schema` names".into(),
            )),
            Location::Redis(url) => self.within(self.redis(url.as_str()).namespaces()).await,
            Location::Sentinels(url) => self.within(self.redis(&url).namespaces()).await,
            Location::Sqlite(_) => Err(Failure::Usage(
                "only a store in Redis has a namespace: a file contains one store".into(),
            )),
        }
    }

    /// Returns the address of the store, with the password.
    pub(crate) fn location(&self) -> Result<Location, Failure> {
        let Some(store) = self.store.as_deref().filter(|store| !store.is_empty()) else {
            let how = "no store is given: use `--store URL`, or set THRONG_STORE";
            return Err(Failure::Usage(how.into()));
        };
        let location = location(store).map_err(Failure::Usage)?;
        let password = match &location {
            Location::Sqlite(_) => None,
            Location::Postgres(_) | Location::Redis(_) | Location::Sentinels(_) => {
                self.password()?
            }
        };
        match password {
            Some(password) => location.with_password(&password).map_err(Failure::Usage),
            None => Ok(location),
        }
    }

    /// The namespace of a store in Redis.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The time within which the store must answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn password(&self) -> Result<Option<String>, Failure> {
        Ok(match &self.password_file {
            Some(path) => Some(read_password(path)?),
            None => variable(PASSWORD_VARIABLE),
        })
    }

    fn postgres(&self, url: &str) -> PostgresStoreBuilder {
        let mut builder = PostgresStore::builder(url);
        builder
            .schema(&self.schema)
            .connect_timeout(self.timeout)
            .answer_timeout(self.timeout);
        builder
    }

    fn redis(&self, url: &str) -> RedisStoreBuilder {
        let mut builder = RedisStore::builder(url);
        if let Some(password) = variable(SENTINEL_PASSWORD_VARIABLE) {
            builder.sentinel_login("default", password);
        }
        builder
            .namespace(&self.namespace)
            .partitions(self.partitions.into());
        builder
            .connect_timeout(self.timeout)
            .answer_timeout(self.timeout);
        builder
    }

    async fn within<T>(
        &self,
        opened: impl Future<Output = Result<T, DurableError>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout, opened).await {
            Ok(opened) => opened.map_err(|error| Failure::to_open(&error)),
            Err(_) => Err(silent(self.timeout, None)),
        }
    }

    fn session(&self, client: DurableClient, can_change: bool) -> Session {
        Session::new(client, self.timeout, can_change)
    }
}

impl Location {
    /// Replaces the password, if there is one. An error is the remedy.
    fn with_password(self, password: &str) -> Result<Self, String> {
        match self {
            Self::Postgres(url) => with_password(&url, password)
                .map(Self::Postgres)
                .ok_or_else(|| {
                    "a password belongs to a user: write `postgres://USER@HOST/DATABASE`, without the password".into()
                }),
            Self::Redis(mut url) => match url.set_password(Some(password)) {
                Ok(()) => Ok(Self::Redis(url)),
                Err(()) => Err("a password belongs to a host: write `redis://HOST/`, without the password".into()),
            },
            Self::Sentinels(url) => Ok(Self::Sentinels(with_server_password(&url, password))),
            Self::Sqlite(path) => Ok(Self::Sqlite(path)),
        }
    }
}

impl Session {
    pub(crate) fn new(client: DurableClient, timeout: Duration, can_change: bool) -> Self {
        Self {
            client,
            timeout,
            can_change,
        }
    }

    /// Waits for an answer of the store. A client repeats a request until the store answers, but a person does not wait for long.
    pub(crate) async fn ask<T>(
        &self,
        request: impl Future<Output = Result<T, DurableError>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout, request).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(self.silent()),
        }
    }

    fn silent(&self) -> Failure {
        let failure = silent(self.timeout, Some(self.client.health()));
        match self.can_change {
            // The request may be on its way.
            true => Failure::Unreachable(format!(
                "{failure}. The change may still be made: look before you repeat the command"
            )),
            false => failure,
        }
    }

    /// Ends the session, so that other processes do not wait for it.
    pub(crate) async fn close(self) {
        // Everything that was acknowledged is stored, whether or not the store can be closed in order.
        tokio::time::timeout(self.timeout, self.client.close())
            .await
            .ok();
    }
}

/// Returns the failure of a store that has not answered in time.
fn silent(timeout: Duration, health: Option<Health>) -> Failure {
    let time = duration::short(timeout);
    let cause = match health {
        Some(Health::Unreachable(cause)) => format!(": {cause}"),
        Some(Health::Failing { error, .. }) => format!(": {error}"),
        _ => String::new(),
    };
    Failure::Unreachable(format!(
        "the store has not answered within {time}{cause}: check that its server runs, or wait longer with `--timeout`"
    ))
}

/// Returns an address in PostgreSQL with another password, or `None` if it has no user. It may have several hosts, so it is no URL.
fn with_password(url: &str, password: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (user, rest) = rest.split_once('@')?;
    let user = user.split(':').next().unwrap_or(user);
    let password: String = password.bytes().map(escaped).collect();
    Some(format!("{scheme}://{user}:{password}@{rest}"))
}

/// Returns the address of Sentinels with another password for their server, which needs no user.
fn with_server_password(url: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis-sentinel", url));
    let (authority, name) = rest.split_once('/').unwrap_or((rest, ""));
    // The old password may contain an `@`.
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let user = login.split(':').next().unwrap_or_default();
    let password: String = password.bytes().map(escaped).collect();
    format!("{scheme}://{user}:{password}@{hosts}/{name}")
}

/// Returns the value of a variable. An empty one is none: it must not replace the password of a URL.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|it| !it.is_empty())
}

fn escaped(byte: u8) -> String {
    match byte.is_ascii_alphanumeric() {
        true => char::from(byte).into(),
        false => format!("%{byte:02X}"),
    }
}

/// Returns the address that a text describes, or the reason why it is none.
fn location(store: &str) -> Result<Location, String> {
    if let Some(path) = store.strip_prefix("sqlite:") {
        return Ok(Location::Sqlite(path.into()));
    }
    let scheme = store.split_once("://").map(|(scheme, _)| scheme);
    match scheme {
        None => Ok(Location::Sqlite(store.into())),
        // The store examines these addresses.
        Some("redis-sentinel" | "rediss-sentinel") => Ok(Location::Sentinels(store.into())),
        Some("postgres" | "postgresql") => Ok(Location::Postgres(store.into())),
        Some("redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "valkey+unix" | "unix") => {
            let url = Url::parse(store);
            // The text may contain a password, so the message does not repeat it.
            url.map(Location::Redis).map_err(|error| {
                format!("the URL of the store is not valid ({error}): write, for example, `redis://127.0.0.1:6379/`")
            })
        }
        Some(scheme) => Err(format!(
            "`{scheme}` is not a kind of store: write `redis://HOST/`, `rediss://HOST/`, `redis+unix:///SOCKET`, \
             `redis-sentinel://HOST,HOST/NAME`, `postgres://USER@HOST/DATABASE` or `sqlite:FILE`"
        )),
    }
}

/// Checks that a file is there, since another message of the system about it would be less clear.
fn must_exist(path: &Path) -> Result<(), Failure> {
    if path.as_os_str().is_empty() {
        let how = "the name of the file is missing: write `sqlite:FILE`";
        return Err(Failure::Usage(how.into()));
    }
    let problem = match fs::metadata(path) {
        Ok(found) if found.is_dir() => "is a folder: name the file of the store in it".into(),
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            "does not exist: check the path (the first program that uses a store creates it), or write `redis://HOST/` for a server".into()
        }
        Err(error) => format!("cannot be read: {error}"),
    };
    let path = path.display();
    Err(Failure::Unreachable(format!("{path} {problem}")))
}

/// Reads a time for which a person may wait, and that a system accepts.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration::parse(text)?;
    match (MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout) {
        true => Ok(timeout),
        false => Err("write a time from `1ms` to `1day`".into()),
    }
}

fn read_password(path: &Path) -> Result<String, Failure> {
    let read = fs::read_to_string(path);
    let text = read.map_err(|error| {
        Failure::Usage(format!(
            "the password file {} cannot be read: {error}",
            path.display()
        ))
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_without_an_answer_may_have_been_made() {
        for can_change in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let store = SqliteStore::open(folder.path().join("tasks.db"));
            let client = DurableClient::open(store.await.unwrap());
            let session = Session::new(client, Duration::from_millis(1), can_change);
            let never = std::future::pending::<Result<(), DurableError>>();
            let failure = session.ask(never).await.unwrap_err();
            assert_eq!(failure.code(), 4);
            let text = failure.to_string();
            assert_eq!(text.contains("may still be made"), can_change, "{text}");
        }
    }

    #[test]
    fn a_timeout_is_one_that_a_system_accepts() {
        assert_eq!(parse_timeout("2s"), Ok(Duration::from_secs(2)));
        for text in ["0s", "999us", "25h", "500000000y"] {
            assert!(
                parse_timeout(text).is_err_and(|it| it.contains("1ms")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_path_that_is_no_file_has_a_message_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        for (path, message) in [
            (folder.path().to_owned(), "is a folder"),
            (folder.path().join("a"), "does not exist"),
            (PathBuf::new(), "`sqlite:FILE`"),
            (PathBuf::from("a\0b"), "cannot be read"),
        ] {
            let failure = must_exist(&path).unwrap_err().to_string();
            assert!(failure.contains(message), "{failure}");
        }
    }

    #[test]
    fn a_password_is_escaped_in_an_address() {
        for (url, expected) in [
            (
                "postgres://me@a:1,b:2/app",
                "postgres://me:p%40%20s@a:1,b:2/app",
            ),
            (
                "postgres://me:old@%2Frun/app?x=@",
                "postgres://me:p%40%20s@%2Frun/app?x=@",
            ),
        ] {
            assert_eq!(with_password(url, "p@ s").as_deref(), Some(expected));
        }
        assert_eq!(with_password("postgres://host/app", "word"), None);
        for (user, expected) in [
            ("", ":a%3Ab@"),
            ("me@", "me:a%3Ab@"),
            ("me:old@", "me:a%3Ab@"),
            ("me:o@ld@", "me:a%3Ab@"),
        ] {
            let url = |login| format!("redis-sentinel://{login}one:1,two/main/3");
            assert_eq!(with_server_password(&url(user), "a:b"), url(expected));
        }
    }

    #[test]
    fn a_store_is_a_url_or_a_file() {
        let sqlite = |path: &str| Ok(Location::Sqlite(path.into()));
        assert_eq!(location("tasks.db"), sqlite("tasks.db"));
        assert_eq!(
            location("sqlite:/var/lib/tasks.db"),
            sqlite("/var/lib/tasks.db")
        );
        assert!(matches!(
            location("rediss://host:7/2"),
            Ok(Location::Redis(_))
        ));
        assert!(matches!(
            location("redis+unix:///run/redis"),
            Ok(Location::Redis(_))
        ));
        for url in ["postgres://me@a:1,b:2/app", "postgresql:///app?host=/run"] {
            assert_eq!(location(url), Ok(Location::Postgres(url.into())));
        }
        for url in [
            "redis-sentinel://one:1,two/main",
            "rediss-sentinel://one/main/3",
        ] {
            assert_eq!(location(url), Ok(Location::Sentinels(url.into())));
        }
        let error = location("mysql://me:secret@host/").unwrap_err();
        assert!(
            error.contains("`mysql`") && !error.contains("secret"),
            "{error}"
        );
        let error = location("redis://me:secret@host:port/").unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }
}
