//! [`Histogram`]: a distribution of durations.

use std::fmt;
use std::time::Duration;

/// One for each power of two of nanoseconds that fits into 64 bits, and one for longer durations.
const BUCKETS: usize = u64::BITS as usize + 1;

/// A distribution of durations: the number in each bucket, the sum and the maximum, at one moment.
///
/// The buckets are fixed. Each ends at a power of two of nanoseconds, which it includes: 1 ns, 2 ns, 4 ns, and so
/// on. Recording is one increment, there is nothing to configure, and two histograms can always be compared. A
/// quantile is exact within a factor of 2.
///
/// # Examples
///
/// ```
/// use throng::blocking::Histogram;
///
/// /// In the text format of Prometheus.
/// fn export(name: &str, histogram: &Histogram) -> String {
///     let mut text = String::new();
///     let mut cumulative = 0;
///     for (bound, count) in histogram.buckets() {
///         cumulative += count;
///         text += &format!("{name}_bucket{{le=\"{}\"}} {cumulative}\n", bound.as_secs_f64());
///     }
///     text += &format!("{name}_bucket{{le=\"+Inf\"}} {cumulative}\n");
///     text += &format!("{name}_sum {}\n", histogram.sum().as_secs_f64());
///     text + &format!("{name}_count {cumulative}\n")
/// }
/// let text = export("wait_seconds", &Histogram::default());
/// assert_eq!(text, "wait_seconds_bucket{le=\"+Inf\"} 0\nwait_seconds_sum 0\nwait_seconds_count 0\n");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum: Duration,
    max: Duration,
}

impl Histogram {
    /// The number of durations in the buckets.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of the durations in the buckets. Divided by [`count`](Self::count), it is their mean.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The longest duration. Zero if there is none.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// Returns an upper bound of the quantile `q`: the end of its bucket, which is less than twice the quantile
    /// itself. `None` if the histogram is empty.
    ///
    /// `quantile(0.5)` bounds the median.
    ///
    /// # Panics
    ///
    /// Panics if `q` is not between 0 and 1.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::BlockingPool;
    ///
    /// let metrics = BlockingPool::new().metrics();
    /// match metrics.run_time.quantile(0.99) {
    ///     Some(bound) => println!("99% of the tasks ran for at most {bound:?}"),
    ///     None => println!("no task was sampled"),
    /// }
    /// ```
    #[track_caller]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        assert!((0.0..=1.0).contains(&q), "{q} is not between 0 and 1");
        let count = self.count();
        let rank = (q * count as f64).ceil() as u64;
        // The quantile 0 is the first duration. Large counts are rounded as floats.
        let mut left = rank.clamp(1, count.max(1));
        for (bound, count) in self.buckets() {
            if left <= count {
                return Some(bound);
            }
            left -= count;
        }
        None
    }

    /// Iterates over the buckets that are not empty, shortest durations first: the end of each, and the number of
    /// durations in it.
    ///
    /// Durations of more than 2^63 ns, which is 292 years, are in a bucket that ends at [`Duration::MAX`].
    ///
    /// # Examples
    ///
    /// See [`Histogram`].
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = (Duration, u64)> {
        let buckets = self.counts.iter().enumerate();
        buckets
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| (bound(index), *count))
    }

    #[inline]
    pub(crate) fn record(&mut self, duration: Duration) {
        self.counts[index(duration)] += 1;
        self.sum = self.sum.saturating_add(duration);
        self.raise_max(duration);
    }

    /// Raises the maximum, without counting the duration.
    #[inline]
    pub(crate) fn raise_max(&mut self, duration: Duration) {
        self.max = self.max.max(duration);
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            sum: Duration::ZERO,
            max: Duration::ZERO,
        }
    }
}

/// Shows a summary.
impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Histogram");
        fields.field("count", &self.count());
        for (name, q) in [("p50", 0.5), ("p99", 0.99)] {
            if let Some(bound) = self.quantile(q) {
                fields.field(name, &bound);
            }
        }
        fields.field("max", &self.max).finish()
    }
}

/// The bucket of a duration: the first whose end is not below it.
#[inline]
fn index(duration: Duration) -> usize {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    (u64::BITS - nanos.saturating_sub(1).leading_zeros()) as usize
}

/// The end of a bucket.
fn bound(index: usize) -> Duration {
    let nanos = 1_u64.checked_shl(index as u32);
    nanos.map_or(Duration::MAX, Duration::from_nanos)
}

