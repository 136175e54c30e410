//! The JSON API: the same views as the pages, and the same operations as the forms. `api/v1.json` describes it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use throng::durable::{Changed, TaskId};

use crate::dashboard::Shared;
use crate::error::{ErrorKind, WebError};
use crate::extract::{JsonBody, Params, Segments, body_limit};
use crate::forms::{ActionPath, PAUSABLE};
use crate::operations::bulk::BulkOrder;
use crate::operations::jobs::{BulkJob, BulkJobs};
use crate::operations::{
    MAX_SIGNAL_BODY_BYTES, Pausable, change_task, fire, replay_from, set_paused, signal,
};
use crate::pages::{BulkPath, ListPath, TaskPath, WorkerPath, registry};
use crate::views::charts::ChartRange;
use crate::views::find::FindQuery;
use crate::views::schedules::SchedulesQuery;
use crate::views::tasks::{TaskList, TaskQuery};
use crate::views::workers::WorkersQuery;
use crate::views::{self, Answer, since_1970};
use crate::visit::{StoreVisit, Visit};

/// The description of the API.
const DESCRIPTION: &str = include_str!("../api/v1.json");

/// Returns the routes that read.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    let store = Router::new()
        .route("/overview", get(overview))
        .route("/queues", get(queues))
        .route("/types", get(types))
        .route("/tasks/{list}", get(tasks))
        .route("/task/{id}", get(task))
        .route("/dead", get(dead))
        .route("/workers", get(workers))
        .route("/workers/{session}", get(worker))
        .route("/schedules", get(schedules))
        .route("/find", get(find))
        .route("/bulk/{number}", get(bulk));
    let routes = Router::new()
        .route("/", get(describe))
        .route("/stores", get(stores))
        .route("/process", get(process))
        .nest("/s/{store}", store);
    Router::new().nest("/api/v1", routes)
}

/// Returns the routes that change something.
pub(crate) fn operations() -> Router<Arc<Shared>> {
    let mut store = Router::new()
        .route("/task/{id}/{action}", post(change))
        .route("/task/{id}/replay-from", post(replay))
        .route(
            "/task/{id}/signal",
            post(send_signal).layer(body_limit(MAX_SIGNAL_BODY_BYTES)),
        )
        .route("/schedules/fire", post(fire_now))
        .route("/bulk", post(start))
        .route("/bulk/{number}/stop", post(stop));
    for (path, what) in PAUSABLE {
        store = store
            .route(&format!("/{path}/pause"), paused(what, true))
            .route(&format!("/{path}/resume"), paused(what, false));
    }
    Router::new().nest("/api/v1/s/{store}", store)
}

/// An answer as JSON.
#[derive(Debug, Serialize)]
struct ApiAnswer<T> {
    now_ms: Option<u64>,
    data: T,
    next: Option<String>,
    examined: Option<usize>,
}

type Reply<T> = Result<Json<ApiAnswer<T>>, WebError>;

impl<T> From<Answer<T>> for ApiAnswer<T> {
    fn from(answer: Answer<T>) -> Self {
        Self {
            now_ms: answer.now.map(since_1970),
            data: answer.data,
            next: answer.next,
            examined: answer.examined,
        }
    }
}

fn reply<T>(answer: Answer<T>) -> Reply<T> {
    Ok(Json(answer.into()))
}

async fn describe() -> Response {
    ([(CONTENT_TYPE, "application/json")], DESCRIPTION).into_response()
}

async fn stores(State(shared): State<Arc<Shared>>) -> Reply<Vec<String>> {
    let names = shared.stores.iter().map(|store| store.name.clone());
    reply(Answer::whole(None, names.collect()))
}

async fn process(visit: Visit) -> Reply<views::process::ProcessView> {
    reply(views::process::process(registry(&visit.shared)?))
}

async fn overview(visit: StoreVisit) -> Reply<views::overview::OverviewView> {
    reply(views::overview::overview(&visit, ChartRange::default()).await?)
}

async fn queues(visit: StoreVisit) -> Reply<views::queues::QueuesView> {
    reply(views::queues::queues(&visit).await?)
}

async fn types(visit: StoreVisit) -> Reply<views::queues::TypesView> {
    reply(views::queues::types(&visit).await?)
}

async fn tasks(
    visit: StoreVisit,
    Segments(ListPath { list }): Segments<ListPath>,
    Params(query): Params<TaskQuery>,
) -> Reply<views::tasks::TasksView> {
    reply(views::tasks::tasks(&visit, list, query).await?)
}

async fn dead(
    visit: StoreVisit,
    Params(query): Params<TaskQuery>,
) -> Reply<views::tasks::TasksView> {
    reply(views::tasks::tasks(&visit, TaskList::Dead, query).await?)
}

async fn task(
    visit: StoreVisit,
    Segments(TaskPath { id }): Segments<TaskPath>,
) -> Reply<views::task::TaskView> {
    reply(views::task::task(&visit, id).await?)
}

