//! The statements that a transaction sends together with its commit.

use tokio::try_join;

use super::deltas::Deltas;
use super::error::Fault;
use super::transaction::Transaction;
use super::{progress, totals};

impl Transaction {
    /// Prepares the statements, so that the server executes them before the commit.
    pub(super) async fn prepare_last(&self) -> Result<(), Fault> {
        Ok(self.prepare(&[progress::REMOVE, totals::ADD]).await?)
    }

    /// Writes what is written once per transaction. If this fails, the server answers the commit that follows as if it had succeeded, but
    /// rolls the transaction back.
    pub(super) async fn write_last(&self, deltas: Deltas) -> Result<(), Fault> {
        try_join!(biased; self.remove_progress_of_ended(), self.write_deltas(deltas))?;
        Ok(())
    }
}
