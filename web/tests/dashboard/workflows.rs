//! The steps of a task on its page and in the API, replays from a step, and signals.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, InlineExecutor, MemoryStore, Run, SpawnOptions,
    Status, TaskContext, TaskError, TaskId,
};

use crate::api::Api;
use crate::golden::Golden;
use crate::stage::SECRET;
use crate::support::{ACCESS, PREFIX, Reply, builder, get, mounted, operated, post_form, send};

/// A text that does something on a page that does not escape it.
const HOSTILE: &str = "<script>alert(1)</script>\"'\u{202e}";

/// A workflow with children, which waits for a signal.
#[derive(Serialize, Deserialize)]
struct Order;

/// A child. Its run fails for good if this is `true`.
#[derive(Serialize, Deserialize)]
struct Parcel(bool);

impl DurableTask for Order {
    const NAME: &'static str = "order";
    type Output = Value;
}

impl DurableTask for Parcel {
    const NAME: &'static str = "parcel";
    type Output = Value;
}

impl Run<()> for Order {
    async fn run(self, cx: TaskContext<()>) -> Result<Value, TaskError> {
        let charged = json!({ "id": 7, "api_key": SECRET, "text": HOSTILE });
        cx.step("charge", || async { Ok(charged) }).await?;
        cx.step("access token", || async { Ok(SECRET.to_owned()) })
            .await?;
        cx.step(HOSTILE, || async { Ok(HOSTILE.to_owned()) })
            .await?;
        cx.step("large", || async { Ok("x".repeat(5_000)) }).await?;
        let parcels = cx
            .spawn_all("parcels", [Parcel(false), Parcel(true)])
            .await?;
        cx.join(&parcels).await?;
        cx.sleep("moment", Duration::ZERO).await?;
        let limit = Duration::from_secs(90 * 60);
        let paid: Option<u64> = cx.signal_within("paid", limit).await?;
        Ok(json!(paid))
    }
}

impl Run<()> for Parcel {
    async fn run(self, _: TaskContext<()>) -> Result<Value, TaskError> {
        match self.0 {
            false => Ok(json!({ "weight": 7, "password": SECRET })),
            true => Err(TaskError::fatal(format!("lost: token={SECRET} {HOSTILE}"))),
        }
    }
}

/// A store with a workflow that waits for a signal after its children have ended.
struct Workflow {
    client: DurableClient,
    executor: InlineExecutor,
    app: Router,
    id: TaskId,
}

impl Workflow {
    async fn new() -> Self {
        let client = DurableClient::open(MemoryStore::new());
        let executor = DurableExecutor::builder(client.clone())
            .register::<Order>()
            .register::<Parcel>()
            .start_inline(())
            .await
            .unwrap();
        let kept = SpawnOptions::new().retention(Duration::from_secs(3600));
        let id = client.spawn_with(Order, kept).await.unwrap().id();
        let app = operated(&client);
        let mut workflow = Self {
            client,
            executor,
            app,
            id,
        };
        workflow.run().await;
        workflow
    }

    /// Runs what is due, until nothing is.
    async fn run(&mut self) {
        while self.executor.run_due().await.unwrap() > 0 {}
    }

    fn path(&self) -> String {
        format!("{PREFIX}/s/mail/task/{}", self.id)
    }

    async fn page(&self) -> String {
        get(&self.app, &self.path()).await.text
    }

    async fn steps(&self) -> Vec<String> {
        let detail = self.client.admin().task(self.id).await.unwrap().unwrap();
        detail.steps.iter().map(|step| step.full_name()).collect()
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        post_form(&self.app, &format!("{}{path}", self.path()), fields).await
    }

    /// Sends a form. Returns the page to which it leads.
    async fn follow(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let reply = self.post(path, fields).await;
        get(
            &self.app,
            &reply.location(&format!("{}{path}", self.path())),
        )
        .await
        .text
    }
}

#[tokio::test]
async fn the_page_of_a_workflow_is_as_in_its_golden_file() {
    let workflow = Workflow::new().await;
    let mut golden = Golden::new("workflow.html");
    golden.add(
        "a workflow that waits",
        &get(&workflow.app, &workflow.path()).await,
    );
    let reader = Request::get(workflow.path()).header(ACCESS, "read");
    let reader = send(&workflow.app, reader, Body::empty()).await;
    golden.add("read-only", &reader);
    let detail = workflow
        .client
        .admin()
        .task(workflow.id)
        .await
        .unwrap()
        .unwrap();
    let child = format!("{PREFIX}/s/mail/task/{}", detail.children[1].id);
    golden.add("a child", &get(&workflow.app, &child).await);
    let step = [("step", "timeout:paid")];
    let confirmation = workflow.post("/replay-from/confirm", &step).await;
    golden.add("the confirmation of a replay", &confirmation);
    golden.check();
}

