//! [`NamedArgs`]: the names of things that are paused or resumed.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use crate::failure::Failure;
use crate::out::Output;

#[derive(Args, Debug)]
pub(crate) struct NamedArgs {
    /// What to change: one or more names
    #[arg(required = true, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) names: Vec<String>,
}

impl NamedArgs {
    /// Changes the named things one by one, and reports each change. Stops at the first failure.
    pub(crate) async fn change(
        &self,
        kind: &str,
        verb: &str,
        out: &Output,
        change: impl AsyncFn(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for name in &self.names {
            change(name).await?;
            out.note(&format!("the {kind} {name} is {verb}"));
        }
        Ok(())
    }
}
