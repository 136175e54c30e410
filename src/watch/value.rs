//! [`Value`]: a number of a part, and how numbers of several parts are added up.

use std::time::Duration;

use crate::blocking::Histogram;

/// The exponent of the end of the first bucket: 2^10 ns, about 1 us.
const FIRST_BUCKET: u32 = 10;
/// The number of buckets: the last one ends at 2^42 ns, which is about 73 minutes.
const BUCKET_COUNT: usize = 17;

/// The ends of the buckets of all histograms, in seconds: powers of four of nanoseconds, from about 1 us to about 73 minutes.
///
/// An exporter that receives the numbers through another library needs them as its own buckets, to show the same counts.
///
/// # Examples
///
/// ```
/// assert_eq!(throng::watch::BUCKETS[0], 0.000_001_024);
/// assert_eq!(throng::watch::BUCKETS.last(), Some(&4398.046_511_104));
/// ```
pub const BUCKETS: [f64; BUCKET_COUNT] = {
    let mut ends = [0.0; BUCKET_COUNT];
    let mut bucket = 0;
    while bucket < BUCKET_COUNT {
        ends[bucket] = end(bucket).as_secs_f64();
        bucket += 1;
    }
    ends
};

/// The end of a bucket.
const fn end(bucket: usize) -> Duration {
    Duration::from_nanos(1 << (FIRST_BUCKET + 2 * bucket as u32))
}

/// A number of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A number of things.
    Count(u64),
    /// A time.
    Seconds(Duration),
    /// A distribution of times.
    Histogram(Box<Buckets>),
}

/// A distribution of times, in buckets of which each ends at four times the end of the one before.
///
/// The first bucket ends at 1,024 ns, and the last one at 2^42 ns, which is about 73 minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    counts: [u64; BUCKET_COUNT],
    /// Times beyond the last bucket.
    longer: u64,
    sum: Duration,
}

impl Buckets {
    /// Merges the buckets of a histogram, which end at each power of two. No time is moved beyond the end of its bucket,
    /// because each end is the end of a bucket of the histogram.
    pub(super) fn of(histogram: &Histogram) -> Self {
        let mut buckets = Self::default();
        let ends: Vec<_> = Self::ends().collect();
        for (end, count) in histogram.buckets() {
            match ends.iter().position(|&coarse| end <= coarse) {
                Some(bucket) => buckets.counts[bucket] += count,
                None => buckets.longer += count,
            }
        }
        buckets.sum = histogram.sum();
        buckets
    }

    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.longer
    }

    /// Returns the sum of the times.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Iterates over all buckets, the shortest times first: the end of each, and the number of times that are not longer
    /// than that. Longer times than those of the last bucket are only part of [`count`](Self::count).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::watch::{PartKind, Registry, Value};
    ///
    /// # let pool = throng::BlockingPool::new();
    /// let registry = Registry::new();
    /// registry.watch("db", &pool);
    ///
    /// let snapshot = registry.snapshot();
    /// let db = snapshot.part(PartKind::BlockingPool, "db").expect("it is watched");
    /// if let Some(Value::Histogram(times)) = db.value("throng_blocking_run_seconds", "") {
    ///     for (end, count) in times.cumulative() {
    ///         println!("{count} of {} tasks took at most {end:?}", times.count());
    ///     }
    /// #     assert_eq!(times.cumulative().count(), throng::watch::BUCKETS.len());
    /// }
    /// # else { panic!() }
    /// ```
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let counts = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        Self::ends().zip(counts)
    }

    fn ends() -> impl Iterator<Item = Duration> {
        (0..BUCKET_COUNT).map(end)
    }

    /// Raises the counts to those that were read later. Returns the growth of each bucket that has grown, with its end in seconds.
    /// Longer times than those of the last bucket have an end beyond it.
    #[cfg(feature = "metrics")]
    pub(super) fn grow_to(&mut self, later: &Self) -> Vec<(f64, u64)> {
        let raise = |count: &mut u64, later: u64| {
            let growth = later.saturating_sub(*count);
            *count += growth;
            growth
        };
        let pairs = self.counts.iter_mut().zip(later.counts);
        let growth = pairs.map(|(count, later)| raise(count, later));
        let mut grown: Vec<_> = BUCKETS.into_iter().zip(growth).collect();
        grown.push((
            2.0 * BUCKETS[BUCKET_COUNT - 1],
            raise(&mut self.longer, later.longer),
        ));
        grown.retain(|(_, growth)| *growth > 0);
        grown
    }

    fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.longer += other.longer;
        self.sum = self.sum.saturating_add(other.sum);
    }
}

