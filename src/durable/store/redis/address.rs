//! [`RedisAddress`]: the address of a server, of nodes of a cluster, or of the Sentinels that know a server.

use std::{fmt, iter};

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::error::{invalid_address, not_connected};
use crate::durable::failure::Failure;

/// The port at which a Sentinel listens unless its address names another one.
const SENTINEL_PORT: u16 = 26379;

const SENTINEL_URLS: &str = "write redis-sentinel://user:password@host:port,host:port/name/database, or the same with \
                             rediss-sentinel:// for TLS (feature `redis-tls`), with special characters as %40";

/// The address that the user of a store has given.
#[derive(Clone)]
pub(super) struct RedisAddress {
    form: AddressForm,
    /// The user and the password for the server, instead of those in the URL.
    pub(super) login: Option<(String, String)>,
    /// The user and the password for the Sentinels.
    pub(super) sentinel_login: Option<(String, String)>,
    /// The database, instead of the one in the URL.
    pub(super) database: Option<u32>,
    /// `true` if the connections to the server and to the Sentinels use TLS.
    pub(super) tls: bool,
}

#[derive(Clone)]
enum AddressForm {
    Url(String),
    /// The URLs of nodes of a cluster.
    Nodes(Vec<String>),
    /// The addresses of the Sentinels, and the name that they have for the server.
    Sentinels(Vec<String>, String),
}

/// The host and the port of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    pub(super) host: String,
    pub(super) port: u16,
}

/// Everything that is needed to connect.
#[derive(Clone, Debug)]
pub(super) struct ConnectTarget {
    /// The server, or one that belongs to a cluster. If there are Sentinels, its address is that of the first Sentinel, and is replaced
    /// before each connect.
    pub(super) server: ConnectionInfo,
    /// Other nodes of the cluster.
    pub(super) others: Vec<ConnectionInfo>,
    /// `true` if the server must belong to a cluster.
    pub(super) is_cluster: bool,
    pub(super) sentinels: Option<SentinelTarget>,
}

/// The Sentinels that watch a server.
#[derive(Clone, Debug)]
pub(super) struct SentinelTarget {
    pub(super) addresses: Vec<ServerAddress>,
    /// The settings of the connections to them.
    pub(super) settings: RedisConnectionInfo,
    /// Their name for the server.
    pub(super) name: String,
}

impl RedisAddress {
    pub(super) fn url(url: &str) -> Self {
        Self::new(AddressForm::Url(url.to_owned()))
    }

    pub(super) fn nodes(urls: Vec<String>) -> Self {
        Self::new(AddressForm::Nodes(urls))
    }

    pub(super) fn sentinels(addresses: Vec<String>, name: &str) -> Self {
        Self::new(AddressForm::Sentinels(addresses, name.to_owned()))
    }

    fn new(form: AddressForm) -> Self {
        Self {
            form,
            login: None,
            sentinel_login: None,
            database: None,
            tls: false,
        }
    }

    pub(super) fn resolve(&self) -> Result<ConnectTarget, Failure> {
        let (mut target, tls) = match &self.form {
            AddressForm::Sentinels(addresses, name) => {
                (sentinel_target(addresses, name, "", "")?, false)
            }
            AddressForm::Nodes(urls) => (nodes_target(urls)?, false),
            AddressForm::Url(url) => match SentinelUrl::split(url) {
                Some(it) => (it?.target()?, url.starts_with("rediss")),
                None => (single_target(server(url)?), false),
            },
        };
        self.apply(&mut target);
        match self.tls || tls {
            true => target.encrypted(),
            false => Ok(target),
        }
    }

