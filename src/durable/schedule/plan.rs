//! [`Plan`]: the ticks for which a schedule stores tasks when it is due.

use super::options::Missed;
use super::when::Ticks;

/// The time after which a tick counts as missed, in milliseconds.
const MISSED_AFTER: u64 = 60_000;

/// The actions of a schedule that is due. The plan depends only on the arguments of [`new`](Self::new), so all workers compute the
/// same plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The ticks for which tasks are stored, in their order.
    pub(crate) ticks: Vec<u64>,
    /// The last tick that has passed.
    pub(crate) last: u64,
    /// The next tick of the schedule is the first one after this time.
    pub(crate) next_from: u64,
}

impl Plan {
    /// Returns what a schedule does at the time `now`, if `tick` is its next tick.
    pub(crate) fn new(ticks: &Ticks, missed: Missed, tick: u64, now: u64) -> Self {
        // All ticks before the last one are missed.
        let last = ticks.last_until(now, tick).unwrap_or(tick);
        let is_missed = now - last > MISSED_AFTER;
        let chosen = match missed {
            Missed::All(limit) => last_ticks(ticks, tick, last, limit as usize),
            Missed::Skip if is_missed => Vec::new(),
            Missed::Once | Missed::Skip => vec![last],
        };
        Self {
            ticks: chosen,
            last,
            next_from: now,
        }
    }
}

/// Returns the last `limit` ticks from `first` to `last`, in their order.
fn last_ticks(ticks: &Ticks, first: u64, last: u64, limit: usize) -> Vec<u64> {
    let before = |&tick: &u64| {
        let before = ticks.last_until(tick.saturating_sub(1), first);
        // `last_until` does not find `first`, since it returns only ticks after it.
        before.or_else(|| (tick > first).then_some(first))
    };
    let mut found: Vec<_> = std::iter::successors(Some(last), before)
        .take(limit)
        .collect();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::durable::schedule::every::Every;

    const MINUTE: u64 = 60_000;

    fn every(minutes: u64) -> Ticks {
        let every = Every::new(Duration::from_secs(60 * minutes));
        Ticks::Every(every.ticks().unwrap())
    }

    fn plan(missed: Missed, minutes: u64, tick: u64, now: u64) -> (Vec<u64>, u64, u64) {
        let plan = Plan::new(&every(minutes), missed, tick * MINUTE, now);
        let ticks = plan.ticks.iter().map(|tick| tick / MINUTE);
        (
            ticks.collect(),
            plan.last / MINUTE,
            every(minutes).next_after(plan.next_from).unwrap() / MINUTE,
        )
    }

    const ALL: [Missed; 3] = [Missed::Once, Missed::Skip, Missed::All(5)];

    #[test]
    fn a_tick_that_is_at_most_a_minute_late_fires() {
        for missed in ALL {
            for late in [0, 1, 1_000, MINUTE] {
                assert_eq!(plan(missed, 10, 20, 20 * MINUTE + late), (vec![20], 20, 30));
            }
        }
    }

    #[test]
    fn a_missed_tick_is_handled_as_the_option_says() {
        let now = 20 * MINUTE + MINUTE + 1;
        assert_eq!(plan(Missed::Once, 10, 20, now), (vec![20], 20, 30));
        assert_eq!(plan(Missed::Skip, 10, 20, now), (vec![], 20, 30));
        assert_eq!(plan(Missed::All(5), 10, 20, now), (vec![20], 20, 30));
    }

    #[test]
    fn of_several_missed_ticks_the_last_ones_fire() {
        let now = 95 * MINUTE;
        // The last tick is missed, too.
        assert_eq!(plan(Missed::Once, 10, 20, now), (vec![90], 90, 100));
        assert_eq!(plan(Missed::Skip, 10, 20, now), (vec![], 90, 100));
        let all = |limit| plan(Missed::All(limit), 10, 20, now);
        assert_eq!(all(5), (vec![50, 60, 70, 80, 90], 90, 100));
        assert_eq!(all(8), (vec![20, 30, 40, 50, 60, 70, 80, 90], 90, 100));
        assert_eq!(all(64), all(8));
    }

    #[test]
    fn the_last_tick_fires_if_only_earlier_ones_are_missed() {
        let now = 90 * MINUTE + MINUTE;
        assert_eq!(plan(Missed::Once, 10, 20, now), (vec![90], 90, 100));
        assert_eq!(plan(Missed::Skip, 10, 20, now), (vec![90], 90, 100));
        assert_eq!(plan(Missed::All(2), 10, 20, now), (vec![80, 90], 90, 100));
        // With a short period, ticks are missed although they are not a minute late.
        let ticks = Ticks::Every(Every::new(Duration::from_secs(1)).ticks().unwrap());
        let plan = |missed| Plan::new(&ticks, missed, 10_000, 12_500);
        assert_eq!(plan(Missed::Once).ticks, [12_000]);
        assert_eq!(plan(Missed::Skip).ticks, [12_000]);
        assert_eq!(plan(Missed::All(2)).ticks, [11_000, 12_000]);
        assert_eq!(plan(Missed::Skip).next_from, 12_500);
    }
}
