//! Operations: they work without scripts, and only from pages of the dashboard.

use std::time::Duration;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use fantoccini::Locator;
use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableExecutor, DurableTask, Every, Run, SpawnOptions, Status, StepKind, TaskContext,
    TaskError,
};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::driver::{Browser, LIMIT, with_browser};
use crate::hostile::Hostile;
use crate::site::{PAUSED_QUEUE, Site};

#[tokio::test]
async fn operations_work_without_scripts() {
    with_browser(async |browser| {
        let site = Site::start().await;
        let dead = site
            .client
            .spawn(Hostile::new(true))
            .await
            .expect("a task")
            .id();
        site.wait_for(|it| it.dead == 1).await;
        browser.disable_scripts().await;

        browser.open(&site.url("/s/mail/queues")).await;
        let pause = format!("//tr[contains(., '{PAUSED_QUEUE}')]//button[contains(., 'Pause')]");
        click(&browser, &pause).await;
        wait_until(async || is_paused(&site).await).await;
        click(&browser, &pause.replace("Pause", "Resume")).await;
        wait_until(async || !is_paused(&site).await).await;

        let daily = Every::new(Duration::from_secs(86400));
        let digest = Hostile::new(false);
        let defined = site.client.schedule("digest", daily, digest).await;
        assert!(defined.expect("a schedule"));
        browser.open(&site.url("/s/mail/schedules")).await;
        click(&browser, "//button[. = 'Fire now']").await;
        site.wait_for(|it| it.done == 1).await;

        browser
            .open(&site.url(&format!("/s/mail/task/{dead}")))
            .await;
        click(&browser, "//main//button[contains(., 'Delete')]").await;
        wait_until(async || {
            let task = site.client.admin().task(dead).await;
            task.expect("the store answers").is_none()
        })
        .await;
        site.stop().await;
    })
    .await;
}

/// A workflow that waits for two signals after two steps. The name of the first step does something on a page that does not escape it, and
/// a field of a form cannot contain the name of the second one.
#[derive(Serialize, Deserialize)]
struct Order;

const HOSTILE_STEP: &str = "<img src=x onerror=alert(1)>'\"&amp;";

/// Browsers change line breaks in the values of fields, and replace NUL.
const ODD_STEP: &str = "a\nb\r\nc\rd\0e%0A";

impl DurableTask for Order {
    const NAME: &'static str = "order";
    type Output = u64;
}

impl Run<()> for Order {
    async fn run(self, cx: TaskContext<()>) -> Result<u64, TaskError> {
        let charged = cx.step(HOSTILE_STEP, || async { Ok(7) }).await?;
        let packed = cx.step(ODD_STEP, || async { Ok(10) }).await?;
        let odd: u64 = cx.signal(ODD_STEP).await?;
        let paid: u64 = cx.signal("paid").await?;
        Ok(charged + packed + odd + paid)
    }
}

#[tokio::test]
async fn a_workflow_is_replayed_and_signalled_without_scripts() {
    with_browser(async |browser| {
        let site = Site::start().await;
        let mut builder = DurableExecutor::builder(site.client.clone());
        builder.register::<Order>();
        let executor = builder.start(()).await.expect("an executor");
        let kept = SpawnOptions::new().retention(Duration::from_secs(3600));
        let order = site.client.spawn_with(Order, kept).await.expect("a task");
        let id = order.id();
        let detail = async || {
            let detail = site.client.admin().task(id).await;
            detail
                .expect("the store answers")
                .expect("the task is there")
        };
        wait_until(async || detail().await.task.status == Status::Delayed).await;
        browser.disable_scripts().await;

        // The page shows control characters as escapes.
        let shown = r"a\u{a}b\u{d}\u{a}c\u{d}d\u{0}e%0A";
        for (at, name) in [(1, shown), (0, HOSTILE_STEP)] {
            browser.open(&site.url(&format!("/s/mail/task/{id}"))).await;
            let row = format!("//tr[td[. = concat({}, '')]]", xpath_parts(name));
            click(&browser, &format!("{row}//button[. = 'Replay from here']")).await;
            click(&browser, "//main//button[. = 'Replay from here']").await;
            wait_until(async || {
                let steps = detail().await.steps;
                steps.len() == 3 && steps[at].kind == StepKind::Replay
            })
            .await;
            wait_until(async || detail().await.task.status == Status::Delayed).await;
        }

        for (field, value) in [("awaited", "20"), ("name", "5")] {
            // Equal requests share an answer for a while, so the page may show the run that has just ended.
            wait_until(async || {
                browser.open(&site.url(&format!("/s/mail/task/{id}"))).await;
                let page = browser.client.source().await.expect("a page");
                page.contains("name=\"awaited\"") == (field == "awaited")
                    && page.contains("value=\"paid\"") == (field == "name")
            })
            .await;
            let form =
                format!("//form[input[@name = '{field}'] or label/input[@name = '{field}']]");
            let path = format!("{form}//input[@name = 'value']");
            let input = browser.client.find(Locator::XPath(&path)).await;
            input
                .expect("a form")
                .send_keys(value)
                .await
                .expect("a field");
            click(&browser, &format!("{form}//button[. = 'Send signal']")).await;
        }
        let output = tokio::time::timeout(LIMIT, order).await;
        assert_eq!(output.expect("it ends").expect("it succeeds"), 42);
        executor.shutdown(LIMIT).await;
        site.stop().await;
    })
    .await;
}

