//! [`BulkOrder`]: which tasks to change, and how.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use throng::durable::{TaskChange, TaskFilter, TaskId};

use super::action::TaskAction;
use crate::error::WebError;
use crate::views::tasks::TaskList;

/// A change of many tasks: of those with the listed ids or, without ids, of all that match a filter and existed at a given time. With ids,
/// `list` only says where they were selected.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkOrder {
    pub(crate) action: TaskAction,
    #[serde(default)]
    pub(crate) ids: Vec<TaskId>,
    pub(crate) list: Option<TaskList>,
    pub(crate) name: Option<String>,
    pub(crate) queue: Option<String>,
    /// A text that the errors contain, as they are shown, if the tasks are dead letters.
    pub(crate) error: Option<String>,
    /// The time at which the operator has seen the list, in milliseconds since 1970, by the clock of the store.
    pub(crate) until_ms: Option<u64>,
    /// The queue to which the tasks move, or `None` for the default queue.
    pub(crate) to: Option<String>,
}

/// The maximum number of ids: as many as the longest page has.
const MAX_IDS: usize = 200;
/// The end of the year 9999.
const MAX_UNTIL_MS: u64 = 253_402_300_799_999;

impl BulkOrder {
    /// Reads an order from the fields of a form. Empty fields count as absent.
    pub(crate) fn from_form(fields: &[(String, String)]) -> Result<Self, WebError> {
        let field = |name: &str| {
            let found = fields.iter().find(|(key, _)| key == name);
            found
                .map(|(_, value)| value.clone())
                .filter(|value| !value.is_empty())
        };
        let ids = fields.iter().filter(|(key, _)| key == "id");
        let ids = ids.map(|(_, id)| id.parse().map_err(|_| invalid("id")));
        let action = field("action").ok_or_else(|| invalid("action"))?;
        let until_ms = field("until_ms").map(|text| text.parse());
        Ok(Self {
            action: parse("action", action)?,
            ids: ids.collect::<Result<_, _>>()?,
            list: field("list").map(|list| parse("list", list)).transpose()?,
            name: field("name"),
            queue: field("queue"),
            error: field("error"),
            until_ms: until_ms.transpose().map_err(|_| invalid("until_ms"))?,
            to: field("to"),
        })
    }

    /// Returns the fields of a form that is read as this order.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let until_ms = self.until_ms.map(|millis| millis.to_string());
        let fields = [
            ("action", Some(self.action.code().to_owned())),
            ("list", self.list.map(|list| list.code().to_owned())),
            ("name", self.name.clone()),
            ("queue", self.queue.clone()),
            ("error", self.error.clone()),
            ("until_ms", until_ms),
            ("to", self.to.clone()),
        ];
        let fields = fields.into_iter();
        let fields = fields.filter_map(|(name, value)| Some((name, value?)));
        let ids = self.ids.iter().map(|id| ("id", id.to_string()));
        fields.chain(ids).collect()
    }

    /// Checks that the order selects tasks that an operator has seen, and that the action applies to them.
    pub(crate) fn check(&self) -> Result<(), WebError> {
        self.change()?;
        if self.ids.len() > MAX_IDS {
            let ids = self.ids.len();
            return Err(WebError::invalid(format!(
                "There are {ids} ids: select at most {MAX_IDS} tasks, or all that match a filter."
            )));
        }
        match self.ids.is_empty() {
            true => self.filter().map(drop),
            false if self.has_filter() => Err(WebError::invalid(
                "There are ids and a filter: give one of them.",
            )),
            false => Ok(()),
        }
    }

    /// Returns the filter that selects the tasks, if the order has no ids.
    pub(crate) fn filter(&self) -> Result<TaskFilter, WebError> {
        let list = self.list.ok_or_else(|| {
            WebError::invalid("No task is selected: select tasks, or all that match a filter.")
        })?;
        let change = self.change()?;
        if list == TaskList::Next || !change.applies_to(list.status()) {
            let (action, list) = (self.action.code(), list.code());
            return Err(WebError::invalid(format!(
                "The action `{action}` does not apply to all tasks of the list `{list}`: choose another list."
            )));
        }
        if self.error.is_some() && list != TaskList::Dead {
            return Err(WebError::invalid(
                "Only dead letters can be selected by their errors: remove `error`.",
            ));
        }
        let until = self.until().ok_or_else(|| invalid("until_ms"))?;
        let filter = list.filter(self.name.as_deref(), self.queue.as_deref());
        Ok(filter.until(until))
    }

    /// Returns the change.
    pub(crate) fn change(&self) -> Result<TaskChange, WebError> {
        self.action.change(self.to.as_deref())
    }

    /// Returns the time until which tasks are selected.
    pub(crate) fn until(&self) -> Option<SystemTime> {
        let millis = self.until_ms.filter(|millis| *millis <= MAX_UNTIL_MS)?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
    }

    fn has_filter(&self) -> bool {
        let texts = [&self.name, &self.queue, &self.error];
        self.until_ms.is_some() || texts.iter().any(|it| it.is_some())
    }
}

