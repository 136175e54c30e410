//! `throng completions` and `throng man`: texts that are made from the definition of the command line.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Failure;

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "throng", &mut text);
    Ok(io::stdout().write_all(&text)?)
}

/// Writes a page for the command, and one for each command below it.
pub(crate) fn man(folder: &Path) -> Result<(), Failure> {
    clap_mangen::generate_to(Cli::command(), folder).map_err(|error| {
        Failure::Failed(format!(
            "the pages cannot be written to {}: {error}: name a folder that exists",
            folder.display()
        ))
    })
}
