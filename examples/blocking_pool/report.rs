//! What came of a phase, and whether that is what should have come.

use std::time::Duration;

use super::load::Phase;
use super::service::{CONNECTIONS, QUERY, QUEUE};
use super::{Result, ensure};

/// What came of a phase, to a client or to all.
#[derive(Debug)]
pub(crate) struct Report {
    phase: Phase,
    pub(crate) sent: u64,
    pub(crate) rejected: u64,
    /// How long the answers took that were not refusals.
    pub(crate) latencies: Vec<Duration>,
    /// How long `/health` took.
    pub(crate) health: Vec<Duration>,
    pub(crate) threads: u64,
    pub(crate) largest_queue: u64,
}

impl Report {
    pub(crate) fn new(phase: Phase) -> Self {
        Self {
            phase,
            sent: 0,
            rejected: 0,
            latencies: Vec::new(),
            health: Vec::new(),
            threads: 0,
            largest_queue: 0,
        }
    }

    /// Adds what came to a client.
    pub(crate) fn add(&mut self, client: Self) {
        self.sent += client.sent;
        self.rejected += client.rejected;
        self.latencies.extend(client.latencies);
    }

    /// Makes quantiles possible.
    pub(crate) fn finish(mut self) -> Self {
        self.latencies.sort_unstable();
        self.health.sort_unstable();
        self
    }

    pub(crate) fn answered(&self) -> u64 {
        self.latencies.len() as u64
    }

    /// What must be so in each phase.
    fn check(&self) -> Result<()> {
        let must = |condition, what: &str| ensure(condition, || format!("{what}: {self}"));
        must(self.answered() > 0, "no answers")?;
        must(
            self.answered() + self.rejected == self.sent,
            "requests are lost",
        )?;
        must(self.threads <= CONNECTIONS as u64, "too many threads")?;
        // A task that a thread is about to take is still one of the queue.
        let most = QUEUE + CONNECTIONS;
        must(self.largest_queue <= most as u64, "the queue is too long")?;
        must(
            quantile(&self.health, 0.5) < QUERY,
            "the service seems dead",
        )
    }
}

/// In one line, without what is measured in between.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let millis = |list, q| quantile(list, q).as_secs_f64() * 1e3;
        write!(
            f,
            "{:<18} {:>8} {:>8} {:>7.1} {:>7.1} {:>8.1} {:>8.1} {:>8} {:>6}",
            self.phase.name,
            self.answered(),
            self.rejected,
            millis(&self.latencies, 0.5),
            millis(&self.latencies, 0.99),
            millis(&self.health, 0.5),
            millis(&self.health, 0.99),
            self.threads,
            self.largest_queue,
        )
    }
}

/// What is shown at the end.
pub(crate) fn table(reports: &[Report]) -> String {
    let mut text = format!(
        "{:<18} {:>17} {:>15} {:>17} {:>8} {:>6}\n",
        "", "requests", "answer, ms", "/health, ms", "", "most"
    );
    text += &format!(
        "{:<18} {:>8} {:>8} {:>7} {:>7} {:>8} {:>8} {:>8} {:>6}\n",
        "phase", "answered", "refused", "p50", "p99", "p50", "p99", "threads", "queued"
    );
    for report in reports {
        text += &format!("{report}\n");
    }
    text
}

/// Checks that each phase shows the expected behaviour.
pub(crate) fn check(reports: &[Report]) -> Result<()> {
    reports.iter().try_for_each(Report::check)?;
    let [within, refused, waiting] = reports else {
        return Err("there are three phases".into());
    };
    let median = |report: &Report| quantile(&report.latencies, 0.5);
    ensure(within.rejected == 0, || format!("refused: {within}"))?;
    ensure(refused.rejected > 0, || format!("no overload: {refused}"))?;
    ensure(waiting.rejected == 0, || format!("lost: {waiting}"))?;
    // More than are in the queue of the pool wait for its end.
    ensure(median(waiting) > median(within), || {
        format!("no back-pressure: {waiting}")
    })
}

/// The duration that a fraction of a sorted list does not exceed; zero if it is empty.
fn quantile(sorted: &[Duration], q: f64) -> Duration {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.max(1) - 1)
        .copied()
        .unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(list: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        list.into_iter().map(Duration::from_millis).collect()
    }

    /// One in which all is well: so many answers of so many milliseconds, and so many refusals.
    fn report(answers: u64, latency: u64, rejected: u64) -> Report {
        let phase = super::super::PHASES[0];
        let mut report = Report::new(phase);
        report.sent = answers + rejected;
        report.rejected = rejected;
        report.latencies = millis((0..answers).map(|_| latency));
        report.health = millis([1]);
        report.threads = CONNECTIONS as u64;
        report
    }

    #[test]
    fn a_quantile_is_one_of_the_list() {
        let list = millis(1..=100);
        for (q, expected) in [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)] {
            assert_eq!(quantile(&list, q), Duration::from_millis(expected));
        }
        assert_eq!(quantile(&millis([7]), 0.5), Duration::from_millis(7));
        assert_eq!(quantile(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn clients_are_summed_up() {
        let mut all = report(1, 30, 0);
        all.add(report(2, 20, 3));
        let all = all.finish();
        assert_eq!((all.sent, all.answered(), all.rejected), (6, 3, 3));
        assert_eq!(all.latencies, millis([20, 20, 30]));
    }

    #[test]
    fn what_is_not_as_it_should_be_is_found() {
        let good = || [report(9, 20, 0), report(9, 90, 9), report(9, 300, 0)];
        check(&good()).unwrap();
        let spoil: [(&str, fn(&mut [Report; 3])); 9] = [
            ("no answers", |all| all[1] = report(0, 0, 1)),
            ("requests are lost", |all| all[2].sent += 1),
            ("too many threads", |all| all[0].threads += 1),
            ("the queue is too long", |all| all[1].largest_queue = 21),
            ("the service seems dead", |all| all[0].health = millis([20])),
            ("refused", |all| all[0] = report(9, 20, 1)),
            ("no overload", |all| all[1] = report(9, 90, 0)),
            ("lost", |all| all[2] = report(9, 300, 1)),
            ("no back-pressure", |all| all[2] = report(9, 20, 0)),
        ];
        for (what, spoil) in spoil {
            let mut all = good();
            spoil(&mut all);
            let error = check(&all).unwrap_err().to_string();
            assert!(error.starts_with(what), "{what}: {error}");
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_phase() {
        let table = table(&[report(9, 20, 1), report(9, 90, 9)]);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(
            lines.iter().all(|line| line.len() == lines[0].len()),
            "{table}"
        );
    }
}
