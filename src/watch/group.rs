//! [`Group`]: the watched parts of one kind and name.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use super::numbers::Numbers;
#[cfg(feature = "durable")]
use super::stores::Question;
use super::watched::Watched;
use crate::weak_part::Owned;

/// The watched parts of one kind and name, and what those that are gone have counted.
#[derive(Default)]
pub(super) struct Group {
    /// The parts that were alive when they were last read, by the numbers that identify them.
    members: HashMap<usize, Member>,
    /// The sum of the last numbers of the parts that are gone.
    retired: Option<Numbers>,
    /// The items that are distinguished: the first that were seen.
    items: BTreeSet<Arc<str>>,
    #[cfg(feature = "durable")]
    pub(super) question: Question,
}

struct Member {
    part: Box<dyn Watched>,
    /// The numbers that were seen last.
    last: Option<Numbers>,
}

impl Group {
    /// Adds a part, unless it is in the group already.
    pub(super) fn add(&mut self, part: Box<dyn Watched>) {
        if self.members.len() == self.members.capacity() {
            self.make_room();
        }
        if let Entry::Vacant(vacant) = self.members.entry(part.id()) {
            vacant.insert(Member { part, last: None });
            // The last answer, or its absence, says nothing about a new client.
            #[cfg(feature = "durable")]
            {
                self.question = Question::default();
            }
        }
    }

    /// Removes the parts that are gone, since parts may come and go while nobody reads them. The next time is when the number
    /// of the others has doubled.
    fn make_room(&mut self) {
        let gone = self.members.extract_if(|_, member| !member.part.is_alive());
        for (_, member) in gone {
            retire(&mut self.retired, member);
        }
        self.members.reserve(self.members.len() + 1);
    }

    /// Reads each part. Returns the number of parts that are alive and the sum of their numbers. The caller releases all
    /// locks before it drops `owned`.
    pub(super) fn read(&mut self, now: Instant, owned: &mut Vec<Owned>) -> (u64, Numbers) {
        let retired = &mut self.retired;
        let gone = self
            .members
            .extract_if(|_, member| !member.read(now, owned));
        for (_, member) in gone {
            retire(retired, member);
        }
        let mut sum = self.sum();
        sum.limit_items(&mut self.items);
        (self.members.len() as u64, sum)
    }

    fn sum(&self) -> Numbers {
        let mut live = self
            .members
            .values()
            .filter_map(|member| member.last.as_ref());
        let Some(first) = live.next() else {
            return self.retired.clone().unwrap_or_default();
        };
        let mut sum = first.clone();
        live.for_each(|numbers| sum.add(numbers));
        if let Some(retired) = &self.retired {
            sum.add_cumulative(retired);
        }
        sum
    }

    /// The parts that were alive when they were last read.
    #[cfg(feature = "durable")]
    pub(super) fn parts(&self) -> impl Iterator<Item = &dyn Watched> {
        self.members.values().map(|member| &*member.part)
    }
}

impl Member {
    /// Reads the numbers of the part. Returns `false` if it is gone.
    fn read(&mut self, now: Instant, owned: &mut Vec<Owned>) -> bool {
        let Some((mut numbers, part)) = self.part.read(now) else {
            return false;
        };
        owned.push(part);
        if let Some(last) = &self.last {
            numbers.never_below(last);
        }
        self.last = Some(numbers);
        true
    }
}

/// Adds what a part that is gone has counted.
fn retire(retired: &mut Option<Numbers>, member: Member) {
    match (retired, member.last) {
        (Some(sum), Some(last)) => sum.add_cumulative(&last),
        (sum @ None, Some(last)) => *sum = Some(last.into_cumulative()),
        (_, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serial;
    use crate::sync::Arc;
    use crate::watch::value::Value;
    use crate::watch::watched::Serial;
    use crate::weak_part::WeakPart;

    fn part(completed: u64) -> (Arc<u64>, Box<dyn Watched>) {
        let part = Arc::new(completed);
        let weak = WeakPart::new(&part, |&completed| serial::Metrics {
            completed,
            ..serial::Metrics::default()
        });
        (part, Box::new(Serial::new(weak)))
    }

    /// A program that watches many short-lived parts and never reads them does not keep an entry for each.
    #[test]
    fn parts_that_are_gone_make_room_for_others() {
        let mut group = Group::default();
        let (kept, entry) = part(0);
        group.add(entry);
        for n in 0..10_000 {
            group.add(part(n).1);
        }
        assert!(group.members.capacity() < 20, "{}", group.members.len());
        let alive: Vec<_> = (0..1_000).map(part).collect();
        let (handles, entries): (Vec<_>, Vec<_>) = alive.into_iter().unzip();
        entries.into_iter().for_each(|entry| group.add(entry));
        let (live, _) = group.read(Instant::now(), &mut Vec::new());
        assert_eq!(live, 1_001);
        drop((kept, handles));
        let (live, _) = group.read(Instant::now(), &mut Vec::new());
        assert_eq!((live, group.members.len()), (0, 0));
    }

    /// The numbers that were read last stay in the sum, also if no read finds out that the part is gone.
    #[test]
    fn what_was_seen_is_kept_when_room_is_made() {
        let mut group = Group::default();
        let completed = |group: &mut Group| {
            let (_, sum) = group.read(Instant::now(), &mut Vec::new());
            let samples = sum.into_samples();
            let mut found = samples.iter().filter(|it| it.label_value == "completed");
            found.next().map(|sample| sample.value.clone())
        };
        let (seen, entry) = part(7);
        group.add(entry);
        assert_eq!(completed(&mut group), Some(Value::Count(7)));
        drop(seen);
        for _ in 0..100 {
            group.add(part(1_000).1);
        }
        assert_eq!(completed(&mut group), Some(Value::Count(7)));
    }
}