    /// Applies the logins and the database to a target.
    fn apply(&self, target: &mut ConnectTarget) {
        for server in target.servers_mut() {
            let mut settings = server.redis_settings().clone();
            if let Some((user, password)) = &self.login {
                settings = settings.set_username(user).set_password(password);
            }
            if let Some(database) = self.database {
                settings = settings.set_db(database.into());
            }
            *server = server.clone().set_redis_settings(settings);
        }
        if let (Some(sentinels), Some((user, password))) =
            (&mut target.sentinels, &self.sentinel_login)
        {
            let settings = RedisConnectionInfo::default();
            sentinels.settings = settings.set_username(user).set_password(password);
        }
    }
}

impl ConnectTarget {
    /// Returns the servers that were given, the first one first.
    pub(super) fn servers(&self) -> impl Iterator<Item = &ConnectionInfo> {
        iter::once(&self.server).chain(&self.others)
    }

    fn servers_mut(&mut self) -> impl Iterator<Item = &mut ConnectionInfo> {
        iter::once(&mut self.server).chain(&mut self.others)
    }

    /// Returns this target with connections that use TLS.
    fn encrypted(mut self) -> Result<Self, Failure> {
        for server in self.servers_mut() {
            let addr = with_tls(server.addr())?;
            *server = server.clone().set_addr(addr);
        }
        Ok(self)
    }
}

fn server(url: &str) -> Result<ConnectionInfo, Failure> {
    url.into_connection_info().map_err(not_connected)
}

fn single_target(server: ConnectionInfo) -> ConnectTarget {
    ConnectTarget {
        server,
        others: Vec::new(),
        is_cluster: false,
        sentinels: None,
    }
}

fn nodes_target(urls: &[String]) -> Result<ConnectTarget, Failure> {
    let nodes = urls.iter().map(|url| server(url));
    let mut nodes = nodes.collect::<Result<Vec<_>, _>>()?.into_iter();
    let Some(first) = nodes.next() else {
        let what = "there is no URL: name a node of the cluster";
        return Err(invalid_address(what.into()));
    };
    Ok(ConnectTarget {
        others: nodes.collect(),
        is_cluster: true,
        ..single_target(first)
    })
}

/// Returns the target that Sentinels at these addresses know. `login` and `database` are parts of a URL.
fn sentinel_target(
    addresses: &[impl AsRef<str>],
    name: &str,
    login: &str,
    database: &str,
) -> Result<ConnectTarget, Failure> {
    if name.is_empty() {
        let what = format!("the Sentinels' name for the server is missing: {SENTINEL_URLS}");
        return Err(invalid_address(what));
    }
    // If the password contains a `/`, the name would be a part of the password, and messages would contain it.
    if name.contains('@') {
        let what = format!("the Sentinels' name for the server contains `@`: {SENTINEL_URLS}");
        return Err(invalid_address(what));
    }
    let addresses = addresses.iter().map(|it| ServerAddress::parse(it.as_ref()));
    let addresses: Vec<_> = addresses.collect::<Result<_, _>>()?;
    let Some(first) = addresses.first() else {
        return Err(invalid_address("name at least one Sentinel".into()));
    };
    // The host only completes the URL.
    let url = format!("redis://{login}@localhost/{database}");
    let server = url.into_connection_info().map_err(|_| {
        let what =
            format!("the user, the password or the database cannot be read: {SENTINEL_URLS}");
        invalid_address(what)
    })?;
    let server = server.set_addr(first.without_tls());
    Ok(ConnectTarget {
        sentinels: Some(SentinelTarget {
            addresses,
            settings: RedisConnectionInfo::default(),
            name: name.to_owned(),
        }),
        ..single_target(server)
    })
}

/// The parts of a URL with Sentinels.
struct SentinelUrl<'a> {
    login: &'a str,
    addresses: Vec<&'a str>,
    name: &'a str,
    database: &'a str,
}

