//! [`Ledger`]: what the store says of all that was ever done with it.

use std::fmt;

use throng::durable::Counts;

use super::build::Built;

/// The store's counts of all tasks that it ever held.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ledger(pub(crate) Counts);

impl fmt::Display for Ledger {
    /// Writes the counts that are always relevant, and the others if they are not zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.0;
        write!(
            f,
            "stored {} claimed {} done {}",
            counts.stored, counts.claimed, counts.done
        )?;
        let rest = [
            ("crashed", counts.crashed),
            ("lost", counts.lost),
            ("retried", counts.retried),
            ("released", counts.released),
            ("died", counts.died),
            ("waiting", counts.waiting + counts.delayed + counts.running),
            ("dead", counts.dead),
        ];
        for (what, count) in rest.iter().filter(|(_, count)| *count > 0) {
            write!(f, " {what} {count}")?;
        }
        Ok(())
    }
}

impl Built {
    /// Describes what the index lacks because batches have failed.
    pub(crate) fn lack(&self) -> Option<String> {
        let Self {
            failed, batches, ..
        } = self;
        (*failed > 0).then(|| {
            format!("{failed} of {batches} batches have failed: run it again to try those again")
        })
    }
}

impl fmt::Display for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            batches, indexed, ..
        } = self;
        writeln!(f, "batches   {batches}, {indexed} of them indexed now")?;
        write!(f, "ledger    {}", self.ledger)
    }
}
