//! Release 2 of the application: version 2 of a bill, and a new name for a mail.

use std::error::Error;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use throng::durable::{DurableTask, Run, TaskContext, TaskError};

use crate::application::record;
use crate::first;

#[derive(Serialize, Deserialize)]
pub(crate) struct Bill {
    amount: u64,
    currency: String,
}

impl DurableTask for Bill {
    const NAME: &'static str = "bill";
    const VERSION: u8 = 2;
    type Output = String;

    fn migrate(_: u8, bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let first::Bill { cents } = serde_json::from_slice(bytes)?;
        Ok(Self {
            amount: cents,
            currency: "EUR".into(),
        })
    }
}

impl Run<PathBuf> for Bill {
    async fn run(self, cx: TaskContext<PathBuf>) -> Result<String, TaskError> {
        record("start", &cx)?;
        record("end", &cx)?;
        Ok(format!("{} {}", self.amount, self.currency))
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Letter {
    to: String,
}

impl DurableTask for Letter {
    const NAME: &'static str = "letter";
    const FORMER_NAMES: &'static [&'static str] = &["mail"];
    type Output = String;
}

impl Run<PathBuf> for Letter {
    async fn run(self, cx: TaskContext<PathBuf>) -> Result<String, TaskError> {
        record("start", &cx)?;
        record("end", &cx)?;
        Ok(format!("letter to {}", self.to))
    }
}

/// Returns a bill in another currency than that of a migrated one.
pub(crate) fn bill(amount: u64) -> Bill {
    Bill {
        amount,
        currency: "USD".into(),
    }
}

pub(crate) fn letter(to: String) -> Letter {
    Letter { to }
}
