//! Texts that come from a store cannot do anything on a page, and confidential data is on none.

use std::path::Path;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, SpawnOptions, SqliteStore,
    TaskContext, TaskError, TaskId,
};
use tokio::time::timeout;
use tower::ServiceExt;

use crate::stage::{SECRET, Stage};
use crate::support::{PREFIX, builder, get, links, mounted, operated, resolve, until};
use crate::troubles::start_worker;

/// Texts that do something on a page that does not escape them.
const TEXTS: [&str; 16] = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</textarea></title></style><svg onload=alert(1)>",
    "<!--",
    "]]><b>",
    "javascript:alert(1)",
    "&lt;script&gt;&#60;b&#62;",
    "{{7*7}}${7*7}",
    "a\0b\u{1b}[31mred\u{7}",
    "\u{202e}gnp.exe\u{2066}\u{200b}\u{feff}",
    "line\r\nset-cookie: a=b",
    "\u{fffd}\u{e9}\u{1f600}",
    "%3Cscript%3E",
    "..\\..//",
];

/// A type whose name is hostile, too.
#[derive(Serialize, Deserialize)]
struct Hostile {
    fields: Value,
    text: String,
}

impl DurableTask for Hostile {
    const NAME: &'static str = "<script>alert('name')</script>\"' \u{202e}\u{1b}&amp;";
    type Output = Value;
}

impl Run<()> for Hostile {
    async fn run(self, cx: TaskContext<()>) -> Result<Value, TaskError> {
        cx.progress(&self.fields);
        match cx.attempt() {
            1 => Err(TaskError::retry_after(self.text, Duration::ZERO)),
            _ if self.text.len().is_multiple_of(2) => Ok(self.fields),
            _ => Err(TaskError::fatal(self.text)),
        }
    }
}

/// Stores and runs a task with each text in each place that a task has. Returns their ids.
async fn run_all(client: &DurableClient) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for text in TEXTS {
        let task = Hostile {
            fields: json!({ text: [text, { "nested": text }] }),
            text: text.into(),
        };
        let options = SpawnOptions::new().retention(Duration::from_secs(3600));
        ids.push(client.spawn_with(task, options).await.unwrap().id());
    }
    let mut executor = DurableExecutor::builder(client.clone())
        .register::<Hostile>()
        .start_inline(())
        .await
        .unwrap();
    while executor.run_due().await.unwrap() > 0 {}
    client.types().pause(TEXTS[0]).await.unwrap();
    ids
}

#[tokio::test]
async fn hostile_texts_are_only_texts() {
    let client = DurableClient::open(MemoryStore::new());
    let ids = run_all(&client).await;
    let app = operated(&client);
    let name: String = form_urlencoded::byte_serialize(Hostile::NAME.as_bytes()).collect();
    let mut paths: Vec<_> = [
        "",
        "/types",
        "/workers",
        "/dead",
        "/tasks/done",
        &format!("/dead?name={name}"),
        &format!("/tasks/waiting?name={name}"),
        &format!("/find?q={name}"),
        "/find?q=%3Cscript%3Ealert(1)%3C/script%3E",
        "/tasks/waiting?after=%3Cscript%3E",
        "/tasks/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/task/%00%22%3E",
    ]
    .map(|path| format!("{PREFIX}/s/mail{path}"))
    .into();
    paths.extend(ids.iter().map(|id| format!("{PREFIX}/s/mail/task/{id}")));
    let notice = "?did=cancel&effect=%3Cscript%3E";
    paths.push(format!("{PREFIX}/s/mail/task/{}{notice}", ids[0]));
    for path in paths {
        let reply = get(&app, &path).await;
        assert!(
            reply.headers["content-type"] == "text/html; charset=utf-8",
            "{path}"
        );
        check(&path, &reply.text);
    }
    let shown = get(&app, &format!("{PREFIX}/s/mail/task/{}", ids[0]))
        .await
        .text;
    assert!(
        shown.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
        "{shown}"
    );
    let bidi = get(&app, &format!("{PREFIX}/s/mail/task/{}", ids[11]))
        .await
        .text;
    assert!(bidi.contains("\\u{202e}gnp.exe"), "{bidi}");
}