/// How the numbers of several parts with one name become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    Sum,
    Max,
}

impl Value {
    /// Adds a value of another part, or takes the larger of both.
    pub(super) fn merge(&mut self, other: &Self, how: Merge) {
        match (how, self, other) {
            (Merge::Sum, Self::Count(sum), Self::Count(n)) => *sum = sum.saturating_add(*n),
            (Merge::Sum, Self::Seconds(sum), Self::Seconds(time)) => {
                *sum = sum.saturating_add(*time);
            }
            (_, Self::Histogram(sum), Self::Histogram(other)) => sum.add(other),
            (Merge::Max, this, other) => this.raise_to(other),
            _ => debug_assert!(false, "the values of a family have one type"),
        }
    }

    /// Raises a number to another one, if that is larger. A distribution stays as it is: its numbers never fall.
    pub(super) fn raise_to(&mut self, other: &Self) {
        match (self, other) {
            (Self::Count(max), Self::Count(n)) => *max = (*max).max(*n),
            (Self::Seconds(max), Self::Seconds(time)) => *max = (*max).max(*time),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nanos: &[u64]) -> Buckets {
        let mut histogram = Histogram::default();
        for &nanos in nanos {
            histogram.record(Duration::from_nanos(nanos));
        }
        Buckets::of(&histogram)
    }

    #[test]
    fn a_time_is_counted_in_the_first_bucket_that_does_not_end_before_it() {
        let first = |nanos| {
            let buckets = of(&[nanos]);
            let mut ends = buckets.cumulative();
            ends.position(|(end, count)| end >= Duration::from_nanos(nanos) && count == 1)
        };
        for (nanos, bucket) in [
            (0, 0),
            (1_024, 0),
            (1_025, 1),
            (4_096, 1),
            (4_097, 2),
            (1 << 41, 16),
            (1 << 42, 16),
        ] {
            assert_eq!(first(nanos), Some(bucket), "{nanos} ns");
        }
        let longer = of(&[(1 << 42) + 1, u64::MAX]);
        assert!(longer.cumulative().all(|(_, count)| count == 0));
        assert_eq!(longer.count(), 2);
    }

    #[test]
    fn distributions_are_added_bucket_by_bucket() {
        let mut sum = Value::Histogram(Box::new(of(&[1, 5_000, u64::MAX])));
        sum.merge(&Value::Histogram(Box::new(of(&[2, 3]))), Merge::Sum);
        let Value::Histogram(sum) = sum else {
            unreachable!()
        };
        assert_eq!(*sum, of(&[1, 2, 3, 5_000, u64::MAX]));
        assert_eq!((sum.count(), sum.cumulative().next().unwrap().1), (5, 3));
    }

    #[test]
    fn numbers_are_added_or_compared() {
        let mut count = Value::Count(3);
        count.merge(&Value::Count(2), Merge::Sum);
        assert_eq!(count, Value::Count(5));
        count.merge(&Value::Count(2), Merge::Max);
        assert_eq!(count, Value::Count(5));
        count.merge(&Value::Count(u64::MAX), Merge::Sum);
        assert_eq!(count, Value::Count(u64::MAX));
        let mut time = Value::Seconds(Duration::from_secs(1));
        time.merge(&Value::Seconds(Duration::from_secs(2)), Merge::Max);
        assert_eq!(time, Value::Seconds(Duration::from_secs(2)));
    }
}