#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn of(durations: impl IntoIterator<Item = Duration>) -> Histogram {
        let mut histogram = Histogram::default();
        for duration in durations {
            histogram.record(duration);
        }
        histogram
    }

    fn nanos(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    /// The end of the last bucket that is not empty.
    fn max_bound(histogram: &Histogram) -> Option<Duration> {
        histogram.buckets().next_back().map(|(bound, _)| bound)
    }

    #[test]
    fn an_empty_histogram_has_neither_quantiles_nor_buckets() {
        let empty = Histogram::default();
        let zero = Duration::ZERO;
        assert_eq!((empty.count(), empty.sum(), empty.max()), (0, zero, zero));
        assert_eq!(empty.buckets().count(), 0);
        for q in [0.0, 0.5, 1.0] {
            assert_eq!(empty.quantile(q), None);
        }
        assert_eq!(format!("{empty:?}"), "Histogram { count: 0, max: 0ns }");
    }

    #[test]
    fn a_bucket_ends_at_a_power_of_two_and_includes_it() {
        let ends = [0, 1, 2, 3, 4, 5, 8, 9, 1_000, 1_024, 1_025]
            .map(|n| max_bound(&of([nanos(n)])).unwrap().as_nanos());
        assert_eq!(ends, [1, 1, 2, 4, 4, 8, 8, 16, 1_024, 1_024, 2_048]);
    }

    #[test]
    fn the_longest_durations_have_a_bucket() {
        let last = 1 << 63;
        for (duration, end) in [
            (nanos(last), nanos(last)),
            (nanos(last + 1), Duration::MAX),
            (nanos(u64::MAX), Duration::MAX),
            (nanos(u64::MAX) + nanos(1), Duration::MAX),
            (Duration::MAX, Duration::MAX),
        ] {
            let one = of([duration]);
            assert_eq!(max_bound(&one), Some(end));
            assert_eq!(one.quantile(0.0), Some(end));
        }
    }

    #[test]
    fn buckets_are_in_order_and_not_empty() {
        let histogram = of([5, 1_000, 6, 0].map(nanos));
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(nanos(1), 1), (nanos(8), 2), (nanos(1_024), 1)]);
    }

    #[test]
    fn its_debug_output_is_a_summary() {
        let histogram = of((0..100).map(|n| nanos(if n < 98 { 4 } else { 1_000 })));
        assert_eq!(
            format!("{histogram:?}"),
            "Histogram { count: 100, p50: 4ns, p99: 1.024\u{b5}s, max: 1\u{b5}s }"
        );
    }

    #[test]
    fn a_quantile_outside_of_0_to_1_panics() {
        for q in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let asked = std::panic::catch_unwind(|| of([nanos(1)]).quantile(q));
            assert!(asked.is_err(), "{q}");
        }
    }

    #[test]
    fn a_count_that_no_float_can_represent_has_quantiles() {
        let mut histogram = of([nanos(1)]);
        histogram.counts[3] = u64::MAX - 1;
        assert_eq!(histogram.count(), u64::MAX);
        assert_eq!(histogram.quantile(0.0), Some(nanos(1)));
        for q in [0.5, 1.0] {
            assert_eq!(histogram.quantile(q), Some(nanos(8)));
        }
    }

    /// Durations of all magnitudes.
    fn any_duration() -> impl Strategy<Value = Duration> {
        (any::<u64>(), 0..64_u32).prop_map(|(bits, shift)| nanos(bits >> shift))
    }

    fn cases() -> ProptestConfig {
        ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        }
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn it_agrees_with_a_sorted_list(
            mut list in vec(any_duration(), 1..200),
            q in 0.0..=1.0_f64,
        ) {
            let histogram = of(list.iter().copied());
            list.sort_unstable();
            prop_assert_eq!(histogram.count(), list.len() as u64);
            prop_assert_eq!(Some(&histogram.max()), list.last());
            let sum = list.iter().fold(Duration::ZERO, |sum, n| sum.saturating_add(*n));
            prop_assert_eq!(histogram.sum(), sum);

            let rank = (q * list.len() as f64).ceil() as usize;
            let exact = list[rank.max(1) - 1];
            let found = histogram.quantile(q).unwrap();
            prop_assert!(exact <= found, "{:?} is less than {:?}", found, exact);
            let before = if found == Duration::MAX { nanos(1 << 63) } else { found / 2 };
            prop_assert!(exact > before || found == nanos(1), "{:?} for {:?}", found, exact);
            prop_assert_eq!(histogram.quantile(1.0), max_bound(&histogram));

            let mut before = Duration::ZERO;
            for (bound, count) in histogram.buckets() {
                // At most the end of this bucket, and more than the end of the one before.
                let inside = list.partition_point(|n| *n <= bound)
                    - list.partition_point(|n| *n <= before && before > Duration::ZERO);
                prop_assert_eq!(count, inside as u64);
                before = bound;
            }
        }
    }
}
