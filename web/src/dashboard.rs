//! [`Dashboard`] and its builder.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::http::request::Parts;
use serde_json::Value;
use throng::durable::DurableClient;
use throng::watch::Registry;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::basic_auth::BasicAuth;
use crate::events::MAX_STREAMS;
use crate::host::AllowedHosts;
use crate::redact::{Redactor, Shown};
use crate::router::router;
use crate::store::ShownStore;

/// A dashboard: pages and a JSON API that show stores of durable tasks, and the parts of this process. Clones are the same dashboard.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use throng::durable::{DurableClient, MemoryStore};
/// use throng_web::Dashboard;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = DurableClient::open(MemoryStore::new());
/// let dashboard = Dashboard::builder().store("mail", client).build()?;
/// let app: Router = Router::new().nest_service("/throng", dashboard.service());
/// # drop(app);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Dashboard {
    shared: Arc<Shared>,
}

/// Builds a [`Dashboard`]: see [`Dashboard::builder`].
#[must_use = "nothing happens until `build` is called"]
pub struct DashboardBuilder {
    stores: Vec<(String, DurableClient)>,
    registry: Option<Registry>,
    access: Option<AccessHook>,
    redactor: Redactor,
    shutdown: CancellationToken,
    basic_auth: Option<Arc<BasicAuth>>,
    allowed_hosts: Option<AllowedHosts>,
}

/// The reason why [`DashboardBuilder::build`] has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildDashboardError(String);

pub(crate) type AccessHook = Arc<dyn Fn(&Parts) -> Access + Send + Sync>;

/// The state that all requests to a dashboard share.
pub(crate) struct Shared {
    pub(crate) stores: Vec<Arc<ShownStore>>,
    pub(crate) registry: Option<Registry>,
    pub(crate) access: Option<AccessHook>,
    pub(crate) redactor: Redactor,
    pub(crate) shutdown: CancellationToken,
    pub(crate) basic_auth: Option<Arc<BasicAuth>>,
    pub(crate) allowed_hosts: Option<AllowedHosts>,
    /// A permit for each event stream.
    pub(crate) streams: Arc<Semaphore>,
}

/// The maximum length of the name of a store.
const MAX_NAME_BYTES: usize = 64;

impl Dashboard {
    /// Returns a builder of a dashboard without stores.
    pub fn builder() -> DashboardBuilder {
        DashboardBuilder {
            stores: Vec::new(),
            registry: None,
            access: None,
            redactor: Redactor::default(),
            shutdown: CancellationToken::new(),
            basic_auth: None,
            allowed_hosts: None,
        }
    }