fn parse<T: for<'de> Deserialize<'de>>(field: &str, text: String) -> Result<T, WebError> {
    serde_json::from_value(text.into()).map_err(|_| invalid(field))
}

fn invalid(field: &str) -> WebError {
    WebError::invalid(format!(
        "The field `{field}` is missing or not valid: go back to the list, and send its form again."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> BulkOrder {
        BulkOrder {
            action: TaskAction::Replay,
            ids: Vec::new(),
            list: Some(TaskList::Dead),
            name: Some("mail.send".into()),
            queue: None,
            error: Some("550".into()),
            until_ms: Some(1_790_000_000_000),
            to: None,
        }
    }

    fn owned(fields: Vec<(&str, String)>) -> Vec<(String, String)> {
        let fields = fields.into_iter();
        fields
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    #[test]
    fn an_order_survives_a_form() {
        let ids = vec![TaskId::new(), TaskId::new()];
        let selected = BulkOrder { ids, ..order() };
        for order in [order(), selected] {
            assert_eq!(BulkOrder::from_form(&owned(order.fields())).unwrap(), order);
        }
    }

    #[test]
    fn orders_that_select_what_nobody_has_seen_are_refused() {
        assert!(order().check().is_ok());
        let id = TaskId::new();
        for (order, remedy) in [
            (
                BulkOrder {
                    until_ms: None,
                    ..order()
                },
                "until_ms",
            ),
            (
                BulkOrder {
                    until_ms: Some(u64::MAX),
                    ..order()
                },
                "until_ms",
            ),
            (
                BulkOrder {
                    list: None,
                    ..order()
                },
                "select tasks",
            ),
            (
                BulkOrder {
                    list: Some(TaskList::Next),
                    ..order()
                },
                "another list",
            ),
            (
                BulkOrder {
                    list: Some(TaskList::Running),
                    ..order()
                },
                "another list",
            ),
            (
                BulkOrder {
                    to: Some("a".into()),
                    ..order()
                },
                "remove it",
            ),
            (
                BulkOrder {
                    action: TaskAction::Run,
                    list: Some(TaskList::Retrying),
                    ..order()
                },
                "remove `error`",
            ),
            (
                BulkOrder {
                    ids: vec![id],
                    ..order()
                },
                "give one of them",
            ),
            (
                BulkOrder {
                    ids: vec![id; MAX_IDS + 1],
                    ..order()
                },
                "at most 200",
            ),
        ] {
            let error = order.check().unwrap_err();
            assert!(error.detail.contains(remedy), "{error:?}");
        }
        for field in ["action", "list", "until_ms", "id"] {
            let mut fields = owned(order().fields());
            fields.retain(|(name, _)| name != field);
            fields.push((field.into(), "x".into()));
            let error = BulkOrder::from_form(&fields).unwrap_err();
            assert!(error.detail.contains(field), "{error:?}");
        }
    }
}
