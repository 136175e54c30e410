//! Measures a child from inside: time, CPU time, context switches, threads, memory, allocations.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::alloc;

/// The length of a tick of `/proc/stat` in nanoseconds (`USER_HZ` is 100 on every Linux).
const TICK_NS: u64 = 10_000_000;

/// The largest error of the machine's coarse clock, compared with the fine clock of the process.
const TICKS_OF_DOUBT: u64 = 2;

/// The rules under which a child measures; they come from the runner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// Measured work lasts at least this long (rounds are repeated until it has).
    pub(crate) target: Duration,
    /// Smaller rounds, for a quick look.
    pub(crate) quick: bool,
    /// Count allocations in one round instead of measuring time.
    pub(crate) count_allocs: bool,
    /// Steps of [`Spin`] in a microsecond, measured once so that all children spin alike.
    pub(crate) steps_per_us: f64,
    /// The directory that the area has prepared, if it needs one.
    pub(crate) dir: Option<PathBuf>,
}

/// The report of a child. Only `value` is always present: a counting run reports only allocations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) value: f64,
    pub(crate) cpu_ns_per_task: Option<f64>,
    pub(crate) ctx_switches_per_task: Option<f64>,
    pub(crate) allocs_per_task: Option<f64>,
    pub(crate) threads_peak: u64,
    pub(crate) rss_peak_kb: u64,
    /// The number of cores that other processes kept busy meanwhile, which disturbs the row.
    pub(crate) foreign_cores: f64,
    /// Further numbers.
    #[serde(default)]
    pub(crate) facts: BTreeMap<String, f64>,
    /// Why nothing was measured, if that is no failure.
    #[serde(default)]
    pub(crate) skipped: Option<String>,
}

impl Rules {
    /// The size of a round: `tasks`, or a tenth of it in a quick run.
    pub(crate) fn scaled(&self, tasks: u64) -> u64 {
        if self.quick {
            (tasks / 10).max(1)
        } else {
            tasks
        }
    }

    /// Warms up with a tenth of a round, then repeats `round` until the target is reached. The value is in
    /// nanoseconds per task. `round` gets the number of tasks to run.
    pub(crate) fn measure(&self, tasks: u64, mut round: impl FnMut(u64)) -> Sample {
        round((tasks / 10).max(1));
        self.measure_warm(tasks, round)
    }

    /// As [`measure`](Self::measure), of rounds that return latencies in nanoseconds. The value is the quantile
    /// `q` of all of them in microseconds.
    pub(crate) fn measure_latency(
        &self,
        tasks: u64,
        q: f64,
        mut round: impl FnMut(u64) -> Vec<u64>,
    ) -> Sample {
        let mut all = Vec::new();
        round((tasks / 10).max(1));
        let sample = self.measure_warm(tasks, |tasks| all.extend(round(tasks)));
        sample.with_value(quantile(&mut all, q) as f64 / 1e3)
    }

    /// One round of `tasks`, from cold.
    pub(crate) fn measure_once(&self, tasks: u64, round: impl FnMut(u64)) -> Sample {
        Self {
            target: Duration::ZERO,
            ..self.clone()
        }
        .measure_warm(tasks, round)
    }

    /// As [`measure`](Self::measure), of what has warmed up already.
    pub(crate) fn measure_warm(&self, tasks: u64, mut round: impl FnMut(u64)) -> Sample {
        if self.count_allocs {
            let allocs = alloc::count(|| round(tasks)) as f64 / tasks as f64;
            return Sample {
                allocs_per_task: Some(allocs),
                ..Sample::default()
            };
        }
        let section = Section::begin();
        let mut done = 0;
        loop {
            round(tasks);
            done += tasks;
            if section.elapsed() >= self.target {
                return section.end().per_task(done);
            }
        }
    }
}

impl Sample {
    /// The same with another value, which a counting run has none of.
    pub(crate) fn with_value(self, value: f64) -> Self {
        match self.allocs_per_task {
            Some(_) => self,
            None => Self { value, ..self },
        }
    }

    /// The same with something else to say.
    pub(crate) fn with_fact(mut self, name: &str, value: f64) -> Self {
        self.facts.insert(name.to_owned(), value);
        self
    }

    /// Nothing was measured.
    pub(crate) fn skipped(why: impl Into<String>) -> Self {
        Self {
            skipped: Some(why.into()),
            ..Self::default()
        }
    }

    /// As if `tasks` had been done where the sample counts one.
    pub(crate) fn spread_over(self, tasks: u64) -> Self {
        let share = |figure: Option<f64>| figure.map(|figure| figure / tasks as f64);
        Self {
            value: self.value / tasks as f64,
            cpu_ns_per_task: share(self.cpu_ns_per_task),
            ctx_switches_per_task: share(self.ctx_switches_per_task),
            allocs_per_task: share(self.allocs_per_task),
            ..self
        }
    }
}

/// A stretch of time and what the process, and the rest of the machine, do in it.
pub(crate) struct Section {
    begin: Instant,
    usage: Usage,
    machine_ns: u64,
}

/// The cost of a [`Section`].
pub(crate) struct Cost {
    pub(crate) elapsed: Duration,
    pub(crate) cpu_ns: u64,
    pub(crate) ctx_switches: u64,
    foreign_cores: f64,
}

