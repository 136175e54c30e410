//! The queues, and the types of tasks.

use serde::Serialize;
use throng::durable::{QueueOverview, TypeOverview};

use super::Answer;
use crate::error::WebError;
use crate::recent::Question;
use crate::visit::StoreVisit;

/// The queues of a store.
#[derive(Debug, Serialize)]
pub(crate) struct QueuesView {
    pub(crate) queues: Vec<QueueOverview>,
    /// `true` if the store has more queues than this list.
    pub(crate) has_more: bool,
    /// The partitions that do not answer.
    pub(crate) missing_partitions: Vec<usize>,
}

/// The types of tasks of a store.
#[derive(Debug, Serialize)]
pub(crate) struct TypesView {
    pub(crate) types: Vec<TypeOverview>,
    /// The names of the paused queues.
    #[serde(skip)]
    pub(crate) paused_queues: Vec<Option<String>>,
    /// `true` if the store has more types than this list.
    pub(crate) has_more: bool,
    /// The partitions that do not answer.
    pub(crate) missing_partitions: Vec<usize>,
}

pub(crate) async fn queues(visit: &StoreVisit) -> Result<Answer<QueuesView>, WebError> {
    let admin = visit.store.client.admin();
    let overview = visit
        .store
        .read(Question::Overview, admin.overview())
        .await?;
    let view = QueuesView {
        queues: overview.queues,
        has_more: overview.has_more_queues,
        missing_partitions: overview.missing_partitions,
    };
    Ok(Answer::whole(Some(overview.now), view))
}

pub(crate) async fn types(visit: &StoreVisit) -> Result<Answer<TypesView>, WebError> {
    let admin = visit.store.client.admin();
    let overview = visit
        .store
        .read(Question::Overview, admin.overview())
        .await?;
    let paused = overview.queues.into_iter().filter(|it| it.info.is_paused);
    let view = TypesView {
        paused_queues: paused.map(|it| it.name).collect(),
        types: overview.types,
        has_more: overview.has_more_types,
        missing_partitions: overview.missing_partitions,
    };
    Ok(Answer::whole(Some(overview.now), view))
}
