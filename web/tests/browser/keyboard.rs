//! The dashboard without a mouse.

use fantoccini::key::Key;
use serde_json::json;
use throng::durable::Status;

use crate::driver::{Browser, with_browser};
use crate::hostile::Hostile;
use crate::site::Site;

/// The maximum number of times that a reader presses the Tab key to reach something.
const MAX_TABS: usize = 60;

#[tokio::test]
async fn a_dead_letter_is_replayed_with_the_keyboard() {
    with_browser(async |browser| {
        let site = Site::start().await;
        let task = site.client.spawn(Hostile::new(true)).await.expect("a task");
        let id = task.id();
        site.wait_for(|it| it.dead == 1).await;
        browser.open(&site.url("/s/mail")).await;
        focus(&browser, "it.innerText === 'Dead letters'").await;
        press(&browser, Key::Enter).await;
        browser
            .wait_until("document.title.startsWith('Dead')")
            .await;
        focus(&browser, &format!("it.value === '{id}'")).await;
        press(&browser, " ").await;
        browser
            .wait_until("document.querySelector('legend').innerText.endsWith('1 of 1')")
            .await;
        focus(&browser, "it.innerText === 'Replay'").await;
        press(&browser, Key::Enter).await;
        browser
            .wait_until("document.title.startsWith('Confirm')")
            .await;
        browser.screenshot("confirm").await;
        focus(&browser, "it.innerText === 'Replay'").await;
        press(&browser, Key::Enter).await;
        browser
            .wait_until(
                "/finished:\\s+1 replayed/.test(document.querySelector('#part-job')?.innerText)",
            )
            .await;
        browser.screenshot("bulk-finished").await;
        // It runs again, and fails again.
        site.wait_for(|it| it.dead == 1 && it.waiting == 0 && it.running == 0)
            .await;
        assert_eq!(
            site.client.status(id).await.expect("a status"),
            Status::Dead
        );
        site.stop().await;
    })
    .await;
}

/// Presses the Tab key until an element has the focus, which must be visible.
async fn focus(browser: &Browser, condition: &str) {
    let script = format!("const it = document.activeElement; return Boolean({condition})");
    for _ in 0..MAX_TABS {
        press(browser, Key::Tab).await;
        if browser.eval(&script).await == json!(true) {
            let outline = "return getComputedStyle(document.activeElement).outlineStyle";
            assert_eq!(browser.eval(outline).await, json!("solid"), "{condition}");
            return;
        }
    }
    panic!("{condition} is not reached: {}", browser.text().await);
}

/// Presses a key where the focus is.
async fn press(browser: &Browser, key: impl Into<PressedKey>) {
    let focused = browser.client.active_element().await;
    let PressedKey(text) = key.into();
    let sent = focused.expect("an element").send_keys(&text).await;
    sent.expect("a key is pressed");
}

struct PressedKey(String);

impl From<Key> for PressedKey {
    fn from(key: Key) -> Self {
        Self(char::from(key).into())
    }
}

impl From<&str> for PressedKey {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}
