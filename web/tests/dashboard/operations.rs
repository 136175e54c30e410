//! The forms of the pages, as a browser without JavaScript sends them.

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::http::StatusCode;
use throng::durable::{DurableClient, MemoryStore, SpawnOptions, Status, TaskId};
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use crate::stage::{Act, SECRET, Stage, mail, spawn};
use crate::support::{PREFIX, access, builder, get, mounted, operated, post_form, resolve, until};

/// A form on a page.
struct Form {
    path: String,
    fields: Vec<(String, String)>,
}

/// Returns the form on a page that has this button, with the values of its hidden fields and of its button.
async fn form(app: &Router, page: &str, button: &str) -> Form {
    let text = get(app, page).await.text;
    in_text(page, &text, button)
}

fn in_text(page: &str, text: &str, button: &str) -> Form {
    let forms = text.split("<form ").skip(1);
    let forms = forms.filter_map(|rest| rest.split("</form>").next());
    let is_it = |form: &&str| form.contains(&format!(">{button}</button>"));
    let found = forms
        .filter(|form| form.contains("method=\"post\""))
        .find(is_it);
    let form = found.unwrap_or_else(|| panic!("{page} has no button {button}: {text}"));
    let tags = form.split('<').skip(1);
    let mut fields = Vec::new();
    for tag in tags {
        let is_hidden = tag.starts_with("input type=\"hidden\"");
        let is_button = tag.starts_with("button") && tag.ends_with(&format!(">{button}"));
        if let (true, Some(name)) = (is_hidden || is_button, attribute(tag, "name")) {
            fields.push((name, attribute(tag, "value").unwrap_or_default()));
        }
    }
    let action = attribute(form, "action").expect("a form has a target");
    Form {
        path: resolve(page, &action),
        fields,
    }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let value = tag.split(&format!("{name}=\"")).nth(1)?.split('"').next()?;
    Some(value.replace("&amp;", "&"))
}

impl Form {
    fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Sends the form. Returns the page to which it leads.
    async fn send(&self, app: &Router) -> (String, String) {
        let fields = self.fields.iter().map(|(name, value)| (&**name, &**value));
        let fields: Vec<_> = fields.collect();
        let reply = post_form(app, &self.path, &fields).await;
        match reply.status.is_redirection() {
            false => (self.path.clone(), reply.text),
            true => {
                let path = reply.location(&self.path);
                let text = get(app, &path).await.text;
                (path, text)
            }
        }
    }
}

fn page_of(id: TaskId) -> String {
    format!("{PREFIX}/s/mail/task/{id}")
}

#[tokio::test]
async fn the_buttons_of_a_task_change_it_and_say_so() {
    let stage = Stage::in_memory().await;
    let app = operated(&stage.client);
    for (id, button, notice, status) in [
        (stage.delayed, "Run now", "was made due", Status::Waiting),
        (stage.waiting, "Cancel", "was cancelled", Status::Cancelled),
        (stage.running, "Cancel", "was cancelled", Status::Running),
        (stage.dead, "Replay", "was replayed", Status::Waiting),
    ] {
        let (_, page) = form(&app, &page_of(id), button).await.send(&app).await;
        assert!(page.contains(notice), "{button}: {page}");
        assert_eq!(stage.client.status(id).await.unwrap(), status);
    }
    let running = get(&app, &page_of(stage.running)).await.text;
    assert!(
        running.contains("<dt>Cancellation</dt><dd>requested</dd>"),
        "{running}"
    );
}

#[tokio::test]
async fn a_task_moves_to_another_queue() {
    let stage = Stage::in_memory().await;
    let app = operated(&stage.client);
    let moved = form(&app, &page_of(stage.delayed), "Move")
        .await
        .with("to", "slow");
    let (_, page) = moved.send(&app).await;
    assert!(
        page.contains("was moved") && page.contains("<dd><span class=\"word\">slow</span></dd>"),
        "{page}"
    );
    let (_, page) = moved.send(&app).await;
    assert!(page.contains("already in this queue"), "{page}");
}

#[tokio::test]
async fn a_button_that_comes_too_late_says_so() {
    let stage = Stage::in_memory().await;
    let app = operated(&stage.client);
    let replay = form(&app, &page_of(stage.dead), "Replay").await;
    let delete = form(&app, &page_of(stage.dead), "Delete").await;
    let (_, page) = delete.send(&app).await;
    assert!(page.contains("was deleted"), "{page}");
    assert_eq!(
        stage.client.status(stage.dead).await.unwrap(),
        Status::Absent
    );
    let (_, page) = replay.send(&app).await;
    assert!(
        page.contains("never stored, or its end is no longer kept"),
        "{page}"
    );

    let run = form(&app, &page_of(stage.delayed), "Run now").await;
    run.send(&app).await;
    let (_, page) = run.send(&app).await;
    assert!(
        page.contains("was not made due, because its status has changed"),
        "{page}"
    );
}

