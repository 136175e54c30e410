//! Draws the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line as TextLine, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use throng::durable::TaskChange;

use super::keys::HELP;
use super::model::{TopModel, TopSample};
use super::tab::TopTab;
use crate::cmd::status;
use crate::duration::{short, utc};
use crate::out::{Line, dash, escape};

/// On a narrower screen, there is one column.
const MIN_WIDTH: u16 = 60;
/// A screen with fewer lines has no graphs.
const MIN_HEIGHT: u16 = 18;

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &TopModel) {
    let [head, graphs, tabs, body, foot] = areas(frame.area());
    draw_head(frame, head, model);
    draw_graphs(frame, graphs, model);
    draw_tabs(frame, tabs, model);
    draw_rows(frame, body, model);
    draw_foot(frame, foot, model);
    if let Some(detail) = &model.detail {
        draw_detail(frame, body, detail, model.scroll);
    }
    if model.is_help {
        draw_help(frame, frame.area());
    }
}

/// Returns the areas of the head, the graphs, the tabs, the rows and the foot. A small screen has no graphs.
fn areas(screen: Rect) -> [Rect; 5] {
    let (head, graphs) = match (screen.width, screen.height) {
        (..MIN_WIDTH, _) => (3, 0),
        (_, ..MIN_HEIGHT) => (2, 0),
        _ => (2, 4),
    };
    let [head, graphs, tabs, foot] = [head, graphs, 1, 1].map(Constraint::Length);
    let parts = [head, graphs, tabs, Constraint::Min(1), foot];
    Layout::vertical(parts).areas(screen)
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, model: &TopModel) {
    let numbers = numbers(model);
    let mut lines: Vec<_> = match area.width < MIN_WIDTH {
        true => numbers.chunks(3).map(number_line).collect(),
        false => vec![number_line(&numbers)],
    };
    lines.push(TextLine::from(match &model.failure {
        Some(failure) => Span::from(escape::text(failure)).red(),
        None => Span::from(format!(
            "{}  store: {}",
            utc(model.data.overview.now),
            escape::text(&model.data.health)
        ))
        .dim(),
    }));
    frame.render_widget(Paragraph::new(lines), area);
}

