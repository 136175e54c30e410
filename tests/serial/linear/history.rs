//! What was done and when, and whether there is an order in which it can have been done.

use std::collections::HashMap;

use throng::serial::Level;

/// Whose job it is, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    thread: usize,
    pub(crate) number: usize,
    /// Whether that job submitted it.
    nested: bool,
}

impl Name {
    pub(crate) fn new(thread: usize, number: usize) -> Self {
        Self {
            thread,
            number,
            nested: false,
        }
    }

    /// The name of the job that this one submits.
    pub(crate) fn nested(self) -> Self {
        Self {
            nested: true,
            ..self
        }
    }
}

/// A job, when it was submitted and awaited, and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) name: Name,
    pub(crate) level: Level,
    pub(crate) begun: u64,
    /// When the call that submitted it had returned.
    pub(crate) submitted: u64,
    /// When its outcome was known.
    pub(crate) ended: u64,
    /// How long the list was then; `None`: it did not run.
    pub(crate) length: Option<usize>,
}

impl Event {
    pub(crate) fn begin(name: Name, level: Level, now: u64) -> Self {
        Self {
            name,
            level,
            begun: now,
            submitted: u64::MAX,
            ended: u64::MAX,
            length: None,
        }
    }
}

/// Whether the jobs that ran, by name and in their order, are those whose handles say so, and each ran
///
/// - before those that were submitted when it was known to have ended;
/// - before those of its level that were submitted after it: those of its own thread, too.
pub(crate) fn check(events: &mut [Event], ran: &[Name]) -> Result<(), String> {
    events.sort_unstable_by_key(|event| event.length);
    let events = &events[events.partition_point(|event| event.length.is_none())..];
    if events.len() != ran.len() {
        return Err(format!("{} ran, {} say so", ran.len(), events.len()));
    }
    let mut latest = 0;
    let mut latest_of: HashMap<Level, u64> = HashMap::new();
    for (index, (event, name)) in events.iter().zip(ran).enumerate() {
        if event.length != Some(index + 1) || event.name != *name {
            return Err(format!("{name:?} is number {}, not {event:?}", index + 1));
        }
        let latest_of = latest_of.entry(event.level).or_default();
        if event.ended < latest || event.submitted < *latest_of {
            return Err(format!("too late: {event:?}"));
        }
        latest = latest.max(event.begun);
        *latest_of = event.begun.max(*latest_of);
    }
    Ok(())
}

/// Of which level a job is; and when it began to be submitted, was submitted, and had ended.
type Times = (Level, [u64; 3]);

/// Jobs of a thread each, in the order in which they ran.
fn history(times: &[Times]) -> (Vec<Event>, Vec<Name>) {
    let event = |(index, &(level, [begun, submitted, ended])): (usize, &Times)| Event {
        name: Name::new(index, 0),
        level,
        begun,
        submitted,
        ended,
        length: Some(index + 1),
    };
    let events: Vec<_> = times.iter().enumerate().map(event).collect();
    let ran = events.iter().map(|event| event.name).collect();
    (events, ran)
}

#[test]
fn an_order_that_could_be_is_believed() {
    let (mut events, ran) = history(&[
        // It waited, with the others around it.
        (Level::NORMAL, [1, 8, 9]),
        (Level::NORMAL, [2, 3, 7]),
        (Level::HIGH, [5, 6, 10]),
        // Behind the one that was faster, and of a lower level.
        (Level::NORMAL, [0, 4, 11]),
    ]);
    check(&mut events, &ran).unwrap();

    // One that never ran has no place in it.
    let mut aborted = events[0].clone();
    aborted.length = None;
    events.push(aborted);
    check(&mut events, &ran).unwrap();
}

#[test]
fn an_order_that_cannot_be_is_found() {
    let late = |times: &[Times]| {
        let (mut events, ran) = history(times);
        let error = check(&mut events, &ran).unwrap_err();
        assert!(error.starts_with("too late"), "{error}");
    };
    let (normal, high) = (Level::NORMAL, Level::HIGH);
    // Submitted before the other, and not awaited.
    late(&[(normal, [3, 4, 9]), (normal, [1, 2, 8])]);
    late(&[(high, [3, 4, 9]), (normal, [5, 6, 7]), (high, [1, 2, 8])]);
    // Awaited before the other was submitted, whatever its level.
    late(&[(high, [4, 5, 6]), (normal, [1, 2, 3])]);
}

#[test]
fn a_result_that_is_not_that_of_its_turn_is_found() {
    type Spoil = fn(&mut Vec<Event>, &mut Vec<Name>);
    let spoil: [Spoil; 5] = [
        |events, _| events.truncate(1),
        |_, ran| ran.truncate(1),
        |_, ran| ran.swap(0, 1),
        |events, _| events[1].length = Some(1),
        |events, ran| {
            events[0].length = None;
            ran.push(ran[0]);
        },
    ];
    for spoil in spoil {
        let (mut events, mut ran) =
            history(&[(Level::NORMAL, [0, 3, 5]), (Level::NORMAL, [1, 2, 4])]);
        check(&mut events, &ran).unwrap();
        spoil(&mut events, &mut ran);
        check(&mut events, &ran).unwrap_err();
    }
}
