//! The texts of tables.

use anstyle::Style;
use comfy_table::presets::NOTHING;
use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Row, Table};

use super::{Line, escape};

/// How a table is fitted into a terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableShape {
    /// The width of the terminal, or `None` if the output is not a terminal.
    pub(super) width: Option<u16>,
    /// `true` if long texts continue in the next line, or `false` if they are cut.
    pub(super) is_wrapped: bool,
}

/// Returns a table: aligned and cut to the width of a terminal, or lines of fields that are separated by tabs.
pub(super) fn table(
    titles: Option<&Vec<&str>>,
    rows: Vec<Vec<String>>,
    shape: TableShape,
) -> String {
    let rows = rows
        .iter()
        .map(|row| row.iter().map(|cell| escape::text(cell)).collect());
    let titles = titles.map(|it| it.iter().map(|&title| title.to_owned()).collect());
    let has_titles = titles.is_some();
    let rows: Vec<Vec<String>> = titles.into_iter().chain(rows).collect();
    match shape.width {
        None => rows
            .iter()
            .map(|row| format!("{}\n", row.join("\t")))
            .collect(),
        Some(_) if rows.is_empty() => String::new(),
        Some(width) => aligned(rows, has_titles, width, shape.is_wrapped),
    }
}

fn aligned(rows: Vec<Vec<String>>, has_titles: bool, width: u16, is_wrapped: bool) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width);
    let keys = rows.iter().filter_map(|cells| cells.first());
    let key = keys.map(|key| key.chars().count()).max().unwrap_or(0);
    for cells in rows {
        let mut row = Row::from(cells.into_iter().map(Cell::new).collect::<Vec<_>>());
        if !is_wrapped {
            row.max_height(1);
        }
        table.add_row(row);
    }
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    // The first column names the row, and other commands need all of the name.
    if let Some(column) = table.column_mut(0)
        && key <= usize::from(width / 2)
    {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    printed(&table, has_titles)
}

/// Returns the lines of a table, with its titles in bold.
fn printed(table: &Table, has_titles: bool) -> String {
    let line = |(number, line): (usize, String)| {
        let style = match has_titles && number == 0 {
            true => Style::new().bold(),
            false => Style::new(),
        };
        format!("{style}{}{style:#}\n", line.trim_end())
    };
    table.lines().enumerate().map(line).collect()
}

/// Returns the lines of a record. On a terminal, the texts are aligned.
pub(super) fn record(lines: &[Line], is_terminal: bool) -> String {
    let longest = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let style = if is_terminal {
        Style::new().bold()
    } else {
        Style::new()
    };
    let line = |(name, text): &Line| {
        let text = escape::text(text);
        match is_terminal {
            true => format!("{style}{name:longest$}{style:#}  {text}\n"),
            false => format!("{name}\t{text}\n"),
        }
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 2]| cells.map(String::from).to_vec();
        vec![
            row(["mail.send", "the server has refused it"]),
            row(["a\x1b[31m", "b\tc"]),
        ]
    }

    fn shape(width: Option<u16>) -> TableShape {
        TableShape {
            width,
            is_wrapped: false,
        }
    }

    #[test]
    fn a_table_fits_into_its_terminal() {
        for width in [24, 80] {
            let table = table(Some(&vec!["NAME", "ERROR"]), rows(), shape(Some(width)));
            assert_eq!(table.lines().count(), 3, "{table}");
            let plain = anstream::adapter::strip_str(&table).to_string();
            let longest = plain.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(usize::from(width)), "{plain}");
        }
    }

    /// A person copies the id of a task from a list.
    #[test]
    fn the_first_column_is_whole_if_half_of_the_terminal_is_enough() {
        let id = "01a219fa-f325-700c-a912-c055cace45c0";
        let cells = [id, "image.resize", "(default)", "crashes", "an error"];
        let row = cells.map(String::from).to_vec();
        for (width, is_whole) in [(80, true), (60, false)] {
            let table = table(None, vec![row.clone()], shape(Some(width)));
            assert_eq!(table.contains(id), is_whole, "{table}");
            assert_eq!(table.lines().count(), 1, "{table}");
        }
    }

    #[test]
    fn a_pipe_gets_all_of_each_field() {
        let table = table(Some(&vec!["NAME", "ERROR"]), rows(), shape(None));
        let expected = "NAME\tERROR\nmail.send\tthe server has refused it\na\\u{1b}[31m\tb\\tc\n";
        assert_eq!(table, expected);
    }
}