#[tokio::test]
async fn selected_tasks_are_changed_after_a_confirmation() {
    let stage = Stage::in_memory().await;
    let app = operated(&stage.client);
    let list = format!("{PREFIX}/s/mail/tasks/delayed");
    let selected = form(&app, &list, "Cancel").await;
    let selected = selected.with("id", &stage.delayed.to_string());
    let (path, question) = selected.send(&app).await;
    assert!(question.contains("The selected task "), "{question}");
    assert_eq!(
        stage.client.status(stage.delayed).await.unwrap(),
        Status::Delayed
    );

    let (job, _) = in_text(&path, &question, "Cancel").send(&app).await;
    finished(&app, &job, "1 cancelled").await;
    assert_eq!(
        stage.client.status(stage.delayed).await.unwrap(),
        Status::Cancelled
    );
    assert_eq!(
        stage.client.status(stage.retried).await.unwrap(),
        Status::Delayed
    );
}

#[tokio::test]
async fn dead_letters_are_selected_by_the_errors_that_are_shown() {
    let stage = Stage::in_memory().await;
    let app = operated(&stage.client);
    let dead = format!("{PREFIX}/s/mail/dead");
    for (text, is_found) in [("550+REFUSED", true), ("551", false), (SECRET, false)] {
        let page = get(&app, &format!("{dead}?error={text}")).await.text;
        let is_listed = page.contains(&stage.dead.to_string());
        assert_eq!(is_listed, is_found, "{text}: {page}");
    }

    let delete = form(&app, &format!("{dead}?error=550"), "Delete all").await;
    let (path, question) = delete.send(&app).await;
    assert!(
        question.contains("an error that contains <strong>550</strong>"),
        "{question}"
    );
    let confirmed = in_text(&path, &question, "Delete");
    let mut oracle = in_text(&path, &question, "Delete");
    for (name, value) in &mut oracle.fields {
        if name == "error" {
            *value = SECRET.into();
        }
    }
    let (job, _) = oracle.send(&app).await;
    finished(&app, &job, "0 deleted, 0 unchanged. Examined 1.").await;
    let (job, _) = confirmed.send(&app).await;
    finished(&app, &job, "1 deleted, 0 unchanged. Examined 1.").await;
    let status = stage.client.status(stage.dead).await.unwrap();
    assert_eq!(status, Status::Absent);
}

#[tokio::test]
async fn all_tasks_that_wait_for_another_attempt_become_due() {
    let stage = Stage::in_memory().await;
    let app = operated(&stage.client);
    let list = format!("{PREFIX}/s/mail/tasks/retrying");
    let all = form(&app, &list, "Run all now").await;
    let (path, question) = all.send(&app).await;
    assert!(
        question.contains("All delayed tasks that have failed"),
        "{question}"
    );
    let (job, _) = in_text(&path, &question, "Run now").send(&app).await;
    finished(&app, &job, "1 made due").await;
    for (id, status) in [
        (stage.retried, Status::Waiting),
        (stage.delayed, Status::Delayed),
    ] {
        assert_eq!(stage.client.status(id).await.unwrap(), status);
    }
}

/// Waits until a bulk change has finished, and checks what it says.
async fn finished(app: &Router, job: &str, text: &str) {
    until("the bulk change finishes", async || {
        get(app, job).await.text.contains("state finished")
    })
    .await;
    let page = get(app, job).await.text;
    assert!(page.contains(text), "{page}");
}

#[tokio::test]
async fn all_that_match_are_changed_but_not_those_that_came_later() {
    let stage = Stage::in_memory().await;
    let app = operated(&stage.client);
    let list = format!("{PREFIX}/s/mail/tasks/waiting?queue=bulk");
    let all = form(&app, &list, "Cancel all").await;
    let (path, question) = all.send(&app).await;
    for text in [
        "All waiting tasks",
        "<strong>bulk</strong>",
        "spawned by",
        "<time",
    ] {
        assert!(question.contains(text), "{text}: {question}");
    }
    // A new id contains the time in milliseconds.
    let asked = SystemTime::now();
    let is_later = async || SystemTime::now() > asked + Duration::from_millis(1);
    until("the clock advances", is_later).await;
    let later = spawn(
        &stage.client,
        Act::Succeed,
        SpawnOptions::new().queue("bulk"),
    )
    .await;
    let (job, _) = in_text(&path, &question, "Cancel").send(&app).await;
    finished(&app, &job, "1 cancelled, 0 unchanged").await;
    assert_eq!(
        stage.client.status(stage.waiting).await.unwrap(),
        Status::Cancelled
    );
    assert_eq!(stage.client.status(later).await.unwrap(), Status::Waiting);
}

#[tokio::test]
async fn a_bulk_change_stops_when_the_host_shuts_down() {
    let stage = Stage::in_memory().await;
    many(&stage.client).await;
    let token = CancellationToken::new();
    let app = mounted(
        builder(&stage.client)
            .access(access)
            .shutdown(token.clone()),
    );
    token.cancel();
    let list = format!("{PREFIX}/s/mail/tasks/waiting");
    let (path, question) = form(&app, &list, "Cancel all").await.send(&app).await;
    let (job, _) = in_text(&path, &question, "Cancel").send(&app).await;
    until("the bulk change stops", async || {
        get(&app, &job).await.text.contains("state stopped")
    })
    .await;
    let left = stage.client.counts().await.unwrap().waiting;
    assert!(left > 1_000, "{left}");
}