impl Section {
    pub(crate) fn begin() -> Self {
        Self {
            machine_ns: machine_busy_ns(),
            usage: Usage::now(),
            begin: Instant::now(),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    pub(crate) fn end(self) -> Cost {
        let elapsed = self.begin.elapsed();
        let usage = Usage::now();
        let cpu_ns = usage.cpu_ns - self.usage.cpu_ns;
        let machine_ns = machine_busy_ns().saturating_sub(self.machine_ns);
        let foreign_ns = machine_ns.saturating_sub(cpu_ns + TICKS_OF_DOUBT * TICK_NS);
        Cost {
            elapsed,
            cpu_ns,
            ctx_switches: usage.ctx_switches - self.usage.ctx_switches,
            foreign_cores: foreign_ns as f64 / elapsed.as_nanos() as f64,
        }
    }
}

impl Cost {
    /// The cost spread over `tasks`; the value is the elapsed time of one in nanoseconds.
    pub(crate) fn per_task(self, tasks: u64) -> Sample {
        let tasks = tasks as f64;
        Sample {
            value: self.elapsed.as_nanos() as f64 / tasks,
            cpu_ns_per_task: Some(self.cpu_ns as f64 / tasks),
            ctx_switches_per_task: Some(self.ctx_switches as f64 / tasks),
            ..self.absolute(0.0)
        }
    }

    /// A value that no task shares in.
    pub(crate) fn absolute(&self, value: f64) -> Sample {
        note_threads();
        Sample {
            value,
            threads_peak: THREADS_PEAK.load(Relaxed),
            rss_peak_kb: status("VmHWM:"),
            foreign_cores: self.foreign_cores,
            ..Sample::default()
        }
    }
}

/// The resources that the kernel has charged to this process so far.
struct Usage {
    cpu_ns: u64,
    ctx_switches: u64,
}

impl Usage {
    fn now() -> Self {
        // SAFETY: `rusage` consists of integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is ours, and of the type that the call writes.
        let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        assert_eq!(failed, 0, "getrusage of the own process cannot fail");
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        Self {
            cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
            ctx_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
        }
    }
}

/// A clock that all processes of a machine share, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The CPU time that this thread has taken, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is ours, and of the type that the call writes.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut now) };
    assert_eq!(failed, 0, "there is such a clock");
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The most threads that were noted.
static THREADS_PEAK: AtomicU64 = AtomicU64::new(0);

/// Notes how many threads there are, for work whose threads are gone when it ends. Elsewhere none leave within the
/// measured section (keep-alives are longer): the number at its end is the peak, and no sampler has to disturb it.
pub(crate) fn note_threads() {
    THREADS_PEAK.fetch_max(threads(), Relaxed);
}

/// The threads of this process.
pub(crate) fn threads() -> u64 {
    status("Threads:")
}

/// Memory of this process that is in RAM, in kB.
pub(crate) fn rss_kb() -> u64 {
    status("VmRSS:")
}

/// The part of [`rss_kb`] that comes from no file: what was allocated, and stacks, but not the program.
pub(crate) fn rss_anon_kb() -> u64 {
    status("RssAnon:")
}

/// One line of the process's own status. `VmHWM` is used instead of `ru_maxrss`, which a child inherits from the
/// process that started it.
fn status(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// CPU time that the whole machine has spent, except on nothing and on waiting for disks.
fn machine_busy_ns() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8);
    let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (ticks.iter().sum::<u64>() - idle) * TICK_NS
}

/// Work of a known length: a chain of multiplications through a state, so that two lengths never overlap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    steps: u32,
}

impl Spin {
    /// No work, except that the state changes.
    pub(crate) const NONE: Self = Self { steps: 1 };

    /// Work of `ns` nanoseconds.
    pub(crate) fn of(ns: u64, rules: &Rules) -> Self {
        Self {
            steps: ((ns as f64 * rules.steps_per_us / 1e3) as u32).max(1),
        }
    }

    /// Does the work.
    pub(crate) fn apply(self, state: &mut u64) -> u64 {
        for _ in 0..self.steps {
            *state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
        }
        std::hint::black_box(*state)
    }

    /// Steps in a microsecond on this machine: the best of many attempts, since every disturbance only adds time.
    pub(crate) fn steps_per_us() -> f64 {
        let probe = Self { steps: 100_000 };
        let mut state = 1;
        let attempts = (0..50).map(|_| {
            let begin = Instant::now();
            probe.apply(&mut state);
            begin.elapsed()
        });
        let best = attempts.min().expect("there are attempts");
        f64::from(probe.steps) * 1e3 / best.as_nanos() as f64
    }
}

/// The smallest value that at least the share `q` of `values` does not exceed.
pub(crate) fn quantile(values: &mut [u64], q: f64) -> u64 {
    assert!(!values.is_empty(), "no latency was recorded");
    let rank = ((values.len() as f64 * q).ceil() as usize).clamp(1, values.len());
    *values.select_nth_unstable(rank - 1).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let mut hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(quantile(&mut hundred, 0.5), 50);
        assert_eq!(quantile(&mut hundred, 0.99), 99);
        assert_eq!(quantile(&mut hundred, 1.0), 100);
        assert_eq!(quantile(&mut [7], 0.99), 7);
    }

    #[test]
    fn the_process_can_be_read() {
        assert!(threads() >= 1);
        assert!(status("VmHWM:") > 100);
        assert!(rss_kb() > 100);
        assert!(rss_anon_kb() > 10);
        assert!(thread_cpu_ns() > 0);
        assert!(machine_busy_ns() > 0);
    }

    #[test]
    fn a_counting_run_counts_and_measures_nothing_else() {
        let rules = Rules {
            target: Duration::ZERO,
            quick: true,
            count_allocs: true,
            steps_per_us: 1.0,
            dir: None,
        };
        // Other tests may allocate meanwhile: at least ours are counted.
        let sample = rules.measure(10, |tasks| {
            (0..tasks).for_each(|task| drop(std::hint::black_box(Box::new(task))))
        });
        assert!(sample.allocs_per_task.is_some_and(|allocs| allocs >= 1.0));
        assert!(sample.cpu_ns_per_task.is_none());
    }
}
