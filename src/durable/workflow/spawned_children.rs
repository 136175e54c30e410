//! [`SpawnedChildren`]: children that a task has spawned together, as a step of the task.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::durable::TaskId;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{Backend, MAX_CHILDREN};

/// The shortest time for which the result of a child is kept. If a run ends before it has recorded that it has spawned children, the next
/// run spawns them again, and finds those that have ended meanwhile.
pub(crate) const MIN_CHILD_RETENTION: Duration = Duration::from_secs(10 * 60);

/// The children that were spawned together: the value of a step. Their ids follow from it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SpawnedChildren {
    pub(crate) count: u64,
    /// The [name](crate::durable::DurableTask::NAME) of their type.
    pub(crate) name: String,
    /// Their queue, unless it is the default one. In a later version of the program, their type may have another one.
    pub(super) queue: Option<String>,
}

impl SpawnedChildren {
    /// Returns the ids of the children, given the name under which they were spawned.
    ///
    /// # Errors
    ///
    /// If this crate cannot have written the step: there are too many children, or their queue has no valid name.
    pub(crate) fn ids(
        &self,
        store: &dyn Backend,
        parent: TaskId,
        name: &str,
    ) -> Result<Vec<TaskId>, String> {
        if self.count > u64::from(MAX_CHILDREN) {
            return Err(format!("`{name}` has {} children", self.count));
        }
        let queue = self.queue.as_deref();
        let queue = queue.map_or(Ok(QueueName::DEFAULT), QueueName::new)?;
        let id = |number| {
            let mut ids = (0..).map(|salt| child_id(parent, name, number, salt));
            ids.find(|&id| store.suits_parent(id, &queue, parent))
                .expect("each partition of a store has ids")
        };
        Ok((0..self.count).map(id).collect())
    }
}

/// Returns an id of a child, given its number among the children that were spawned together.
fn child_id(parent: TaskId, name: &str, number: u64, salt: u32) -> TaskId {
    let mut bytes = parent.to_bytes().to_vec();
    bytes.extend(number.to_le_bytes());
    bytes.extend(name.as_bytes());
    if salt > 0 {
        // No name contains this byte.
        bytes.push(255);
        bytes.extend(salt.to_le_bytes());
    }
    TaskId::derive("throng child", &bytes)
}
