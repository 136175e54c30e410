//! The text for Prometheus.

use std::io::Write;
use std::process::{Command, Stdio};

use throng::watch::Registry;
use throng::{BlockingPool, CompletionStream, ComputePool, SerialExecutor};

use crate::exposition::Exposition;
use crate::support::{current_thread, join};

/// Names that break a text which does not escape them.
const HOSTILE: [&str; 14] = [
    "",
    "\"",
    "\\",
    "\\\"",
    "\\n",
    "\n",
    "\r\n# TYPE evil counter\nevil 1\n",
    "a\"} 1\nevil{b=\"",
    "{}",
    ",le=\"+Inf\"",
    "\u{0}\u{1b}[31m\u{7f}",
    "\u{202e}\u{2028}\u{85}\u{fffd}",
    "caf\u{e9} \u{1f600}",
    "# HELP evil",
];

/// All parts that need no store, with this name.
fn watch_all(registry: &Registry, name: &str) -> impl Sized + use<> {
    let blocking = BlockingPool::builder()
        .max_threads(2)
        .queue_capacity(9)
        .build()
        .unwrap();
    let bulkhead = blocking.bulkhead(1, 1).unwrap();
    let compute = ComputePool::builder().threads(1).build().unwrap();
    let (jobs, done) = CompletionStream::<u8, u8>::builder().build().unwrap();
    let executor = SerialExecutor::new(0);
    registry.watch(name, &blocking);
    registry.watch(name, &bulkhead);
    registry.watch(name, &compute);
    registry.watch(name, &done);
    registry.watch(name, &executor);
    for _ in 0..200 {
        join(bulkhead.spawn_blocking(|| ())).unwrap();
    }
    (blocking, bulkhead, compute, jobs, done, executor)
}

#[test]
fn an_empty_registry_shows_its_version() {
    let shown = Exposition::parse(&Registry::new().prometheus());
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        shown.get("throng_build_info", &[("version", version)]),
        Some(1.0)
    );
    assert!(shown.get("throng_watch_seconds", &[]).is_some());
    assert_eq!(shown.types.len(), 2);
}

#[test]
fn hostile_names_stay_within_their_labels() {
    let registry = Registry::new();
    let parts = HOSTILE.map(|name| watch_all(&registry, name));
    let shown = Exposition::parse(&registry.prometheus());
    assert!(shown.types.keys().all(|name| name.starts_with("throng_")));
    for name in HOSTILE {
        for (metric, label) in [
            ("throng_blocking_submitted_total", "pool"),
            ("throng_bulkhead_running", "bulkhead"),
            ("throng_compute_queue_length", "pool"),
            ("throng_completion_ready", "stream"),
            ("throng_serial_executors", "executor"),
        ] {
            assert!(
                shown.get(metric, &[(label, name)]).is_some(),
                "{metric} of {name:?}"
            );
        }
    }
    drop(parts);
}

#[test]
fn buckets_end_at_powers_of_four_in_seconds() {
    let registry = Registry::new();
    let parts = watch_all(&registry, "db");
    let text = registry.prometheus();
    for end in [
        "0.000001024",
        "0.000004096",
        "1.073741824",
        "4398.046511104",
        "+Inf",
    ] {
        let line = format!("\nthrong_blocking_run_seconds_bucket{{pool=\"db\",le=\"{end}\"}} ");
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert_eq!(
        text.matches("throng_blocking_run_seconds_bucket{").count(),
        18
    );
    drop(parts);
}

/// `docs/METRICS.md` has these numbers.
#[test]
fn a_name_has_few_series() {
    let registry = Registry::new();
    let parts = watch_all(&registry, "it");
    let shown = Exposition::parse(&registry.prometheus());
    let series = |start: &str| {
        shown
            .samples
            .keys()
            .filter(|(name, _)| name.starts_with(start))
            .count()
    };
    assert_eq!(series("throng_blocking_"), 53);
    assert_eq!(series("throng_bulkhead_"), 9);
    assert_eq!(series("throng_compute_"), 9);
    assert_eq!(series("throng_serial_"), 12);
    assert_eq!(series("throng_completion_"), 9);
    drop(parts);
}

/// Prometheus' own tool, from the package `prometheus`. `THRONG_PROMTOOL` names another program.
#[test]
#[cfg_attr(miri, ignore = "starts a program")]
fn promtool_accepts_the_text() {
    let registry = Registry::new();
    let mut parts: Vec<_> = HOSTILE
        .iter()
        .map(|name| watch_all(&registry, name))
        .collect();
    #[cfg(feature = "test-util")]
    let snapshot = {
        let store = throng::durable::DurableClient::open(throng::durable::MemoryStore::new());
        registry.watch("jobs", &store);
        current_thread().block_on(registry.snapshot_with_stores())
    };
    #[cfg(not(feature = "test-util"))]
    let snapshot = current_thread().block_on(async { registry.snapshot() });
    let text = snapshot.prometheus();
    Exposition::parse(&text);
    // A name without a live part has counters only.
    parts.pop();

    let program = std::env::var_os("THRONG_PROMTOOL").unwrap_or_else(|| "promtool".into());
    for text in [text, registry.prometheus()] {
        let mut checked = Command::new(&program);
        checked.args(["check", "metrics"]).stdin(Stdio::piped());
        let Ok(mut child) = checked
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
        else {
            eprintln!("skipped: promtool is not installed (package `prometheus`)");
            return;
        };
        let mut input = child.stdin.take().expect("it is piped");
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}
