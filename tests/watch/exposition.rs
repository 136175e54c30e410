//! A strict parser of the text format of Prometheus, version 0.0.4.
//!
//! It accepts less than Prometheus does: exactly one space between fields, each family once, with its help text, then its
//! type, and then at least one sample.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::str::{Chars, Split};

/// A name of a metric, and its labels.
pub(crate) type Series = (String, BTreeMap<String, String>);

/// The contents of a text.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    pub(crate) types: BTreeMap<String, String>,
    pub(crate) samples: BTreeMap<Series, f64>,
}

impl Exposition {
    /// Parses a text, and panics with the reason if it does not follow the format.
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.strip_suffix('\n').expect("the last line ends");
        let mut found = Self::default();
        // Not `lines`, which also ends a line at a carriage return.
        let mut lines = text.split('\n').peekable();
        while lines.peek().is_some() {
            found.family(&mut lines);
        }
        found.check_histograms();
        found
    }

    /// The value of a series, whose labels are given as `name="value"` pairs.
    pub(crate) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        self.samples.get(&(name.into(), labels.collect())).copied()
    }

    fn family(&mut self, lines: &mut Peekable<Split<'_, char>>) {
        let head = lines.next().expect("there is a line");
        let help = head
            .strip_prefix("# HELP ")
            .unwrap_or_else(|| panic!("no help: {head:?}"));
        let (name, help) = help.split_once(' ').expect("a help text");
        assert!(
            is_name(name) && !help.is_empty() && !help.contains('\\'),
            "{head:?}"
        );
        let kind = lines.next().expect("a type");
        let kind = kind.strip_prefix(&format!("# TYPE {name} "));
        let kind = kind.unwrap_or_else(|| panic!("no type of {name}"));
        assert!(
            ["gauge", "counter", "histogram"].contains(&kind),
            "{kind:?}"
        );
        let known = self.types.insert(name.into(), kind.into());
        assert!(known.is_none(), "{name} is there twice");
        let before = self.samples.len();
        while let Some(line) = lines.next_if(|line| !line.starts_with("# ")) {
            self.sample(name, kind, line);
        }
        assert!(self.samples.len() > before, "{name} has no sample");
    }

    fn sample(&mut self, family: &str, kind: &str, line: &str) {
        let end = line.find(['{', ' ']).expect("a value");
        let (name, rest) = line.split_at(end);
        let suffixes: &[&str] = match kind {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let suffix = name.strip_prefix(family);
        assert!(
            suffix.is_some_and(|it| suffixes.contains(&it)),
            "{line:?} in {family}"
        );
        let (labels, rest) = parse_labels(rest);
        assert_eq!(
            labels.contains_key("le"),
            name.ends_with("_bucket"),
            "{line:?}"
        );
        let value = rest
            .strip_prefix(' ')
            .unwrap_or_else(|| panic!("no space: {line:?}"));
        let number: f64 = value
            .parse()
            .unwrap_or_else(|_| panic!("no number: {line:?}"));
        assert!(
            number.is_finite() && number >= 0.0 && !value.contains(' '),
            "{line:?}"
        );
        let known = self.samples.insert((name.into(), labels), number);
        assert!(known.is_none(), "{line:?} is there twice");
    }

    /// The buckets of a histogram are cumulative, and the last one holds everything.
    fn check_histograms(&self) {
        let histograms = self.types.iter().filter(|(_, kind)| *kind == "histogram");
        for (family, _) in histograms {
            let mut parts = BTreeMap::<_, Vec<(f64, f64)>>::new();
            for ((name, labels), count) in &self.samples {
                if *name == format!("{family}_bucket") {
                    let mut labels = labels.clone();
                    let end = labels.remove("le").expect("a bucket has an end");
                    let end = end
                        .replace("+Inf", "inf")
                        .parse()
                        .expect("the end is a number");
                    parts.entry(labels).or_default().push((end, *count));
                }
            }
            for (labels, mut buckets) in parts {
                buckets.sort_by(|a, b| a.partial_cmp(b).expect("no end is NaN"));
                assert!(
                    buckets.is_sorted_by_key(|(_, count)| *count),
                    "{family}: {buckets:?}"
                );
                let (last, count) = buckets[buckets.len() - 1];
                assert!(last.is_infinite(), "{family} has no last bucket");
                let total = self
                    .samples
                    .get(&(format!("{family}_count"), labels.clone()));
                assert_eq!(total, Some(&count), "{family}");
                assert!(
                    self.samples
                        .contains_key(&(format!("{family}_sum"), labels)),
                    "{family}"
                );
            }
        }
    }

    /// The series of all counters, histograms included.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (&Series, f64)> {
        let gauges: BTreeSet<_> = self
            .types
            .iter()
            .filter(|(_, kind)| *kind == "gauge")
            .collect();
        let gauges: BTreeSet<_> = gauges.into_iter().map(|(name, _)| name.clone()).collect();
        let samples = self.samples.iter();
        let counters = samples.filter(move |((name, _), _)| !gauges.contains(name));
        counters.map(|(series, value)| (series, *value))
    }
}

fn parse_labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    let Some(inside) = text.strip_prefix('{') else {
        return (labels, text);
    };
    let mut rest = inside;
    loop {
        let (name, value) = rest
            .split_once("=\"")
            .expect("a label has a value in quotes");
        assert!(is_name(name) && !name.contains(':'), "{name:?} is no label");
        let mut chars = value.chars();
        let known = labels.insert(name.to_owned(), unescape(&mut chars));
        assert!(known.is_none(), "the label {name} is there twice");
        match chars.next() {
            Some(',') => rest = chars.as_str(),
            Some('}') => return (labels, chars.as_str()),
            other => panic!("{other:?} after a label"),
        }
    }
}

/// Reads the value of a label, up to its closing quote.
fn unescape(chars: &mut Chars<'_>) -> String {
    let mut value = String::new();
    loop {
        value.push(match chars.next().expect("a value ends with a quote") {
            '"' => return value,
            '\n' => panic!("a line break within a value"),
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some(char @ ('\\' | '"')) => char,
                other => panic!("{other:?} after a backslash"),
            },
            char => char,
        });
    }
}

fn is_name(name: &str) -> bool {
    let first = |char: char| char.is_ascii_alphabetic() || char == '_' || char == ':';
    name.starts_with(first)
        && name
            .chars()
            .all(|char| first(char) || char.is_ascii_digit())
}