fn numbers(model: &TopModel) -> [(&'static str, String); 6] {
    let overview = &model.data.overview;
    let counts = &overview.counts;
    let oldest = status::oldest(overview).map_or_else(dash, |(_, time)| short(time));
    [
        ("waiting", counts.waiting.to_string()),
        ("running", counts.running.to_string()),
        ("delayed", counts.delayed.to_string()),
        ("dead", counts.dead.to_string()),
        ("unserved", counts.unserved.to_string()),
        ("oldest", oldest),
    ]
}

fn number_line(numbers: &[(&'static str, String)]) -> TextLine<'static> {
    let spans = numbers.iter().flat_map(|(name, number)| {
        let is_alarming = *name == "dead" || *name == "unserved";
        let color = if is_alarming && number != "0" {
            Color::Red
        } else {
            Color::Reset
        };
        let number = Span::styled(number.clone(), Style::new().fg(color).bold());
        [
            Span::from(*name).dim(),
            Span::from(" "),
            number,
            Span::from("  "),
        ]
    });
    TextLine::from_iter(spans)
}

fn draw_graphs(frame: &mut Frame<'_>, area: Rect, model: &TopModel) {
    let number = |read: fn(&TopSample) -> u64| read;
    let graphs = [
        ("waiting", number(|sample| sample.waiting)),
        ("running", number(|sample| sample.running)),
        ("done per second", number(|sample| sample.done)),
    ];
    let areas = Layout::horizontal([Constraint::Fill(1); 3])
        .spacing(2)
        .areas::<3>(area);
    for ((name, number), area) in graphs.into_iter().zip(areas) {
        let width = usize::from(area.width);
        let skipped = model.history.len().saturating_sub(width);
        let numbers: Vec<_> = model.history.iter().skip(skipped).map(number).collect();
        let last = numbers.last().copied().unwrap_or_default();
        let title = Span::from(format!("{name} {last}")).dim();
        let graph = Sparkline::default()
            .data(numbers)
            .style(Style::new().cyan());
        frame.render_widget(graph.block(Block::new().title(title)), area);
    }
}

fn draw_tabs(frame: &mut Frame<'_>, area: Rect, model: &TopModel) {
    let is_narrow = area.width < MIN_WIDTH;
    let tabs = TopTab::ALL.iter().zip(1..).flat_map(|(tab, number)| {
        let style = match *tab == model.tab {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        let text = match is_narrow {
            true => tab.name().to_owned(),
            false => format!(" {number} {} ", tab.name()),
        };
        [Span::styled(text, style), Span::from(" ")]
    });
    frame.render_widget(TextLine::from_iter(tabs), area);
}

fn draw_rows(frame: &mut Frame<'_>, area: Rect, model: &TopModel) {
    let rows = model.rows();
    if rows.is_empty() {
        let text = match model.filter.is_empty() {
            true => "no rows",
            false => "no row matches the filter",
        };
        frame.render_widget(Span::from(text).dim(), area);
        return;
    }
    let titles = model.tab.titles();
    let cells: Vec<_> = rows.into_iter().map(|row| row.cells).collect();
    let widths = fitting_widths(titles, &cells, area.width);
    let columns = widths.len();
    let rows = cells
        .into_iter()
        .map(|cells| cells.into_iter().take(columns).map(Cell::from));
    let table = Table::new(rows.map(Row::new), widths)
        .header(Row::new(titles.iter().take(columns).copied()).bold())
        .column_spacing(SPACING)
        .row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(model.selected);
    frame.render_stateful_widget(table, area, &mut state);
}

/// The space between two columns.
const SPACING: u16 = 2;
/// The last column of a table may be as narrow as this.
const MIN_LAST: u16 = 8;
/// No other column is wider.
const MAX_COLUMN: u16 = 40;

/// Returns the widths of the first columns that fit into a screen. The last of them gets what is left.
fn fitting_widths(titles: &[&str], rows: &[Vec<String>], available: u16) -> Vec<Constraint> {
    let (mut widths, mut used) = (Vec::new(), 0);
    for (column, title) in titles.iter().enumerate() {
        let cells = rows.iter().filter_map(|cells| cells.get(column));
        let widest = cells
            .map(|cell| Span::from(cell.as_str()).width())
            .max()
            .unwrap_or(0);
        let width = u16::try_from(widest.max(title.len()))
            .unwrap_or(MAX_COLUMN)
            .min(MAX_COLUMN);
        if !widths.is_empty() && used + width.min(MIN_LAST) > available {
            break;
        }
        used += width + SPACING;
        widths.push(Constraint::Length(width));
    }
    if let Some(last) = widths.last_mut() {
        *last = Constraint::Fill(1);
    }
    widths
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, model: &TopModel) {
    let line = match (&model.pending, &model.message) {
        (Some((id, change)), _) => {
            let act = if *change == TaskChange::Cancel {
                "Cancel"
            } else {
                "Replay"
            };
            Span::from(format!("{act} {id}? y: yes, any other key: no")).yellow()
        }
        (None, Some(message)) => Span::from(escape::text(message)).yellow(),
        _ if model.is_filtering => Span::from(format!("/{}", escape::text(&model.filter))).bold(),
        _ if model.is_frozen => Span::from("frozen  p: continue  q: quit").yellow(),
        _ => Span::from("q: quit  ?: keys  /: filter  Enter: details  p: freeze").dim(),
    };
    frame.render_widget(line, area);
}

fn draw_detail(frame: &mut Frame<'_>, area: Rect, detail: &[Line], scroll: u16) {
    let lines: Vec<_> = detail
        .iter()
        .map(|(name, text)| {
            TextLine::from_iter([
                Span::from(format!("{name:10}")).bold(),
                Span::from(escape::text(text)),
            ])
        })
        .collect();
    let text = Paragraph::new(lines).wrap(Wrap { trim: false });
    let text = text.scroll((scroll, 0));
    frame.render_widget(Clear, area);
    frame.render_widget(text.block(Block::bordered().title("Esc: back")), area);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines: Vec<_> = HELP
        .iter()
        .map(|(key, act)| TextLine::from(format!("{key:14}{act}")))
        .collect();
    frame.render_widget(Clear, area);
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title("Keys")),
        area,
    );
}
