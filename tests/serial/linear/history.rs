//! A history of jobs, and the check that it has an order.

use std::collections::HashMap;

use throng::serial::Level;

/// The submitter of a job, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    thread: usize,
    pub(crate) number: usize,
    /// Submitted by the job of the same number.
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

/// A job with the times at which it was submitted and awaited, and its result.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) name: Name,
    pub(crate) level: Level,
    pub(crate) begun: u64,
    /// When the call that submitted it had returned.
    pub(crate) submitted: u64,
    /// When a thread had received its outcome.
    pub(crate) ended: u64,
    /// The length of the list after it. `None` if it did not run.
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

/// Checks that the jobs that ran are those whose handles say so, and that each ran
///
/// - before the jobs whose submission began after it had ended;
/// - before the jobs of its level whose submission began after its own submission.
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

/// The level of a job, and when its submission began, when it was submitted, and when it had ended.
type Times = (Level, [u64; 3]);

/// Jobs of different threads, in the order in which they ran.
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
