//! The command `throng`, with which operators show and change the durable tasks in a store. `README.md` shows its use.
//!
//! - [`args`] defines the command line, and [`cmd`] has one file for each command.
//! - [`store`] opens the store: read-only, unless the command changes something.
//! - [`out`] prints everything that commands find. It escapes texts from a store, which nobody can trust.
//! - [`serve`] is the server of the commands that others ask.
//! - [`failure`] determines the exit status.

mod args;
mod bulk;
mod cmd;
mod confirm;
mod duration;
mod failure;
mod out;
mod serve;
mod store;

use std::process::ExitCode;

use clap::Parser;

use self::args::Cli;
use self::failure::Failure;
use self::out::Output;

/// The threads that a store needs are its own, so this one is enough for the command.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = Output::new(&cli.output);
    match cmd::run(cli, &mut out).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            out.error(&failure.to_string());
            ExitCode::from(failure.code())
        }
    }
}
