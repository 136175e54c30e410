//! The handlers of the forms: they change something, and then lead to a page that shows the effect.

use std::sync::Arc;

use axum::Router;
use axum::response::{Html, Redirect};
use axum::routing::{MethodRouter, post};
use serde::Deserialize;
use serde_json::value::RawValue;
use throng::durable::TaskId;

use crate::dashboard::Shared;
use crate::error::WebError;
use crate::extract::{FormBody, Segments, body_limit};
use crate::form_text::FormText;
use crate::html;
use crate::html::table::link;
use crate::operations::action::TaskAction;
use crate::operations::bulk::BulkOrder;
use crate::operations::jobs::BulkJobs;
use crate::operations::{
    MAX_SIGNAL_BODY_BYTES, Pausable, change_task, effect_of, fire, replay_from, set_paused, signal,
};
use crate::pages::{BulkPath, TaskPath};
use crate::views;
use crate::views::tasks::given;
use crate::visit::StoreVisit;

pub(crate) fn routes() -> Router<Arc<Shared>> {
    let mut routes = Router::new()
        .route("/s/{store}/task/{id}/{action}", post(change))
        .route(
            "/s/{store}/task/{id}/replay-from/confirm",
            post(confirm_replay),
        )
        .route("/s/{store}/task/{id}/replay-from", post(replay))
        .route(
            "/s/{store}/task/{id}/signal",
            post(send_signal).layer(body_limit(MAX_SIGNAL_BODY_BYTES)),
        )
        .route("/s/{store}/schedules/fire", post(fire_now))
        .route("/s/{store}/bulk/confirm", post(confirm))
        .route("/s/{store}/bulk", post(start))
        .route("/s/{store}/bulk/{number}/stop", post(stop));
    for (path, what) in PAUSABLE {
        routes = routes
            .route(
                &format!("/s/{{store}}/{path}/pause"),
                paused(path, what, true),
            )
            .route(
                &format!("/s/{{store}}/{path}/resume"),
                paused(path, what, false),
            );
    }
    routes
}

/// A kind of objects that can be paused, and the path of the page that lists them.
pub(crate) const PAUSABLE: [(&str, Pausable); 3] = [
    ("queues", Pausable::Queue),
    ("types", Pausable::Type),
    ("schedules", Pausable::Schedule),
];

#[derive(Deserialize)]
pub(crate) struct ActionPath {
    pub(crate) id: TaskId,
    pub(crate) action: TaskAction,
}

/// The queue to which a task moves.
#[derive(Deserialize)]
struct MoveForm {
    #[serde(default)]
    to: String,
}

async fn change(
    visit: StoreVisit,
    Segments(ActionPath { id, action }): Segments<ActionPath>,
    FormBody(form): FormBody<MoveForm>,
) -> Result<Redirect, WebError> {
    let changed = change_task(&visit, id, action, given(&form.to)).await?;
    let effect = effect_of(&changed);
    let notice = [("did", action.code()), ("effect", effect.as_str())];
    let path = format!("{}/task/{id}", visit.base());
    Ok(Redirect::to(&link(&path, &notice)))
}

/// A step from which a task is replayed.
#[derive(Deserialize)]
struct StepForm {
    step: FormText,
}

/// Asks whether to replay a task from a step. This changes nothing.
async fn confirm_replay(
    visit: StoreVisit,
    Segments(TaskPath { id }): Segments<TaskPath>,
    FormBody(form): FormBody<StepForm>,
) -> Result<Html<String>, WebError> {
    let answer = views::task::task(&visit, id).await?;
    Ok(html::workflow::confirmation(
        &visit,
        &answer.data,
        &form.step.0,
    ))
}

async fn replay(
    visit: StoreVisit,
    Segments(TaskPath { id }): Segments<TaskPath>,
    FormBody(form): FormBody<StepForm>,
) -> Result<Redirect, WebError> {
    let changed = replay_from(&visit, id, &form.step.0).await?;
    let notice = [("replayed", &*effect_of(&changed))];
    Ok(Redirect::to(&link(&task_path(&visit, id), &notice)))
}

/// A signal. Its name comes from a text field or, if a text field cannot hold it, from the hidden field `awaited`.
#[derive(Deserialize)]
struct SignalForm {
    #[serde(default)]
    name: String,
    awaited: Option<FormText>,
    #[serde(default)]
    value: String,
}

async fn send_signal(
    visit: StoreVisit,
    Segments(TaskPath { id }): Segments<TaskPath>,
    FormBody(form): FormBody<SignalForm>,
) -> Result<Redirect, WebError> {
    let json = given(&form.value).unwrap_or("null");
    let value = RawValue::from_string(json.to_owned()).map_err(|error| {
        WebError::invalid(format!(
            "The value of the signal is not JSON ({error}): a text needs quotes, as in \"yes\"."
        ))
    })?;
    let name = form.awaited.map_or(form.name, |awaited| awaited.0);
    let effect = match signal(&visit, id, &name, &value).await? {
        true => "yes",
        false => "already",
    };
    let path = link(&task_path(&visit, id), &[("signalled", effect)]);
    Ok(Redirect::to(&path))
}

fn task_path(visit: &StoreVisit, id: TaskId) -> String {
    format!("{}/task/{id}", visit.base())
}

/// The name of a queue, a type or a schedule. It is a field of a form rather than a part of a path, since browsers resolve names such
/// as `..` in paths.
#[derive(Deserialize)]
struct NameForm {
    name: FormText,
}

/// Returns the handler that pauses or resumes, and then leads to the list.
fn paused(path: &'static str, what: Pausable, is_paused: bool) -> MethodRouter<Arc<Shared>> {
    post(
        async move |visit: StoreVisit, FormBody(form): FormBody<NameForm>| {
            set_paused(&visit, what, &form.name.0, is_paused).await?;
            Ok::<_, WebError>(Redirect::to(&format!("{}/{path}", visit.base())))
        },
    )
}

async fn fire_now(
    visit: StoreVisit,
    FormBody(form): FormBody<NameForm>,
) -> Result<Redirect, WebError> {
    let id = fire(&visit, &form.name.0).await?;
    Ok(Redirect::to(&format!("{}/task/{id}", visit.base())))
}

/// Asks whether to execute an order. This changes nothing, but a long selection does not fit into a URL.
async fn confirm(
    visit: StoreVisit,
    FormBody(fields): FormBody<Vec<(String, String)>>,
) -> Result<Html<String>, WebError> {
    let order = BulkOrder::from_form(&fields)?;
    order.check()?;
    Ok(html::bulk::confirmation(&visit, &order))
}

async fn start(
    visit: StoreVisit,
    FormBody(fields): FormBody<Vec<(String, String)>>,
) -> Result<Redirect, WebError> {
    let job = BulkJobs::start(&visit, BulkOrder::from_form(&fields)?)?;
    Ok(Redirect::to(&format!(
        "{}/bulk/{}",
        visit.base(),
        job.number
    )))
}

async fn stop(visit: StoreVisit, Segments(path): Segments<BulkPath>) -> Result<Redirect, WebError> {
    BulkJobs::stop(&visit, path.number)?;
    Ok(Redirect::to(&format!(
        "{}/bulk/{}",
        visit.base(),
        path.number
    )))
}
