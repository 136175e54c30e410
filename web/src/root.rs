//! The relative URL of the dashboard's root, as seen from a page.
//!
//! All links, forms and redirects begin with it. So the dashboard works under any prefix, and behind any proxy that adds or removes a
//! prefix, without configuration.

/// Returns the relative URL of the root. `inner` is the path that the dashboard receives, and `original` is the path that the
/// application has received, which has the prefix under which the dashboard is mounted.
pub(crate) fn root_of(inner: &str, original: &str) -> String {
    match inner.matches('/').count() {
        0 | 1 if inner.len() <= 1 => root_of_root(original),
        0 | 1 => String::from("./"),
        slashes => "../".repeat(slashes - 1),
    }
}

/// At the root, the path may lack the last slash: from `/throng`, the link `tasks` leads to `/tasks`.
fn root_of_root(original: &str) -> String {
    match original.rsplit_once('/') {
        // With the dot, a colon in the segment begins no scheme.
        Some((_, last)) if !last.is_empty() => format!("./{last}/"),
        _ => String::from("./"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves a relative URL as browsers do.
    fn resolve(path: &str, link: &str) -> String {
        let (folder, _) = path.rsplit_once('/').unwrap();
        let mut segments: Vec<&str> = folder.split('/').collect();
        for segment in link.split('/') {
            match segment {
                "." => {}
                ".." => drop(segments.pop()),
                _ => segments.push(segment),
            }
        }
        segments.join("/")
    }

    #[test]
    fn links_lead_to_the_same_place_from_each_page_and_under_each_prefix() {
        for prefix in ["", "/throng", "/a/b/c", "/a:b"] {
            for inner in [
                "/",
                "/health",
                "/s/mail",
                "/s/mail/tasks/waiting",
                "/s/a%2Fb/dead",
            ] {
                let original = format!("{prefix}{inner}");
                let link = format!("{}health", root_of(inner, &original));
                assert_eq!(
                    resolve(&original, &link),
                    format!("{prefix}/health"),
                    "{original}"
                );
            }
            if !prefix.is_empty() {
                let link = format!("{}health", root_of("/", prefix));
                assert_eq!(resolve(prefix, &link), format!("{prefix}/health"));
            }
        }
    }
}