async fn workers(
    visit: StoreVisit,
    Params(query): Params<WorkersQuery>,
) -> Reply<views::workers::WorkersView> {
    reply(views::workers::workers(&visit, query).await?)
}

async fn worker(
    visit: StoreVisit,
    Segments(path): Segments<WorkerPath>,
    Params(query): Params<WorkersQuery>,
) -> Reply<views::workers::WorkerView> {
    reply(views::workers::worker(&visit, path.session, query).await?)
}

async fn schedules(
    visit: StoreVisit,
    Params(query): Params<SchedulesQuery>,
) -> Reply<views::schedules::SchedulesView> {
    reply(views::schedules::schedules(&visit, query).await?)
}

async fn find(visit: StoreVisit, Params(query): Params<FindQuery>) -> Reply<views::find::FindView> {
    reply(views::find::find(&visit, &query).await?)
}

async fn bulk(visit: StoreVisit, Segments(path): Segments<BulkPath>) -> Reply<Value> {
    let job = visit.store.jobs.get(path.number)?;
    reply(Answer::whole(None, describe_job(&job)))
}

fn describe_job(job: &BulkJob) -> Value {
    json!({ "number": job.number, "order": job.order, "progress": job.progress() })
}

/// The queue to which a task moves.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveBody {
    to: Option<String>,
}

async fn change(
    visit: StoreVisit,
    Segments(ActionPath { id, action }): Segments<ActionPath>,
    JsonBody(body): JsonBody<MoveBody>,
) -> Reply<Value> {
    let changed = change_task(&visit, id, action, body.to.as_deref()).await?;
    effect(id, action.done(), changed)
}

/// A step from which a task is replayed. It is in the body, since a name may contain characters that a path cannot.
#[derive(Deserialize)]
struct StepBody {
    step: String,
}

async fn replay(
    visit: StoreVisit,
    Segments(TaskPath { id }): Segments<TaskPath>,
    JsonBody(body): JsonBody<StepBody>,
) -> Reply<Value> {
    let changed = replay_from(&visit, id, &body.step).await?;
    effect(id, "replayed", changed)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignalBody {
    name: String,
    /// It stays as it is: a `Value` would round numbers and sort keys.
    value: Box<RawValue>,
}

async fn send_signal(
    visit: StoreVisit,
    Segments(TaskPath { id }): Segments<TaskPath>,
    JsonBody(body): JsonBody<SignalBody>,
) -> Reply<Value> {
    let effect = match signal(&visit, id, &body.name, &body.value).await? {
        true => Changed::Yes,
        false => Changed::Already,
    };
    reply(Answer::whole(None, json!({ "effect": effect })))
}

/// Returns the answer about a change of a task.
fn effect(id: TaskId, done: &str, changed: Changed) -> Reply<Value> {
    let not_changed = |reason: String| {
        let detail = format!("The task {id} was not {done}: {reason}.");
        WebError::new(ErrorKind::NotInState, detail)
    };
    match changed {
        changed @ (Changed::Yes | Changed::Already) => {
            reply(Answer::whole(None, json!({ "effect": changed })))
        }
        Changed::NotThere => Err(WebError::not_found(format!(
            "The store has no record of the task {id}: it was never stored, or its end is no longer kept."
        ))),
        Changed::NotIn(status) => Err(not_changed(format!(
            "it is {}",
            views::tasks::code_of(&status)
        ))),
        Changed::Refused(refusal) => Err(not_changed(refusal.to_string())),
        _ => Err(not_changed("the reason is not known".into())),
    }
}

/// The name of a queue, a type or a schedule. It is in the body, since browsers resolve names such as `..` in paths.
#[derive(Deserialize)]
struct NameBody {
    name: String,
}

/// Returns the handler that pauses or resumes.
fn paused(what: Pausable, is_paused: bool) -> MethodRouter<Arc<Shared>> {
    post(
        async move |visit: StoreVisit, JsonBody(body): JsonBody<NameBody>| {
            set_paused(&visit, what, &body.name, is_paused).await?;
            reply(Answer::whole(None, json!({ "is_paused": is_paused })))
        },
    )
}

async fn fire_now(visit: StoreVisit, JsonBody(body): JsonBody<NameBody>) -> Reply<Value> {
    let id = fire(&visit, &body.name).await?;
    reply(Answer::whole(None, json!({ "task": id })))
}

async fn start(
    visit: StoreVisit,
    JsonBody(order): JsonBody<BulkOrder>,
) -> Result<(StatusCode, Json<ApiAnswer<Value>>), WebError> {
    let job = BulkJobs::start(&visit, order)?;
    let answer = Answer::whole(None, describe_job(&job));
    Ok((StatusCode::ACCEPTED, Json(answer.into())))
}

async fn stop(visit: StoreVisit, Segments(path): Segments<BulkPath>) -> Reply<Value> {
    let job = BulkJobs::stop(&visit, path.number)?;
    reply(Answer::whole(None, describe_job(&job)))
}
