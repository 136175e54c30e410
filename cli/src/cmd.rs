//! The commands, each in a file of its own.

pub(crate) mod dead;
pub(crate) mod doctor;
mod generate;
pub(crate) mod metrics;
mod named;
mod namespaces;
pub(crate) mod queue;
pub(crate) mod retention;
pub(crate) mod schedule;
pub(crate) mod spawn;
pub(crate) mod status;
pub(crate) mod task;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod types;
pub(crate) mod upgrade;
#[cfg(feature = "web")]
pub(crate) mod web;
pub(crate) mod worker;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::out::Output;
use crate::store::{Session, StoreArgs};

/// Runs a command.
pub(crate) async fn run(cli: Cli, out: &mut Output) -> Result<(), Failure> {
    let Cli { store, command, .. } = cli;
    match command {
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { folder } => generate::man(&folder),
        Command::Namespaces => namespaces::run(&store, out).await,
        Command::Doctor(args) => doctor::run(&store, args, out).await,
        #[cfg(feature = "web")]
        Command::Web(args) => web::run(&store, args).await,
        Command::Metrics(args) => metrics::run(&store, args).await,
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(&store, args).await,
        command => {
            let session = open(&store, &command).await?;
            let result = run_in(&session, command, out).await;
            session.close().await;
            result
        }
    }
}

/// Opens the store, read-only unless the command changes something.
async fn open(store: &StoreArgs, command: &Command) -> Result<Session, Failure> {
    let changes = match command {
        Command::Task(command) => command.changes(),
        Command::Dead(command) => command.changes(),
        Command::Queue(command) => command.changes(),
        Command::Schedule(command) => command.changes(),
        Command::Type(command) => command.changes(),
        Command::Retention(args) => args.changes(),
        Command::Upgrade(args) => args.changes(),
        Command::Spawn(_) => true,
        _ => false,
    };
    match changes {
        true => store.open().await,
        false => store.observe().await,
    }
}

/// Runs a command that uses one client.
async fn run_in(session: &Session, command: Command, out: &mut Output) -> Result<(), Failure> {
    match command {
        Command::Status(args) => status::run(session, args, out).await,
        Command::Task(command) => task::run(session, command, out).await,
        Command::Dead(command) => dead::run(session, command, out).await,
        Command::Queue(command) => queue::run(session, command, out).await,
        Command::Schedule(command) => schedule::run(session, command, out).await,
        Command::Worker(command) => worker::run(session, command, out).await,
        Command::Type(command) => types::run(session, command, out).await,
        Command::Retention(args) => retention::run(session, args, out).await,
        Command::Spawn(args) => spawn::run(session, args, out).await,
        Command::Upgrade(args) => upgrade::run(session, &args, out).await,
        _ => unreachable!("`run` handles the other commands"),
    }
}
