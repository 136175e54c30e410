//! The handlers of the pages. They change nothing.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use throng::durable::TaskId;
use throng::watch::Registry;

use crate::dashboard::Shared;
use crate::error::{ErrorKind, WebError};
use crate::extract::{Params, Segments};
use crate::html;
use crate::html::task::TaskNotice;
use crate::views;
use crate::views::charts::ChartRange;
use crate::views::find::FindQuery;
use crate::views::overview::HealthView;
use crate::views::schedules::SchedulesQuery;
use crate::views::tasks::{TaskList, TaskQuery};
use crate::views::workers::WorkersQuery;
use crate::visit::{StoreVisit, Visit};

type Page = Result<Html<String>, WebError>;

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(first))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/process", get(process))
        .route("/s/{store}", get(overview))
        .route("/s/{store}/queues", get(queues))
        .route("/s/{store}/tasks/{list}", get(tasks))
        .route("/s/{store}/task/{id}", get(task))
        .route("/s/{store}/dead", get(dead))
        .route("/s/{store}/workers", get(workers))
        .route("/s/{store}/workers/{session}", get(worker))
        .route("/s/{store}/schedules", get(schedules))
        .route("/s/{store}/types", get(types))
        .route("/s/{store}/find", get(find))
        .route("/s/{store}/bulk/{number}", get(bulk))
}

#[derive(Deserialize)]
pub(crate) struct ListPath {
    pub(crate) list: TaskList,
}

#[derive(Deserialize)]
pub(crate) struct TaskPath {
    pub(crate) id: TaskId,
}

#[derive(Deserialize)]
pub(crate) struct WorkerPath {
    pub(crate) session: u64,
}

#[derive(Deserialize)]
pub(crate) struct BulkPath {
    pub(crate) number: u64,
}

/// Leads to the store, or lists the stores if there are several.
async fn first(visit: Visit) -> Response {
    let stores = health_of(&visit.shared);
    match &stores[..] {
        [] => Redirect::to(&format!("{}process", visit.root)).into_response(),
        [(name, _)] => Redirect::to(&format!("{}s/{name}", visit.root)).into_response(),
        stores => html::overview::stores(&visit, stores).into_response(),
    }
}

/// Returns the states of the stores, as this process has seen them last.
fn health_of(shared: &Shared) -> Vec<(String, HealthView)> {
    let stores = shared.stores.iter();
    let health = stores.map(|store| {
        let health = HealthView::new(&store.client.health());
        (store.name.clone(), health)
    });
    health.collect()
}

/// Answers probes: 200 if this process reaches all stores, otherwise 503. It sends no request to a store.
async fn health(State(shared): State<Arc<Shared>>) -> (StatusCode, Json<Value>) {
    let stores = health_of(&shared);
    let is_well = |(_, health): &(String, HealthView)| health.state == "well";
    let status = match stores.iter().all(is_well) {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let stores = stores
        .into_iter()
        .map(|(name, health)| (name, health.state.into()));
    let stores: serde_json::Map<String, Value> = stores.collect();
    (status, Json(json!({ "stores": stores })))
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, WebError> {
    let snapshot = registry(&shared)?.snapshot_with_stores().await;
    let media_type = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(CONTENT_TYPE, media_type)], snapshot.prometheus()).into_response())
}

async fn process(visit: Visit) -> Page {
    let answer = views::process::process(registry(&visit.shared)?);
    Ok(html::process::page(&visit, &answer))
}

/// Returns the registry that the application has given to the dashboard.
pub(crate) fn registry(shared: &Shared) -> Result<&Registry, WebError> {
    shared.registry.as_ref().ok_or_else(|| {
        WebError::not_found(
            "This dashboard does not show its process: add a registry to its builder.",
        )
    })
}

#[derive(Deserialize)]
struct OverviewQuery {
    #[serde(default)]
    range: ChartRange,
}

async fn overview(visit: StoreVisit, Params(query): Params<OverviewQuery>) -> Page {
    let answer = views::overview::overview(&visit, query.range).await?;
    Ok(html::overview::page(&visit, &answer))
}

async fn queues(visit: StoreVisit) -> Page {
    let answer = views::queues::queues(&visit).await?;
    Ok(html::queues::queues(&visit, &answer))
}

async fn types(visit: StoreVisit) -> Page {
    let answer = views::queues::types(&visit).await?;
    Ok(html::queues::types(&visit, &answer))
}

async fn tasks(
    visit: StoreVisit,
    Segments(ListPath { list }): Segments<ListPath>,
    Params(query): Params<TaskQuery>,
) -> Page {
    let answer = views::tasks::tasks(&visit, list, query).await?;
    Ok(html::tasks::page(&visit, &answer))
}

async fn dead(visit: StoreVisit, Params(query): Params<TaskQuery>) -> Page {
    let answer = views::tasks::tasks(&visit, TaskList::Dead, query).await?;
    Ok(html::tasks::page(&visit, &answer))
}

async fn task(
    visit: StoreVisit,
    Segments(TaskPath { id }): Segments<TaskPath>,
    Params(notice): Params<TaskNotice>,
) -> Page {
    match views::task::task(&visit, id).await {
        Ok(answer) => Ok(html::task::page(&visit, &answer, &notice)),
        Err(error) if error.kind == ErrorKind::NotFound && notice.is_deletion() => {
            Ok(html::task::gone(&visit))
        }
        Err(error) => Err(error),
    }
}

async fn workers(visit: StoreVisit, Params(query): Params<WorkersQuery>) -> Page {
    let answer = views::workers::workers(&visit, query).await?;
    Ok(html::workers::workers(&visit, &answer))
}

async fn worker(
    visit: StoreVisit,
    Segments(path): Segments<WorkerPath>,
    Params(query): Params<WorkersQuery>,
) -> Page {
    let answer = views::workers::worker(&visit, path.session, query).await?;
    Ok(html::workers::worker(&visit, &answer))
}

async fn schedules(visit: StoreVisit, Params(query): Params<SchedulesQuery>) -> Page {
    let answer = views::schedules::schedules(&visit, query).await?;
    Ok(html::workers::schedules(&visit, &answer))
}

/// Leads to the task if the text is an id.
async fn find(visit: StoreVisit, Params(query): Params<FindQuery>) -> Result<Response, WebError> {
    let answer = views::find::find(&visit, &query).await?;
    Ok(match answer.data.task {
        Some(id) => Redirect::to(&format!("{}/task/{id}", visit.base())).into_response(),
        None => html::find::page(&visit, &answer).into_response(),
    })
}

async fn bulk(visit: StoreVisit, Segments(path): Segments<BulkPath>) -> Page {
    let job = visit.store.jobs.get(path.number)?;
    Ok(html::bulk::job(&visit, &job))
}
