//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};
use std::time::Duration;

use super::family::Family;
use super::kind::PartKind;
use super::names::{BUILD_INFO, WATCH_SECONDS, families};
use super::snapshot::Snapshot;
use super::value::{Buckets, Value};

impl Snapshot {
    /// Returns the numbers in the text format of Prometheus, version 0.0.4. The media type is `text/plain; version=0.0.4`.
    ///
    /// # Examples
    ///
    /// ```
    /// let registry = throng::watch::Registry::new();
    /// registry.watch("sums", &throng::SerialExecutor::new(0));
    /// let text = registry.snapshot().prometheus();
    /// assert!(text.contains("# TYPE throng_build_info gauge\n"));
    /// ```
    pub fn prometheus(&self) -> String {
        let mut text = Text::default();
        let version = Labels(&[("version", env!("CARGO_PKG_VERSION"))]);
        text.head(&BUILD_INFO);
        text.line(BUILD_INFO.name, "", &version, 1);
        for &kind in PartKind::ALL {
            for (family, _) in families(kind) {
                self.write_family(kind, family, &mut text);
            }
        }
        text.head(&WATCH_SECONDS);
        text.line(WATCH_SECONDS.name, "", &Labels(&[]), Seconds(self.took));
        text.0
    }

    fn write_family(&self, kind: PartKind, family: &'static Family, text: &mut Text) {
        let mut is_first = true;
        for part in self.parts.iter().filter(|part| part.kind == kind) {
            let samples = part.samples.iter();
            for sample in samples.filter(|it| std::ptr::eq(it.family, family)) {
                if is_first {
                    text.head(family);
                }
                is_first = false;
                let name = (kind.label(), part.name.as_str());
                let item = sample.item().unwrap_or_default();
                let labels = [name, item, (family.label, sample.label_value)];
                text.value(family, &labels, &sample.value);
            }
        }
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, family: &Family) {
        let (name, kind) = (family.name, family.kind.name());
        self.write(format_args!(
            "# HELP {name} {}\n# TYPE {name} {kind}\n",
            family.help
        ));
    }

    fn value(&mut self, family: &Family, labels: &[(&str, &str); 3], value: &Value) {
        match value {
            Value::Count(count) => self.line(family.name, "", &Labels(labels), count),
            Value::Seconds(time) => self.line(family.name, "", &Labels(labels), Seconds(*time)),
            Value::Histogram(buckets) => self.histogram(family.name, labels, buckets),
        }
    }

    /// Writes the buckets. The name of the part and the item are the labels of a histogram.
    fn histogram(&mut self, name: &str, labels: &[(&str, &str); 3], buckets: &Buckets) {
        let [part, item, _] = *labels;
        for (end, count) in buckets.cumulative() {
            let end = end.as_secs_f64().to_string();
            let labels = Labels(&[part, item, ("le", &end)]);
            self.line(name, "_bucket", &labels, count);
        }
        let (count, labels) = (buckets.count(), Labels(&[part, item]));
        let all = Labels(&[part, item, ("le", "+Inf")]);
        self.line(name, "_bucket", &all, count);
        self.line(name, "_sum", &labels, Seconds(buckets.sum()));
        self.line(name, "_count", &labels, count);
    }

    fn line(&mut self, name: &str, suffix: &str, labels: &Labels<'_>, value: impl Display) {
        self.write(format_args!("{name}{suffix}{labels} {value}\n"));
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a string accepts all text");
    }
}

/// Names and values of labels. Those without a name are left out.
struct Labels<'a>(&'a [(&'a str, &'a str)]);

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let labels = self.0.iter().filter(|(name, _)| !name.is_empty());
        for (number, (name, value)) in labels.enumerate() {
            f.write_str(if number == 0 { "{" } else { "," })?;
            write!(f, "{name}=\"{}\"", Escaped(value))?;
        }
        match self.0 {
            [] => Ok(()),
            _ => f.write_str("}"),
        }
    }
}

/// The value of a label, with the escape sequences of the format.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for char in self.0.chars() {
            match char {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

struct Seconds(Duration);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_secs_f64().fmt(f)
    }
}
