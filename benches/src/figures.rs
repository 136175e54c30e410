//! The page `FIGURES.md`: a table of the rows of a run for each area.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::areas::{ALL, Area};
use crate::points::{Point, Span, best_first};
use crate::report::number;

/// Returns the page of a run, whose rows are in a file.
pub(crate) fn page(points: &[Point], file: &Path) -> Result<String, String> {
    let mut page = format!(
        "# Figures\n\nThis page was written by `cargo run --release -p throng-benches -- figures ROWS`, from the rows of one run on {}. \
         [ROWS.md](ROWS.md) says what each row measures.\n\nFor each peer, the tables show the median of several processes, the best first; \
         their headings have the number of processes of most rows. throng is bold, and the minimum and the maximum follow its median. Lines without a name contain further numbers of the row above.\n",
        machine(file)?,
    );
    for area in ALL {
        page += &section(points, area);
    }
    Ok(page)
}

/// Returns the heading and the table of an area, or nothing if the run does not contain it.
fn section(points: &[Point], area: &Area) -> String {
    let lines = area.workloads(false).into_iter();
    let lines: String = lines
        .map(|workload| rows(workload.name, &best_first(points, area.name, workload.name)))
        .collect();
    match lines.is_empty() {
        true => lines,
        false => format!(
            "\n## {}\n\n| row | unit | median of {} |\n| --- | --- | --- |\n{lines}",
            area.name,
            repetitions(points, area.name)
        ),
    }
}

/// Returns the rows of a workload: its figures, and then each number that only some workloads have.
fn rows(name: &str, points: &[(&Point, &Span)]) -> String {
    let Some((first, _)) = points.first() else {
        return String::new();
    };
    let cells: Vec<_> = points.iter().map(cell).collect();
    let mut rows = format!("| `{name}` | {} | {} |\n", first.unit, cells.join(", "));
    let facts = points.iter().flat_map(|(_, span)| span.facts.keys());
    for fact in facts.collect::<BTreeSet<_>>() {
        let of = |(point, span): &(&Point, &Span)| {
            let median = number(span.facts.get(fact)?.median);
            Some(format!("{} {median}", point.peer))
        };
        let cells: Vec<_> = points.iter().filter_map(of).collect();
        let _ = writeln!(rows, "| | {fact} | {} |", cells.join(", "));
    }
    rows
}

fn cell((point, span): &(&Point, &Span)) -> String {
    let Span {
        median, min, max, ..
    } = span;
    match point.peer.as_str() {
        "throng" => format!(
            "**throng {}** ({} to {})",
            number(*median),
            number(*min),
            number(*max)
        ),
        peer => format!("{peer} {}", number(*median)),
    }
}

/// Returns the number of repetitions of most rows of an area.
fn repetitions(points: &[Point], area: &str) -> usize {
    let of_area = points.iter().filter(|point| point.area == area);
    let mut rows = BTreeMap::<usize, usize>::new();
    for span in of_area.filter_map(Point::figures) {
        *rows.entry(span.repetitions).or_default() += 1;
    }
    let most = rows.into_iter().max_by_key(|&(_, rows)| rows);
    most.map_or(0, |(repetitions, _)| repetitions)
}

/// Describes the date of a file, and this machine.
fn machine(file: &Path) -> Result<String, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let path = file.display().to_string();
    Ok(format!(
        "{}, on {cores} cores of {} with Linux {} and {}",
        output("date", &["-u", "-r", &path, "+%F"])?,
        processor().unwrap_or_else(|| "an unknown processor".to_owned()),
        output("uname", &["-r"])?,
        output("rustc", &["--version"])?,
    ))
}

fn processor() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(": ")?.1.to_owned())
}

fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::parse;

    #[test]
    fn the_page_has_a_table_of_each_area_that_has_run() {
        let line = |peer, median: f64| {
            format!(
                r#"{{"area":"cell","workload":"slot","peer":"{peer}","unit":"ns/task","better":"less","median":{median},"min":1,"max":9,"repetitions":5,"facts":{{"p99":{{"median":7,"min":7,"max":7}}}}}}"#
            )
        };
        let many = line("futures-oneshot", 4.0).replace(":5,", ":50,");
        let lines = [line("throng", 3.0), line("tokio-oneshot", 2.0), many].join("\n");
        let file = tempfile::NamedTempFile::new().unwrap();
        let page = page(&parse(&lines).unwrap(), file.path()).unwrap();
        let row = "| `slot` | ns/task | tokio-oneshot 2.00, **throng 3.00** (1.00 to 9.00), futures-oneshot 4.00 |";
        assert!(page.contains(row), "{page}");
        assert!(
            page.contains("| | p99 | tokio-oneshot 7.00, throng 7.00, futures-oneshot 7.00 |"),
            "{page}"
        );
        assert!(page.contains("| median of 5 |"), "{page}");
        assert!(page.contains("\n## cell\n") && !page.contains("\n## serial\n"));
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let error = page(&[], Path::new("/absent")).unwrap_err();
        assert!(error.contains("/absent"), "{error}");
    }
}