/// Checks that a page has only elements and attributes that the dashboard writes, and no character that deceives.
fn check(path: &str, page: &str) {
    const ELEMENTS: &str = "!DOCTYPE html section figure figcaption b small head meta title script link body a header nav form input button main h1 h2 p dl div dt dd \
         table caption thead tbody tr th td span footer strong code pre ul li details summary label fieldset legend time datalist option";
    let deceives = |char: char| {
        (char.is_control() && char != '\n')
            || matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    // The fields of a form have the exact values, so that they can be sent again.
    let mut parts = page.split(" value=\"");
    let first = parts.next().unwrap_or_default();
    let rests = parts.filter_map(|part| Some(part.split_once('"')?.1));
    let mut chars = first.chars().chain(rests.flat_map(str::chars));
    let found = chars.find(|&char| deceives(char));
    assert_eq!(found, None, "{path}: {page}");
    for tag in page.split('<').skip(1) {
        let (inside, text) = tag.split_once('>').expect("a tag ends");
        let element = inside.trim_start_matches('/').split(' ').next().unwrap();
        let is_known = ELEMENTS.split_whitespace().any(|known| known == element);
        assert!(is_known, "{path}: <{inside}>");
        assert!(
            !text.contains('>') && !inside.contains(" on"),
            "{path}: <{tag}"
        );
        if element == "script" && !inside.starts_with('/') {
            assert!(
                inside.starts_with("script src=\"") && text.is_empty(),
                "{path}: <{tag}"
            );
        }
    }
    for link in page.split("href=\"").skip(1) {
        assert!(!link.starts_with("javascript"), "{path}: {link}");
    }
}

#[tokio::test]
async fn a_secret_is_in_no_byte_of_any_answer() {
    no_answer_has_the_secret(&Stage::in_memory().await).await;
    no_answer_has_the_secret(&Stage::in_a_file().await).await;
}

/// Returns the path of the page of a worker, below its store.
async fn worker_path(app: &Router) -> String {
    let list = format!("{PREFIX}/s/mail/workers");
    let page = get(app, &list).await.text;
    let mut links = links(&page).into_iter().map(|link| resolve(&list, &link));
    let store = format!("{PREFIX}/s/mail");
    let link = links.find(|link| link.contains("/workers/"));
    let link = link.expect("a worker is listed");
    link.replacen(&store, "", 1)
}

pub(crate) async fn no_answer_has_the_secret(stage: &Stage) {
    let app = operated(&stage.client);
    let mut paths: Vec<_> = [
        "",
        "/dead",
        "/tasks/next",
        "/tasks/waiting",
        "/tasks/delayed",
        "/tasks/retrying",
        "/tasks/running",
        "/tasks/done",
        "/dead?error=refused",
        "/schedules",
        "/workers",
        &worker_path(&app).await,
    ]
    .map(String::from)
    .into();
    paths.extend(stage.tasks().map(|(_, id)| format!("/task/{id}")));
    let mut hidden = 0;
    for path in paths {
        let in_api = match &*path {
            "" => "/overview",
            path => path,
        };
        for path in [format!("/s/mail{path}"), format!("/api/v1/s/mail{in_api}")] {
            let reply = get(&app, &format!("{PREFIX}{path}")).await;
            assert_eq!(reply.status, 200, "{path}: {}", reply.text);
            assert!(!reply.text.contains(SECRET), "{path}: {}", reply.text);
            hidden += reply.text.matches("(hidden)").count();
        }
    }
    assert!(hidden > 20, "{hidden}");
}

/// The descriptions of damage and the findings about a store may contain what a row contains.
#[tokio::test]
async fn a_secret_in_a_finding_is_hidden_on_the_page_in_the_api_and_in_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let client = DurableClient::open(SqliteStore::open(&path).await.unwrap());
    report_damage(&path, &format!("cannot read `token={SECRET}`"));
    let _worker = start_worker(&client).await;
    client.spawn(Login).await.unwrap();
    let reads_report = async || client.admin().report().await.unwrap().findings.len() == 2;
    until("the damage is found", reads_report).await;

    let app = operated(&client);
    let page = get(&app, &format!("{PREFIX}/s/mail")).await.text;
    let api = get(&app, &format!("{PREFIX}/api/v1/s/mail/overview")).await;
    let api = &api.json()["data"];
    let api = format!("{}{}", api["warnings"], api["health"]);
    let stream = first_event(&app).await;
    for text in [page, api, stream] {
        for shown in ["cannot read `token=(hidden)", "login?token=(hidden)"] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        assert!(!text.contains(SECRET), "{text}");
    }
    let health = get(&app, &format!("{PREFIX}/health")).await.text;
    assert!(!health.contains(SECRET), "{health}");
}

