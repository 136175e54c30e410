//! Sends requests to several partitions at the same time.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::error::no_connection;
use super::inner::Inner;
use crate::durable::failure::Failure;

/// The answers of partitions, with their numbers, in order.
pub(super) type Answers<T> = Vec<(usize, T)>;

/// Sends a request to partitions at the same time, so a partition that does not answer delays no other. Returns the answers, and the
/// partitions that have failed. Fails if all have failed.
pub(super) async fn ask_each<T, F>(
    inner: &Arc<Inner>,
    partitions: impl IntoIterator<Item = usize>,
    request: impl Fn(Arc<Inner>, usize) -> F,
) -> Result<(Answers<T>, Vec<usize>), Failure>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let (mut running, mut missing) = (JoinSet::new(), Vec::new());
    for partition in partitions {
        let answer = request(Arc::clone(inner), partition);
        running.spawn(async move { (partition, answer.await) });
        missing.push(partition);
    }
    let (mut answers, mut failure) = (Vec::new(), None);
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok((partition, Ok(answer))) => answers.push((partition, answer)),
            Ok((_, Err(error))) => failure = Some(error),
            Err(_) => {}
        }
    }
    if answers.is_empty() {
        return Err(failure.unwrap_or_else(no_connection));
    }
    answers.sort_unstable_by_key(|(partition, _)| *partition);
    missing.retain(|partition| answers.iter().all(|(other, _)| other != partition));
    Ok((answers, missing))
}
