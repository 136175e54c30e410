//! Refuses requests that pages of other origins make in a user's browser (cross-site request forgery).
//!
//! Browsers say where a request comes from, in headers that scripts cannot set. So the dashboard needs neither tokens nor cookies, and
//! replicas need no common secret. The first of these headers that is present decides:
//!
//! 1. `Sec-Fetch-Site`: it must be `same-origin`, or `none`, which means that the user made the request without a page. Browsers omit it
//!    on plain HTTP, except on loopback addresses.
//! 2. `Origin`: it must name the host to which the request was sent.
//! 3. `Authorization`: programs such as curl send neither of the above. They must authenticate.
//!
//! A page on another port of the same machine is of another origin, although it is of the same site.

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

const REFUSAL: &str = "403: this request would change something, and it does not come from a page of this dashboard. \
    Reload the page and try again. A program must send the header `Authorization`.\n";

/// A middleware that refuses forged requests. It passes on requests that change nothing.
pub(crate) async fn refuse_cross_site(request: Request, next: Next) -> Response {
    let changes_nothing = matches!(*request.method(), Method::GET | Method::HEAD);
    if changes_nothing || is_own(request.headers(), request.uri()) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, REFUSAL).into_response()
    }
}

/// Returns `true` if the request comes from a page of the dashboard, from the user, or from a program that authenticates.
fn is_own(headers: &HeaderMap, uri: &Uri) -> bool {
    match (only(headers, &SEC_FETCH_SITE), only(headers, &ORIGIN)) {
        (Header::Once(site), _) => site == "same-origin" || site == "none",
        (Header::Missing, Header::Once(origin)) => is_origin_of(origin, headers, uri),
        (Header::Missing, Header::Missing) => headers.contains_key(AUTHORIZATION),
        (Header::Repeated, _) | (_, Header::Repeated) => false,
    }
}

/// Returns `true` if the origin has the host and the port to which the request was sent. The scheme may differ, since a proxy may
/// terminate TLS.
fn is_origin_of(origin: &HeaderValue, headers: &HeaderMap, uri: &Uri) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let Some((_, origin)) = origin.split_once("://") else {
        return false;
    };
    let origin = origin.parse::<Authority>();
    origin.is_ok_and(|origin| authority(headers, uri) == Some(origin))
}

/// Returns the host and the port to which a request was sent. Returns `None` if they are missing, invalid or contradictory.
pub(crate) fn authority(headers: &HeaderMap, uri: &Uri) -> Option<Authority> {
    match (only(headers, &HOST), uri.authority()) {
        (Header::Once(host), None) => host.to_str().ok()?.parse().ok(),
        // HTTP/2 sends the host as a part of the URI.
        (Header::Missing, Some(authority)) => Some(authority.clone()),
        (Header::Once(host), Some(authority)) if host == authority.as_str() => {
            Some(authority.clone())
        }
        _ => None,
    }
}

/// The values of a header of which there should be one at most.
enum Header<'a> {
    Missing,
    Once(&'a HeaderValue),
    Repeated,
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Header<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Header::Missing,
        (Some(value), None) => Header::Once(value),
        (Some(_), Some(_)) => Header::Repeated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row: `Sec-Fetch-Site`, `Origin`, `Host`, `true` for a request with `Authorization`, and `true` if it is accepted.
    type Row<'a> = (Option<&'a str>, Option<&'a str>, &'a str, bool, bool);

    const OWN: &str = "http://jobs.example:9300";
    const HOST_NAME: &str = "jobs.example:9300";

    fn accepts((site, origin, host, authorizes, _): Row<'_>) -> bool {
        let mut headers = HeaderMap::new();
        let authorization = authorizes.then_some("Basic b3BzOnB3");
        let values = [
            (SEC_FETCH_SITE, site),
            (ORIGIN, origin),
            (HOST, Some(host)),
            (AUTHORIZATION, authorization),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        is_own(&headers, &Uri::from_static("/queues/mail/pause"))
    }

    #[test]
    fn sec_fetch_site_decides_if_it_is_present() {
        for origin in [None, Some(OWN), Some("http://evil.example"), Some("null")] {
            for authorizes in [false, true] {
                let sites = [
                    ("same-origin", true),
                    ("none", true),
                    ("same-site", false),
                    ("cross-site", false),
                    ("", false),
                    ("Same-Origin", false),
                ];
                for (site, expected) in sites {
                    let row = (Some(site), origin, HOST_NAME, authorizes, expected);
                    assert_eq!(accepts(row), expected, "{row:?}");
                }
            }
        }
    }

    #[test]
    fn without_it_the_origin_must_be_the_host() {
        let origins = [
            (OWN, true),
            ("https://jobs.example:9300", true),
            ("HTTP://JOBS.EXAMPLE:9300", true),
            ("null", false),
            ("", false),
            ("http://jobs.example", false),
            ("http://jobs.example:9301", false),
            ("http://evil.example:9300", false),
            ("http://jobs.example:9300.evil.example", false),
            ("http://evil.example/jobs.example:9300", false),
            ("http://jobs.example:9300@evil.example", false),
            ("jobs.example:9300", false),
        ];
        for (origin, expected) in origins {
            for authorizes in [false, true] {
                let row = (None, Some(origin), HOST_NAME, authorizes, expected);
                assert_eq!(accepts(row), expected, "{row:?}");
            }
        }
        let other_host = (None, Some(OWN), "127.0.0.1:9300", false, false);
        assert!(!accepts(other_host));
    }

    #[test]
    fn without_both_the_request_must_authenticate() {
        assert!(accepts((None, None, HOST_NAME, true, true)));
        assert!(!accepts((None, None, HOST_NAME, false, false)));
    }

    #[test]
    fn repeated_headers_are_refused() {
        for name in [SEC_FETCH_SITE, ORIGIN] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HOST_NAME.parse().unwrap());
            headers.insert(AUTHORIZATION, "Basic b3BzOnB3".parse().unwrap());
            let value = if name == ORIGIN { OWN } else { "same-origin" };
            headers.append(&name, value.parse().unwrap());
            headers.append(&name, value.parse().unwrap());
            assert!(!is_own(&headers, &Uri::from_static("/")), "{name}");
        }
    }

    #[test]
    fn the_authority_of_http_2_counts_as_host() {
        let uri = Uri::from_static("http://jobs.example:9300/pause");
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, OWN.parse().unwrap());
        assert!(is_own(&headers, &uri));
        headers.insert(HOST, "jobs.example:9300".parse().unwrap());
        assert!(is_own(&headers, &uri));
        headers.insert(HOST, "evil.example".parse().unwrap());
        assert!(!is_own(&headers, &uri));
    }
}
