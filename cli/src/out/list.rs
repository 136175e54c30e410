//! [`ListWriter`]: prints a list, a page at a time.

use std::time::SystemTime;

use serde::Serialize;
use throng::durable::Cursor;

use super::table::TableShape;
use super::{Format, Output, json, table};
use crate::duration::millis;
use crate::failure::Failure;

/// A column of a table.
pub(crate) struct Column<T> {
    pub(crate) title: &'static str,
    pub(crate) text: fn(&T) -> String,
}

/// The fields that follow the rows of a list in a JSON document.
#[derive(Debug, Default)]
pub(crate) struct ListEnd {
    /// The time of the store.
    pub(crate) now: Option<SystemTime>,
    /// The position of the rows that follow.
    pub(crate) next: Option<Cursor>,
    /// The number of tasks that the store has examined.
    pub(crate) examined: Option<usize>,
}

/// Prints a list: each page as soon as it is there, so that a long list needs no memory.
pub(crate) struct ListWriter<'a, T: 'static> {
    out: &'a mut Output,
    columns: &'static [Column<T>],
    rows: usize,
    is_wrapped: bool,
}

impl<'a, T: Serialize> ListWriter<'a, T> {
    pub(super) fn new(out: &'a mut Output, columns: &'static [Column<T>]) -> Self {
        Self {
            out,
            columns,
            rows: 0,
            is_wrapped: false,
        }
    }

    /// Shows the whole texts on a terminal, in several lines.
    pub(crate) fn wrapped(mut self) -> Self {
        self.is_wrapped = true;
        self
    }

    /// Prints some rows.
    pub(crate) fn rows(&mut self, rows: &[T]) -> Result<(), Failure> {
        let text = match self.out.format {
            Format::Table => self.table(rows),
            Format::Json => self.elements(rows)?,
            Format::Jsonl => rows
                .iter()
                .map(|row| json(row, false))
                .collect::<Result<_, _>>()?,
        };
        self.rows += rows.len();
        self.out.print(&text)
    }

    /// Ends the list.
    pub(crate) fn finish(mut self, end: ListEnd) -> Result<(), Failure> {
        if self.out.format != Format::Json {
            return Ok(());
        }
        if self.rows == 0 {
            self.rows(&[])?;
        }
        let mut fields = serde_json::Map::new();
        fields.insert("next".into(), serde_json::to_value(end.next)?);
        if let Some(examined) = end.examined {
            fields.insert("examined".into(), examined.into());
        }
        if let Some(now) = end.now {
            fields.insert("now_ms".into(), millis(now).into());
        }
        let fields = serde_json::to_string(&fields)?;
        self.out.print(&format!("\n], {}\n", &fields[1..]))
    }

    fn table(&self, rows: &[T]) -> String {
        let titles: Vec<_> = self.columns.iter().map(|it| it.title).collect();
        let has_titles = self.rows == 0 && !rows.is_empty() && !self.out.is_quiet;
        let cells = rows
            .iter()
            .map(|row| self.columns.iter().map(|it| (it.text)(row)).collect());
        let shape = TableShape {
            width: self.out.width,
            is_wrapped: self.is_wrapped,
        };
        table::table(has_titles.then_some(&titles), cells.collect(), shape)
    }

    /// Returns rows as elements of the array that the first of them begins.
    fn elements(&self, rows: &[T]) -> Result<String, Failure> {
        let mut text = String::new();
        for (position, row) in rows.iter().enumerate() {
            text.push_str(if self.rows + position == 0 {
                "{\"data\": [\n"
            } else {
                ",\n"
            });
            text.push_str(json(row, false)?.trim_end());
        }
        if self.rows == 0 && rows.is_empty() {
            text.push_str("{\"data\": [");
        }
        Ok(text)
    }
}