impl<'a> SentinelUrl<'a> {
    /// Returns `None` if the scheme of the URL is another one.
    fn split(url: &'a str) -> Option<Result<Self, Failure>> {
        let (scheme, rest) = url.split_once("://")?;
        if !matches!(scheme, "redis-sentinel" | "rediss-sentinel") {
            return None;
        }
        if rest.contains(['?', '#']) {
            let what = format!("the URL has a query or a fragment: {SENTINEL_URLS}");
            return Some(Err(invalid_address(what)));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, addresses) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (name, database) = path.split_once('/').unwrap_or((path, ""));
        Some(Ok(Self {
            login,
            addresses: addresses.split(',').collect(),
            name,
            database,
        }))
    }

    fn target(&self) -> Result<ConnectTarget, Failure> {
        sentinel_target(&self.addresses, self.name, self.login, self.database)
    }
}

fn with_tls(addr: &ConnectionAddr) -> Result<ConnectionAddr, Failure> {
    let tls = match addr {
        ConnectionAddr::Tcp(host, port) => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: false,
            tls_params: None,
        },
        other => other.clone(),
    };
    if !matches!(tls, ConnectionAddr::TcpTls { .. }) {
        return Err(invalid_address(
            "a Unix socket cannot use TLS: remove `tls(true)`".into(),
        ));
    }
    if !tls.is_supported() {
        return Err(invalid_address(
            "TLS needs the feature `redis-tls`: enable it".into(),
        ));
    }
    Ok(tls)
}

