//! The HTML of all pages, compared with the files in `tests/golden`: one file for each page, with its states one after the other.
//!
//! To accept changed pages, run the tests with `SNAPSHOTS=overwrite`, and look at the difference.

use std::fmt::Write;
use std::path::Path;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use regex::Regex;
use snapbox::Data;
use throng::durable::{DurableClient, MemoryStore};

use crate::stage::Stage;
use crate::support::{ACCESS, PREFIX, Reply, get, operated, post_form, send};

/// A page in some of its states.
pub(crate) struct Golden {
    file: &'static str,
    text: String,
}

impl Golden {
    pub(crate) fn new(file: &'static str) -> Self {
        let text = String::new();
        Self { file, text }
    }

    /// Adds the content of a page. The frame around it is that of all pages.
    pub(crate) fn add(&mut self, state: &str, reply: &Reply) {
        let main = reply.text.split_once("<main").map(|(_, rest)| rest);
        let main = main.and_then(|rest| rest.split_once("</main>"));
        let (main, _) = main.unwrap_or_else(|| panic!("{state} is no page: {}", reply.text));
        self.add_part(state, reply, &format!("<main{main}</main>"));
    }

    fn add_part(&mut self, state: &str, reply: &Reply, html: &str) {
        let Self { text, .. } = self;
        writeln!(text, "<!-- {state}: {} -->", reply.status).expect("a text can be written");
        writeln!(text, "{}\n", redacted(html)).expect("a text can be written");
    }

    pub(crate) fn check(self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let golden = Data::read_from(&folder.join(self.file), None).raw();
        let assert = snapbox::Assert::new().action_env("SNAPSHOTS");
        assert.eq(self.text, golden);
    }
}

/// Replaces what differs from one run to the next, and begins a line for each block.
fn redacted(html: &str) -> String {
    let mut html = html.to_owned();
    for (pattern, replacement) in [
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "[ID]"),
        (r"\b[wlrdxck][0-9a-f]{20,}", "[CURSOR]"),
        (r"<time .*?</time>", "<time>[UTC]</time>"),
        // The number of samples depends on the time.
        (r"(?s)<figure.*?</figure>", "<figure>[CHART]</figure>"),
        // The statistics come some seconds after the runs.
        (r"(last hour</dt><dd>)\d+", "$1[RUNS]"),
        (r"\b\d+(\.\d)? (ms|s|min)\b", "[TIME]"),
        (r#"(name="until_ms" value=")\d+"#, "$1[MS]"),
        (
            r">[^<]* on [^<]*</a> <span class=.muted.>process \d+",
            ">[PROGRAM] on [HOST]</a> <span class=\"muted\">process [PID]",
        ),
        (r"(assets/)[0-9a-f]+/", "$1[HASH]/"),
        (
            r"(<(h1|h2|p|div|section|table|caption|thead|tbody|tr|td|th|li|dt|dd|dl|ul|form|fieldset|button|input|details|figure|nav|header|footer|main|pre|label|link|script|body|meta|title)\b)",
            "\n$1",
        ),
    ] {
        let pattern = Regex::new(pattern).expect("the pattern is valid");
        html = pattern.replace_all(&html, replacement).into_owned();
    }
    html.trim_start().to_owned()
}

/// A store with a task in each state, an empty one, and one that does not answer.
struct Stores {
    stage: Stage,
    full: Router,
    empty: Router,
    closed: Router,
}

impl Stores {
    async fn new() -> Self {
        let stage = Stage::in_memory().await;
        let [empty, closed] = [0; 2].map(|_| DurableClient::open(MemoryStore::new()));
        closed.close().await.expect("the client is closed");
        Self {
            full: operated(&stage.client),
            stage,
            empty: operated(&empty),
            closed: operated(&closed),
        }
    }

    /// Returns a page in all states.
    async fn golden(&self, file: &'static str, path: &str) -> Golden {
        let mut golden = Golden::new(file);
        let path = format!("{PREFIX}/s/mail{path}");
        golden.add("full", &get(&self.full, &path).await);
        let request = Request::get(&path).header(ACCESS, "read");
        let reader = send(&self.full, request, Body::empty()).await;
        golden.add("full, read-only", &reader);
        golden.add("empty", &get(&self.empty, &path).await);
        golden.add("no answer", &get(&self.closed, &path).await);
        golden
    }
}

#[tokio::test]
async fn each_page_is_as_in_its_golden_file() {
    let stores = Stores::new().await;
    let mut overview = stores.golden("overview.html", "").await;
    let reply = get(&stores.empty, &format!("{PREFIX}/s/mail")).await;
    overview.add_part("the frame", &reply, &frame(&reply.text));
    overview.check();
    for (file, path) in [
        ("types.html", "/types"),
        ("queues.html", "/queues"),
        ("workers.html", "/workers"),
        ("schedules.html", "/schedules"),
        ("dead.html", "/dead"),
        ("find.html", "/find?q=report"),
    ] {
        stores.golden(file, path).await.check();
    }
    lists(&stores).await;
    tasks(&stores).await;
    confirmation(&stores).await;
}

/// Returns a page without its content.
fn frame(page: &str) -> String {
    let (head, rest) = page.split_once("<main").expect("it is a page");
    let (_, foot) = rest.split_once("</main>").expect("it is a page");
    format!("{head}<main></main>{foot}")
}

async fn lists(stores: &Stores) {
    let mut golden = stores.golden("tasks.html", "/tasks/waiting").await;
    for list in ["next", "delayed", "running", "done", "cancelled"] {
        let path = format!("{PREFIX}/s/mail/tasks/{list}");
        golden.add(list, &get(&stores.full, &path).await);
    }
    let path = format!("{PREFIX}/s/mail/tasks/waiting?name=absent");
    golden.add("nothing matches", &get(&stores.full, &path).await);
    golden.check();
}

async fn tasks(stores: &Stores) {
    let mut golden = Golden::new("task.html");
    for (state, id) in stores.stage.tasks() {
        let path = format!("{PREFIX}/s/mail/task/{id}");
        golden.add(state, &get(&stores.full, &path).await);
    }
    let path = format!("{PREFIX}/s/mail/task/{}", stores.stage.dead);
    golden.add("not there", &get(&stores.empty, &path).await);
    golden.check();
}

async fn confirmation(stores: &Stores) {
    let path = format!("{PREFIX}/s/mail/bulk/confirm");
    let mut golden = Golden::new("confirmation.html");
    let id = stores.stage.dead.to_string();
    let selected = [("list", "dead"), ("action", "replay"), ("id", &id)];
    golden.add("selected", &post_form(&stores.full, &path, &selected).await);
    let matching = [
        ("list", "dead"),
        ("action", "delete"),
        ("name", "mail.send"),
        ("until_ms", "1700000000000"),
    ];
    golden.add(
        "all that match",
        &post_form(&stores.full, &path, &matching).await,
    );
    golden.check();
}
