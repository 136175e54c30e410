//! Derives the findings of a report from the overview and the diagnosis of a store.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use super::finding::{Finding, FindingLevel};
use super::overview::{Overview, QueueOverview};
use crate::durable::schedule::ScheduleInfo;
use crate::durable::store::{Diagnoses, Diagnosis, StoredSchedule, UnclaimedType, shortened};
use crate::durable::{DeadReason, TaskInfo};

/// The time for which a task may wait without a worker, and for which a schedule may be due.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// The number of names in a finding.
const MAX_NAMES: usize = 10;
/// The maximum number of bytes of a name in a finding.
const MAX_NAME_BYTES: usize = 80;

/// The information about a store from which the report is made.
pub(super) struct Facts<'a> {
    pub(super) overview: &'a Overview,
    pub(super) diagnoses: &'a Diagnoses,
    pub(super) newest_dead: Vec<TaskInfo>,
    pub(super) damage: Option<(u64, String)>,
    /// The store's time, in milliseconds since 1970.
    pub(super) now: u64,
}

/// Returns the findings, the most serious first.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let checks = [
        missing_partitions,
        damage,
        no_workers,
        overdue_leases,
        unserved_queues,
        unserved_types,
        suspect_workers,
        paused_queues,
        paused_types,
        late_schedules,
        stuck_schedules,
        crashing_tasks,
        many_dead_letters,
        newer_outbox_rows,
    ];
    let mut findings: Vec<_> = checks.iter().filter_map(|check| check(facts)).collect();
    findings.extend(facts.diagnoses.server.iter().cloned());
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    findings
}

// ===== The store =====

fn missing_partitions(facts: &Facts<'_>) -> Option<Finding> {
    let missing = &facts.overview.missing_partitions;
    let missing = missing.iter().chain(&facts.diagnoses.missing_partitions);
    let missing: BTreeSet<_> = missing.collect();
    found(!missing.is_empty(), || {
        Finding::new(
            "partitions.missing",
            FindingLevel::Error,
            format!("some partitions do not answer: {}", list_of(missing)),
            "check the server: tasks in these partitions do not run, and this report does not describe them",
        )
    })
}

fn damage(facts: &Facts<'_>) -> Option<Finding> {
    let (rows, last) = facts.damage.as_ref()?;
    found(*rows > 0, || {
        Finding::new(
            "store.damaged",
            FindingLevel::Error,
            format!(
                "{rows} rows are missing or cannot be read; the last one: {}",
                escaped(last)
            ),
            "check the disk and the memory of the machine, and compare the dead letters with a backup",
        )
    })
}

fn overdue_leases(facts: &Facts<'_>) -> Option<Finding> {
    let overdue: u64 = facts.partitions().map(|part| part.overdue_claims).sum();
    found(overdue > 0, || {
        Finding::new(
            "leases.overdue",
            FindingLevel::Error,
            format!("the leases of {overdue} or more claims expired more than two lease times ago"),
            "start a worker: any worker of the store takes back the tasks of dead workers",
        )
    })
}

fn newer_outbox_rows(facts: &Facts<'_>) -> Option<Finding> {
    let rows = facts.diagnoses.newer_outbox_rows;
    found(rows > 0, || {
        Finding::new(
            "outbox.newer",
            FindingLevel::Warn,
            match rows {
                1 => String::from("a task in the outbox was encoded by a later version of throng"),
                _ => {
                    format!("{rows} tasks in the outbox were encoded by a later version of throng")
                }
            },
            "update the workers: only a program with that version can move these tasks into the store",
        )
    })
}

fn crashing_tasks(facts: &Facts<'_>) -> Option<Finding> {
    let dead = facts.newest_dead.iter();
    let crashed = dead.filter(|it| it.reason == Some(DeadReason::Crashes));
    let crashed: Vec<_> = crashed.collect();
    found(!crashed.is_empty(), || Finding {
        tasks: crashed.iter().take(MAX_NAMES).map(|it| it.id).collect(),
        ..Finding::new(
            "dead_letters.crashes",
            FindingLevel::Warn,
            format!(
                "the workers of some tasks died as often as `max_crashes` allows: {}",
                list_of(crashed.iter().map(|it| task_name(it)))
            ),
            "find out from the logs of these workers why they died before you replay these dead letters: a replay may kill more workers. `throng dead show ID` shows the payload",
        )
    })
}

