//! Names of steps and signals that no field of a form can contain, and the values of signals.

use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, SpawnOptions, TaskContext,
    TaskError, TaskId,
};

use crate::api::Api;
use crate::support::{PREFIX, Reply, get, operated, post_form, send};

/// A name that a form does not carry as it is: browsers change line breaks, and parsers of HTML replace NUL.
const ODD: &str = "a\nb\r\nc\rd\0e%0A";

/// A workflow whose step and signal have an odd name. It waits for a plain signal, too.
#[derive(Serialize, Deserialize)]
struct Odd;

impl DurableTask for Odd {
    const NAME: &'static str = "odd";
    type Output = Value;
}

impl Run<()> for Odd {
    async fn run(self, cx: TaskContext<()>) -> Result<Value, TaskError> {
        cx.step(ODD, || async { Ok(7) }).await?;
        let signals = tokio::join!(cx.signal::<Value>(ODD), cx.signal::<Value>("paid"));
        Ok(json!([signals.0?, signals.1?]))
    }
}

/// Returns the value of a hidden field.
fn hidden<'a>(page: &'a str, name: &str) -> &'a str {
    let field = format!("<input type=\"hidden\" name=\"{name}\" value=\"");
    let value = page.split(&field).nth(1).expect("there is such a field");
    value.split('"').next().expect("the value ends")
}

#[tokio::test]
async fn forms_name_steps_and_signals_whose_names_no_field_can_contain() {
    let client = DurableClient::open(MemoryStore::new());
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Odd>();
    let mut executor = builder.start_inline(()).await.unwrap();
    let kept = SpawnOptions::new().retention(Duration::from_secs(3600));
    let id = client.spawn_with(Odd, kept).await.unwrap().id();
    while executor.run_due().await.unwrap() > 0 {}
    let app = operated(&client);
    let path = format!("{PREFIX}/s/mail/task/{id}");

    let page = get(&app, &path).await.text;
    assert_eq!(page.matches(">Send signal</button>").count(), 2, "{page}");
    assert!(page.contains("required value=\"paid\""), "{page}");
    let name = hidden(&page, "awaited");
    assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
    let sent = [("awaited", name), ("value", "1")];
    let reply = post_form(&app, &format!("{path}/signal"), &sent).await;
    assert!(reply.location(&path).ends_with("signalled=yes"));

    let step = [("step", hidden(&page, "step"))];
    let question = post_form(&app, &format!("{path}/replay-from/confirm"), &step).await;
    assert!(question.text.contains("step:a\\u{a}b"), "{}", question.text);
    let step = [("step", hidden(&question.text, "step"))];
    let reply = post_form(&app, &format!("{path}/replay-from"), &step).await;
    assert!(reply.location(&path).ends_with("replayed=yes"));
    let detail = client.admin().task(id).await.unwrap().unwrap();
    let steps: Vec<_> = detail.steps.iter().map(|step| step.full_name()).collect();
    assert_eq!(steps, ["replay:1"]);
}

/// A task that has not run, and the paths of the page and of the API to which signals are sent.
async fn signalled() -> (DurableClient, Router, TaskId, [String; 2]) {
    let client = DurableClient::open(MemoryStore::new());
    let id = client.spawn(Odd).await.unwrap().id();
    let app = operated(&client);
    let path = |root: &str| format!("{PREFIX}{root}/s/mail/task/{id}/signal");
    (client, app, id, [path(""), path("/api/v1")])
}

async fn post_text(app: &Router, path: &str, body: String) -> Reply {
    let request = Request::post(path).header(CONTENT_TYPE, "application/json");
    send(app, request, body.into()).await
}

#[tokio::test]
async fn the_value_of_a_signal_is_stored_as_it_is_sent() {
    let (client, app, id, [form, api]) = signalled().await;
    let value = r#"{"b": 123456789012345678901234567890, "a": [1.10, 1e300, 0.30000000000000004]}"#;
    let body = format!(r#"{{"value": {value}, "name": "api"}}"#);
    let reply = post_text(&app, &api, body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let fields = [("name", "form"), ("value", value)];
    post_form(&app, &form, &fields).await.location(&form);
    let detail = client.admin().task(id).await.unwrap().unwrap();
    assert_eq!(detail.steps.len(), 2);
    for step in &detail.steps {
        let stored = step.value.as_ref().and_then(|it| it.as_str());
        assert_eq!(stored, Some(value), "{}", step.name);
    }
}

#[tokio::test]
async fn a_signal_that_no_task_can_read_is_refused() {
    let (client, app, id, [form, api]) = signalled().await;
    let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (value, reason) in [
        (r#""\ud800""#, "hex escape"),
        ("[1e400]", "number out of range"),
        (&*nested, "recursion limit exceeded"),
    ] {
        let body = format!(r#"{{"name": "paid", "value": {value}}}"#);
        let fields = [("name", "paid"), ("value", value)];
        for reply in [
            post_text(&app, &api, body).await,
            post_form(&app, &form, &fields).await,
        ] {
            assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text);
            assert!(reply.text.contains("No task could read"), "{}", reply.text);
            assert!(reply.text.contains(reason), "{}", reply.text);
        }
    }
    let detail = client.admin().task(id).await.unwrap().unwrap();
    assert!(detail.steps.is_empty(), "{:?}", detail.steps);
}

/// The maximum size in bytes of the value of a signal in a store.
const MAX_VALUE_BYTES: usize = 64 << 10;

#[tokio::test]
async fn a_signal_may_be_as_large_as_a_store_accepts() {
    let (_, app, _, [form, api]) = signalled().await;
    // A form encodes each of these characters as three.
    let value = |len: usize| format!("\"{}\"", "{".repeat(len - 2));
    let body = |name: &str, len| format!(r#"{{"name": "{name}", "value": {}}}"#, value(len));
    let reply = post_text(&app, &api, body("api", MAX_VALUE_BYTES)).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let fields = [("name", "form"), ("value", &value(MAX_VALUE_BYTES))];
    post_form(&app, &form, &fields).await.location(&form);

    let reason = format!("a store accepts at most {MAX_VALUE_BYTES}");
    for (len, text) in [
        (MAX_VALUE_BYTES + 1, &*reason),
        (4 * MAX_VALUE_BYTES, "at most 200704 bytes"),
    ] {
        let fields = [("name", "large"), ("value", &value(len))];
        for reply in [
            post_text(&app, &api, body("large", len)).await,
            post_form(&app, &form, &fields).await,
        ] {
            assert_eq!(
                reply.status,
                StatusCode::PAYLOAD_TOO_LARGE,
                "{}",
                reply.text
            );
            assert!(reply.text.contains(text), "{}", reply.text);
        }
    }
    let large = json!({ "name": "large", "value": "x".repeat(MAX_VALUE_BYTES) });
    let refused = Api::of(&DurableClient::open(MemoryStore::new()));
    let id = TaskId::new().to_string();
    let values = [("id", &*id)];
    let problem = refused.refused("/s/{store}/task/{id}/signal", &values, &large);
    assert_eq!(problem.await, "too-large");
}
