//! The metrics of a pool in the text format of Prometheus.

use throng::blocking::Metrics;

/// The type of a metric.
#[derive(Clone, Copy)]
enum Kind {
    Gauge,
    Counter,
}

/// Returns all counters and gauges of a pool, with the label `pool`.
pub(crate) fn exposition(pool: &str, metrics: &Metrics) -> String {
    use Kind::{Counter, Gauge};

    let mut text = String::new();
    for (name, kind, help, value) in [
        ("threads", Gauge, "Threads.", metrics.threads),
        ("idle", Gauge, "Threads without a task.", metrics.idle),
        ("busy", Gauge, "Threads with a task.", metrics.busy),
        ("largest", Gauge, "Most threads so far.", metrics.largest),
        ("queued", Gauge, "Tasks that wait.", metrics.queued),
        (
            "submitted_total",
            Counter,
            "Tasks accepted.",
            metrics.submitted,
        ),
        (
            "completed_total",
            Counter,
            "Tasks that returned.",
            metrics.completed,
        ),
        (
            "panicked_total",
            Counter,
            "Tasks that panicked.",
            metrics.panicked,
        ),
        (
            "cancelled_total",
            Counter,
            "Tasks aborted.",
            metrics.cancelled,
        ),
        (
            "rejected_total",
            Counter,
            "Tasks not accepted.",
            metrics.rejected,
        ),
        (
            "spawn_failures_total",
            Counter,
            "Threads that the system refused.",
            metrics.spawn_failures,
        ),
    ] {
        let kind = match kind {
            Gauge => "gauge",
            Counter => "counter",
        };
        let name = format!("throng_blocking_{name}");
        let lines = format!(
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{pool=\"{pool}\"}} {value}\n"
        );
        text.push_str(&lines);
    }
    text
}

/// Finds a value in the output of [`exposition`].
pub(crate) fn value(text: &str, name: &str) -> Option<u64> {
    let start = format!("throng_blocking_{name}{{");
    let line = text.lines().find(|line| line.starts_with(&start))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_values_can_be_found() {
        let mut metrics = Metrics::default();
        metrics.threads = 4;
        metrics.rejected = 7;
        let text = exposition("database", &metrics);
        assert!(text.contains("# TYPE throng_blocking_threads gauge\n"));
        assert!(text.contains("# TYPE throng_blocking_rejected_total counter\n"));
        assert!(text.contains("\nthrong_blocking_threads{pool=\"database\"} 4\n"));
        assert_eq!(value(&text, "threads"), Some(4));
        assert_eq!(value(&text, "rejected_total"), Some(7));
        assert_eq!(value(&text, "queued"), Some(0));
        assert_eq!(value(&text, "rejected"), None);
        assert!(text.ends_with('\n'));
    }
}
