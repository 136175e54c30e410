//! Numbers and charts that change while a page is open.

use std::time::Duration;

use crate::driver::with_browser;
use crate::hostile::Hostile;
use crate::site::Site;

#[tokio::test]
async fn an_open_page_shows_new_numbers_and_delays_no_shutdown() {
    with_browser(async |browser| {
        let site = Site::start().await;
        browser.emulate(1280, "light").await;
        browser.open(&site.url("/s/mail")).await;
        browser
            .wait_until("document.querySelector('[data-live-state=on]')")
            .await;
        browser
            .wait_until("document.querySelectorAll('figure canvas').length === 2")
            .await;
        browser.eval("window.isSamePage = true").await;
        let _ = site.client.spawn(Hostile::new(true)).await.expect("a task");
        browser
            .wait_until("/\\bDead\\s+1\\b/.test(document.querySelector('#part-numbers').innerText)")
            .await;
        browser
            .wait_until("JSON.stringify(window.pwned) === undefined && window.isSamePage")
            .await;
        assert_eq!(browser.console().await, Vec::<String>::new());

        let time = site.stop().await;
        assert!(time < Duration::from_secs(1), "{time:?}");
        browser
            .wait_until("document.querySelector('[data-live-state=off]')")
            .await;
    })
    .await;
}
