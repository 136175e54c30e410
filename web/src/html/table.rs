//! Tables, and the links between their pages.

use form_urlencoded::Serializer;
use maud::{Markup, Render, html};

use super::text::{count, dash};
use crate::views::Answer;

/// A column of a table, by its heading.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column<'a> {
    Text(&'a str),
    Number(&'a str),
}

/// A table with more columns does not fit on a tablet.
const MAX_NARROW_COLUMNS: usize = 9;

/// Returns a table, or a sentence if it has no rows.
pub(crate) fn table(
    caption: &str,
    columns: &[Column<'_>],
    rows: &[Markup],
    if_empty: &str,
) -> Markup {
    captioned(html! { caption { (caption) } }, columns, rows, if_empty)
}

/// Returns a table below a heading that says the same as its caption, which therefore only screen readers read.
pub(crate) fn main_table(
    caption: &str,
    columns: &[Column<'_>],
    rows: &[Markup],
    if_empty: &str,
) -> Markup {
    let caption = html! { caption.unseen { (caption) } };
    captioned(caption, columns, rows, if_empty)
}

fn captioned(caption: Markup, columns: &[Column<'_>], rows: &[Markup], if_empty: &str) -> Markup {
    html! {
        @if rows.is_empty() {
            p.muted { (if_empty) }
        } @else {
            table class=[(columns.len() > MAX_NARROW_COLUMNS).then_some("wide")] {
                (caption)
                thead {
                    tr {
                        @for column in columns {
                            @match column {
                                Column::Text(title) => th scope="col" { (title) },
                                Column::Number(title) => th.num scope="col" { (title) },
                            }
                        }
                    }
                }
                tbody { @for row in rows { tr { (row) } } }
            }
        }
    }
}

/// Returns the first cell of a row, which names it.
pub(crate) fn row_head(title: &str, content: impl Render) -> Markup {
    html! { th scope="row" data-label=(title) { (content) } }
}

/// Returns a cell.
pub(crate) fn cell(title: &str, content: impl Render) -> Markup {
    html! { td data-label=(title) { (content) } }
}

/// Returns a cell with a number.
pub(crate) fn number(title: &str, content: impl Render) -> Markup {
    html! { td.num data-label=(title) { (content) } }
}

/// Returns the content of a cell with a number that may not be known.
pub(crate) fn optional_count(number: Option<u32>) -> Markup {
    number.map_or_else(dash, |number| html! { (count(number.into())) })
}

/// Returns a list of what is known about one thing: titles and values.
pub(crate) fn fact_list<'a>(facts: impl IntoIterator<Item = (&'a str, Option<Markup>)>) -> Markup {
    html! {
        dl.facts {
            @for (title, value) in facts {
                @if let Some(value) = value { div { dt { (title) } dd { (value) } } }
            }
        }
    }
}

/// Returns the links to the first and to the next page of a list, unless this is the only one. The fields are those of its filter.
pub(crate) fn pager<T>(path: &str, fields: &[(&str, &str)], answer: &Answer<T>) -> Markup {
    let first = link(path, fields);
    let next = answer.next.as_deref().map(|next| {
        let after = [("after", next)];
        link(path, &[fields, &after].concat())
    });
    html! {
        @if next.is_some() || !answer.is_first {
            p.pager {
                @if !answer.is_first { a href=(first) { "First page" } " " }
                @if let Some(next) = next { a href=(next) rel="next" { "Next page" } }
            }
        }
    }
}

/// Returns a URL with these fields in its query. Empty fields are left out.
pub(crate) fn link(path: &str, fields: &[(&str, &str)]) -> String {
    let given = fields.iter().filter(|(_, value)| !value.is_empty());
    let query = Serializer::new(String::new()).extend_pairs(given).finish();
    match query.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{query}"),
    }
}
