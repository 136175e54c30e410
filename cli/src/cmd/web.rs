//! `throng web`: serves the dashboard.

use std::net::SocketAddr;
use std::path::PathBuf;

use axum::http::request::Parts;
use clap::Args;
use throng::watch::Registry;
use throng_web::{Access, BasicAuth, Dashboard};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, with_sources};
use crate::serve;
use crate::store::StoreArgs;

#[derive(Args, Debug)]
pub(crate) struct WebArgs {
    /// The address of the dashboard
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787", value_parser = serve::parse_address)]
    listen: SocketAddr,

    /// Allows changes of tasks, queues, types and schedules
    #[arg(long)]
    operate: bool,

    /// Lets in only the users in this file. It has a line `NAME:read:PASSWORD` or `NAME:operate:PASSWORD` for each user
    #[arg(long, value_name = "FILE")]
    basic_auth_file: Option<PathBuf>,

    /// A host name under which browsers reach the dashboard, for example through a proxy. It can be given several times
    #[arg(long = "allowed-host", value_name = "HOST")]
    allowed_hosts: Vec<String>,

    /// Lets in everybody who can reach the address, even if it is not a loopback address
    #[arg(long)]
    insecure_no_auth: bool,
}

/// The name of the store in the addresses of the pages.
const STORE: &str = "store";

/// Serves the dashboard until Ctrl-C is pressed.
pub(crate) async fn run(store: &StoreArgs, args: WebArgs) -> Result<(), Failure> {
    args.check().map_err(Failure::Usage)?;
    let session = if args.operate {
        store.open().await?
    } else {
        store.observe().await?
    };
    let (registry, shutdown) = (Registry::new(), CancellationToken::new());
    registry.watch(STORE, &session.client);
    let mut dashboard = Dashboard::builder();
    dashboard
        .store(STORE, session.client.clone())
        .registry(registry);
    dashboard
        .shutdown(shutdown.clone())
        .allowed_hosts(args.allowed_hosts.clone());
    args.let_in(&mut dashboard)?;
    let dashboard = dashboard
        .build()
        .map_err(|error| Failure::Failed(with_sources(&error)))?;
    // Without the token, an open page would keep the server alive.
    let served = serve::serve(args.listen, "/", dashboard.service(), || shutdown.cancel()).await;
    session.close().await;
    served
}

impl WebArgs {
    /// Refuses an address that others can reach, unless there are passwords.
    fn check(&self) -> Result<(), String> {
        let is_open = self.basic_auth_file.is_none() && !self.listen.ip().is_loopback();
        match (is_open, self.operate, self.insecure_no_auth) {
            (true, true, _) => Err(format!(
                "everybody who can reach {} could change the store: add `--basic-auth-file`, or leave out `--operate`",
                self.listen
            )),
            (true, false, false) => Err(format!(
                "everybody who can reach {} could read the store: add `--basic-auth-file`, or `--insecure-no-auth` if that is intended",
                self.listen
            )),
            _ => Ok(()),
        }
    }

    /// Sets the access of users.
    fn let_in(&self, dashboard: &mut throng_web::DashboardBuilder) -> Result<(), Failure> {
        if let Some(path) = &self.basic_auth_file {
            let users = BasicAuth::from_file(path);
            dashboard.basic_auth(users.map_err(|error| Failure::Usage(with_sources(&error)))?);
        }
        match (self.operate, self.basic_auth_file.is_some()) {
            (true, true) | (false, false) => {}
            (true, false) => {
                dashboard.access(|_| Access::operate("local"));
            }
            (false, true) => {
                dashboard.access(only_reads);
            }
        }
        Ok(())
    }
}

/// Lets users only read, whatever their role is.
fn only_reads(request: &Parts) -> Access {
    match request.extensions.get() {
        Some(Access::Read(user) | Access::Operate(user)) => Access::read(user),
        Some(Access::None) | None => Access::None,
    }
}
