//! The page `FIGURES.md`: a table of the rows of a run for each area.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::areas::{ALL, Area};
use crate::points::{Point, Span, best_first};
use crate::report::number;

/// Returns the page with the rows of a run, which are in a file. Areas that this run has not measured keep their section of the earlier page.
pub(crate) fn page(points: &[Point], file: &Path, earlier: &str) -> Result<String, String> {
    let run = run_of(file)?;
    let mut page = "# Figures\n\n`cargo run --release -p throng-benches -- figures ROWS` wrote this page. Each section has all rows of an area, \
         from one run. [ROWS.md](ROWS.md) says what each row measures.\n\nFor each peer, the tables show the median of several processes, \
         the best first; their headings have the number of processes of most rows. throng is bold, and the minimum and the maximum follow \
         its median. Lines without a name contain further numbers of the row above.\n"
        .to_owned();
    for area in ALL {
        page += &section(points, area, &run)
            .or_else(|| earlier_section(earlier, area.name))
            .unwrap_or_default();
    }
    Ok(page)
}

/// Returns the heading and the table of an area, or `None` if the run does not contain it.
fn section(points: &[Point], area: &Area, run: &str) -> Option<String> {
    let lines = area.workloads(false).into_iter();
    let lines: String = lines
        .map(|workload| rows(workload.name, &best_first(points, area.name, workload.name)))
        .collect();
    let repetitions = repetitions(points, area.name)?;
    Some(format!(
        "\n## {}\n\n{run}\n\n| row | unit | median of {repetitions} |\n| --- | --- | --- |\n{lines}",
        area.name,
    ))
}

/// Returns the section of an area in an earlier page.
fn earlier_section(page: &str, area: &str) -> Option<String> {
    let heading = format!("\n## {area}\n");
    let section = &page[page.find(&heading)?..];
    let end = section[1..]
        .find("\n## ")
        .map_or(section.len(), |at| at + 1);
    Some(section[..end].to_owned())
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

/// Returns the number of repetitions of most rows of an area, or `None` if it has no rows.
fn repetitions(points: &[Point], area: &str) -> Option<usize> {
    let of_area = points.iter().filter(|point| point.area == area);
    let mut rows = BTreeMap::<usize, usize>::new();
    for span in of_area.filter_map(Point::figures) {
        *rows.entry(span.repetitions).or_default() += 1;
    }
    let most = rows.into_iter().max_by_key(|&(_, rows)| rows);
    most.map(|(repetitions, _)| repetitions)
}

/// Describes the run whose rows are in a file, which this machine has made.
fn run_of(file: &Path) -> Result<String, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let path = file.display().to_string();
    Ok(format!(
        "Measured on {}, on {cores} cores of {} with Linux {} and {}.",
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

    /// Returns a line of a run that has measured `cell`.
    fn line(peer: &str, median: f64) -> String {
        format!(
            r#"{{"area":"cell","workload":"slot","peer":"{peer}","unit":"ns/task","better":"less","median":{median},"min":1,"max":9,"repetitions":5,"facts":{{"p99":{{"median":7,"min":7,"max":7}}}}}}"#
        )
    }

    fn page_after(earlier: &str, lines: &[String]) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        page(&parse(&lines.join("\n")).unwrap(), file.path(), earlier).unwrap()
    }

    #[test]
    fn the_page_has_a_table_of_each_area_that_has_run() {
        let many = line("futures-oneshot", 4.0).replace(":5,", ":50,");
        let page = page_after("", &[line("throng", 3.0), line("tokio-oneshot", 2.0), many]);
        let row = "| `slot` | ns/task | tokio-oneshot 2.00, **throng 3.00** (1.00 to 9.00), futures-oneshot 4.00 |";
        assert!(page.contains(row), "{page}");
        assert!(
            page.contains("| | p99 | tokio-oneshot 7.00, throng 7.00, futures-oneshot 7.00 |"),
            "{page}"
        );
        assert!(page.contains("| median of 5 |"), "{page}");
        assert!(page.contains("\n## cell\n\nMeasured on 20"), "{page}");
        assert!(!page.contains("\n## serial\n"), "{page}");
    }

    #[test]
    fn an_area_that_has_not_run_keeps_its_section() {
        let earlier = "# Figures\n\n## cell\n\nold cell\n\n## serial\n\nold serial\n\n## durable\n\nold durable\n";
        let page = page_after(earlier, &[line("throng", 3.0)]);
        assert!(!page.contains("old cell"), "{page}");
        assert!(
            page.ends_with("\n\n## serial\n\nold serial\n\n## durable\n\nold durable\n"),
            "{page}"
        );
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let error = page(&[], Path::new("/absent"), "").unwrap_err();
        assert!(error.contains("/absent"), "{error}");
    }
}
