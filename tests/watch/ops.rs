//! The alerts and the dashboard in `ops`: they use metrics that exist, and a real Prometheus answers their expressions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const RULES: &str = "ops/prometheus/rules.yml";

/// Reads a file of the repository.
fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn dashboard() -> Value {
    serde_json::from_str(&read("ops/grafana/throng.json")).expect("the dashboard is JSON")
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let panels = dashboard["panels"].as_array();
    panels.expect("a dashboard has panels").iter()
}

/// A query of a panel.
pub(crate) struct Query<'d> {
    /// The title of the panel.
    pub(crate) title: &'d str,
    unit: &'d str,
    pub(crate) expression: &'d str,
    /// The name of each series, with labels such as `{{store}}`.
    pub(crate) legend: &'d str,
}

pub(crate) fn queries(dashboard: &Value) -> Vec<Query<'_>> {
    let mut found = Vec::new();
    for panel in panels(dashboard) {
        let targets = panel["targets"].as_array().into_iter().flatten();
        found.extend(targets.map(|target| Query {
            title: text(&panel["title"]),
            unit: text(&panel["fieldConfig"]["defaults"]["unit"]),
            expression: text(&target["expr"]),
            legend: text(&target["legendFormat"]),
        }));
    }
    found
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a panel is complete")
}

/// The metrics in `docs/METRICS.md`, which is made from the table of all metrics.
fn metrics() -> BTreeSet<String> {
    let page = read("docs/METRICS.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.map(|row| row.split('`').next().expect("a row has a name").to_owned());
    names.collect()
}

/// The metrics in a text. The suffixes of the series of histograms are left out.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part_of_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let words = text.split(|char| !is_part_of_name(char));
    let names = words.filter(|word| word.starts_with("throng_"));
    let names = names.map(|name| name.strip_suffix("_bucket").unwrap_or(name).to_owned());
    names.collect()
}

#[test]
fn rules_and_panels_use_metrics_that_exist() {
    let known = metrics();
    assert!(known.contains("throng_durable_tasks"), "{known:?}");
    let dashboard = dashboard().to_string();
    for used in [metrics_in(&read(RULES)), metrics_in(&dashboard)] {
        let unknown: Vec<_> = used.difference(&known).collect();
        assert!(unknown.is_empty() && !used.is_empty(), "{unknown:?}");
    }
}

#[test]
fn each_metric_is_in_a_panel_or_is_listed_as_not_shown() {
    let page = read("ops/README.md");
    let (_, not_shown) = page
        .split_once("Metrics that the dashboard does not show")
        .expect("the page lists them");
    let not_shown = metrics_in(not_shown);
    let shown = metrics_in(&dashboard().to_string());
    assert_eq!(shown.intersection(&not_shown).next(), None);
    let listed: BTreeSet<_> = shown.union(&not_shown).cloned().collect();
    let missing: Vec<_> = metrics().difference(&listed).cloned().collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn panels_have_ids_of_their_own_and_do_not_overlap() {
    let dashboard = dashboard();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        let title = &panel["title"];
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}");
        let position = |name: &str| panel["gridPos"][name].as_u64().expect("a position");
        let (left, top) = (position("x"), position("y"));
        let (right, bottom) = (left + position("w"), top + position("h"));
        assert!(right <= 24, "{title} is too wide");
        for x in left..right {
            for y in top..bottom {
                assert!(cells.insert((x, y)), "{title} overlaps another panel");
            }
        }
    }
    assert!(ids.len() > 20, "{ids:?}");
}

/// Durations are in seconds, rates are per second, and everything else is a number.
#[test]
fn panels_have_the_units_of_their_expressions() {
    let dashboard = dashboard();
    for query in queries(&dashboard) {
        let expression = query.expression;
        let unit = match () {
            () if expression.contains("_seconds") => "s",
            () if expression.contains("rate(") => "ops",
            () => "short",
        };
        assert_eq!(query.unit, unit, "{}: {expression}", query.title);
    }
}

/// Each alert has a row in the page for operators, and tests in which it fires and does not.
#[test]
fn each_alert_is_described_and_tested() {
    let (rules, page, tests) = (
        read(RULES),
        read("ops/README.md"),
        read("ops/prometheus/rules_test.yml"),
    );
    let alerts = rules
        .lines()
        .filter_map(|it| it.trim().strip_prefix("- alert: "));
    let alerts: Vec<_> = alerts.collect();
    assert!(alerts.len() >= 8, "{alerts:?}");
    for alert in alerts {
        assert!(page.contains(&format!("\n| {alert} | ")), "{alert}");
        let is_quiet = tests.contains(&format!("alertname: {alert}, exp_alerts: []}}"));
        let fires = tests.contains(&format!("alertname: {alert}\n        exp_alerts:\n"));
        assert!(is_quiet && fires, "{alert}");
    }
}

/// Prometheus' own tool, from the package `prometheus`. `THRONG_PROMTOOL` names another program.
#[test]
#[cfg_attr(miri, ignore = "starts a program")]
fn the_rules_are_valid_and_pass_their_tests() {
    let program = std::env::var_os("THRONG_PROMTOOL").unwrap_or_else(|| "promtool".into());
    for args in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "rules.yml"],
        ["test", "rules", "rules_test.yml"],
    ] {
        let mut promtool = Command::new(&program);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ops/prometheus");
        let Ok(output) = promtool.args(args).current_dir(folder).output() else {
            eprintln!("skipped: promtool is not installed (package `prometheus`)");
            return;
        };
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {args:?}: {said}");
    }
}