    /// Returns the service that answers the requests. Mount it with [`Router::nest_service`], under any path: [`Router::nest`] would not
    /// serve the path with a slash at its end.
    ///
    /// All links are relative, so the dashboard needs to know neither this path nor the prefixes that proxies add or remove.
    pub fn service(&self) -> Router {
        router(&self.shared)
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl DashboardBuilder {
    /// Adds a store, which the client reads and changes. The name appears in URLs: it consists of 1 to 64 ASCII letters, digits, and the
    /// characters `_` and `-`.
    ///
    /// For a dashboard that never changes anything, use a client that has opened the store with `observe`.
    pub fn store(&mut self, name: impl Into<String>, client: DurableClient) -> &mut Self {
        self.stores.push((name.into(), client));
        self
    }

    /// Shows the parts that this registry watches on the page "Process", and serves its numbers at `metrics`, in the text format of
    /// Prometheus.
    pub fn registry(&mut self, registry: Registry) -> &mut Self {
        self.registry = Some(registry);
        self
    }

    /// Sets the hook that determines, for each request, who sends it and what it may do. The hook sees the extensions of the request,
    /// where an authentication layer of the application leaves the user. It runs on the runtime, so it must not block.
    ///
    /// Without a hook, everybody who reaches the dashboard may read it, and nobody can change anything: the routes for changes do not
    /// exist.
    pub fn access(
        &mut self,
        access: impl Fn(&Parts) -> Access + Send + Sync + 'static,
    ) -> &mut Self {
        self.access = Some(Arc::new(access));
        self
    }

    /// Lets in only these users, who authenticate with a password, and gives them the access of their role. To decide otherwise, call
    /// [`access`](Self::access) afterwards: its hook runs only for these users, and finds their [`Access`] in the extensions.
    pub fn basic_auth(&mut self, users: BasicAuth) -> &mut Self {
        self.basic_auth = Some(Arc::new(users));
        self.access(|request| {
            let access = request.extensions.get::<Access>();
            access.cloned().unwrap_or(Access::None)
        })
    }

    /// Refuses requests whose `Host` is neither an IP address nor `localhost` nor one of these names, which are without a port. Otherwise, a
    /// page of another site can read a dashboard that needs no authentication, even if the server listens only on a loopback address: the
    /// other site lets its own name resolve to this address (DNS rebinding).
    ///
    /// Behind a proxy, allow the name under which users reach it. An application that authenticates its users does not need this.
    pub fn allowed_hosts(
        &mut self,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> &mut Self {
        let names = names.into_iter().map(Into::into);
        self.allowed_hosts = Some(AllowedHosts::new(names.collect()));
        self
    }

    /// Sets a hook that removes confidential data from payloads, outputs, progress reports and errors before they are shown. It applies to
    /// the pages and to the API.
    ///
    /// The hook runs after the built-in rules, which hide the values of keys that contain `pass`, `secret`, `token`, `authorization`,
    /// `cookie`, `apikey`, `card`, `iban` or `ssn`, in any case, and also with `_` or `-` between the words. The rules also apply to pairs
    /// such as `["cookie", ".."]` and `{"name": "password", "value": ".."}`, to texts such as `password=..` and `password: Some("..")`, and
    /// to the credentials in URLs. Data that the rules cannot read, because it is not JSON or is longer than 64 KiB, is not shown at all.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng_web::{Dashboard, Shown};
    ///
    /// let mut dashboard = Dashboard::builder();
    /// dashboard.redact(|shown: &Shown<'_>, value| {
    ///     if shown.name == Some("mail.send")
    ///         && let Some(to) = value.get_mut("to")
    ///     {
    ///         *to = "(hidden)".into();
    ///     }
    /// });
    /// ```
    pub fn redact(
        &mut self,
        redact: impl Fn(&Shown<'_>, &mut Value) + Send + Sync + 'static,
    ) -> &mut Self {
        self.redactor = Redactor::with_hook(Arc::new(redact));
        self
    }

    /// Ends the event streams and the bulk changes of the dashboard when this token is cancelled. Without it, an open page delays a
    /// graceful shutdown of the application.
    pub fn shutdown(&mut self, token: CancellationToken) -> &mut Self {
        self.shutdown = token;
        self
    }

    /// Builds the dashboard.
    ///
    /// # Errors
    ///
    /// - The name of a store is invalid, or two stores have the same name.
    /// - There is neither a store nor a registry.
    pub fn build(&mut self) -> Result<Dashboard, BuildDashboardError> {
        self.check().map_err(BuildDashboardError)?;
        let stores = self.stores.iter().cloned();
        let stores =
            stores.map(|(name, client)| Arc::new(ShownStore::new(name, client, &self.shutdown)));
        Ok(Dashboard {
            shared: Arc::new(Shared {
                stores: stores.collect(),
                registry: self.registry.clone(),
                access: self.access.clone(),
                redactor: self.redactor.clone(),
                shutdown: self.shutdown.clone(),
                basic_auth: self.basic_auth.clone(),
                allowed_hosts: self.allowed_hosts.clone(),
                streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            }),
        })
    }

    fn check(&self) -> Result<(), String> {
        if self.stores.is_empty() && self.registry.is_none() {
            return Err("there is nothing to show: add a `store` or a `registry`".into());
        }
        let names: Vec<_> = self.stores.iter().map(|(name, _)| name).collect();
        for (nth, name) in names.iter().enumerate() {
            if !is_store_name(name) {
                return Err(format!(
                    "{name:?} cannot be the name of a `store`: use 1 to {MAX_NAME_BYTES} ASCII letters, digits, and the characters `_-`"
                ));
            }
            if names[..nth].contains(name) {
                return Err(format!(
                    "two stores have the name {name:?}: give each `store` a name of its own"
                ));
            }
        }
        Ok(())
    }
}

fn is_store_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed)
}

impl fmt::Debug for DashboardBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DashboardBuilder")
            .field("stores", &self.stores)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("stores", &self.stores)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for BuildDashboardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for BuildDashboardError {}
