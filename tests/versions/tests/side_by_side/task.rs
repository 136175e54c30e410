//! [`Task`]: a task that a producer has stored.

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) kind: String,
    pub(crate) id: String,
    /// The release of the application that has stored it.
    release: &'static str,
}

impl Task {
    /// Reads lines of the form `KIND ID`.
    pub(crate) fn read(text: &str, release: &'static str) -> Vec<Self> {
        let lines = text.lines();
        let lines = lines.map(|line| line.split_once(' ').expect("KIND ID"));
        let tasks = lines.map(|(kind, id)| Self {
            kind: kind.into(),
            id: id.into(),
            release,
        });
        tasks.collect()
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {}\n", self.kind, self.id)
    }

    /// Returns `true` if the task may have this output.
    pub(crate) fn may_return(&self, output: &str) -> bool {
        let kind = self.kind.split('-').next();
        let starts_with_one_of =
            |starts: &[&str]| starts.iter().any(|start| output.starts_with(start));
        match (kind.unwrap_or_default(), self.release) {
            // Only workers of release 2 can run these.
            ("bill", "2") => output.ends_with(" USD"),
            ("mail", "2") => output.starts_with("letter to "),
            ("bill", _) => output.ends_with(" EUR") || output.parse::<u64>().is_ok(),
            ("mail", _) => starts_with_one_of(&["mail to ", "letter to "]),
            // Each of these was stored once, by either release.
            ("keyed", _) => output.starts_with("10"),
            ("derived", _) => starts_with_one_of(&["mail to all-", "letter to all-"]),
            ("delayed", _) => starts_with_one_of(&["mail to ", "letter to ", "cancelled"]),
            ("fragile", _) => ["mended", "dead"].contains(&output),
            ("hold", _) => ["first", "second"].contains(&output),
            _ => false,
        }
    }
}