#[tokio::test]
async fn confidential_and_hostile_texts_of_steps_are_on_no_page() {
    let workflow = Workflow::new().await;
    let api = format!("{PREFIX}/api/v1/s/mail/task/{}", workflow.id);
    let page = workflow.page().await;
    let step = format!("step:{HOSTILE}");
    let confirmation = workflow
        .post("/replay-from/confirm", &[("step", &step)])
        .await;
    assert_eq!(confirmation.status, StatusCode::OK);
    for text in [&page, &confirmation.text] {
        assert!(!text.contains("<script>alert"), "{text}");
        assert!(text.contains("&lt;script&gt;alert(1)"), "{text}");
        assert!(text.contains("\\u{202e}"), "{text}");
    }
    for text in [page, get(&workflow.app, &api).await.text, confirmation.text] {
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains(&"x".repeat(100)), "{text}");
    }
    // The form names the step as it is.
    let page = workflow.follow("/replay-from", &[("step", &step)]).await;
    assert!(
        page.contains("The task runs again from the step."),
        "{page}"
    );
    let last = workflow.steps().await.pop();
    assert_eq!(last.as_deref(), Some("replay:3"));
}

#[tokio::test]
async fn a_hook_hides_the_value_of_a_step_by_its_name() {
    let workflow = Workflow::new().await;
    let app = mounted(builder(&workflow.client).redact(|shown, value| {
        if shown.step == Some("charge") {
            *value = json!("(private)");
        }
    }));
    let page = get(&app, &workflow.path()).await.text;
    assert!(page.contains("(private)"), "{page}");
    assert!(!page.contains("api_key"), "{page}");
    assert!(workflow.page().await.contains("api_key"));
}

#[tokio::test]
async fn a_button_replays_a_task_from_a_step_after_a_confirmation() {
    let mut workflow = Workflow::new().await;
    let page = workflow.page().await;
    assert!(
        page.contains("This task waits for the signal <code>paid</code>"),
        "{page}"
    );
    let target = format!("/task/{}/replay-from/confirm\"", workflow.id);
    assert!(page.matches(&target).count() >= 8, "{page}");
    let step = [("step", "timeout:paid")];
    let before = workflow.steps().await;
    let confirmation = workflow.post("/replay-from/confirm", &step).await;
    let target = format!("/task/{}/replay-from\"", workflow.id);
    assert!(confirmation.text.contains(&target), "{}", confirmation.text);
    assert_eq!(workflow.steps().await, before);

    let page = workflow.follow("/replay-from", &step).await;
    assert!(
        page.contains("The task runs again from the step."),
        "{page}"
    );
    assert_eq!(
        workflow.client.status(workflow.id).await.unwrap(),
        Status::Waiting
    );
    let page = workflow.follow("/replay-from", &step).await;
    assert!(page.contains("already replayed"), "{page}");
    let page = workflow
        .follow("/replay-from", &[("step", "unknown")])
        .await;
    assert!(page.contains("has no step with this name"), "{page}");
    workflow.run().await;
    assert_eq!(
        workflow.client.status(workflow.id).await.unwrap(),
        Status::Delayed
    );
    assert_eq!(workflow.steps().await.last().unwrap(), "timeout:paid");
}

#[tokio::test]
async fn a_confirmation_says_that_the_ends_of_children_are_removed() {
    let workflow = Workflow::new().await;
    for (step, names_children) in [("spawn:parcels", true), ("sleep:moment", false)] {
        let question = workflow
            .post("/replay-from/confirm", &[("step", step)])
            .await;
        let text = question.text;
        let children = "the ends of its children, and everything after the first of these";
        assert_eq!(text.contains(children), names_children, "{text}");
        assert!(text.contains("signals included"), "{text}");
    }
}

#[tokio::test]
async fn the_record_of_a_replay_has_a_button_only_if_steps_follow() {
    let mut workflow = Workflow::new().await;
    let step = [("step", "timeout:paid")];
    let page = workflow.follow("/replay-from", &step).await;
    let record = workflow.steps().await.pop().unwrap();
    assert!(record.starts_with("replay:"), "{record}");
    let field = format!("name=\"step\" value=\"{record}\"");
    assert!(
        !page.contains(&field) && page.contains("value=\"sleep:moment\""),
        "{page}"
    );
    workflow.run().await;
    assert_eq!(workflow.steps().await.last().unwrap(), "timeout:paid");
    // A dashboard shows for a moment what it has read before.
    workflow.app = operated(&workflow.client);
    let page = workflow.page().await;
    assert!(page.contains(&field), "{page}");
    let page = workflow.follow("/replay-from", &[("step", &*record)]).await;
    assert!(
        page.contains("The task runs again from the step."),
        "{page}"
    );
}

