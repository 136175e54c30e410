//! Each page, in both themes and at three widths.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::driver::{Browser, target, with_browser};
use crate::site::Site;

/// The fewest kinds of pages that links lead to.
const MIN_PAGES: usize = 12;
/// The widths, in CSS pixels.
const WIDTHS: [u32; 3] = [1280, 768, 360];

#[tokio::test]
async fn each_page_is_readable_and_accessible_and_writes_nothing_to_the_console() {
    with_browser(async |browser| {
        let site = Site::start().await;
        site.fill().await;
        browser.open(&site.url("/s/mail")).await;
        let overview = browser.text().await;
        for trouble in [
            "queues: reports",
            "registered: image.resize",
            "pdf.render (",
        ] {
            assert!(overview.contains(trouble), "{trouble}: {overview}");
        }
        let pages = pages(&browser, &site).await;
        assert!(pages.len() >= MIN_PAGES, "{pages:#?}");
        let axe = axe();
        for (name, url) in &pages {
            for theme in ["light", "dark"] {
                for width in WIDTHS {
                    browser.emulate(width, theme).await;
                    browser.open(url).await;
                    let name = format!("{name}-{theme}-{width}");
                    check(&browser, &name).await;
                    // Contrasts differ between the themes, and structures between the widths: three of six pages have all of them.
                    if (theme == "light") == (width == WIDTHS[0]) {
                        check_accessibility(&browser, &axe, &name).await;
                    }
                }
            }
        }
        site.stop().await;
    })
    .await;
}

/// Follows all links of the dashboard, and returns a page of each kind with its URL.
async fn pages(browser: &Browser, site: &Site) -> BTreeMap<String, String> {
    let root = site.url("/");
    let mut pages = BTreeMap::new();
    let mut queue = vec![root.clone()];
    while let Some(url) = queue.pop() {
        let Some(path) = url.strip_prefix(&root) else {
            continue;
        };
        let name = kind(path);
        if pages.contains_key(&name) {
            continue;
        }
        browser.open(&url).await;
        pages.insert(name, url);
        let links = browser
            .eval(
                "return [...document.querySelectorAll('a[href]:not([download])')].map(a => a.href)",
            )
            .await;
        let links = links.as_array().expect("a list of links").iter().rev();
        queue.extend(
            links
                .filter_map(Value::as_str)
                .filter(|url| is_page(url))
                .map(String::from),
        );
    }
    pages
}

/// Returns `false` for downloads and for what is not HTML.
fn is_page(url: &str) -> bool {
    !["/payload", "/output", "/metrics", "/health", "/api"]
        .iter()
        .any(|it| url.contains(it))
}

/// Returns the path without its query and its fragment, with a word for an id. Pages of the same kind are checked once.
fn kind(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_id = |segment: &str| segment.len() > 12 || segment.parse::<u64>().is_ok();
    let segments = path.split('/').map(|it| if is_id(it) { "id" } else { it });
    let segments: Vec<_> = segments.filter(|it| !it.is_empty()).collect();
    if segments.is_empty() {
        "root".to_owned()
    } else {
        segments.join("-")
    }
}

async fn check(browser: &Browser, name: &str) {
    browser.screenshot(name).await;
    let width = browser
        .eval("return [document.documentElement.scrollWidth, innerWidth]")
        .await;
    let wide = browser.eval(WIDE_ELEMENTS).await;
    assert!(
        width[0].as_u64() <= width[1].as_u64(),
        "{name} scrolls sideways: {width}, {wide}"
    );
    assert_eq!(browser.console().await, Vec::<String>::new(), "{name}");
}

async fn check_accessibility(browser: &Browser, axe: &str, name: &str) {
    let violations = browser
        .client
        .execute_async(&format!("{axe};{RUN_AXE}"), Vec::new())
        .await;
    assert_eq!(violations.expect("axe runs"), json!([]), "{name}");
}

const WIDE_ELEMENTS: &str = "return [...document.body.querySelectorAll('*')] \
    .filter(it => it.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map(it => it.outerHTML.slice(0, 200))";

/// Returns what is wrong, with the elements.
const RUN_AXE: &str = "axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }) \
    .then(it => arguments[arguments.length - 1](it.violations.map(it => \
    [it.id, it.help, ...it.nodes.slice(0, 3).map(it => [it.html, it.failureSummary])])))";

/// Returns the script of axe-core, which finds violations of the accessibility guidelines.
fn axe() -> String {
    let path = target().join("axe-core/package/axe.min.js");
    std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}: run `scripts/test-web`, which downloads axe-core",
            path.display()
        )
    })
}