/// Returns the parts of a text, with quotes of two kinds, as arguments of a function of XPath.
fn xpath_parts(text: &str) -> String {
    let parts = text.split('\'').map(|part| format!("'{part}'"));
    parts.collect::<Vec<_>>().join(", \"'\", ")
}

#[tokio::test]
async fn a_change_of_many_tasks_works_without_scripts() {
    with_browser(async |browser| {
        let site = Site::start().await;
        spawn_later(&site).await;
        browser.disable_scripts().await;
        browser.open(&site.url("/s/mail/tasks/delayed")).await;
        click(&browser, "//tbody/tr[1]//input[@type = 'checkbox']").await;
        click(&browser, "//button[. = 'Cancel']").await;
        click(&browser, "//main//button[. = 'Cancel']").await;
        site.wait_for(|it| it.delayed == TASKS - 1).await;

        browser.open(&site.url("/s/mail/tasks/delayed")).await;
        click(&browser, "//button[. = 'Run all now']").await;
        click(&browser, "//main//button[. = 'Run now']").await;
        site.wait_for(|it| it.delayed == 0 && it.done == TASKS - 1)
            .await;
        click(&browser, "//a[. = 'Back to the list']").await;
        site.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_page_that_is_reloaded_during_a_change_of_many_tasks_starts_no_other() {
    with_browser(async |browser| {
        let site = Site::start().await;
        spawn_later(&site).await;
        browser.open(&site.url("/s/mail/tasks/delayed")).await;
        click(&browser, "//button[. = 'Run all now']").await;
        let lock = site.lock_store();
        click(&browser, "//main//button[. = 'Run now']").await;
        let is_running = "location.pathname.endsWith('/bulk/1') && document.querySelector('.state.running')";
        browser.wait_until(is_running).await;
        browser.client.refresh().await.expect("the page loads");
        browser.wait_until(is_running).await;
        browser.eval("window.isSamePage = true").await;
        drop(lock);
        // The page follows the change to its end.
        let has_finished = format!(
            "/finished:\\s+{TASKS} made due, 0 unchanged/.test(document.querySelector('#part-job').innerText)"
        );
        browser.wait_until(&has_finished).await;
        browser.wait_until("window.isSamePage").await;
        browser.open(&site.url("/s/mail/bulk/2")).await;
        browser
            .wait_until("document.body.innerText.includes('no bulk change 2')")
            .await;
        site.stop().await;
    })
    .await;
}

/// The number of tasks that [`spawn_later`] spawns.
const TASKS: u64 = 5;

/// Spawns tasks that are due in an hour, and whose ends are kept.
async fn spawn_later(site: &Site) {
    let hour = Duration::from_secs(3600);
    for _ in 0..TASKS {
        let later = SpawnOptions::new().delay(hour).retention(hour);
        let task = site.client.spawn_with(Hostile::new(false), later);
        task.await.expect("a task");
    }
}

#[tokio::test]
async fn a_page_of_another_port_cannot_operate_or_embed_the_dashboard() {
    with_browser(async |browser| {
        let site = Site::start().await;
        let attack = serve_attack(&site).await;
        browser.open(&attack).await;
        browser
            .wait_until("document.body.innerText.startsWith('403')")
            .await;
        assert!(!is_paused(&site).await);
        let console = browser.console().await.join("\n");
        assert!(
            console.contains("frame-ancestors"),
            "the frame is refused: {console}"
        );

        // The same request from a page of the dashboard succeeds.
        browser.open(&site.url("/s/mail")).await;
        browser.eval(&post_form(&site)).await;
        browser
            .wait_until(&format!(
                "document.body.innerText.includes('{PAUSED_QUEUE}')"
            ))
            .await;
        assert!(is_paused(&site).await);
        site.stop().await;
    })
    .await;
}

/// Waits for a button, and clicks it. A page that follows a change may be loaded again in between.
async fn click(browser: &Browser, path: &str) {
    let start = Instant::now();
    loop {
        let wait = browser.client.wait();
        let button = wait.for_element(Locator::XPath(path)).await;
        let button = button.unwrap_or_else(|error| panic!("{path}: {error}"));
        match button.click().await {
            Err(error) if error.is_stale_element_reference() && start.elapsed() < LIMIT => {}
            result => return result.expect("the button can be clicked"),
        }
    }
}

/// Waits until a condition holds: a click does not wait for its effect.
async fn wait_until(condition: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < LIMIT, "the operation has no effect");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn is_paused(site: &Site) -> bool {
    let info = site.client.queue(PAUSED_QUEUE).info().await;
    info.expect("the store answers").is_paused
}

/// Serves a page that sends a form of its own to the dashboard, on another port.
async fn serve_attack(site: &Site) -> String {
    let (frame, script) = (site.url("/s/mail"), post_form(site));
    let page =
        format!("<iframe src='{frame}'></iframe><script>onload = () => {{ {script} }}</script>");
    let app = Router::new().route("/", get(async move || Html(page)));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("a port");
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/")
}

/// Returns a script that pauses a queue.
fn post_form(site: &Site) -> String {
    let action = site.url("/s/mail/queues/pause");
    format!(
        "const form = document.createElement('form'); form.method = 'post'; form.action = '{action}'; \
        const name = document.createElement('input'); name.name = 'name'; name.value = '{PAUSED_QUEUE}'; \
        form.append(name); document.body.append(form); form.submit();"
    )
}