/// A task of a type that no worker knows. Its name is confidential, contrary to the advice of the documentation.
#[derive(Serialize, Deserialize)]
struct Login;

impl DurableTask for Login {
    const NAME: &'static str = "login?token=hunter2-4f9c";
    type Output = ();
}

/// Reports damage as another process does.
fn report_damage(path: &Path, what: &str) {
    let db = rusqlite::Connection::open(path).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let values = (now.unwrap().as_millis() as i64, what);
    let sql = "INSERT INTO throng_damaged (at, found, what) VALUES (?1, 1, ?2)";
    assert_eq!(db.execute(sql, values).unwrap(), 1);
}

/// Returns the first event of the stream of the overview.
async fn first_event(app: &Router) -> String {
    let request = Request::get(format!("{PREFIX}/s/mail/events")).body(Body::empty());
    let stream = app.clone().oneshot(request.unwrap()).await.unwrap();
    let mut body = stream.into_body();
    let frame = timeout(Duration::from_secs(10), body.frame()).await;
    let frame = frame.expect("an event").unwrap().unwrap();
    String::from_utf8_lossy(&frame.into_data().unwrap()).into_owned()
}

#[tokio::test]
async fn a_hook_hides_more() {
    let stage = Stage::in_memory().await;
    let app = mounted(builder(&stage.client).redact(|shown, value| {
        assert_eq!(shown.name, Some("mail.send"));
        match value {
            Value::String(error) => error.insert_str(0, "checked: "),
            value => value["to"] = "(nobody)".into(),
        }
    }));
    for (id, text) in [
        (stage.waiting, "(nobody)"),
        (stage.dead, "checked: 550 refused"),
    ] {
        for prefix in ["", "/api/v1"] {
            let path = format!("{PREFIX}{prefix}/s/mail/task/{id}");
            let reply = get(&app, &path).await;
            assert!(
                reply.text.contains(text) && !reply.text.contains("a@b.c"),
                "{}",
                reply.text
            );
        }
    }
}

/// A task whose payload is not JSON, or too long to be searched.
#[derive(Serialize, Deserialize)]
struct Opaque(String);

impl DurableTask for Opaque {
    const NAME: &'static str = "opaque";
    type Output = ();

    fn encode(&self) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.0.clone().into_bytes())
    }
}

#[tokio::test]
async fn a_payload_that_cannot_be_searched_is_not_shown() {
    let client = DurableClient::open(MemoryStore::new());
    let app = operated(&client);
    let long = format!("{{\"a\":\"{}\",\"key\":\"{SECRET}\"}}", "x".repeat(70_000));
    for (payload, note) in [
        (format!("\u{1}{SECRET}"), "not JSON"),
        (long, "longer than 64 KiB"),
    ] {
        let id = client.spawn(Opaque(payload)).await.unwrap().id();
        for prefix in ["", "/api/v1"] {
            let reply = get(&app, &format!("{PREFIX}{prefix}/s/mail/task/{id}")).await;
            assert!(reply.text.contains(note), "{}", reply.text);
            assert!(!reply.text.contains(SECRET), "{}", reply.text);
            assert!(!reply.text.contains("xxxx"), "{}", reply.text);
        }
    }
}