fn many_dead_letters(facts: &Facts<'_>) -> Option<Finding> {
    let is_many = |part: &&Diagnosis| {
        let [dead, most] = [part.dead, part.dead_most].map(u128::from);
        10 * dead > 9 * most && most > 0
    };
    let part = facts.partitions().filter(is_many).max_by_key(|it| it.dead);
    part.map(|part| {
        Finding::new(
            "dead_letters.many",
            FindingLevel::Warn,
            format!(
                "there are {} dead letters, and at most {} are kept",
                part.dead, part.dead_most
            ),
            "replay or delete dead letters, or raise `dead_most` of the retention: beyond the maximum, the store removes the oldest",
        )
    })
}

// ===== Queues and types =====

fn no_workers(facts: &Facts<'_>) -> Option<Finding> {
    let waited = facts.has_waited_without_worker()?;
    let waiting = match facts.overview.counts.waiting {
        1 => String::from("a task waits"),
        tasks => format!("{tasks} tasks wait"),
    };
    Some(Finding::new(
        "workers.none",
        FindingLevel::Error,
        format!(
            "no worker is running, {waiting}, and the longest wait is {} s",
            waited.as_secs()
        ),
        "start a process with an executor that registers the types of these tasks",
    ))
}

fn unserved_queues(facts: &Facts<'_>) -> Option<Finding> {
    let unserved = facts.unserved(false);
    let names: BTreeSet<_> = unserved.map(|it| it.run_type.queue().as_str()).collect();
    found(!names.is_empty(), || {
        Finding::new(
            "queues.unserved",
            FindingLevel::Warn,
            format!(
                "tasks wait in queues that no live worker serves: {}",
                list_of(names.into_iter().map(queue_name))
            ),
            "start an executor that serves these queues",
        )
    })
}

fn unserved_types(facts: &Facts<'_>) -> Option<Finding> {
    let names: BTreeSet<_> = facts.unserved(true).map(type_name).collect();
    found(!names.is_empty(), || {
        Finding::new(
            "types.unserved",
            FindingLevel::Warn,
            format!(
                "tasks wait for types that no live worker of their queue has registered: {}",
                list_of(names)
            ),
            "start workers that serve these queues and have registered these types; the tasks wait for them",
        )
    })
}

fn paused_queues(facts: &Facts<'_>) -> Option<Finding> {
    let queues = facts.overview.queues.iter();
    let paused = queues.filter(|it| it.info.is_paused && it.info.waiting > 0);
    let names: Vec<_> = paused.map(|it| queue_name(name_of(it))).collect();
    found(!names.is_empty(), || {
        Finding::new(
            "queues.paused",
            FindingLevel::Warn,
            format!("tasks wait in paused queues: {}", list_of(names)),
            "resume these queues when their tasks may run, for example with `throng queue resume NAME`",
        )
    })
}

fn paused_types(facts: &Facts<'_>) -> Option<Finding> {
    let paused = facts.unclaimed().filter(|it| it.is_known);
    let names: BTreeSet<_> = paused.map(type_name).collect();
    found(!names.is_empty(), || {
        Finding::new(
            "types.paused",
            FindingLevel::Warn,
            format!("tasks of paused types wait: {}", list_of(names)),
            "resume these types when their tasks may run, for example with `throng type resume NAME`",
        )
    })
}

// ===== Workers and schedules =====

fn suspect_workers(facts: &Facts<'_>) -> Option<Finding> {
    let workers = facts.partitions().flat_map(|part| &part.workers);
    let names: BTreeSet<_> = workers
        .map(|it| format!("{} on {} (process {})", it.program, it.host, it.process))
        .collect();
    found(!names.is_empty(), || {
        Finding::new(
            "workers.suspect",
            FindingLevel::Warn,
            format!(
                "workers do not renew the leases of their tasks, or have died: {}",
                list_of(names.iter().map(|it| escaped(it)))
            ),
            "check these processes: other workers take over their tasks",
        )
    })
}

