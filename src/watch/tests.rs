//! Tests of private parts: the table of metrics, the page that is made from it, and drops on the thread that reads.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Instant;

use super::family::{Family, FamilyType};
use super::kind::PartKind;
use super::names::{BUILD_INFO, WATCH_SECONDS, families};
use super::numbers::Numbers;
use super::part::Watchable;
use super::registry::Registry;
use super::watched::{NewPart, Serial, Watched};
use crate::serial;
use crate::sync::{Arc, Mutex, Number, lock};
use crate::weak_part::{Owned, WeakPart};

/// All metrics: the label of the part, the metric, and the values of its own label.
fn all() -> Vec<(&'static str, &'static Family, Vec<&'static str>)> {
    let mut all = vec![("", &BUILD_INFO, Vec::new())];
    for &kind in PartKind::ALL {
        let families = families(kind).into_iter();
        all.extend(families.map(|(family, values)| (kind.label(), family, values)));
    }
    all.push(("", &WATCH_SECONDS, Vec::new()));
    all
}

fn table() -> String {
    let mut table =
        String::from("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for (part, family, values) in all() {
        let own = match values.len() {
            0 | 1 => family.label.to_owned(),
            _ => format!("{}: {}", family.label, values.join(", ")),
        };
        let labels = [part.to_owned(), family.item.to_owned(), own];
        let labels = labels.map(|label| label.trim().to_owned());
        let labels: Vec<_> = labels.into_iter().filter(|it| !it.is_empty()).collect();
        let (name, kind, help) = (family.name, family.kind.name(), family.help);
        let labels = labels.join("; ");
        writeln!(table, "| `{name}` | {kind} | {labels} | {help} |").unwrap();
    }
    table
}

#[test]
#[cfg(feature = "durable")]
fn the_page_of_metrics_has_the_table() {
    let (page, table) = (include_str!("../../docs/METRICS.md"), table());
    assert!(
        page.ends_with(&format!("\n\n{table}")),
        "replace the table of docs/METRICS.md by this one:\n{table}"
    );
}

#[test]
fn names_are_unique_and_say_what_they_count() {
    let mut names = BTreeSet::new();
    for (_, family, values) in all() {
        let name = family.name;
        assert!(names.insert(name), "{name} is there twice");
        let is_lower = |char: char| char.is_ascii_lowercase() || char == '_';
        assert!(
            name.starts_with("throng_") && name.chars().all(is_lower),
            "{name}"
        );
        let is_counter = family.kind == FamilyType::Counter;
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        assert!(
            family.kind != FamilyType::Histogram || name.ends_with("_seconds"),
            "{name}"
        );
        assert!(
            family.help.ends_with('.') && !family.help.contains(['\\', '\n', '|']),
            "{name}"
        );
        let is_labelled = family.name == BUILD_INFO.name || values.len() > 1;
        assert_eq!(!family.label.is_empty(), is_labelled, "{name}");
    }
}

/// A part whose last handle goes while it is read.
struct Going(Mutex<Option<Arc<State>>>);

/// A state that uses the registry while it is dropped, and then panics.
struct State {
    registry: Registry,
    drops: Arc<Number>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.drops.add(1);
        self.registry
            .watch("in a drop", &serial::SerialExecutor::new(()));
        assert_eq!(self.registry.snapshot().parts()[0].live(), 0);
        panic!("on purpose");
    }
}

struct WatchedGoing {
    serial: Serial<WeakPart<State, serial::Metrics>>,
    handle: Option<Arc<State>>,
}

impl Watched for WatchedGoing {
    fn read(&mut self, now: Instant) -> Option<(Numbers, Owned)> {
        let read = self.serial.read(now);
        self.handle = None;
        read
    }

    fn is_alive(&self) -> bool {
        self.serial.is_alive()
    }

    fn id(&self) -> usize {
        self.serial.id()
    }
}

impl Watchable for Going {
    fn new_part(&self) -> NewPart {
        let handle = lock(&self.0).take().expect("it is watched once");
        let weak = WeakPart::new(&handle, |_| serial::Metrics::default());
        let (serial, handle) = (Serial::new(weak), Some(handle));
        NewPart::new(PartKind::SerialExecutor, WatchedGoing { serial, handle })
    }
}

#[test]
fn the_thread_that_reads_may_drop_the_state() {
    let (registry, drops) = (Registry::new(), Arc::new(Number::new(0)));
    let state = State {
        registry: registry.clone(),
        drops: Arc::clone(&drops),
    };
    registry.watch("a", &Going(Mutex::new(Some(Arc::new(state)))));
    assert_eq!(drops.get(), 0);
    let snapshot = registry.snapshot();
    assert_eq!((drops.get(), snapshot.parts()[0].live()), (1, 1));
    assert_eq!(registry.snapshot().parts()[0].live(), 0);
    assert_eq!(drops.get(), 1);
}

/// The runs of these types of tasks, each with as many as its number says.
#[cfg(feature = "durable")]
fn runs_of(types: impl Iterator<Item = u64>) -> Numbers {
    use super::names::durable::TYPES;
    use crate::durable::executor::type_tally::TypeMetrics;

    let runs = types.map(|number| {
        let runs = TypeMetrics {
            completed: number,
            ..TypeMetrics::default()
        };
        (format!("{number:03}").into(), runs)
    });
    Numbers::default().with_items(&TYPES, runs)
}

/// A type that is seen later has no series of its own, so that no counter moves from one series to another.
#[test]
#[cfg(feature = "durable")]
fn the_items_that_were_seen_first_are_distinguished() {
    let mut known = BTreeSet::new();
    let mut early = runs_of(1_000 - 64..1_000);
    early.limit_items(&mut known);
    let mut late = runs_of(1..1_000);
    late.limit_items(&mut known);
    let completed = |numbers: Numbers| {
        let samples = numbers.into_samples().into_iter();
        let samples = samples.filter(|it| it.label_value == "completed");
        let series = samples.map(|it| (it.item.expect("it is of a type"), it.value));
        series.collect::<std::collections::BTreeMap<_, _>>()
    };
    let (early, mut late) = (completed(early), completed(late));
    let other = late.remove("other");
    assert_eq!(early, late);
    assert_eq!(early.len(), 64);
    assert_eq!(other, Some(super::Value::Count((1..936).sum())));
}