#[tokio::test]
async fn a_form_sends_a_signal() {
    let mut workflow = Workflow::new().await;
    let refused = workflow
        .post("/signal", &[("name", "paid"), ("value", "{7")])
        .await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text.contains("is not JSON"), "{}", refused.text);
    let signal = [("name", "paid"), ("value", "7")];
    let page = workflow.follow("/signal", &signal).await;
    assert!(page.contains("The signal was sent."), "{page}");
    let page = workflow.follow("/signal", &signal).await;
    assert!(page.contains("has already received this signal"), "{page}");
    workflow.run().await;
    assert_eq!(
        workflow.client.status(workflow.id).await.unwrap(),
        Status::Done
    );
    let ended = workflow.post("/signal", &signal).await;
    assert_eq!(ended.status, StatusCode::CONFLICT);
    assert!(ended.text.contains("replay it first"), "{}", ended.text);
    assert!(!workflow.page().await.contains("Send signal"));
}

#[tokio::test]
async fn each_refusal_says_what_has_happened_and_what_to_do() {
    let workflow = Workflow::new().await;
    let mut notices = Vec::new();
    for (query, remedy) in [
        ("replayed=already", "Wait for its next run."),
        ("replayed=no_such_step", "Choose a step of the timeline."),
        ("replayed=key_held", "Wait until that task has ended"),
        ("replayed=unreadable", "Update the dashboard"),
        ("replayed=not_in", "wait for the end of its run"),
        ("replayed=other", "Look at the status"),
        ("signalled=already", "first replay the task"),
    ] {
        let page = get(&workflow.app, &format!("{}?{query}", workflow.path()))
            .await
            .text;
        let notice = page.split("<p class=\"notice\" role=\"status\">").nth(1);
        let notice = notice.and_then(|rest| rest.split("</p>").next());
        let notice = notice.unwrap_or_else(|| panic!("{query}: {page}"));
        assert!(
            notice.starts_with("Nothing was changed"),
            "{query}: {notice}"
        );
        assert!(notice.contains(remedy), "{query}: {notice}");
        notices.push(notice.to_owned());
    }
    notices.sort_unstable();
    notices.dedup();
    assert_eq!(notices.len(), 7);
    let unknown = get(&workflow.app, &format!("{}?signalled=x", workflow.path())).await;
    assert!(
        !unknown.text.contains("class=\"notice\""),
        "{}",
        unknown.text
    );
}

#[tokio::test]
async fn a_reader_can_change_no_workflow() {
    let workflow = Workflow::new().await;
    let before = workflow.steps().await;
    for (path, body) in [
        ("/replay-from", "step=charge"),
        ("/replay-from/confirm", "step=charge"),
        ("/signal", "name=paid&value=7"),
    ] {
        let request = Request::post(format!("{}{path}", workflow.path()))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCESS, "read");
        let reply = send(&workflow.app, request, body.into()).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(workflow.steps().await, before);
    let request = Request::get(workflow.path()).header(ACCESS, "read");
    let page = send(&workflow.app, request, Body::empty()).await.text;
    assert!(
        !page.contains("Replay from here") && !page.contains("Send signal"),
        "{page}"
    );
}

#[tokio::test]
async fn the_api_describes_workflows_and_changes_them() {
    let mut workflow = Workflow::new().await;
    let api = Api::of(&workflow.client);
    let id = workflow.id.to_string();
    let values = [("id", &*id)];
    let detail = api.get("/s/{store}/task/{id}", &values, "").await;
    let found = &detail["workflow"];
    assert_eq!(found["waits_for"][0]["kind"], "signal");
    assert_eq!(found["children"][0]["end"], "done");
    assert_eq!(found["children"][1]["end"], "dead");
    assert_eq!(
        (&found["child_count"], &found["ended_child_count"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(
        found["steps"].as_array().unwrap().len(),
        found["step_count"]
    );
    let child = found["children"][1]["id"].as_str().unwrap();
    let child = api.get("/s/{store}/task/{id}", &[("id", child)], "").await;
    assert_eq!(child["workflow"]["parent"], id);

    let (replay, signal) = (
        "/s/{store}/task/{id}/replay-from",
        "/s/{store}/task/{id}/signal",
    );
    let step = json!({ "step": "sleep:moment" });
    assert_eq!(api.post(replay, &values, &step).await["effect"], "yes");
    assert_eq!(api.post(replay, &values, &step).await["effect"], "already");
    let unknown = json!({ "step": "unknown" });
    assert_eq!(api.refused(replay, &values, &unknown).await, "not-in-state");
    workflow.run().await;
    let detail = api.get("/s/{store}/task/{id}", &values, "").await;
    assert_eq!(detail["task"]["status"], "delayed");
    let paid = json!({ "name": "paid", "value": 7 });
    assert_eq!(api.post(signal, &values, &paid).await["effect"], "yes");
    assert_eq!(api.post(signal, &values, &paid).await["effect"], "already");
    let nameless = json!({ "name": "", "value": 7 });
    assert_eq!(api.refused(signal, &values, &nameless).await, "invalid");
    workflow.run().await;
    let detail = api.get("/s/{store}/task/{id}", &values, "").await;
    assert_eq!(detail["output"]["text"], "7");
    assert_eq!(api.refused(signal, &values, &paid).await, "not-in-state");
}
