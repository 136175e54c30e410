//! throng and its peers, measured side by side.
//!
//! `cargo run --release -p throng-benches -- AREA..` runs areas; without one it lists them. [`areas`] holds what is
//! measured, [`runner`] starts a child process for each repetition of each peer, [`measure`], [`alloc`] and
//! [`disk`] are what such a child measures with, [`watched`] reads the metrics meanwhile if asked to, [`report`] prints
//! the results, [`charts`] draws those that the README quotes, and [`figures`] writes the page with all of them.

mod alloc;
mod areas;
mod charts;
mod disk;
mod figures;
mod measure;
mod points;
mod preload;
mod report;
mod runner;
mod watched;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{CommandFactory as _, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use crate::areas::Area;
use crate::measure::{Rules, Spin};
use crate::preload::Allocator;
use crate::report::Row;
use crate::runner::{Plan, Selected};

#[global_allocator]
static GLOBAL: alloc::Counting = alloc::Counting;

/// Measures throng and its peers side by side, each repetition in a process of its own.
#[derive(Debug, Parser)]
#[command(
    name = "throng-benches",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Cli {
    /// Areas to run, or `all`
    #[arg(value_name = "AREA", value_parser = area_names(), hide_possible_values = true)]
    areas: Vec<String>,
    /// Run the rows whose "area/workload/peer" matches
    #[arg(long, value_name = "REGEX")]
    filter: Option<regex::Regex>,
    /// Repetitions of each row [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    reps: Option<u16>,
    /// A tenth of a second and a tenth of the size for each row: for a look, not for figures
    #[arg(long)]
    quick: bool,
    /// Run ours only: as it is, and while all its parts are watched
    #[arg(long)]
    watched: bool,
    /// Print the JSON lines only
    #[arg(long)]
    json: bool,
    /// Preload an allocator in the children
    #[arg(long)]
    allocator: Option<Allocator>,
    #[command(subcommand)]
    command: Option<Task>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Measure the rows of the README, draw their charts in benches/charts, and print the README's table
    Charts {
        /// Repetitions of each row
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
        reps: u16,
        /// Read the JSON lines of an earlier run instead of measuring
        #[arg(long, value_name = "FILE", conflicts_with = "reps")]
        from: Option<PathBuf>,
    },
    /// Write the tables of the areas that a run has measured to benches/FIGURES.md
    Figures {
        /// The JSON lines that the run has printed
        #[arg(value_name = "FILE")]
        from: PathBuf,
    },
    /// Run one repetition of one peer in this process.
    #[command(hide = true)]
    Child { order: String },
    /// Work for a child, in a process of its own.
    #[command(hide = true)]
    Worker { order: String },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Some(Task::Charts { reps, from }) => draw_charts(reps, from.as_deref()),
        Some(Task::Figures { from }) => write_figures(&from),
        Some(Task::Child { order }) => runner::obey(&order),
        Some(Task::Worker { order }) => areas::work(&order),
        None if cli.areas.is_empty() => Cli::command()
            .after_help(list())
            .print_help()
            .map_err(|error| error.to_string()),
        None => run(&cli).map(drop),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Draws the charts, and prints the README's table.
fn draw_charts(reps: u16, from: Option<&Path>) -> Result<(), String> {
    let lines = match from {
        Some(path) => read(path)?,
        None => measure_headlines(reps)?,
    };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts");
    std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    say(&charts::write(&points::parse(&lines)?, &dir)?);
    Ok(())
}

/// Writes the sections of the areas of a run to the page with the figures.
fn write_figures(from: &Path) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("FIGURES.md");
    let page = figures::page(&points::parse(&read(from)?)?, from, &read(&path)?)?;
    std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs the rows of the README, and returns them as lines of JSON.
fn measure_headlines(reps: u16) -> Result<String, String> {
    let (reps, filter) = (reps.to_string(), charts::filter());
    let arguments = [
        "throng-benches",
        "all",
        "--filter",
        &filter,
        "--reps",
        &reps,
    ];
    let rows = run(&Cli::parse_from(arguments))?;
    Ok(rows.iter().map(|row| row.json() + "\n").collect())
}

/// Runs what was asked for.
fn run(cli: &Cli) -> Result<Vec<Row>, String> {
    let mut plan = plan(cli)?;
    let mut rows = Vec::new();
    for area in areas::ALL.iter().filter(|area| {
        cli.areas
            .iter()
            .any(|name| name == area.name || name == "all")
    }) {
        rows.extend(run_area(cli, &mut plan, area)?);
    }
    let failed = rows.iter().filter(|row| row.error.is_some());
    match failed.map(Row::path).collect::<Vec<_>>().as_slice() {
        [] if rows.is_empty() => Err("no row matches the filter".to_owned()),
        [] => Ok(rows),
        failed => Err(format!("rows that failed: {}", failed.join(", "))),
    }
}

fn plan(cli: &Cli) -> Result<Plan, String> {
    let target = Duration::from_millis(if cli.quick { 100 } else { 500 });
    let allocator = cli
        .allocator
        .map(|allocator| allocator.find().map(|library| (allocator, library)))
        .transpose()?;
    Ok(Plan {
        rules: Rules {
            target,
            quick: cli.quick,
            count_allocs: false,
            steps_per_us: Spin::steps_per_us(),
            dir: None,
        },
        repetitions: cli.reps.map_or(if cli.quick { 1 } else { 5 }, usize::from),
        filter: cli.filter.clone(),
        watched: cli.watched,
        allocator,
    })
}

/// Runs what is selected of an area.
fn run_area(cli: &Cli, plan: &mut Plan, area: &Area) -> Result<Vec<Row>, String> {
    let selected = plan.select(area);
    if selected.is_empty() {
        return Ok(Vec::new());
    }
    introduce(cli, area);
    let names = runner::names(area, &selected);
    let prepared = area.prepare.map(|prepare| prepare(&plan.rules, &names));
    let prepared = prepared.transpose();
    let prepared = prepared.map_err(|error| format!("cannot prepare {}: {error}", area.name))?;
    plan.rules.dir = prepared.as_ref().map(|dir| dir.path().to_owned());
    let rows = run_selected(cli, plan, area, &selected);
    if !cli.json {
        lines(&rows);
    }
    Ok(rows)
}

/// Runs workloads, and shows each when it is measured.
fn run_selected(cli: &Cli, plan: &Plan, area: &Area, selected: &[Selected]) -> Vec<Row> {
    let children = |(workload, peers): &Selected| plan.children(workload, peers.len());
    let bar = bar(selected.iter().map(children).sum());
    let mut rows = Vec::new();
    for (workload, peers) in selected {
        let measured = plan.run(area, workload, peers, &bar);
        bar.suspend(|| show(cli, &measured));
        rows.extend(measured);
    }
    bar.finish_and_clear();
    rows
}

fn show(cli: &Cli, rows: &[Row]) {
    if cli.json {
        lines(rows);
    } else {
        say(&report::table(rows));
    }
}

/// Says what is measured, and with which configuration of ours.
fn introduce(cli: &Cli, area: &Area) {
    let text = format!(
        "# {}: {}\n# throng: {}\n",
        area.name, area.about, area.config
    );
    if cli.json {
        eprint!("{text}")
    } else {
        say(&text)
    }
}

/// Prints rows as JSON.
fn lines(rows: &[Row]) {
    rows.iter().for_each(|row| say(&row.json()));
}

/// Prints a line. Whoever closes our output wants no more of it.
fn say(text: &str) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        std::process::exit(1);
    }
}

fn bar(children: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
    ProgressBar::new(children as u64).with_style(style.expect("the template is valid"))
}

/// The areas and the columns, for the help text.
fn list() -> String {
    let line = |name, about| format!("  {name:<12} {about}\n");
    let areas: String = areas::ALL
        .iter()
        .map(|area| line(area.name, area.about))
        .collect();
    let all = line("all", "every one of them");
    format!("Areas:\n{areas}{all}\n{}", report::LEGEND)
}

fn area_names() -> PossibleValuesParser {
    PossibleValuesParser::new(areas::ALL.iter().map(|area| area.name).chain(["all"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_lists_every_area() {
        assert!(areas::ALL.iter().all(|area| list().contains(area.name)));
    }
}
