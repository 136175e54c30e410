//! Pages that show hostile texts.

use serde_json::{Value, json};

use crate::driver::{Browser, with_browser};
use crate::hostile::{Hostile, MARKER};
use crate::site::Site;

#[tokio::test]
async fn hostile_texts_are_shown_and_neither_run_nor_become_elements() {
    with_browser(async |browser| {
        let site = Site::start().await;
        let done = site
            .client
            .spawn(Hostile::new(false))
            .await
            .expect("a task")
            .id();
        let dead = site
            .client
            .spawn(Hostile::new(true))
            .await
            .expect("a task")
            .id();
        site.wait_for(|it| it.done == 1 && it.dead == 1).await;
        browser.emulate(1280, "light").await;
        for path in [
            "",
            "/dead",
            "/types",
            "/tasks/done",
            "/workers",
            "/find?q=%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D1%3E",
        ] {
            browser.open(&site.url(&format!("/s/mail{path}"))).await;
            check(&browser, path).await;
        }
        for id in [done, dead] {
            browser.open(&site.url(&format!("/s/mail/task/{id}"))).await;
            check(&browser, "a task").await;
            assert!(browser.text().await.contains(MARKER), "the texts are shown");
        }
        browser.screenshot("hostile").await;
        site.stop().await;
    })
    .await;
}

async fn check(browser: &Browser, page: &str) {
    assert!(
        browser.client.get_alert_text().await.is_err(),
        "{page} opens a dialog"
    );
    assert_eq!(
        browser.eval("return window.pwned").await,
        Value::Null,
        "{page}"
    );
    assert_eq!(browser.eval(FOREIGN_ELEMENTS).await, json!([]), "{page}");
    assert_eq!(browser.console().await, Vec::<String>::new(), "{page}");
}

/// Elements and attributes that the dashboard itself never uses.
const FOREIGN_ELEMENTS: &str = "return [...document.querySelectorAll('*')].filter(it => \
    /^(img|iframe|object|embed|svg|math|base|style|noscript|textarea)$/.test(it.localName) \
    || (it.localName === 'script' && !it.src) || (it.localName === 'meta' && it.httpEquiv) \
    || [...it.attributes].some(it => /^on|^srcdoc$/.test(it.name) || /^\\s*javascript:/i.test(it.value))) \
    .map(it => it.outerHTML.slice(0, 200))";
