//! Workers that are killed.
//!
//! Two processes run tasks of 20 ms, one at a time each, and write to one file when a task begins and when it ends.
//! Every two seconds (with `--quick`, every second) one of them gets a `SIGKILL`, in turns, and a new one is started.
//! Afterwards, the file tells what has become of each task.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::tasks::{SLOW, Slow};
use super::worker::Worker;
use super::{new_dir, ours};
use crate::areas::{on_worker, two_workers};
use crate::measure::{Rules, Sample, Section, monotonic_ns};

/// After so long it is over, whatever is left.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Determines which processes are killed, and when.
struct Plan {
    tasks: u64,
    kills: usize,
    every: Duration,
    limit: Duration,
}

/// The value: from the last kill until all is done, beyond the time that the tasks left then take two workers.
pub(super) fn kill(rules: &Rules) -> Sample {
    let plan = match rules.quick {
        true => Plan {
            tasks: 400,
            kills: 2,
            every: Duration::from_secs(1),
            limit: MAX_WAIT / 4,
        },
        false => Plan {
            tasks: 1_600,
            kills: 9,
            every: Duration::from_secs(2),
            limit: MAX_WAIT,
        },
    };
    let dir = new_dir(rules);
    let ledger = dir.path().join("ledger");
    File::create_new(&ledger).expect("a file can be made");
    let runtime = two_workers().build().expect("a runtime can be built");
    let client = runtime.block_on(ours::open(dir.path()));
    let (fill, tasks) = (client.clone(), plan.tasks);
    on_worker(&runtime, async move {
        let stored = fill.spawn_all((0..tasks).map(Slow::new)).await;
        drop(stored.expect("tasks can be stored"));
    });
    let section = Section::begin();
    let kills = plan.run(dir.path(), &ledger);
    let counts = runtime.block_on(client.counts());
    let counts = counts.expect("the store can be read");
    let story = Story::read(&fs::read_to_string(&ledger).expect("it is text"), kills);
    let open = counts.waiting + counts.delayed + counts.running;
    story
        .tell(section.end().absolute(0.0), plan.tasks)
        .with_fact("dead", counts.dead as f64)
        .with_fact("open in the store", open as f64)
        .with_fact("done in the store", counts.done as f64)
}

impl Plan {
    /// Lets the workers work. Returns who was killed, and when.
    fn run(&self, dir: &Path, ledger: &Path) -> BTreeMap<u32, u64> {
        let mut workers = [(); 2].map(|()| Worker::start(dir, Some(ledger)));
        workers.iter_mut().for_each(Worker::wait_ready);
        let begin = Instant::now();
        let mut kills = BTreeMap::new();
        while !self.is_done(ledger) && begin.elapsed() < self.limit {
            let killed = kills.len();
            if killed < self.kills && begin.elapsed() >= self.every * (killed as u32 + 1) {
                let worker = &mut workers[killed % 2];
                kills.insert(worker.pid(), monotonic_ns());
                worker.kill();
                *worker = Worker::start(dir, Some(ledger));
            }
            thread::sleep(Duration::from_millis(20));
        }
        // The last end is stored.
        thread::sleep(Duration::from_millis(500));
        kills
    }

    fn is_done(&self, ledger: &Path) -> bool {
        let text = fs::read_to_string(ledger).expect("it is text");
        let ends = text.lines().filter_map(|line| line.strip_prefix("E "));
        let ended: std::collections::HashSet<&str> =
            ends.filter_map(|end| end.split(' ').next()).collect();
        ended.len() as u64 >= self.tasks
    }
}

/// The events of a run, reconstructed from what the workers have written.
struct Story {
    /// The runs of each task, in the order in which they began.
    runs: BTreeMap<u64, Vec<Ran>>,
    kills: BTreeMap<u32, u64>,
}

struct Ran {
    pid: u32,
    begin: u64,
    end: Option<u64>,
}

