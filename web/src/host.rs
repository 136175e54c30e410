//! Refuses requests that were sent to a name that is not the server's (DNS rebinding).
//!
//! A page of `evil.example` can make its name resolve to 127.0.0.1. The requests of that page then reach a server that listens only on
//! loopback addresses, and browsers consider them to be of the same origin. Such a request has the foreign name as its host.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::guard::authority;

/// The names under which a server may be reached, besides IP addresses and `localhost`. Case does not matter, and every port is allowed.
#[derive(Clone, Debug)]
pub(crate) struct AllowedHosts {
    names: Vec<String>,
}

impl AllowedHosts {
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self { names }
    }

    fn allows(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let authority = authority(headers, uri);
        authority.is_some_and(|authority| self.has(&authority))
    }

    fn has(&self, authority: &Authority) -> bool {
        let host = authority.host();
        let is_named = |name: &str| host.eq_ignore_ascii_case(name);
        let has_user = authority.as_str().contains('@');
        !has_user
            && (is_ip(host) || is_named("localhost") || self.names.iter().any(|it| is_named(it)))
    }
}

/// Returns `true` if the host is an IP address: no name has to be resolved to reach it.
fn is_ip(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    address.unwrap_or(host).parse::<IpAddr>().is_ok()
}

/// A middleware that refuses requests to other hosts.
pub(crate) async fn refuse_other_hosts(
    State(allowed): State<AllowedHosts>,
    request: Request,
    next: Next,
) -> Response {
    if allowed.allows(request.headers(), request.uri()) {
        return next.run(request).await;
    }
    let message = "403: the dashboard is not served under this host name. Use an IP address or `localhost`, or allow the name when the \
        server starts.\n";
    (StatusCode::FORBIDDEN, message).into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::header::HOST;

    use super::*;

    fn allows(host: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        let allowed = AllowedHosts::new(vec!["jobs.example".to_owned()]);
        allowed.allows(&headers, &Uri::from_static("/"))
    }

    #[test]
    fn addresses_and_allowed_names_are_served() {
        let hosts = [
            "127.0.0.1",
            "127.0.0.1:9300",
            "[::1]:9300",
            "[::1]",
            "192.168.1.7:80",
            "localhost",
            "LocalHost:9300",
            "jobs.example",
            "JOBS.example:443",
        ];
        for host in hosts {
            assert!(allows(host), "{host}");
        }
    }

    #[test]
    fn other_names_are_refused() {
        let hosts = [
            "",
            "evil.example",
            "evil.example:9300",
            "jobs.example.evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "evil.example@localhost",
            "localhost/",
            "localhost, localhost",
        ];
        for host in hosts {
            assert!(!allows(host), "{host}");
        }
    }

    #[test]
    fn a_request_needs_one_host() {
        let allowed = AllowedHosts::new(Vec::new());
        let mut headers = HeaderMap::new();
        assert!(!allowed.allows(&headers, &Uri::from_static("/")));
        headers.append(HOST, "localhost".parse().unwrap());
        headers.append(HOST, "localhost".parse().unwrap());
        assert!(!allowed.allows(&headers, &Uri::from_static("/")));
    }
}
