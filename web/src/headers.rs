//! The headers of every answer: they restrict what a browser does with a page, even if the page contains hostile text.

use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

/// Pages load nothing but the assets of the dashboard, and no page of another origin contains them.
pub(crate) const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

/// The headers that no answer changes.
///
/// With the referrer policy `no-referrer`, browsers would send `Origin: null` with the forms of the dashboard, and the
/// [guard](crate::guard) would refuse them where `Sec-Fetch-Site` is missing.
const FIXED: [(HeaderName, &str); 5] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (HeaderName::from_static("x-robots-tag"), "noindex"),
];

/// The headers that an answer may set to another value: assets are cached, and downloads have a stricter policy.
const DEFAULTS: [(HeaderName, &str); 2] = [
    (CONTENT_SECURITY_POLICY, PAGE_POLICY),
    (CACHE_CONTROL, "no-store"),
];

/// A middleware that adds the headers to all answers.
pub(crate) async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    set_headers(response.headers_mut());
    response
}

fn set_headers(headers: &mut HeaderMap) {
    for (name, value) in FIXED {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in DEFAULTS {
        let entry = headers.entry(name);
        entry.or_insert_with(|| HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_headers_gets_all_of_them() {
        let mut headers = HeaderMap::new();
        set_headers(&mut headers);
        for (name, value) in FIXED.into_iter().chain(DEFAULTS) {
            assert_eq!(headers[&name], value, "{name}");
        }
        assert_eq!(headers.len(), FIXED.len() + DEFAULTS.len());
    }

    #[test]
    fn an_answer_keeps_only_its_own_policy_and_cache_control() {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=1"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("unsafe-url"));
        set_headers(&mut headers);
        assert_eq!(headers[CACHE_CONTROL], "max-age=1");
        assert_eq!(headers[CONTENT_SECURITY_POLICY], "sandbox");
        assert_eq!(headers[REFERRER_POLICY], "same-origin");
    }

    #[test]
    fn the_policy_allows_no_inline_code_and_no_eval() {
        assert!(!PAGE_POLICY.contains("unsafe"));
        assert!(!PAGE_POLICY.contains('*'));
        assert!(!PAGE_POLICY.contains("  "), "{PAGE_POLICY}");
    }
}