impl ServerAddress {
    fn parse(text: &str) -> Result<Self, Failure> {
        let bracketed = text.strip_prefix('[').and_then(|it| it.split_once(']'));
        let (host, port) = match bracketed {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').unwrap_or_default())),
            None => match text.rsplit_once(':') {
                // An IPv6 address without a port.
                Some((host, _)) if host.contains(':') => (text, None),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map_or(Ok(SENTINEL_PORT), str::parse);
        match port {
            Ok(port) if !host.is_empty() && !host.contains(['/', '@', '[', ']']) => Ok(Self {
                host: host.to_owned(),
                port,
            }),
            // The text may contain a password.
            _ => Err(invalid_address(
                "the address of a Sentinel has the form host:port, without a scheme or a password"
                    .into(),
            )),
        }
    }

    fn without_tls(&self) -> ConnectionAddr {
        ConnectionAddr::Tcp(self.host.clone(), self.port)
    }

    /// Returns this address with the TLS settings of another one.
    pub(super) fn like(&self, other: &ConnectionAddr) -> ConnectionAddr {
        match other {
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host: self.host.clone(),
                port: self.port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => self.without_tls(),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for ConnectTarget {
    /// Writes the address without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.server.redis_settings().db();
        let Some(sentinels) = &self.sentinels else {
            return write!(f, "redis://{}/{database}", self.server.addr());
        };
        let addresses: Vec<_> = sentinels
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect();
        write!(
            f,
            "redis-sentinel://{}/{}/{database}",
            addresses.join(","),
            sentinels.name
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(url: &str) -> ConnectTarget {
        RedisAddress::url(url).resolve().expect("it is valid")
    }

    fn refused(address: &RedisAddress) -> String {
        address.resolve().expect_err("it is not valid").to_string()
    }

    #[test]
    fn a_url_names_sentinels_a_login_and_a_database() {
        let url = "redis-sentinel://me:a%40b@one,two:7,[::1]:8,[::2]/mymaster/3";
        let target = resolved(url);
        let settings = target.server.redis_settings();
        assert_eq!(
            (settings.username(), settings.password()),
            (Some("me"), Some("a@b"))
        );
        assert_eq!(settings.db(), 3);
        assert_eq!(
            target.to_string(),
            "redis-sentinel://one:26379,two:7,[::1]:8,[::2]:26379/mymaster/3"
        );
        let sentinels = target.sentinels.expect("there are Sentinels");
        assert_eq!(sentinels.settings.password(), None);
    }

    #[test]
    fn a_password_may_contain_any_characters() {
        for (written, password) in [
            ("a@b", "a@b"),
            ("a:b,c", "a:b,c"),
            ("%2F%3F%23%25", "/?#%"),
            ("100%", "100%"),
            (" \"'<\\[]^|`{}", " \"'<\\[]^|`{}"),
            ("\u{fc}\u{1f511}", "\u{fc}\u{1f511}"),
        ] {
            let target = resolved(&format!("redis-sentinel://me:{written}@one,two/main"));
            let settings = target.server.redis_settings();
            assert_eq!(settings.password(), Some(password));
            assert_eq!(
                target.sentinels.as_ref().map(|it| it.addresses.len()),
                Some(2)
            );
            for text in [target.to_string(), format!("{target:?}")] {
                assert!(!text.contains(password), "{text}");
            }
        }
    }

    #[test]
    fn settings_replace_the_login_and_the_database_of_a_url() {
        let mut address = RedisAddress::url("redis://old:word@host/1");
        address.login = Some(("new".into(), "p@ss".into()));
        address.database = Some(2);
        let target = address.resolve().unwrap();
        let settings = target.server.redis_settings();
        assert_eq!(
            (settings.username(), settings.password()),
            (Some("new"), Some("p@ss"))
        );
        assert_eq!(settings.db(), 2);
    }

    #[test]
    fn sentinels_have_a_login_of_their_own() {
        let mut address = RedisAddress::sentinels(vec!["one".into()], "main");
        address.sentinel_login = Some(("watcher".into(), "word".into()));
        let target = address.resolve().unwrap();
        assert_eq!(target.server.redis_settings().password(), None);
        let settings = target.sentinels.unwrap().settings;
        assert_eq!(
            (settings.username(), settings.password()),
            (Some("watcher"), Some("word"))
        );
    }

    #[test]
    fn an_invalid_address_names_the_remedy_and_no_password() {
        for (url, expected) in [
            (
                "redis-sentinel://:secret@one,two",
                "name for the server is missing",
            ),
            (
                "redis-sentinel://:secret@one,two/",
                "name for the server is missing",
            ),
            ("redis-sentinel://:secret@one:port/main", "form host:port"),
            ("redis-sentinel://:secret@,two/main", "form host:port"),
            ("redis-sentinel://:secret@[::1/main", "form host:port"),
            (
                "redis-sentinel://:secret@one/main/x",
                "database cannot be read",
            ),
            ("redis-sentinel://:secret@one/main?a=b", "query"),
            // A special character of a password that is not escaped divides the URL elsewhere.
            ("redis-sentinel://me:secret/x@one/main", "contains `@`"),
            ("redis-sentinel://me:1/secret@one", "contains `@`"),
            ("redis-sentinel://me:1/secret@one/7", "contains `@`"),
            ("redis-sentinel://me:1/secret@one/main", "contains `@`"),
            (
                "redis-sentinel://me:1/secret/x@one/7",
                "database cannot be read",
            ),
            ("redis-sentinel://me:secret?x@one/main", "query"),
            ("redis-sentinel://me:%ffsecret@one/main", "cannot be read"),
        ] {
            let text = refused(&RedisAddress::url(url));
            assert!(
                text.contains(expected) && !text.contains("secret"),
                "{text}"
            );
        }
        let text = refused(&RedisAddress::sentinels(Vec::new(), "main"));
        assert!(text.contains("at least one Sentinel"), "{text}");
        let mut socket = RedisAddress::url("redis+unix:///path");
        socket.tls = true;
        assert!(refused(&socket).contains("TLS"));
    }

    #[cfg(feature = "redis-tls")]
    #[test]
    fn all_connections_use_tls_if_one_of_them_does() {
        let mut address = RedisAddress::sentinels(vec!["one".into()], "main");
        address.tls = true;
        for target in [
            address.resolve().unwrap(),
            resolved("rediss-sentinel://one/main"),
        ] {
            let server = ServerAddress::parse("two:1").unwrap();
            let address = server.like(target.server.addr());
            assert!(matches!(
                address,
                ConnectionAddr::TcpTls {
                    insecure: false,
                    ..
                }
            ));
        }
    }
}