fn late_schedules(facts: &Facts<'_>) -> Option<Finding> {
    let limit = facts.now.saturating_sub(MAX_DELAY.as_millis() as u64);
    let is_late = |it: &&StoredSchedule| it.row.time.is_some_and(|time| time < limit);
    let late = facts.schedules().filter(is_late);
    let names: Vec<_> = late.map(|it| escaped(it.name.as_str())).collect();
    found(!names.is_empty(), || {
        Finding::new(
            "schedules.late",
            FindingLevel::Warn,
            format!(
                "schedules have been due for more than {} s: {}",
                MAX_DELAY.as_secs(),
                list_of(names)
            ),
            "start an executor; schedules with cron expressions need the feature `cron`",
        )
    })
}

fn stuck_schedules(facts: &Facts<'_>) -> Option<Finding> {
    let infos = facts.schedules().map(ScheduleInfo::of);
    let stuck = infos.filter_map(|info| info.stuck.map(|reason| (info.name, reason)));
    let names: Vec<_> = stuck
        .map(|(name, reason)| format!("{} ({})", escaped(&name), escaped(&reason)))
        .collect();
    found(!names.is_empty(), || {
        Finding::new(
            "schedules.stuck",
            FindingLevel::Warn,
            format!("schedules do not fire: {}", list_of(names)),
            "define these schedules again, or remove them",
        )
    })
}

// ===== Facts =====

impl Facts<'_> {
    fn partitions(&self) -> impl Iterator<Item = &Diagnosis> {
        self.diagnoses.partitions.iter()
    }

    fn schedules(&self) -> impl Iterator<Item = &StoredSchedule> {
        self.partitions().flat_map(|part| &part.schedules)
    }

    fn unclaimed(&self) -> impl Iterator<Item = &UnclaimedType> {
        self.partitions().flat_map(|part| &part.unclaimed)
    }

    /// Returns the types that no live worker knows, in queues that are served or in those that are not. Returns none if there is no
    /// worker at all, which is another finding.
    fn unserved(&self, is_queue_served: bool) -> impl Iterator<Item = &UnclaimedType> {
        let has_workers = self.has_waited_without_worker().is_none();
        let unknown = self.unclaimed().filter(|it| !it.is_known);
        unknown.filter(move |it| {
            has_workers && self.is_served(it.run_type.queue().as_str()) == is_queue_served
        })
    }

    /// Returns `true` if a live worker serves a queue, or if the queue does not fit into the overview.
    fn is_served(&self, queue: &str) -> bool {
        let mut queues = self.overview.queues.iter();
        match queues.find(|it| name_of(it) == queue) {
            Some(it) => it.sessions > 0,
            None => self.overview.has_more_queues,
        }
    }

    /// Returns the longest time for which a task has been ready, if there is no worker and the time is too long.
    fn has_waited_without_worker(&self) -> Option<Duration> {
        let mut queues = self.overview.queues.iter();
        if queues.any(|it| it.sessions > 0) || self.overview.has_more_queues {
            return None;
        }
        let waited = self.unclaimed().filter_map(|it| it.ready_for).max();
        waited.filter(|waited| *waited > MAX_DELAY)
    }
}

// ===== Texts =====

fn found(is_found: bool, finding: impl FnOnce() -> Finding) -> Option<Finding> {
    is_found.then(finding)
}

/// Returns the first items of a list as text.
fn list_of(items: impl IntoIterator<Item = impl Display>) -> String {
    let mut items = items.into_iter();
    let first: Vec<_> = items
        .by_ref()
        .take(MAX_NAMES)
        .map(|it| it.to_string())
        .collect();
    let text = first.join(", ");
    match items.count() {
        0 => text,
        others => format!("{text} and {others} more"),
    }
}

fn name_of(queue: &QueueOverview) -> &str {
    queue.name.as_deref().unwrap_or_default()
}

fn queue_name(name: &str) -> String {
    match name {
        "" => String::from("the default queue"),
        name => escaped(name),
    }
}