async fn many(client: &DurableClient) {
    let mails = (0..2_000).map(|_| mail(Act::Succeed));
    client.spawn_all(mails).await.unwrap();
}

#[tokio::test]
async fn lists_pause_resume_and_fire() {
    let stage = Stage::in_memory().await;
    let app = operated(&stage.client);
    for (list, before, after) in [
        ("queues", "Resume", "Pause"),
        ("types", "Pause", "Resume"),
        ("schedules", "Pause", "Resume"),
    ] {
        let list = format!("{PREFIX}/s/mail/{list}");
        let (path, page) = form(&app, &list, before).await.send(&app).await;
        assert_eq!(path, list);
        assert!(
            page.contains(&format!("<button>{after}</button>")),
            "{page}"
        );
    }
    let schedules = format!("{PREFIX}/s/mail/schedules");
    let (path, page) = form(&app, &schedules, "Fire now").await.send(&app).await;
    assert!(
        path.contains("/task/") && page.contains("state waiting"),
        "{page}"
    );
}

// ===== Audit events =====

#[tokio::test]
async fn a_form_has_room_for_all_tasks_of_a_page_and_for_little_more() {
    let app = operated(&DurableClient::open(MemoryStore::new()));
    let confirm = format!("{PREFIX}/s/mail/bulk/confirm");
    let id = TaskId::new().to_string();
    let page = [vec![("action", "replay")], vec![("id", id.as_str()); 200]].concat();
    let reply = post_form(&app, &confirm, &page).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let long = vec![("a", ""); 40_000];
    let reply = post_form(&app, &confirm, &long).await;
    assert_eq!(
        reply.status,
        StatusCode::PAYLOAD_TOO_LARGE,
        "{}",
        reply.text
    );
    for part in ["length limit", "at most 65536 bytes"] {
        assert!(reply.text.contains(part), "{}", reply.text);
    }
}

/// Collects the audit events of a thread.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<String>>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "throng.audit"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn each_operation_is_recorded_before_and_after() {
    let stage = Stage::in_memory().await;
    let app = operated(&stage.client);
    let collector = Collector::default();
    let _subscribed = tracing::subscriber::set_default(collector.clone());
    let take = || std::mem::take(&mut *collector.0.lock().unwrap());
    // If a thread without a subscriber has sent the first event, `tracing` has disabled this event for all threads.
    let resume = format!("{PREFIX}/s/mail/queues/resume");
    post_form(&app, &resume, &[("name", "bulk")]).await;
    tracing::callsite::rebuild_interest_cache();
    take();

    let form = form(&app, &page_of(stage.waiting), "Cancel").await;
    assert!(take().is_empty(), "a page is no operation");
    form.send(&app).await;
    form.send(&app).await;
    let common = format!(
        "user=\"bob\" store=\"mail\" operation=\"cancel\" subject=\"{}\" ",
        stage.waiting
    );
    let (begins, ends) = ("message=begins ", "message=ends ");
    let events = take();
    for (event, parts) in events.iter().zip([
        [begins, ""],
        [ends, "effect=\"yes\" "],
        [begins, ""],
        [ends, "effect=\"not_in\" "],
    ]) {
        assert!(event.contains(&common), "{event}");
        assert!(parts.iter().all(|part| event.contains(part)), "{event}");
    }
    assert_eq!(events.len(), 4);

    let order = [("action", "replay"), ("list", "dead"), ("until_ms", "1")];
    let bulk = format!("{PREFIX}/s/mail/bulk");
    let job = post_form(&app, &bulk, &order).await.location(&bulk);
    until("the bulk change ends", async || {
        get(&app, &job).await.text.contains("finished")
    })
    .await;
    take();
    post_form(&app, &format!("{job}/stop"), &[]).await;
    let events = take();
    let is_stop = |event: &String| event.contains(r#"operation="stop-bulk" subject="1""#);
    assert!(
        events.len() == 2 && events.iter().all(is_stop),
        "{events:?}"
    );

    let pause = format!("{PREFIX}/s/mail/queues/pause");
    post_form(&app, &pause, &[("name", "a\nb")]).await;
    let events = take();
    assert_eq!(events.len(), 2);
    let is_told = |event: &String| event.contains(r#"subject="a\nb""#) && !event.contains('\n');
    assert!(events.iter().all(is_told), "{events:?}");
    assert!(events[1].contains("letters, digits"), "{events:?}");

    // Names that are too long for any step are refused before they are recorded, since they may be as long as a request.
    let (long, task) = ("x".repeat(200), page_of(stage.waiting));
    for (path, field) in [("replay-from", "step"), ("signal", "name")] {
        let reply = post_form(&app, &format!("{task}/{path}"), &[(field, &long)]).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text);
        assert!(reply.text.contains("this one has 200"), "{}", reply.text);
    }
    assert!(take().is_empty());
}
