//! [`TaskAction`]: what operators can do to tasks.

use serde::{Deserialize, Serialize};
use throng::durable::{Status, TaskChange};

use crate::error::WebError;

/// An operation on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskAction {
    Cancel,
    Run,
    Move,
    Replay,
    Delete,
}

impl TaskAction {
    const ALL: [Self; 5] = [
        Self::Cancel,
        Self::Run,
        Self::Move,
        Self::Replay,
        Self::Delete,
    ];

    /// Returns the actions that apply to tasks with this status. The table itself is that of [`TaskChange::applies_to`].
    pub(crate) fn of(status: Status) -> Vec<Self> {
        let mut actions = Self::ALL.to_vec();
        actions.retain(|action| action.applied_to(None).applies_to(status));
        actions
    }

    /// Returns the change. The queue `to` is the one to which a task moves: `None` is the default queue.
    pub(crate) fn change(self, to: Option<&str>) -> Result<TaskChange, WebError> {
        match (self, to) {
            (Self::Move, _) | (_, None) => Ok(self.applied_to(to)),
            _ => Err(WebError::invalid(
                "Only the action `move` has the parameter `to`: remove it, or choose this action.",
            )),
        }
    }

    fn applied_to(self, to: Option<&str>) -> TaskChange {
        match self {
            Self::Cancel => TaskChange::Cancel,
            Self::Run => TaskChange::RunNow,
            Self::Move => TaskChange::MoveTo(to.map(String::from)),
            Self::Replay => TaskChange::Replay,
            Self::Delete => TaskChange::Delete,
        }
    }

    /// Returns the name of the action in URLs and in the API.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Run => "run",
            Self::Move => "move",
            Self::Replay => "replay",
            Self::Delete => "delete",
        }
    }

    /// Returns the text of its button.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Cancel => "Cancel",
            Self::Run => "Run now",
            Self::Move => "Move",
            Self::Replay => "Replay",
            Self::Delete => "Delete",
        }
    }

    /// Returns the text of the button that applies it to all tasks that match.
    pub(crate) fn title_of_all(self) -> &'static str {
        match self {
            Self::Cancel => "Cancel all",
            Self::Run => "Run all now",
            Self::Move => "Move all",
            Self::Replay => "Replay all",
            Self::Delete => "Delete all",
        }
    }

    /// Returns what has happened to a task to which the action was applied.
    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Run => "made due",
            Self::Move => "moved",
            Self::Replay => "replayed",
            Self::Delete => "deleted",
        }
    }

    /// Returns `true` if the action cannot be undone.
    pub(crate) fn is_destructive(self) -> bool {
        matches!(self, Self::Cancel | Self::Delete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_has_the_code_that_is_parsed() {
        for action in TaskAction::ALL {
            let code = serde_json::Value::from(action.code());
            assert_eq!(serde_json::from_value::<TaskAction>(code).unwrap(), action);
        }
        let dead = TaskAction::of(Status::Dead);
        assert_eq!(dead, [TaskAction::Replay, TaskAction::Delete]);
        assert_eq!(TaskAction::of(Status::Done), []);
    }

    #[test]
    fn only_a_move_has_a_target() {
        let moved = TaskAction::Move.change(Some("a")).unwrap();
        assert_eq!(moved, TaskChange::move_to("a"));
        assert!(TaskAction::Cancel.change(Some("a")).is_err());
    }
}
