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
        let _task = site.client.spawn(Hostile::new(true)).await.expect("a task");
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

#[tokio::test]
async fn a_page_without_a_stream_asks_for_new_numbers() {
    with_browser(async |browser| {
        let site = Site::start().await;
        let streams = site.open_all_streams().await;
        browser.open(&site.url("/s/mail")).await;
        browser
            .wait_until("document.querySelector('[data-live-state=on]')?.innerText === 'Every 5 s'")
            .await;
        let _task = site.client.spawn(Hostile::new(true)).await.expect("a task");
        browser
            .wait_until("/\\bDead\\s+1\\b/.test(document.querySelector('#part-numbers').innerText)")
            .await;
        drop(streams);
        site.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_page_says_that_the_server_is_gone_and_goes_on_when_it_is_back() {
    with_browser(async |browser| {
        let mut site = Site::start().await;
        browser.open(&site.url("/s/mail")).await;
        browser
            .wait_until("document.querySelector('[data-live-state=on]')")
            .await;
        browser.eval("window.isSamePage = true").await;
        site.stop_server().await;
        browser
            .wait_until(
                "document.querySelector('[data-live-state=off]')?.innerText === 'Reconnecting'",
            )
            .await;
        site.start_server().await;
        browser
            .wait_until("document.querySelector('[data-live-state=on]') && window.isSamePage")
            .await;
        let _task = site.client.spawn(Hostile::new(true)).await.expect("a task");
        browser
            .wait_until("/\\bDead\\s+1\\b/.test(document.querySelector('#part-numbers').innerText)")
            .await;
        site.stop().await;
    })
    .await;
}
