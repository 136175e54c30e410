//! An order as a workflow, and the shop on which its steps have effects.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::durable::{DurableTask, Run, TaskContext, TaskError};

/// An order of a customer. It is a task, which may run many times until it ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) customer: String,
    pub(crate) card: Card,
    pub(crate) address: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Card {
    Good,
    /// The bank refuses each payment.
    Blocked,
}

/// The end of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Shipped,
    /// The bank has refused the deposit.
    Declined,
    /// The rest was not paid in time.
    Unpaid,
    Cancelled,
    /// A parcel could not be delivered.
    Returned,
}

/// The signal that an order waits for. The first one counts, so an order that is paid cannot be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Answer {
    /// From the bank: the customer has paid the rest.
    Paid,
    /// From a clerk: the customer may pay later.
    Approved,
    /// From the customer.
    Cancelled,
}

/// The name of the signal.
pub(crate) const ANSWER: &str = "answer";

/// The number of days for which an order waits for an answer.
const MAX_DAYS: u32 = 3;

/// The number of parcels of an order.
pub(crate) const PARCELS: u32 = 3;

impl DurableTask for Order {
    const NAME: &'static str = "shop.order";
    type Output = Outcome;
}

// ===== The workflow =====

impl Run<Shop> for Order {
    /// Fulfils the order. If it cannot be fulfilled, the steps that were done are undone, the last one first.
    async fn run(self, cx: TaskContext<Shop>) -> Result<Outcome, TaskError> {
        let mut undo = Vec::new();
        // `?` ends the run with an error: that of a wait, after which the task runs again, or that of a failed step, which is tried again.
        let outcome = self.fulfil(&cx, &mut undo).await?;
        if outcome != Outcome::Shipped {
            let key = cx.idempotency_key();
            for name in undo.iter().rev() {
                cx.step(name, || cx.app().act(&key, name)).await?;
            }
        }
        Ok(outcome)
    }
}

impl Order {
    /// Does one step after the other, and adds the names of the steps that would undo them. Each run executes this from
    /// its first line. It gets the outputs of the steps that an earlier run completed, so all runs take the same path.
    async fn fulfil(
        &self,
        cx: &TaskContext<Shop>,
        undo: &mut Vec<String>,
    ) -> Result<Outcome, TaskError> {
        let (shop, key) = (cx.app(), cx.idempotency_key());

        cx.step("reserve", || shop.act(&key, "reserve")).await?;
        undo.push("restock".into());

        // A refusal is an output, not an error: it is stored, so the bank is not asked again.
        if !cx.step("charge", || shop.charge(&key, self.card)).await? {
            return Ok(Outcome::Declined);
        }
        undo.push("refund".into());

        // If there is no answer yet, the run ends here, and the order waits in the store. It holds neither a worker nor a permit.
        match cx.signal_within(ANSWER, MAX_DAYS * shop.day).await? {
            Some(Answer::Paid | Answer::Approved) => {}
            Some(Answer::Cancelled) => return Ok(Outcome::Cancelled),
            None => return Ok(Outcome::Unpaid),
        }

        // The parcels are tasks of their own, which any worker runs. Again, the order waits in the store.
        let parcels = (1..=PARCELS).map(|number| Parcel {
            number,
            order: key.clone(),
            // An empty address makes only the second parcel fail, so the others must be recalled.
            address: (number == 2).then(|| self.address.clone()),
        });
        let parcels = cx.spawn_all("parcel", parcels).await?;
        let shipped = cx.join(&parcels).await?;
        for (number, _) in (1..).zip(&shipped).filter(|(_, it)| it.is_ok()) {
            undo.push(format!("recall parcel {number}"));
        }
        match shipped.iter().all(Result::is_ok) {
            true => Ok(Outcome::Shipped),
            false => Ok(Outcome::Returned),
        }
    }
}

/// A parcel: a child of an order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Parcel {
    number: u32,
    order: String,
    address: Option<String>,
}

impl DurableTask for Parcel {
    const NAME: &'static str = "shop.parcel";
    type Output = ();
}

impl Run<Shop> for Parcel {
    async fn run(self, cx: TaskContext<Shop>) -> Result<(), TaskError> {
        if self.address.as_deref() == Some("") {
            return Err(TaskError::fatal("the parcel has no address"));
        }
        let name = format!("ship parcel {}", self.number);
        cx.step("ship", || cx.app().act(&self.order, &name)).await
    }
}

// ===== The shop =====

/// The application state, to which the tasks have access.
#[derive(Debug)]
pub(crate) struct Shop {
    /// A file to which each effect adds a line: the idempotency key of its order, and its name.
    pub(crate) effects: PathBuf,
    /// The length of a day, which is short in a demonstration.
    pub(crate) day: Duration,
}

impl Shop {
    /// Has an effect: adds a line to the file. A real service would use the key and the name to ignore a repetition.
    async fn act(&self, key: &str, name: &str) -> Result<(), TaskError> {
        let line = format!("{key} {name}\n");
        Ok(self.append(&line)?)
    }

    /// Charges a deposit. Returns `false` if the bank refuses.
    async fn charge(&self, key: &str, card: Card) -> Result<bool, TaskError> {
        match card {
            Card::Good => self.act(key, "charge").await.map(|()| true),
            Card::Blocked => Ok(false),
        }
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).open(&self.effects)?;
        file.write_all(line.as_bytes())
    }
}