impl Story {
    fn read(ledger: &str, kills: BTreeMap<u32, u64>) -> Self {
        let mut runs: BTreeMap<u64, Vec<Ran>> = BTreeMap::new();
        for line in ledger.lines() {
            let mut words = line.split(' ');
            let what = words.next();
            let mut number = || -> u64 {
                let word = words.next().and_then(|word| word.parse().ok());
                word.expect("a line has three numbers")
            };
            let (task, pid, at) = (number(), number() as u32, number());
            let runs = runs.entry(task).or_default();
            match what {
                Some("S") => runs.push(Ran {
                    pid,
                    begin: at,
                    end: None,
                }),
                _ => {
                    let run = runs.iter_mut().rev().find(|run| run.pid == pid);
                    run.expect("what ends has begun").end = Some(at);
                }
            }
        }
        Self { runs, kills }
    }

    fn tell(&self, sample: Sample, tasks: u64) -> Sample {
        let ended = |runs: &&Vec<Ran>| runs.iter().any(|run| run.end.is_some());
        let lost = tasks - self.runs.values().filter(ended).count() as u64;
        let starts: usize = self.runs.values().map(Vec::len).sum();
        let ends = |runs: &Vec<Ran>| runs.iter().filter(|run| run.end.is_some()).count();
        let twice = self.runs.values().filter(|runs| ends(runs) > 1).count();
        let (mut cut, mut unstored, mut unexcused) = (0, 0, 0);
        let mut takeovers = Vec::new();
        for pair in self.runs.values().flat_map(|runs| runs.windows(2)) {
            let (run, next) = (&pair[0], &pair[1]);
            match self.kills.get(&run.pid) {
                // Its worker lived.
                None => unexcused += 1,
                // Its worker lived when somebody else took it.
                Some(killed) if next.begin < *killed => unexcused += 1,
                Some(killed) => {
                    takeovers.push(next.begin - killed);
                    // Its end came, but was not stored in time.
                    match run.end {
                        Some(_) => unstored += 1,
                        None => cut += 1,
                    }
                }
            }
        }
        let (after, left) = self.after_last_kill();
        let due = SLOW.as_secs_f64() * 1e3 * left as f64 / 2.0;
        sample
            .with_value(after - due)
            .with_fact("kills", self.kills.len() as f64)
            .with_fact("lost", lost as f64)
            .with_fact("started again", (starts - self.runs.len()) as f64)
            .with_fact("started again: cut by a kill", f64::from(cut))
            .with_fact("started again: ended, not yet stored", f64::from(unstored))
            .with_fact("started again: worker alive", f64::from(unexcused))
            .with_fact("ended twice", twice as f64)
            .with_fact(
                "longest takeover ms",
                takeovers.iter().max().map_or(0.0, |&ns| ns as f64 / 1e6),
            )
            .with_fact("last kill to all done ms", after)
            .with_fact("left at the last kill", left as f64)
    }

    /// Returns the time in milliseconds from the last kill until all tasks had ended, and the
    /// number of tasks that had not ended at the kill.
    fn after_last_kill(&self) -> (f64, usize) {
        let last = self.kills.values().max().copied().unwrap_or(0);
        let first_ends = self
            .runs
            .values()
            .filter_map(|runs| runs.iter().filter_map(|run| run.end).min());
        let late: Vec<u64> = first_ends.filter(|&end| end > last).collect();
        let done = late.iter().max().copied().unwrap_or(last);
        ((done - last) as f64 / 1e6, late.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_tells_who_ran_again_and_why() {
        let ledger = "S 1 10 100\nE 1 10 200\nS 2 10 210\nS 3 11 220\nE 3 11 240\n\
                      S 2 11 400\nE 2 11 500\nS 3 12 600\nE 3 12 1000300\n";
        let story = Story::read(ledger, BTreeMap::from([(10, 300)]));
        let told = story.tell(Sample::default(), 4);
        let facts = |name: &str| told.facts[name];
        assert_eq!(facts("lost"), 1.0);
        assert_eq!(facts("started again"), 2.0);
        assert_eq!(facts("started again: cut by a kill"), 1.0);
        assert_eq!(facts("started again: worker alive"), 1.0);
        assert_eq!(facts("ended twice"), 1.0);
        assert_eq!(facts("left at the last kill"), 1.0);
        assert_eq!(facts("longest takeover ms"), 0.0001);
    }
}
