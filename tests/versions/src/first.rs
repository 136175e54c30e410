//! Release 1 of the application: version 1 of a bill, and a mail.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use throng::durable::{DurableTask, Run, TaskContext, TaskError};

use crate::application::record;

#[derive(Serialize, Deserialize)]
pub(crate) struct Bill {
    pub(crate) cents: u64,
}

impl DurableTask for Bill {
    const NAME: &'static str = "bill";
    type Output = String;
}

impl Run<PathBuf> for Bill {
    async fn run(self, cx: TaskContext<PathBuf>) -> Result<String, TaskError> {
        record("start", &cx)?;
        record("end", &cx)?;
        Ok(format!("{}", self.cents))
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Mail {
    to: String,
}

impl DurableTask for Mail {
    const NAME: &'static str = "mail";
    type Output = String;
}

impl Run<PathBuf> for Mail {
    async fn run(self, cx: TaskContext<PathBuf>) -> Result<String, TaskError> {
        record("start", &cx)?;
        record("end", &cx)?;
        Ok(format!("mail to {}", self.to))
    }
}

pub(crate) fn bill(cents: u64) -> Bill {
    Bill { cents }
}

pub(crate) fn mail(to: String) -> Mail {
    Mail { to }
}