fn type_name(it: &UnclaimedType) -> String {
    let queue = queue_name(it.run_type.queue().as_str());
    format!("{} in {queue}", escaped(it.run_type.name()))
}

fn task_name(task: &TaskInfo) -> String {
    let name = task.name.as_deref().unwrap_or("a task of unknown type");
    format!("{} ({})", escaped(name), task.id)
}

/// Returns a name in which control characters are escaped, and which is cut if it is long.
fn escaped(name: &str) -> String {
    let is_long = name.len() > MAX_NAME_BYTES;
    let name = shortened(name.to_owned(), MAX_NAME_BYTES);
    let escaped = name.escape_debug();
    format!("{escaped}{}", if is_long { ".." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::admin::overview::OverviewDraft;
    use crate::durable::queue::name::QueueName;
    use crate::durable::store::RunType;

    fn unclaimed(name: &str) -> UnclaimedType {
        UnclaimedType {
            run_type: RunType::new(&name.into(), &QueueName::DEFAULT),
            is_known: true,
            ready_for: None,
        }
    }

    fn found(diagnoses: &Diagnoses, overview: &Overview) -> Vec<Finding> {
        findings(&Facts {
            overview,
            diagnoses,
            newest_dead: Vec::new(),
            damage: None,
            now: 0,
        })
    }

    #[test]
    fn names_are_escaped_and_cut() {
        let names = ["\u{1b}[2J\n", &"n".repeat(200), &"\u{fc}".repeat(100)];
        let unclaimed = names.map(unclaimed).to_vec();
        let diagnosis = Diagnosis {
            unclaimed,
            ..Diagnosis::default()
        };
        let found = found(&diagnosis.into(), &OverviewDraft::default().finish());
        let what = &found[0].what;
        assert!(
            what.contains("\\u{1b}[2J\\n in the default queue"),
            "{what}"
        );
        assert!(
            what.contains(&format!(" {}.. in", "n".repeat(80))),
            "{what}"
        );
        assert!(
            what.contains(&format!(" {}.. in", "\u{fc}".repeat(40))),
            "{what}"
        );
        assert!(!what.chars().any(char::is_control));
    }

    #[test]
    fn a_long_list_is_cut() {
        let unclaimed = (0..25).map(|nth| unclaimed(&format!("type-{nth:02}")));
        let diagnosis = Diagnosis {
            unclaimed: unclaimed.collect(),
            ..Diagnosis::default()
        };
        let found = found(&diagnosis.into(), &OverviewDraft::default().finish());
        let what = &found[0].what;
        assert!(
            what.ends_with("type-09 in the default queue and 15 more"),
            "{what}"
        );
    }

    #[test]
    fn the_most_serious_finding_comes_first() {
        let draft = OverviewDraft {
            missing_partitions: vec![3],
            ..OverviewDraft::default()
        };
        let info = Finding::new("info", FindingLevel::Info, String::new(), "");
        let diagnoses = Diagnoses {
            partitions: vec![Diagnosis {
                unclaimed: vec![unclaimed("type")],
                ..Diagnosis::default()
            }],
            missing_partitions: vec![1, 3],
            server: vec![info],
            newer_outbox_rows: 0,
        };
        let found = found(&diagnoses, &draft.finish());
        let ids: Vec<_> = found.iter().map(|it| it.id).collect();
        assert_eq!(ids, ["partitions.missing", "types.paused", "info"]);
        assert!(
            found[0]
                .to_string()
                .starts_with("error: some partitions do not answer: 1, 3: ")
        );
    }

    #[test]
    fn damage_is_reported() {
        let facts = Facts {
            overview: &OverviewDraft::default().finish(),
            diagnoses: &Diagnoses::default(),
            newest_dead: Vec::new(),
            damage: Some((2, String::from("a\u{0}row"))),
            now: 0,
        };
        let [finding] = &findings(&facts)[..] else {
            panic!("there is one finding");
        };
        assert!(finding.what.contains("2 rows"), "{finding}");
        assert!(finding.what.ends_with("a\\0row"), "{finding}");
    }
}
